"""Texts for users: wording, escaping, redaction of secrets, names of models."""
