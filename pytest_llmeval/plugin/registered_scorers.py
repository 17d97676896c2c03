"""Scorers that conftest.py files and plugins register by the hook, and installed packages by entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.errors import OptionError
from pytest_llmeval.scorers import SCORERS
from pytest_llmeval.text.redaction import describe
from pytest_llmeval.text.wording import relative_path

__all__ = ["RegisteredScorers"]

_GROUP = "pytest_llmeval.scorers"
_HOOK = "pytest_llmeval_scorers"

_points_key = pytest.StashKey[EntryPoints]()


class RegisteredScorers(Mapping[str, Callable[..., Any]]):
    """Scorers that are registered from Python for the suite at ``node``, by name.

    One of a package is imported when it is looked up, and only then refused: a suite that does not use it runs. Raises
    ``OptionError`` for what cannot be used.
    """

    def __init__(self, node: pytest.Collector) -> None:
        self._given: dict[str, Callable[..., Any]] = {}
        hook = node.session.gethookproxy(node.path).pytest_llmeval_scorers
        for given in hook():
            if not isinstance(given, Mapping):
                raise OptionError(f"{_HOOK}: found a {type(given).__name__}, expected a mapping of names to scorers")
            for name, scorer in given.items():
                _check_name(name, _HOOK)
                _check_scorer(name, scorer, _HOOK)
                if self._given.setdefault(name, scorer) is not scorer:
                    places = " and ".join(_places(hook, name))
                    raise OptionError(f"{_HOOK}: two scorers are called {name!r}, in {places}; rename one of them")
        stash = node.config.stash
        if _points_key not in stash:
            stash[_points_key] = entry_points(group=_GROUP)
        self._points = stash[_points_key]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._given, *self._points.names)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:  # that of Mapping would import it
        return name in self._given or name in self._points.names

    def __getitem__(self, name: str) -> Callable[..., Any]:
        offered = {_HOOK: self._given[name]} if name in self._given else {}
        for point in self._points.select(name=name):
            package = f"the package {'(unknown)' if point.dist is None else point.dist.name}"
            _check_name(name, package)
            try:
                offered[package] = point.load()
            except Exception as error:
                where = f"{package}: the scorer {name!r} = {point.value}"
                raise OptionError(f"{where} cannot be loaded: {describe(error)}") from error
            _check_scorer(name, offered[package], package)
        if not offered:
            raise KeyError(name)
        (first, scorer), *others = sorted(offered.items())
        for other, found in others:
            if found is not scorer:
                raise OptionError(f"{first} and {other}: both have a scorer called {name!r}; rename or uninstall one")
        return scorer


def _places(hook: Any, name: str) -> Iterator[str]:
    """Yield the files, or the plugins, that register a scorer of this name."""
    for found in hook.get_hookimpls():
        if not (found.wrapper or found.hookwrapper) and name in found.function():
            file = getattr(found.plugin, "__file__", None)
            yield found.plugin_name if file is None else relative_path(Path(file))


def _check_name(name: str, origin: str) -> None:
    if name in SCORERS:
        raise OptionError(f"{origin}: {name!r} is a scorer of pytest-llmeval-suites; rename yours")


def _check_scorer(name: str, scorer: object, origin: str) -> None:
    if not callable(scorer):
        raise OptionError(f"{origin}: {name!r} is a {type(scorer).__name__}, expected a function or a class")
