"""Jinja2 templates in a sandbox."""
