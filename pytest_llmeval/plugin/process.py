"""Which process of a session this is, and what its task is."""

from __future__ import annotations

import pytest

from pytest_llmeval.errors import OptionError
from pytest_llmeval.plugin.options import settings as options
from pytest_llmeval.plugin.options.settings import settings_key

__all__ = ["is_worker", "runs_tests", "wants_prompts"]


def wants_prompts(config: pytest.Config) -> bool:
    """Whether ``--llm-show-prompts`` was given; also before options are checked."""
    try:
        return bool(options.read_named(config, "show_prompts"))
    except OptionError:
        return False  # pytest_configure says what is wrong


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def runs_tests(config: pytest.Config) -> bool:
    """Whether tests are run, and not only looked at (``--collect-only``, ``--fixtures``, …)."""
    option = config.option
    looks = ("collectonly", "setuponly", "setupplan", "showfixtures", "show_fixtures_per_test")
    return not (any(getattr(option, name, False) for name in looks) or config.stash[settings_key].show_prompts)
