"""The Markdown report."""
