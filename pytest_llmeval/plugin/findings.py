"""What was found out about models, between sessions and between the processes of one.

pytest's cache keeps it (``.pytest_cache``); as with what pytest keeps there itself, only the controller of pytest-xdist
reads and writes. A worker gets it with its input, and hands on what is new with its output.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from typing import Any

import pytest

from pytest_llmeval.models.findings import Findings
from pytest_llmeval.plugin.process import is_worker
from pytest_llmeval.plugin.xdist_messages import shared_folder

__all__ = ["findings_of", "share_findings", "take_findings"]

_CACHED = "llmeval/trees_that_are_right"
_INPUT = _OUTPUT = "llmeval_trees_that_are_right"
_MOST = 256
"""Keys that are kept: the newest."""
_KEY = re.compile("[0-9a-f]{64}")
"""A hash. What else a damaged file holds could perhaps not be written again."""

_findings_key = pytest.StashKey[Findings]()


def findings_of(config: pytest.Config) -> Findings:
    """Return the findings of this process."""
    if _findings_key not in config.stash:
        given: dict[str, object] | None = getattr(config, "workerinput", None)
        known = _read(config) if given is None else _keys(given.get(_INPUT))
        config.stash[_findings_key] = Findings(
            known, keep=lambda key: _keep(config, [key]), folder=shared_folder(config)
        )
    return config.stash[_findings_key]


def share_findings(config: pytest.Config, workerinput: dict[str, object]) -> None:
    """Give a worker what the controller knows, before it starts."""
    workerinput[_INPUT] = _read(config)


def take_findings(config: pytest.Config, workeroutput: dict[str, Any]) -> None:
    """Keep what a worker has found out."""
    if found := _keys(workeroutput.get(_OUTPUT)):
        _keep(config, found)


def _keep(config: pytest.Config, new: Iterable[str]) -> None:
    if is_worker(config):
        config.workeroutput.setdefault(_OUTPUT, []).extend(new)  # type: ignore[attr-defined]
        return
    cache: pytest.Cache | None = getattr(config, "cache", None)  # None under -p no:cacheprovider
    if cache is None:
        return
    known = _read(config)
    kept = list(dict.fromkeys([*known, *new]))[-_MOST:]
    if kept != known:
        with warnings.catch_warnings():  # pytest itself warns of a cache that cannot be written
            warnings.simplefilter("ignore")
            cache.set(_CACHED, kept)


def _read(config: pytest.Config) -> list[str]:
    cache: pytest.Cache | None = getattr(config, "cache", None)
    if cache is None:
        return []
    try:
        return _keys(cache.get(_CACHED, None))
    except RecursionError:  # the JSON of a damaged file may be nested deeply; of other damage pytest makes the default
        return []


def _keys(found: object) -> list[str]:
    """Return the newest keys in what was read, or in what a worker sent; a damaged value has none."""
    if not isinstance(found, list):
        return []
    return [key for key in found if isinstance(key, str) and _KEY.fullmatch(key)][-_MOST:]
