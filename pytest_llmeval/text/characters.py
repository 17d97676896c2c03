"""Letters and digits of other forms and scripts that mean what those of ASCII mean."""

from __future__ import annotations

import re
import unicodedata

import regex

__all__ = ["plain_characters", "unusable_character"]

_UNUSABLE = re.compile("[\x00\ud800-\udfff]")
_STYLED = regex.compile(r"[^\P{Nd}0-9]|[Ａ-Ｚａ-ｚ𝐀-𝚣]")


def plain_characters(text: str) -> str:
    """Return the text with ASCII digits for those of any script, and ASCII letters for full-width and mathematical
    ones.

    ``٣`` is 3, ``Ａ`` is A, ``𝐁`` is B. The number of characters stays as it was.
    """
    return text if text.isascii() else _STYLED.sub(_plain, text)


def _plain(found: regex.Match[str]) -> str:
    digit = unicodedata.decimal(found[0], None)
    return unicodedata.normalize("NFKC", found[0]) if digit is None else str(digit)


def unusable_character(text: str) -> str | None:
    """Return what a message says of a NUL or a lone surrogate in ``text``; None without one."""
    if text.isascii() and "\0" not in text:
        return None
    found = _UNUSABLE.search(text)
    if found is None:
        return None
    code = ord(found.group())
    name = "NUL" if code == 0 else "a lone surrogate"
    return f"found {name} (U+{code:04X}) at character {found.start() + 1}, expected text"
