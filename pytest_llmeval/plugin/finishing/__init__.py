"""The end of a session: reports, gates, the exit code."""
