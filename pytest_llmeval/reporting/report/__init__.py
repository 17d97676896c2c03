"""The report as data: records, suites, gates, and the merging of shards."""
