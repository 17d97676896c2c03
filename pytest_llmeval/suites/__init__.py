"""Suites: the YAML format, the data that it names, and the prompts made from both."""
