"""Comparing a reply with reference texts."""
