"""Traces: the steps by which an agent came to its reply, as programs give them and as a record keeps them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pytest_llmeval.text.redaction import HIDDEN, hides_value_of, redact
from pytest_llmeval.text.wording import describe
from pytest_llmeval.types import JSON, as_builtin

__all__ = ["MOST_CHARACTERS", "MOST_STEPS", "bounded_steps", "trace_steps"]

Steps: TypeAlias = tuple[JSON, ...]

MOST_STEPS = 100
MOST_CHARACTERS = 20_000
"""The most that a record keeps of a sample's traces. The characters are those of their JSON."""
_MOST_LEVELS = 20
_MOST_PARTS = 10_000
"""The most parts of a trace that are read: lists and mappings, and what stands in them."""
_LARGEST = 2**63


def trace_steps(value: object) -> Steps:
    """Return the steps of a list as JSON. A text or a mapping alone is one step, and None is no step.

    A value that JSON cannot hold (an object, NaN, bytes) becomes its text. An ellipsis stands for a list inside itself,
    for more than 20 levels, and for everything beyond 10,000 parts, so no step is an error. Secrets are hidden. Raise
    ``ValueError`` for a value that is no list of steps.
    """
    if value is None:
        return ()
    if isinstance(value, str | Mapping):
        value = [value]
    if not isinstance(value, list | tuple):
        raise ValueError(f"found {describe(as_builtin(value))}, expected a list of steps: texts or mappings")
    reader = _TraceReader()
    return tuple(reader.as_json(step) for step in value)


@dataclass(slots=True)
class _TraceReader:
    """Reads one trace.

    ``above`` are the ids of the lists and mappings that are being read; ``num_parts`` counts what was read.
    """

    above: list[int] = field(default_factory=list)
    num_parts: int = 0

    def as_json(self, value: object) -> JSON:
        plain = as_builtin(value)
        if not isinstance(plain, Mapping | list | tuple | set | frozenset):
            return self._single(plain)
        if id(plain) in self.above or len(self.above) >= _MOST_LEVELS or self.num_parts >= _MOST_PARTS:
            return "…"  # in itself, nested too deep, or too much to be read
        self.above.append(id(plain))
        try:
            if isinstance(plain, Mapping):
                return {
                    self._text(key): HIDDEN if isinstance(own, str) and hides_value_of(str(key)) else self.as_json(own)
                    for key, own in plain.items()
                    if self._has_room()
                }
            return [self.as_json(own) for own in plain if self._has_room()]
        finally:
            self.above.pop()

    def _has_room(self) -> bool:
        self.num_parts += 1
        return self.num_parts <= _MOST_PARTS

    def _single(self, value: object) -> JSON:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int) and abs(value) < _LARGEST:
            return int(value)
        if isinstance(value, float) and math.isfinite(value):
            return float(value)
        return self._text(value)

    def _text(self, value: object) -> str:
        try:
            return redact(str(value))
        except Exception:  # of the object's own __str__
            return f"a {type(value).__name__}"


def bounded_steps(steps: Sequence[JSON], characters: int = MOST_CHARACTERS) -> list[JSON]:
    """Return the steps as a record keeps them: at most 100, with at most ``characters`` of JSON.

    If there are more, the first and the last are kept, and a text between them says how many were left out. A step that
    is longer than a quarter of the characters becomes a text that is cut.
    """
    texts = [json.dumps(step) for step in steps]
    if len(steps) <= MOST_STEPS and sum(map(len, texts)) <= characters:
        return list(steps)
    longest = characters // 4
    kept = [_cut(step, text, longest) for step, text in zip(steps, texts, strict=True)]
    lengths = [len(json.dumps(step)) for step in kept]
    if len(steps) <= MOST_STEPS and sum(lengths) <= characters:
        return kept
    num_first = _fitting(lengths, characters // 2)
    num_last = _fitting(lengths[num_first:][::-1], characters // 2 - len(_left_out(len(steps))))
    last = kept[len(kept) - num_last :]
    return [*kept[:num_first], _left_out(len(steps) - num_first - num_last), *last]


def _left_out(count: int) -> str:
    return f"({count:,} steps left out)"


def _cut(step: JSON, text: str, limit: int) -> JSON:
    """Return the step, or a text without its middle if the step's JSON, ``text``, is longer than ``limit``."""
    if len(text) <= limit:
        return step
    whole = step if isinstance(step, str) else json.dumps(step, ensure_ascii=False)
    room = max(1, limit // 2 - 40)
    while True:
        cut = f"{whole[: room // 2]} ({len(whole) - room:,} characters left out) {whole[len(whole) - room // 2 :]}"
        if len(json.dumps(cut)) <= limit or room <= 1:
            return cut
        room //= 2  # of letters that JSON escapes


def _fitting(lengths: Sequence[int], characters: int) -> int:
    """Return how many of the first steps fit these characters, and fit half of the steps that are kept."""
    taken = count = 0
    for length in lengths[: MOST_STEPS // 2 - 1]:
        taken += length
        if taken > characters:
            break
        count += 1
    return count
