"""Finds what changed between two reports in how the same questions are asked: settings by name, and a diff of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from difflib import unified_diff

from pytest_llmeval.reporting.report.records import SuiteInfo
from pytest_llmeval.types import JSON

__all__ = ["changed_settings", "prompt_diff", "with_hashed_prompts"]

_HASHED = "sha256:"

_PARTS = {"prompt": "the prompt", "fewshot": "the few-shot examples", "scorer": "filters"}
"""Parts of a fingerprint that may differ between two prompts for the same questions, and their names in messages."""


def changed_settings(before: SuiteInfo, after: SuiteInfo) -> list[str]:
    """Return the names of the settings that differ, such as ``prompt.template``; none if they agree.

    A report of an earlier version has only hashes of these settings: then the parts that differ are named.
    """
    then, now = _settings(before, after)
    changed = [key for key in dict.fromkeys((*then, *now)) if then.get(key) != now.get(key)]
    parts = [name for name in _PARTS if before.fingerprint_parts.get(name) != after.fingerprint_parts.get(name)]
    if not _has_settings(before):
        return [_PARTS[name] for name in parts]
    if "fewshot" in parts and not any(key.startswith("prompt.fewshot") for key in changed):
        changed.append(_PARTS["fewshot"])
    return changed


def prompt_diff(before: SuiteInfo, after: SuiteInfo) -> tuple[str, ...]:
    """Return a unified diff of the settings that decide how the questions are asked; empty if a report lacks them."""
    if not _has_settings(before):
        return ()
    then, now = (list(_lines(settings)) for settings in _settings(before, after))
    return tuple(unified_diff(then, now, fromfile="baseline", tofile="this run", lineterm=""))


def with_hashed_prompts(settings: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return settings of ``asked_with`` with hashes for the texts of prompts, for reports that are to hold none."""
    return {
        key: _hashed(value) if key.startswith("prompt.") and isinstance(value, str | list | dict) else value
        for key, value in settings.items()
    }


def _hashed(value: JSON) -> str:
    text = json.dumps(value)
    return f"{_HASHED}{hashlib.sha256(text.encode()).hexdigest()}"


def _settings(before: SuiteInfo, after: SuiteInfo) -> tuple[Mapping[str, JSON], Mapping[str, JSON]]:
    """Return the settings of both; a text of which one report has only the hash is a hash in both."""
    both = before.asked_with, after.asked_with
    is_hidden = any(isinstance(value, str) and value.startswith(_HASHED) for one in both for value in one.values())
    return (_with_hashes(both[0]), _with_hashes(both[1])) if is_hidden else both


def _with_hashes(settings: Mapping[str, JSON]) -> dict[str, JSON]:
    hashed = with_hashed_prompts(settings)
    return {
        key: value if isinstance(value, str) and value.startswith(_HASHED) else hashed[key]
        for key, value in settings.items()
    }


def _has_settings(info: SuiteInfo) -> bool:
    """Return whether the report has ``asked_with``: it came together with this part of the fingerprint."""
    return bool(info.asked_with) or "judging" in info.fingerprint_parts


def _lines(settings: Mapping[str, JSON]) -> Iterator[str]:
    """Yield the settings as in a suite's YAML, a text of several lines as a block."""
    for name, value in sorted(settings.items()):
        if isinstance(value, str) and "\n" in value:
            yield f"{name}: |"
            yield from (f"  {line}" for line in value.split("\n"))
        elif isinstance(value, list):
            yield f"{name}:"
            yield from (f"  - {json.dumps(one, ensure_ascii=False)}" for one in value)
        else:
            yield f"{name}: {json.dumps(value, ensure_ascii=False)}"
