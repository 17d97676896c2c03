"""``--llm-show-prompts``."""

from __future__ import annotations

import sys

import pytest

from pytest_llmeval.plugin.collection.sample_item import SampleItem
from pytest_llmeval.reporting.terminal.prompts import prompt_lines
from pytest_llmeval.text.escaping import without_commands

__all__ = ["show_prompts"]


def show_prompts(session: pytest.Session) -> None:
    """Print the prompt of every selected sample."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    unicode = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "").startswith("utf")
    marks = ("⟦", "⟧") if unicode else ("[[", "]]")
    for item in session.items:
        if isinstance(item, SampleItem) and terminal is not None:
            terminal.write_line("")
            terminal.write_line(item.nodeid, bold=True)
            for line in prompt_lines(item.question, marks=marks):
                terminal.write_line(without_commands(line))
