"""Letters and digits of other forms and scripts that mean what those of ASCII mean."""

from __future__ import annotations

import unicodedata

import regex

__all__ = ["plain_characters"]

_STYLED = regex.compile(r"[^\P{Nd}0-9]|[Ａ-Ｚａ-ｚ𝐀-𝚣]")


def plain_characters(text: str) -> str:
    """The text with ASCII digits for those of any script, and ASCII letters for full-width and mathematical ones.

    ``٣`` is 3, ``Ａ`` is A, ``𝐁`` is B. The number of characters stays as it was.
    """
    return text if text.isascii() else _STYLED.sub(_plain, text)


def _plain(found: regex.Match[str]) -> str:
    digit = unicodedata.decimal(found[0], None)
    return unicodedata.normalize("NFKC", found[0]) if digit is None else str(digit)
