"""Contexts: the texts that were retrieved for a question, as data sets and programs write them."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_llmeval.text.wording import describe
from pytest_llmeval.text.written import written_value

__all__ = ["context_texts"]

_KEYS = ("text", "content", "page_content")
_EXPECTED = f"expected a text, or a mapping with a text under {', '.join(_KEYS[:-1])} or {_KEYS[-1]}"


def context_texts(value: object) -> tuple[str, ...]:
    """Return the texts, best first, of a list; one text alone is a list of one, and None an empty one.

    Of an entry that is a mapping it is the text under ``text``, ``content`` or ``page_content``. A text that is a list
    of these, as a CSV has it (``written_value``), is that list. ``ValueError`` says what is none.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        listed = written_value(value) if value.lstrip().startswith("[") else None
        is_text = not isinstance(listed, list) or (listed and all(isinstance(entry, int | float) for entry in listed))
        return (value,) if is_text else context_texts(listed)  # "[1]" is a text
    if not isinstance(value, list | tuple):
        return (_text(value, ""),)
    return tuple(_text(entry, f"entry {number} is ") for number, entry in enumerate(value, 1))


def _text(entry: object, where: str) -> str:
    if isinstance(entry, str):
        return str(entry)
    if isinstance(entry, Mapping):
        for key in _KEYS:
            if isinstance(text := entry.get(key), str):
                return str(text)
    raise ValueError(f"{where or 'found '}{describe(entry)}, {_EXPECTED}")
