"""Scorers that compare a reply with reference texts."""
