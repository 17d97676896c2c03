"""Samples of a report as a reader sees them: text for a terminal, and Markdown."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping

from pytest_llmeval.reporting.escape import markdown_text, printable, shortened
from pytest_llmeval.reporting.records import Record
from pytest_llmeval.types import JSON

__all__ = ["as_text", "sample_lines", "sample_markdown"]

_MAX_CHARACTERS = 300
"""Of a text that is not asked for whole."""


def as_text(value: JSON) -> str:
    """A value of a record as text: text as it is, several texts with bars between, chat messages by role, else JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return " | ".join(map(str, value))
    if isinstance(value, list) and value and all(isinstance(item, dict) and "content" in item for item in value):
        return "\n".join(f"{item.get('role')}: {item.get('content')}" for item in value if isinstance(item, dict))
    return json.dumps(value, ensure_ascii=False)


def sample_lines(record: Record, *, whole: bool, prompt: bool) -> Iterator[str]:
    """The sample as lines of text, nothing in them that a terminal would act on; ``whole`` cuts no text."""
    yield printable(_head(record))
    for name, text in _fields(record, prompt=prompt):
        if whole:
            first, *others = printable(text, keep="\n").split("\n")
        else:
            first, others = printable(shortened(text, limit=_MAX_CHARACTERS)), []
        yield f"  {name}: {first}".rstrip()
        yield from (f"    {line}".rstrip() for line in others)


def sample_markdown(record: Record, *, whole: bool, prompt: bool) -> Iterator[str]:
    """The sample as lines of Markdown, its texts in fenced blocks that they cannot close."""
    yield f"### {markdown_text(_head(record))}"
    for name, text in _fields(record, prompt=prompt):
        shown = printable(text if whole else shortened(text, limit=_MAX_CHARACTERS), keep="\n")
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", shown)), default=0))
        yield from ("", f"**{name}**", "", fence, shown, fence)
    yield ""


def _head(record: Record) -> str:
    category = None if record.category is None else f"category {record.category}"
    where = ", ".join(text for text in (record.suite, record.model, category) if text)
    return f"{record.id} ({where}): {record.status}{', no answer' if record.no_answer else ''}"


def _fields(record: Record, *, prompt: bool) -> Iterator[tuple[str, str]]:
    """What there is to say of the sample, in the order in which it happened."""
    if record.question is not None:
        yield "question", record.question
    if prompt and record.prompt is not None:
        yield "prompt", as_text(record.prompt)
    if record.choices:
        yield "choices", as_text(list(record.choices))
    if record.output is not None:
        yield "output", record.output
    if record.answer is not None:
        yield "answer", record.answer
    if record.target is not None:
        yield "expected", as_text(record.target)
    if record.values:
        yield "scores", _numbers(record.values)
    if record.reason is not None:
        yield "reason", record.reason


def _numbers(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items() if not math.isnan(value))
