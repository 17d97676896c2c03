"""Scorers around another scorer: filters, epochs, several at once."""
