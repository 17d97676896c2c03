"""Reasoning that a model writes before its answer: told apart by the tags around it.

A block of reasoning goes from an opening tag to its closing one. An opening tag begins one where it stands at the start
of the reply or of a line, and elsewhere only if it is closed later on: else the text merely mentions it. A closing tag
that nothing has opened closes what the chat template opened: all before it is reasoning. Every search takes time in
proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

__all__ = [
    "DEFAULT_TAGS",
    "NAMED_TAGS",
    "Split",
    "Tags",
    "cut_behind_reasoning",
    "holds_tags",
    "opened_by",
    "split_reasoning",
]

Tags: TypeAlias = tuple[tuple[str, str], ...]
"""Pairs of an opening and a closing tag."""

NAMED_TAGS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "think": ("<think>", "</think>"),
        "thinking": ("<thinking>", "</thinking>"),
        "reasoning": ("<reasoning>", "</reasoning>"),
        "harmony": ("<|channel|>analysis", "<|channel|>final<|message|>"),
        "mistral": ("[THINK]", "[/THINK]"),
        "kimi": ("◁think▷", "◁/think▷"),
    }
)
"""Tags that models write, by the names under which a suite can choose them; ``harmony`` is gpt-oss's format."""
DEFAULT_TAGS: Tags = tuple(NAMED_TAGS.values())

_HARMONY_TURN = r"(?:<\|end\|>)?(?:(?:<\|start\|>)?assistant)?"
"""What stands between two messages of gpt-oss; decoding may have left out its special tokens."""
_HARMONY_TOKEN = re.compile(r"<\|(?:start|end|message|channel|constrain|call|return)\|>")
_INDENT = 100
"""Characters of white space that may stand between the start of a line and its tag."""


class Split(NamedTuple):
    """A reply without its reasoning. ``reasoning`` is None where there is none, and the empty text where a block of it
    is empty. ``is_unfinished``: the reply ended inside of its reasoning, and has no text.
    """

    text: str
    reasoning: str | None = None
    is_unfinished: bool = False


def split_reasoning(text: str, tags: Tags, opened: str = "") -> Split:
    """Return the text behind its reasoning, and that. ``opened`` is the tag that the prompt has opened, if any.

    A text without reasoning stays as it is. White space between reasoning and what follows is part of neither.
    """
    if not opened and not holds_tags(text, tags):
        return Split(text)
    parts = list(_parts(text, tags, opened))
    if not any(part.is_reasoning for part in parts):
        return Split(text)
    reasoning = "\n\n".join(stripped for part in parts if part.is_reasoning if (stripped := _bare(text, part)))
    answer = "".join(text[part.start : part.end] for part in parts if not part.is_reasoning)
    return Split(_without_end(answer.lstrip(), tags), reasoning, parts[-1].is_open)


def cut_behind_reasoning(text: str, stop: Collection[str], tags: Tags, opened: str = "") -> tuple[str, bool]:
    """Return the text up to its first stop string that stands outside of reasoning, and whether there was one.

    White space between reasoning and what follows stops nothing. Empty stop strings never stop.
    """
    strings = [string for string in stop if string and string in text]
    if not strings:
        return text, False
    if not opened and not holds_tags(text, tags):
        return text[: min(map(text.find, strings))], True
    is_behind = False
    for part in _parts(text, tags, opened):
        if part.is_reasoning:
            is_behind = True
            continue
        start = part.start
        if is_behind:
            start += len(text[start : part.end]) - len(text[start : part.end].lstrip())
        found = [place for string in strings if (place := text.find(string, start, part.end)) >= 0]
        if found:
            return text[: min(found)], True
    return text, False


def holds_tags(text: str, tags: Tags) -> bool:
    """Return whether one of the tags, opening or closing, stands anywhere in the text."""
    compiled = _of(tags)
    if not any(first in text for first in compiled.firsts):
        return False
    lowered = text.lower()
    return any(hint in lowered for hint in compiled.hints)


def opened_by(prompt: str, tags: Tags) -> str:
    """Return the opening tag with which a prompt ends, whatever white space follows it; the empty text for none."""
    end = prompt[-_MAX_TAG:].rstrip().lower().removesuffix("<|message|>")
    return next((begin for begin, _ in tags if end.endswith(begin.lower())), "")


_MAX_TAG = 300
"""Characters at the end of a prompt that are looked at."""


class _Part(NamedTuple):
    """A stretch of a text, without the tags around it. ``is_open``: reasoning that has no end."""

    start: int
    end: int
    is_reasoning: bool
    is_open: bool = False


class _Compiled(NamedTuple):
    """Tags to search for: ``pattern`` has a group for each opening tag and, of higher numbers, for each closing one.

    No tag is in a text that holds none of ``firsts``, or in lower case none of ``hints``.
    """

    pattern: re.Pattern[str]
    firsts: frozenset[str]
    hints: tuple[str, ...]


@lru_cache(maxsize=64)
def _of(tags: Tags) -> _Compiled:
    opening, closing = [begin for begin, _ in tags], [end for _, end in tags]
    harmony = NAMED_TAGS["harmony"]
    groups = [
        *(_pattern(tag, _HARMONY_TURN if tag == harmony[0] else "") for tag in opening),
        *(_pattern(tag, _HARMONY_TURN if tag == harmony[1] else "") for tag in closing),
    ]
    both = (*opening, *closing)
    return _Compiled(
        re.compile("|".join(f"({group})" for group in groups)),
        frozenset("" if tag[0].isalpha() else tag[0] for tag in both),
        tuple(dict.fromkeys(tag.lower() for tag in both)),
    )


def _pattern(tag: str, before: str) -> str:
    """A tag in angle brackets is written in any case."""
    own = re.escape(tag)
    return f"{before}(?i:{own})" if tag.startswith("<") else f"{before}{own}"


def _parts(text: str, tags: Tags, opened: str) -> Iterator[_Part]:
    """The stretches of a text in their order: reasoning, and what stands outside of it.

    Before a closing tag that nothing has opened all is reasoning, and so it is in a text that ends inside of reasoning.
    """
    found = [(match, (match.lastindex or 1) - 1) for match in _of(tags).pattern.finditer(text)]
    count = len(tags)
    last_closing = {number - count: match.start() for match, number in found if number >= count}
    parts: list[_Part] = []
    inside = next((number for number, (begin, _) in enumerate(tags) if begin == opened), None)
    start = num_before = 0
    for match, number in found:
        if inside is not None:
            if number == inside + count:
                parts.append(_Part(start, match.start(), is_reasoning=True))
                start, inside = match.end(), None
        elif number >= count:
            parts.append(_Part(start, match.start(), is_reasoning=True))
            start, num_before = match.end(), len(parts)
        elif last_closing.get(number, -1) > match.start() or _begins_line(text, start, match.start()):
            parts.append(_Part(start, match.start(), is_reasoning=False))
            start, inside = match.end(), number
    if inside is not None:
        parts.append(_Part(start, len(text), is_reasoning=True, is_open=True))
        num_before = len(parts)
    else:
        parts.append(_Part(start, len(text), is_reasoning=False))
    yield from (part._replace(is_reasoning=True) for part in parts[:num_before])
    yield from parts[num_before:]


def _begins_line(text: str, start: int, place: int) -> bool:
    """Whether nothing but white space stands between ``place`` and the start of its line, or ``start``."""
    before = text[max(start, place - _INDENT) : place].rpartition("\n")
    return not before[2].strip() and (bool(before[1]) or place - start <= _INDENT)


def _bare(text: str, part: _Part) -> str:
    """A stretch of reasoning without white space around it, and without what is left of gpt-oss's format."""
    found = text[part.start : part.end]
    if "<|" in found:
        found = _HARMONY_TOKEN.sub(" ", found)
    return found.strip()


def _without_end(answer: str, tags: Tags) -> str:
    """The answer without the special tokens with which gpt-oss ends it."""
    is_harmony = "<|" in answer and NAMED_TAGS["harmony"] in tags
    return re.sub(r"(?:<\|(?:end|return|call)\|>\s*)+\Z", "", answer) if is_harmony else answer
