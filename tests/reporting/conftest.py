"""Suites of an earlier version are data of tests, and run nowhere."""

collect_ignore = ["schema2"]
