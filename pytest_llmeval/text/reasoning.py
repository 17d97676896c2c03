"""Reasoning that a model writes before its answer: told apart by the tags around it.

A block of reasoning goes from an opening tag to its closing one. An opening tag begins one where it stands at the start
of the reply or of a line, and elsewhere only if it is closed later on: else the text merely mentions it. A closing tag
that nothing has opened closes what the chat template opened: all before it is reasoning. A tag in quoted code is a
mention, and so is a closing one in the midst of a sentence about it. Every search takes time in proportion to the text.
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
"""Matches the end of a message of gpt-oss and the start of the next, with or without some of its special tokens."""
_HARMONY_TOKEN = re.compile(r"<\|(?:start|end|message|channel|constrain|call|return)\|>")
_BARE_HARMONY = re.compile(r"\s*analysis(.*?)assistantfinal", re.DOTALL)
"""Matches a reply of gpt-oss from which a server has dropped all special tokens."""
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})([^`\n]*)$", re.MULTILINE)
_CODE_IN_LINE = re.compile(r"(?<!`)(`{1,3})(?!`)[^\n]*?(?<!`)\1(?!`)")
_CODE = "\0"
"""Stands for each character of quoted code."""
_BEFORE_MENTION = re.compile(
    r"(?P<quote>(?<![\w.!?])[\"'“‘«(])\Z"
    r"|\b(?i:the|an|its|with|by|of|and|or|after|before|until|without|(?:tag|token|marker)s?(?: is| are|:)?) +\Z"
)
_BEHIND_MENTION = re.compile(r"(?P<quote>[\"'”’»)])| +(?i:tag|token|marker)s?\b|[.,;:!?](?=[\s\"'”’»)]|\Z)")
_NEAR = 40
"""Characters on either side of a closing tag that tell whether the text only mentions it."""
_INDENT = 100
"""Characters of white space that may stand between the start of a line and its tag."""


class Split(NamedTuple):
    """A reply without its reasoning, which is None if it had none, and an empty text if the block was empty.

    ``is_unfinished``: the reply ended inside its reasoning, and has no text.
    """

    text: str
    reasoning: str | None = None
    is_unfinished: bool = False


def split_reasoning(text: str, tags: Tags, opened: str = "") -> Split:
    """Split a text into its reasoning and the rest. ``opened`` is the tag that the prompt has opened, if any.

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
    if compiled.has_harmony and _BARE_HARMONY.match(text) is not None:
        return True
    if not any(first in text for first in compiled.firsts):
        return False
    lowered = text.lower()
    return any(hint in lowered for hint in compiled.hints)


def opened_by(prompt: str, tags: Tags) -> str:
    """Return the opening tag with which a prompt ends, whatever white space follows it; the empty text for none."""
    end = prompt[-_MAX_TAG:].rstrip().lower().removesuffix("<|message|>")
    return next((begin for begin, _ in tags if end.endswith(begin.lower())), "")


_MAX_TAG = 300
"""Characters at the end of a prompt in which an opening tag is looked for."""


class _Stretch(NamedTuple):
    """A stretch of a text, without the tags around it. ``is_open``: reasoning that has no end."""

    start: int
    end: int
    is_reasoning: bool
    is_open: bool = False


class _Compiled(NamedTuple):
    """Tags to search for: ``pattern`` has a group for each opening tag and, of higher numbers, for each closing one.

    No tag is in a text that holds none of ``firsts``, or in lower case none of ``hints``. ``are_quotable``: none of
    them has the backticks with which code is quoted.
    """

    pattern: re.Pattern[str]
    firsts: frozenset[str]
    hints: tuple[str, ...]
    are_quotable: bool
    has_harmony: bool


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
        are_quotable=not any("`" in tag for tag in both),
        has_harmony=harmony in tags,
    )


def _pattern(tag: str, before: str) -> str:
    """Return the pattern of a tag; one in angle brackets may be written in any case."""
    own = re.escape(tag)
    return f"{before}(?i:{own})" if tag.startswith("<") else f"{before}{own}"


def _parts(text: str, tags: Tags, opened: str) -> Iterator[_Stretch]:
    """Yield the stretches of a text in their order: reasoning, and what stands outside of it.

    Before a closing tag that nothing has opened all is reasoning, and so it is in a text that ends inside of reasoning.
    """
    compiled = _of(tags)
    if not opened and compiled.has_harmony and (bare := _BARE_HARMONY.match(text)) is not None:
        yield _Stretch(*bare.span(1), is_reasoning=True)
        yield _Stretch(bare.end(), len(text), is_reasoning=False)
        return
    found = [(match, (match.lastindex or 1) - 1) for match in compiled.pattern.finditer(text)]
    with_code_hidden = _hide_code(text) if found and compiled.are_quotable else text
    count = len(tags)
    last_closing = {number - count: match.start() for match, number in found if number >= count}
    parts: list[_Stretch] = []
    inside = next((number for number, (begin, _) in enumerate(tags) if begin == opened), None)
    start = num_before = 0
    for match, number in found:
        is_code = with_code_hidden[match.start()] == _CODE
        if inside is not None:
            # Reasoning may leave code open, or be cut off in it: only a tag that is quoted by itself closes nothing.
            if number == inside + count and not (is_code and _stands_in_backticks(text, match)):
                parts.append(_Stretch(start, match.start(), is_reasoning=True))
                start, inside = match.end(), None
        elif is_code:
            continue
        elif number >= count:
            if not _is_mentioned(text, match):
                parts.append(_Stretch(start, match.start(), is_reasoning=True))
                start, num_before = match.end(), len(parts)
        elif last_closing.get(number, -1) > match.start() or _begins_line(text, start, match.start()):
            parts.append(_Stretch(start, match.start(), is_reasoning=False))
            start, inside = match.end(), number
    if inside is not None:
        parts.append(_Stretch(start, len(text), is_reasoning=True, is_open=True))
        num_before = len(parts)
    else:
        parts.append(_Stretch(start, len(text), is_reasoning=False))
    yield from (part._replace(is_reasoning=True) for part in parts[:num_before])
    yield from parts[num_before:]


def _hide_code(text: str) -> str:
    """Return the text with ``_CODE`` in the place of each character of a block of code, or of code within a line.

    A fence that names a language begins a block, whatever was open before it.
    """
    if "`" not in text and "~~~" not in text:
        return text
    pieces: list[str] = []
    start, begin = 0, None
    for fence in _FENCE.finditer(text):
        if begin is None or fence[1].strip():
            begin = fence.end()
        else:
            pieces += [text[start:begin], _CODE * (fence.start() - begin)]
            start, begin = fence.start(), None
    return _CODE_IN_LINE.sub(lambda code: _CODE * len(code[0]), "".join([*pieces, text[start:]]))


def _stands_in_backticks(text: str, match: re.Match[str]) -> bool:
    return text[match.start() - 1] == "`" == text[match.end() : match.end() + 1]


def _is_mentioned(text: str, match: re.Match[str]) -> bool:
    """Return whether the words around a closing tag, on its line, show that they speak of it."""
    if text[match.start()].isalpha():
        return False
    before = _BEFORE_MENTION.search(text[max(0, match.start() - _NEAR) : match.start()])
    behind = _BEHIND_MENTION.match(text[match.end() : match.end() + _NEAR])
    if behind is not None and behind["quote"] is None:
        return True
    if before is None:
        return False
    goes_on = bool(text[match.end() : match.end() + _NEAR].partition("\n")[0].strip())
    return goes_on if before["quote"] is None else behind is not None


def _begins_line(text: str, start: int, place: int) -> bool:
    """Return whether only white space stands between ``place`` and the start of its line, or ``start``."""
    before = text[max(start, place - _INDENT) : place].rpartition("\n")
    return not before[2].strip() and (bool(before[1]) or place - start <= _INDENT)


def _bare(text: str, part: _Stretch) -> str:
    """Return a stretch of reasoning without white space around it, and without what is left of gpt-oss's format."""
    found = text[part.start : part.end]
    if "<|" in found:
        found = _HARMONY_TOKEN.sub(" ", found)
    return found.strip()


def _without_end(answer: str, tags: Tags) -> str:
    """Return the answer without the special tokens with which gpt-oss ends it."""
    is_harmony = "<|" in answer and NAMED_TAGS["harmony"] in tags
    return re.sub(r"(?:<\|(?:end|return|call)\|>\s*)+\Z", "", answer) if is_harmony else answer
