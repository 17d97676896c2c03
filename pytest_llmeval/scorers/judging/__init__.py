"""Asking a judge: prompts, verdicts, panels, and what people said."""
