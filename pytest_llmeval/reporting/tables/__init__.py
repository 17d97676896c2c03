"""Rows and sentences of a report, which terminal, Markdown, HTML and GitHub draw."""
