"""Replies that are kept on disk, so that no request is sent twice: ``--llm-store``."""
