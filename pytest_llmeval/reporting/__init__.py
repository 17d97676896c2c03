"""Reporting: records, the session's report, and how both are shown."""
