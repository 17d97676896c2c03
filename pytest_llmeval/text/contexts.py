"""Contexts: the texts that were retrieved for a question, as data sets and programs write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress

from pytest_llmeval.text.wording import describe

__all__ = ["context_texts"]

_KEYS = ("text", "content", "page_content")
_EXPECTED = f"expected a text, or a mapping with a text under {', '.join(_KEYS[:-1])} or {_KEYS[-1]}"


def context_texts(value: object) -> tuple[str, ...]:
    """The texts, best first, of a list; one text alone is a list of one, and None an empty one.

    Of an entry that is a mapping it is the text under ``text``, ``content`` or ``page_content``. A text that is a list
    of these in JSON is that list: a CSV has no lists. ``ValueError`` says what is none.
    """
    if value is None:
        return ()
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):  # of JSON, or of what it holds: then it is a text
            return context_texts(_list_in(value))
    if not isinstance(value, list | tuple):
        return (_text(value, ""),)
    return tuple(_text(entry, f"entry {number} is ") for number, entry in enumerate(value, 1))


def _list_in(text: str) -> list[object]:
    found = json.loads(text)
    if not isinstance(found, list):
        raise ValueError
    return found


def _text(entry: object, where: str) -> str:
    if isinstance(entry, str):
        return str(entry)
    if isinstance(entry, Mapping):
        for key in _KEYS:
            if isinstance(text := entry.get(key), str):
                return str(text)
    raise ValueError(f"{where or 'found '}{describe(entry)}, {_EXPECTED}")
