r"""Regular expressions in Python's syntax and with the meaning that ``re`` gives them, which can be stopped in time.

``re`` knows no time limit, and one hostile reply could hold up a session for years. The ``regex`` package has one. In
its version 0 it means to do as ``re`` does, and differs in what is translated here: its words hold combining marks and
join controls, so that ``\w`` and ``\b`` cut texts in Indian scripts elsewhere; its ``\s`` lacks U+001C to U+001F; it
reads ``{e<=1}`` after something as an approximate match and ``[:alpha:]`` in a set as a class of POSIX. What is left is
that the two can know different versions of Unicode.
"""

from __future__ import annotations

import re
import warnings
from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, TypeAlias

import regex

from pytest_llmeval.scoring.references import quote

__all__ = ["Place", "PythonRegex", "check_counts", "found_text"]

Place: TypeAlias = Literal["first", "last"] | int
_WORD = r"\p{L}\p{N}_"  # what str.isalnum() takes, and the underscore
_SPACE = r"\s\x1c-\x1f"

_OUTSIDE = {
    "w": f"[{_WORD}]",
    "W": f"[^{_WORD}]",
    "s": f"[{_SPACE}]",
    "S": f"[^{_SPACE}]",
    "b": f"(?:(?<=[{_WORD}])(?![{_WORD}])|(?<![{_WORD}])(?=[{_WORD}]))",
    # In an empty text re finds no place that is no boundary.
    "B": rf"(?:(?!\A\Z)(?:(?<=[{_WORD}])(?=[{_WORD}])|(?<![{_WORD}])(?![{_WORD}])))",
}

_IN_SET = {"w": _WORD, "s": _SPACE}
_COUNT = re.compile(r"\{([0-9]*)(?:(,)([0-9]*))?\}")
_PART_WITH_FLAGS = re.compile(r"\(\?[aiLmsux]*[ax][aiLmsux]*(?:-[imsx]+)?:")


@dataclass(frozen=True, slots=True)
class PythonRegex:
    """A pattern that finds what ``re`` finds. ``of`` makes it, and checks the pattern.

    ``timeout_s`` bounds one call of each method, which then raises ``TimeoutError``; ``MemoryError`` is possible too.
    """

    pattern: str
    ignore_case: bool
    timeout_s: float
    compiled: regex.Pattern[str] = field(compare=False, repr=False)

    @classmethod
    def of(cls, pattern: str, *, ignore_case: bool = False, timeout_s: float = 1.0) -> PythonRegex:
        """Make one of a pattern. Raise ``ValueError``, which says what is wrong with the pattern."""
        check_counts(pattern)
        flags = re.IGNORECASE if ignore_case else 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                parsed = re.compile(pattern, flags)
            except (re.error, OverflowError, ValueError) as error:
                raise ValueError(f"pattern {quote(pattern)} is not a regular expression: {error}") from None
            except (RecursionError, MemoryError) as error:
                raise ValueError(f"pattern {quote(pattern)} is too large to compile ({type(error).__name__})") from None
            # Under (?a) the classes are ASCII's in both packages.
            plain = parsed.flags & re.ASCII or _PART_WITH_FLAGS.search(pattern)
            translated = pattern if plain else _translated(pattern, verbose=bool(parsed.flags & re.VERBOSE))
            try:
                compiled = regex.compile(translated, regex.V0 | (regex.IGNORECASE if ignore_case else 0))
            except (regex.error, ValueError, OverflowError, RecursionError, MemoryError) as error:
                raise ValueError(f"pattern {quote(pattern)} cannot be used: {error or type(error).__name__}") from None
        return cls(pattern, ignore_case, timeout_s, compiled)

    def find(self, text: str, place: Place = "first") -> regex.Match[str] | None:
        """Return the match at ``place`` among all that do not overlap: the first, the last, or by its number as in a
        list.
        """
        matches = self.compiled.finditer(text, timeout=self.timeout_s)
        number = {"first": 0, "last": -1}.get(place, place) if isinstance(place, str) else place
        if not isinstance(number, int):
            raise ValueError(f"no place of a match: {place!r}")
        if number >= 0:
            return next(islice(matches, number, None), None)
        last = deque(matches, maxlen=-number)
        return last[0] if len(last) == -number else None

    def removed(self, text: str) -> str:
        left: str = self.compiled.sub("", text, timeout=self.timeout_s)
        return left


def found_text(match: regex.Match[str]) -> str | None:
    """Return what ``re.findall`` gives for a match, as lm-eval's filters read it.

    That is the whole match, or the text of its one group (empty where that took no part), or the first group that holds
    text; None where none does.
    """
    groups: tuple[str, ...] = match.groups("")
    if len(groups) > 1:
        return next((group for group in groups if group), None)
    whole: str = match[0]
    return groups[0] if groups else whole


def _translated(pattern: str, *, verbose: bool) -> str:
    """Return for ``regex`` a pattern that ``re`` has compiled; with ``verbose`` there are comments in it."""
    parts: list[str] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "\\":
            escaped = pattern[position + 1]
            parts.append(_OUTSIDE.get(escaped, character + escaped))
            position += 2
        elif pattern.startswith("(?#", position):
            position = pattern.index(")", position) + 1
        elif character == "#" and verbose:
            end = pattern.find("\n", position)
            position = len(pattern) if end < 0 else end
        elif character == "[":
            part, position = _set(pattern, position)
            parts.append(part)
        elif character == "{":
            part, position = _brace(pattern, position)
            parts.append(part)
        else:
            parts.append(character)
            position += 1
    return "".join(parts)


def _brace(pattern: str, position: int) -> tuple[str, int]:
    """Return the pattern of a count, or of a brace that means itself."""
    count = _COUNT.match(pattern, position)
    if count is None or not (count[1] or count[2]):
        return r"\{", position + 1
    return "{" + (count[1] or "0") + (count[2] or "") + (count[3] or "") + "}", count.end()


def _set(pattern: str, start: int) -> tuple[str, int]:
    """Return the set that begins at ``start``, and where it ends."""
    position = start + 1
    negated = pattern.startswith("^", position)
    position += negated
    members: list[str] = []
    others: list[str] = []  # what is in the set for not being of a class, which version 0 cannot write inside of it
    first = True
    while first or pattern[position] != "]":
        character = pattern[position]
        first = False
        if character == "\\":
            escaped = pattern[position + 1]
            if escaped in "WS":
                others.append(_OUTSIDE[escaped])
            else:
                members.append(_IN_SET.get(escaped, character + escaped))
            position += 2
        else:
            members.append(character if character not in "[]" else "\\" + character)
            position += 1
    end = position + 1
    inside = "".join(members)
    if not others:
        return f"[{'^' if negated else ''}{inside}]", end
    either = "|".join(others)
    if negated:
        return f"(?:(?!{either}){f'[^{inside}]' if inside else '(?s:.)'})", end
    return f"(?:{f'[{inside}]|' if inside else ''}{either})", end


_MAX_UNROLLED = 100_000
_COUNTED = regex.compile(r"\{([0-9]+)(?:,[0-9]*)?\}")


def check_counts(pattern: str) -> None:
    """Raise ``ValueError`` for a pattern that the compiler of ``regex`` would write out without end."""
    # The compiler writes counted repeats out: ((a{999}){999}){999} would take all memory before any time limit.
    if _unrolled_size(pattern) > _MAX_UNROLLED:
        raise ValueError(f"pattern {quote(pattern)} repeats more than {_MAX_UNROLLED} things by its counts in braces")


def _unrolled_size(pattern: str) -> int:
    """Return about how many things a pattern matches once its counted repeats are written out."""
    sizes, last, position = [0], 0, 0
    while position < len(pattern):
        character = pattern[position]
        count = _COUNTED.match(pattern, position)
        if count is not None:
            times = int(count[1]) if len(count[1]) < 10 else _MAX_UNROLLED + 1
            sizes[-1] += last * max(times - 1, 0)
            last *= max(times, 1)
            position = count.end()
            continue
        if character == "(":
            sizes.append(0)
            last = 0
        elif character == ")" and len(sizes) > 1:
            last = max(sizes.pop(), 1)
            sizes[-1] += last
        else:
            last = 1
            sizes[-1] += 1
            position = _end_of_atom(pattern, position) - 1
        position += 1
    return sum(sizes)


def _end_of_atom(pattern: str, position: int) -> int:
    """Return where an escaped character, a character class, or a plain character ends."""
    if pattern[position] == "\\":
        return position + 2
    if pattern[position] == "[":
        position += 2 if pattern.startswith("[^", position) else 1
        while position + 1 < len(pattern):
            position += 2 if pattern[position] == "\\" else 1
            if pattern[position : position + 1] == "]":
                break
    return position + 1
