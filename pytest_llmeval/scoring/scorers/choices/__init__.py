"""Scorers of questions with options."""
