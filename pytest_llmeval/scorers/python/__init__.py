"""Scorers that a user wrote in Python."""
