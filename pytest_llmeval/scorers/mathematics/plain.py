r"""Answers that are no mathematics, compared as texts: words, and times of day."""

from __future__ import annotations

import re

__all__ = ["same_time", "same_words"]

_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|textit|textrm|mbox|mathrm|mathbf|operatorname)\s*\{([^{}]*)\}")


_WORD = re.compile(r"(?<![\\A-Za-z])(?:[A-Za-z]{2,}|[AaPp]\.?\s?[Mm]\b)")


_TIME = re.compile(r"(?:at)?(\d{1,2})(?::(\d{2}))?(?:([ap])\.?m\.?)?")


_SPACES = re.compile(r"\\(?:left|right|q?quad)(?![A-Za-z])|\\[!,;: ]|[\s~$]")


def same_words(one: str, other: str) -> bool:
    r"""Return whether two answers, one of them words, are one text but for ``\text``, spaces, case and a full stop.

    Words are what holds a word of letters, in ``\text`` or without: ``4:30 \text{ p.m.}``, ``Monday.``
    """
    first, second = _unwrapped(one), _unwrapped(other)
    if not (_WORD.search(first) or _WORD.search(second)):
        return False
    return _bare(first) == _bare(second) != ""


def same_time(one: str, other: str) -> bool | None:
    """Return whether two times of day are the same, ``4:30 p.m.`` and ``16:30``; None where none says so by a.m. or
    p.m.

    Math-Verify takes 4:30 for 4/30 of a unit. Where one does not say a.m. or p.m., it may be either.
    """
    found = [_TIME.fullmatch(_SPACES.sub("", _unwrapped(text)).casefold()) for text in (one, other)]
    if found[0] is None or found[1] is None or not any(match[3] for match in found if match is not None):
        return None
    return not _clocks(found[0]).isdisjoint(_clocks(found[1]))


def _clocks(found: re.Match[str]) -> frozenset[tuple[int, int]]:
    """Return the hours and minutes of a day that a time can mean."""
    hour, minute = int(found[1]), int(found[2] or 0)
    if found[3]:
        return frozenset(((hour % 12 + 12 * (found[3] == "p"), minute),))
    return frozenset((each, minute) for each in ((hour, (hour + 12) % 24) if hour <= 12 else (hour,)))


def _unwrapped(text: str) -> str:
    return _TEXT_COMMAND.sub(r" \1 ", text)


def _bare(text: str) -> str:
    return _SPACES.sub("", text).rstrip(".").casefold()
