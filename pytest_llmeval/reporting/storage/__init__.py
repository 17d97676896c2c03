"""Reports on disk: the JSON of a report, the journal of a session that runs, and files that are written whole."""
