"""Scorers of the likelihood of a given text."""
