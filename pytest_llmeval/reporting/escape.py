"""Text of models and data made safe for a terminal."""

from __future__ import annotations

import re

__all__ = ["first_line", "printable"]

# C0 and C1 controls, line and paragraph separators, bidirectional overrides, lone surrogates: what can move the cursor,
# change colours, reorder what a reader sees, or fail to encode.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, *, keep: str = "") -> str:
    """``text`` with every character that a terminal would act on shown as an escape; those in ``keep`` stay."""
    return _UNSAFE.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), text)


def first_line(text: str, *, limit: int = 300) -> str:
    """The first line that is not blank, cut to ``limit`` characters."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _escape(character: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    code = ord(character)
    return named.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
