"""The phrases of messages: a value with its type, the nearest valid spelling, ages and sizes such as ``7d``."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pytest_llmeval.text.redaction import redact

__all__ = [
    "Keys",
    "WrittenAmount",
    "counted",
    "describe",
    "dotted",
    "expected_one_of",
    "nearest",
    "parse_age",
    "parse_size",
    "quoted",
    "relative_path",
    "size_text",
    "time_text",
]


Keys: TypeAlias = tuple[str | int, ...]
"""The place of a value in a YAML document: ``("samples", 3, "target")``."""

MAX_SHOWN = 60
MAX_LISTED = 24
_MAX_READ = 4_000


def quoted(text: str) -> str:
    """Return ``text`` in quotes, on one line, cut after 60 characters, everything unprintable escaped.

    A text that is cut has its secrets removed first, since half of a secret would not be recognised.
    """
    if len(text) > MAX_SHOWN:
        text = redact(text[:_MAX_READ])
    return repr(text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…")


def describe(value: object) -> str:
    """Return the value with its type in the words of YAML: ``5 (a whole number)``."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"{str(value).lower()} (a bool)"
    if isinstance(value, int):
        shown = str(value) if abs(value) < 10**20 else f"a number of {value.bit_length()} bits"
        return f"{shown} (a whole number)"
    if isinstance(value, float):
        return f"{value} (a number)"
    if isinstance(value, str):
        return f"{quoted(value)} (text)"
    if isinstance(value, Sequence):
        return "an empty list" if not value else f"a list of {len(value)}"
    if isinstance(value, dict):
        keys = ", ".join(quoted(str(key)) for key in list(value)[:3])
        return "an empty mapping" if not value else f"a mapping with the keys {keys}{', …' if len(value) > 3 else ''}"
    return getattr(value, "described", None) or f"a {type(value).__name__}"


def counted(number: int, noun: str) -> str:
    """Return ``1 sample`` or ``1,200 samples``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def dotted(keys: Keys) -> str:
    """Return ``("samples", 3, "target")`` as ``samples.3.target``."""
    return ".".join(str(key) for key in keys)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that ``word`` was most likely meant to be, or None if none is near."""
    words = list(known)
    found = difflib.get_close_matches(word, words, n=1, cutoff=0.7)
    if not found:
        folded = {candidate.casefold(): candidate for candidate in words}
        found = [folded[near] for near in difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.7)]
    return found[0] if found else None


def expected_one_of(word: str, known: Iterable[str]) -> str:
    """Return the end of a message on an unknown word: ``; did you mean 'count'?``, else the words to choose from."""
    words = list(known)
    near = nearest(word, words)
    if near is not None:
        return f"; did you mean {quoted(near)}?"
    if not words:
        return "; expected none"
    listed = ", ".join(words[:MAX_LISTED])
    return f"; expected one of {listed}{', …' if len(words) > MAX_LISTED else ''}"


def relative_path(path: Path) -> str:
    """Return the path as a user at the current directory would write it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BYTES = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True, slots=True)
class WrittenAmount:
    """A number of seconds or bytes, and the text that the user wrote."""

    value: int
    text: str

    def __str__(self) -> str:
        return self.text


def parse_age(text: str) -> WrittenAmount:
    """Read ``90s``, ``30m``, ``12h``, ``7d`` or ``2w`` in seconds. Raise ``ValueError`` with what is expected."""
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip())
    if found is None or not int(found[1]):
        raise ValueError("expected a number with a unit of time, such as 12h or 7d (s, m, h, d, w)")
    return WrittenAmount(int(found[1]) * _SECONDS[found[2]], text.strip())


def parse_size(text: str) -> WrittenAmount:
    """Read ``500MB`` or ``2GB`` in bytes. Raise ``ValueError`` with what is expected."""
    found = re.fullmatch(r"([0-9]{1,6}) ?([KMGT]B)", text.strip().upper())
    if found is None:
        raise ValueError("expected a number with a unit, such as 500MB (KB, MB, GB, TB)")
    return WrittenAmount(int(found[1]) * _BYTES[found[2]], text.strip())


def size_text(num_bytes: int) -> str:
    """Return a size such as ``12 B`` or ``3.4 MB``."""
    for unit, size in reversed(_BYTES.items()):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes} B"


def time_text(seconds: float) -> str:
    """Return a time in two units at most: ``12 s``, ``3 min 20 s``, ``2 h 05 min``, ``4 d 02 h``."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min {rest:02} s"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours:02} h" if days else f"{hours} h {minutes:02} min"
