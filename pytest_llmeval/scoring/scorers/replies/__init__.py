"""Scorers that read a generated reply."""
