"""Reads what a search found, as programs and data sets write it: documents' ids, their texts (contexts), and lists
that are written as text.
"""

from __future__ import annotations

import ast
import io
import json
import tokenize
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import pairwise

from pytest_llmeval.text.wording import describe, quoted
from pytest_llmeval.types import finite_number

__all__ = ["Documents", "context_texts", "found_documents", "written_value"]


_BEGINNINGS = ("['", '["', "[{", "{'", '{"')
_PYTHON_ERRORS = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)


def written_value(text: str) -> list[object] | dict[object, object] | None:
    """Return the list or mapping that a text is in JSON, or as Python shows it; None for any other text.

    Raise ``ValueError`` for a text that begins and ends like a list or mapping of texts and is none, and for a list
    without commas, as numpy shows it: Python would read ``['a' 'b']`` as one text.
    """
    text = text.strip()
    if text[:1] + text[-1:] not in ("[]", "{}"):
        return None
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        return found if isinstance(found, list | dict) else None
    if not text.startswith(_BEGINNINGS):
        return None
    what = "list" if text[0] == "[" else "mapping"
    try:
        with warnings.catch_warnings():  # a text such as "[\d]" is data, not a program
            warnings.simplefilter("ignore")
            found = ast.literal_eval(text)
        has_commas = _has_commas(text)
    except (*_PYTHON_ERRORS, tokenize.TokenError):
        raise ValueError(
            f"found {quoted(text)}, which is written as a {what} and is none in JSON or in Python; write it as JSON"
        ) from None
    if not has_commas:
        raise ValueError(
            f"found {quoted(text)}, a list without commas between its texts, as numpy shows arrays; write it as JSON"
        )
    return found if isinstance(found, list | dict) else None


def _has_commas(text: str) -> bool:
    """Tell whether no two texts stand side by side, which Python would join."""
    ignored = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT)
    kinds = [token.type for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in ignored]
    return not any(first == second == tokenize.STRING for first, second in pairwise(kinds))


_TEXT_KEYS = ("text", "content", "page_content")
_EXPECTED_TEXT = f"expected a text, or a mapping with a text under {', '.join(_TEXT_KEYS[:-1])} or {_TEXT_KEYS[-1]}"


def context_texts(value: object) -> tuple[str, ...]:
    """Return the texts of a list, best first. One text alone is a list of one, and None is an empty list.

    A mapping gives its text under ``text``, ``content`` or ``page_content``. A text that is written as a list, as in a
    CSV (see ``written_value``), is that list. Raise ``ValueError`` for an entry of another kind.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        listed = written_value(value) if value.lstrip().startswith("[") else None
        is_text = not isinstance(listed, list) or (listed and all(isinstance(entry, int | float) for entry in listed))
        return (value,) if is_text else context_texts(listed)  # "[1]" is a text
    if not isinstance(value, list | tuple):
        return (_context(value, ""),)
    return tuple(_context(entry, f"entry {number} is ") for number, entry in enumerate(value, 1))


def _context(entry: object, where: str) -> str:
    if isinstance(entry, str):
        return str(entry)
    if isinstance(entry, Mapping):
        for key in _TEXT_KEYS:
            if isinstance(text := entry.get(key), str):
                return str(text)
    raise ValueError(f"{where or 'found '}{describe(entry)}, {_EXPECTED_TEXT}")


Documents = tuple[tuple[str, float | None], ...]
"""Ids, best first, each with its score, or None."""

_ID_KEYS = ("id", "_id", "doc_id", "docid", "document_id")
_EXPECTED_IDS = "expected ids, best first, or pairs of an id and its score"


def found_documents(value: object) -> Documents:
    """Return the documents of a list of ids, of (id, score) pairs, or of mappings with ``id`` and perhaps ``score``.

    They stay in the order given. A mapping of ids to scores is sorted: the highest score comes first, and equal ones
    stay in their order. A text is the list or mapping that it is written as, and None is no document. Raise
    ``ValueError`` for a value of another kind, and for an id that stands twice.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        value = _parsed(value)
    if isinstance(value, Mapping):
        pairs = [(_score(score, f"{quoted(str(name))} has "), _id(name, "")) for name, score in value.items()]
        return _each_once((name, score) for score, name in sorted(pairs, key=lambda pair: -pair[0]))
    if not isinstance(value, Iterable):
        raise ValueError(f"found {describe(value)}, {_EXPECTED_IDS}")
    return _each_once(_document(entry, f"entry {number} is ") for number, entry in enumerate(value, 1))


def _parsed(text: str) -> object:
    found = written_value(text)
    if found is None:
        raise ValueError(f"found {describe(text)}, {_EXPECTED_IDS}")
    return found


def _document(entry: object, where: str) -> tuple[str, float | None]:
    if isinstance(entry, Mapping):
        name = next((name for name in _ID_KEYS if name in entry), None)
        if name is None:
            raise ValueError(f"{where}{describe(entry)}, {_EXPECTED_IDS}")
        score = entry.get("score")
        return _id(entry[name], where), None if score is None else _score(score, where)
    if isinstance(entry, list | tuple):
        if len(entry) != 2:
            raise ValueError(f"{where}{describe(list(entry))}, {_EXPECTED_IDS}")
        return _id(entry[0], where), None if entry[1] is None else _score(entry[1], where)
    return _id(entry, where), None


def _id(value: object, where: str) -> str:
    if hasattr(value, "item") and not isinstance(value, str):  # numpy's numbers
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError(f"{where or 'found '}{describe(value)}, {_EXPECTED_IDS}")
    return str(value)


def _score(value: object, where: str) -> float:
    number = None if isinstance(value, bool | str) else finite_number(value)
    if number is None:
        raise ValueError(f"{where}the score {describe(value)}, expected a finite number")
    return number


def _each_once(documents: Iterable[tuple[str, float | None]]) -> Documents:
    places: dict[str, int] = {}
    found = tuple(documents)
    for place, (name, _) in enumerate(found, 1):
        if (first := places.setdefault(name, place)) != place:
            raise ValueError(f"the document {quoted(name)} stands twice, at {first} and {place}, expected it once")
    return found
