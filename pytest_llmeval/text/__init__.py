"""Texts for people: wording, escaping, redaction of secrets, names of models."""
