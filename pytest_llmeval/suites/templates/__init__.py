"""Jinja2 templates, sandboxed and metered."""
