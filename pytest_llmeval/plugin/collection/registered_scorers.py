"""Scorers that conftest.py files and installed packages register."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest

from pytest_llmeval.errors import OptionError
from pytest_llmeval.suites.format.score_settings import SCORERS

__all__ = ["registered_scorers"]

_SCORERS_GROUP = "pytest_llmeval.scorers"

_installed_scorers_key = pytest.StashKey[dict[str, Callable[..., Any]]]()


def _installed_scorers() -> dict[str, Callable[..., Any]]:
    found = {}
    for point in metadata.entry_points(group=_SCORERS_GROUP):
        try:
            found[point.name] = point.load()
        except Exception as error:
            where = f"the entry point {point.name} = {point.value} of the group {_SCORERS_GROUP}"
            raise OptionError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from None
    return found


def registered_scorers(node: pytest.Collector) -> dict[str, Callable[..., Any]]:
    """Scorers that are registered from Python for the suite at ``node``. Raises ``OptionError`` for a name given twice.

    From entry points, and from the hook of plugins and of each conftest.py above the suite.
    """
    config = node.config
    if _installed_scorers_key not in config.stash:
        config.stash[_installed_scorers_key] = _installed_scorers()
    installed: dict[str, Callable[..., Any]] = config.stash[_installed_scorers_key]
    found = dict(installed)
    for given in node.session.gethookproxy(node.path).pytest_llmeval_scorers():
        for name, scorer in given.items():
            if found.setdefault(name, scorer) is not scorer:
                raise OptionError(f"pytest_llmeval_scorers: two scorers are called {name!r}; rename one of them")
    for name, scorer in found.items():
        if name in SCORERS:
            raise OptionError(f"pytest_llmeval_scorers: {name!r} is a scorer of pytest-llmeval-suites; rename yours")
        if not callable(scorer):
            raise OptionError(
                f"pytest_llmeval_scorers: {name!r} is a {type(scorer).__name__}, expected a function or a class"
            )
    return found
