"""Keys of a suite that are changed before it is validated: for one run by ``--llm-set``, or in a variant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_llmeval.data.files import Source
from pytest_llmeval.data.yaml_reader import parse_yaml
from pytest_llmeval.errors import OptionError, SuiteError
from pytest_llmeval.text.wording import Keys, describe, dotted, expected_one_of, quoted
from pytest_llmeval.types import JSON

__all__ = ["Override", "OverrideError", "apply_overrides", "keys_of_text", "parse_override", "why_not_set"]

_FORM = re.compile(r"(?P<suite>\S.*?)\s*:\s*(?P<keys>\w[\w.-]*)\s*=(?P<value>.*)", re.DOTALL)
_EXAMPLE = "expected 'SUITE: KEY=VALUE', such as 'mmlu: prompt.fewshot.count=5' or '*: generate.max_tokens=64'"


@dataclass(frozen=True, slots=True)
class Override:
    """A value that takes the place of the one that ``suite`` (``*``: every suite) has at ``keys``.

    ``text`` is what the user wrote. ``option`` is where it was written: in one of the command line, or at the keys
    ``at`` of the suite itself.
    """

    suite: str
    keys: Keys
    value: JSON
    text: str
    option: str = "--llm-set"
    at: Keys | None = None

    @property
    def where(self) -> str:
        """Return how messages name it."""
        return f"{self.option} {quoted(self.text)}" if self.at is None else self.text

    def matches(self, suite: str) -> bool:
        """Tell whether it changes the suite of this name."""
        return self.suite in ("*", suite)

    def error(self, problem: str) -> OverrideError:
        """Return what is raised for a suite that it does not fit."""
        return OverrideError(f"{self.where}: {problem}", self.at)


class OverrideError(Exception):
    """An override that does not fit the suite that it names. The message names the override.

    ``at`` are the keys of the suite at which it was written, None if it was not.
    """

    def __init__(self, message: str, at: Keys | None) -> None:
        super().__init__(message)
        self.at = at


def parse_override(text: str, option: str = "--llm-set", example: str = _EXAMPLE) -> Override:
    """Return the override that ``SUITE: KEY.KEY=VALUE`` asks for, with the value in YAML. Raises ``OptionError``."""

    def refusal(problem: str) -> OptionError:
        return OptionError(f"{option} {quoted(text)}: {problem}")

    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise refusal(example)
    try:
        keys = keys_of_text(found["keys"])
    except ValueError as error:
        raise refusal(f"{error}; {example}") from None
    if not found["value"].strip():
        raise refusal("the value is missing; write '' for an empty text, null for nothing")
    if (problem := why_not_set(keys)) is not None:
        raise refusal(problem)
    try:
        value = parse_yaml(found["value"].strip(), Source(Path(), option)).value
    except SuiteError as error:
        raise refusal(f"the value {error.message}; put a text with ':', '{{' or '#' in quotes") from None
    return Override(found["suite"], keys, value, text, option)


def keys_of_text(text: str) -> Keys:
    """Return the keys that ``prompt.fewshot.count`` names. Raises ``ValueError`` for an empty one."""
    parts = text.split(".")
    if "" in parts:
        raise ValueError(f"found an empty key in {quoted(text)}")
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def why_not_set(keys: Keys) -> str | None:
    """Return why the value at these keys cannot be changed; None if it can."""
    if keys[0] == "suite":
        return "the name of a suite cannot be set"
    if keys[0] == "variants":
        return "variants cannot be set; add one with --llm-variant 'SUITE: NAME: KEY=VALUE'"
    return None


def apply_overrides(value: dict[str, JSON], overrides: Iterable[Override]) -> dict[str, JSON]:
    """Return a copy of the suite's YAML value with the overrides in it, the last of two for one key winning.

    Missing mappings are made; ``score: letter`` becomes a mapping where a setting of it is set. Raises
    ``OverrideError``.
    """
    changed = {key: _unshared(part) for key, part in value.items()}
    for override in overrides:
        _set(changed, override)
    return changed


def _unshared(value: JSON) -> JSON:
    """Return a copy in which no two places are one object, as two aliases of one anchor are."""
    if isinstance(value, dict):
        return {key: _unshared(part) for key, part in value.items()}
    return [_unshared(part) for part in value] if isinstance(value, list) else value


def _set(root: dict[str, JSON], override: Override) -> None:
    inside: JSON = root
    for depth, key in enumerate(override.keys):
        above = override.keys[:depth]
        last = depth == len(override.keys) - 1
        if isinstance(inside, list):
            if not isinstance(key, int) or key >= len(inside):
                raise override.error(
                    f"{dotted(above)} is a list of {len(inside)}, expected the number of an entry, counted from 0, "
                    f"found {key}"
                )
            if last:
                inside[key] = _unshared(override.value)
            else:
                inside = inside[key]
        elif isinstance(inside, dict):
            name = str(key)
            if last:
                inside[name] = _unshared(override.value)
                return
            below = inside.get(name)
            if below is None:
                below = inside[name] = {}
            elif (*above, name) == ("score",):
                below = inside[name] = _named_scorer(below, override)
            inside = below
        else:
            raise override.error(f"{dotted(above)} is {describe(inside)}, which has no key {quoted(str(key))}")


def _named_scorer(score: JSON, override: Override) -> JSON:
    """Return ``letter`` as ``{letter: {}}``, so that a setting of it can be set."""
    scorer = override.keys[1]
    named: JSON = {score: {}} if isinstance(score, str) else score
    if isinstance(named, dict) and scorer not in named:
        raise override.error(f"the suite's scorer is {', '.join(named)}{expected_one_of(str(scorer), named)}")
    return named
