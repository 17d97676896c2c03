"""Reports on disk: JSON, the journal of a session that runs, and their recount."""
