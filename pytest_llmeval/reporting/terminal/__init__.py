"""Writes to a terminal: the summary in colours, the live line, prompts."""
