"""Scorers that are a user's own Python code."""
