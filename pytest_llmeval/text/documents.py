"""Documents: the ids of what a search found, as programs, data sets and models write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pytest_llmeval.text.wording import describe, quoted
from pytest_llmeval.text.written import written_value
from pytest_llmeval.types import finite_number

__all__ = ["Documents", "found_documents"]

Documents = tuple[tuple[str, float | None], ...]
"""Ids, best first, each with its score, or None."""

_IDS = ("id", "_id", "doc_id", "docid", "document_id")
_EXPECTED = "expected ids, best first, or pairs of an id and its score"


def found_documents(value: object) -> Documents:
    """Return the documents of a list of ids, of (id, score) pairs, or of mappings with an ``id`` and perhaps a
    ``score``.

    They stay in the order given. A mapping of ids to scores has none: the highest score comes first, and equal ones
    stay as they stand. A text is the list or mapping that it is written as, and None no document. ``ValueError`` says
    what is none of these, and which id stands twice.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        value = _parsed(value)
    if isinstance(value, Mapping):
        pairs = [(_score(score, f"{quoted(str(name))} has "), _id(name, "")) for name, score in value.items()]
        return _each_once((name, score) for score, name in sorted(pairs, key=lambda pair: -pair[0]))
    if not isinstance(value, Iterable):
        raise ValueError(f"found {describe(value)}, {_EXPECTED}")
    return _each_once(_document(entry, f"entry {number} is ") for number, entry in enumerate(value, 1))


def _parsed(text: str) -> object:
    found = written_value(text)
    if found is None:
        raise ValueError(f"found {describe(text)}, {_EXPECTED}")
    return found


def _document(entry: object, where: str) -> tuple[str, float | None]:
    if isinstance(entry, Mapping):
        name = next((name for name in _IDS if name in entry), None)
        if name is None:
            raise ValueError(f"{where}{describe(entry)}, {_EXPECTED}")
        score = entry.get("score")
        return _id(entry[name], where), None if score is None else _score(score, where)
    if isinstance(entry, list | tuple):
        if len(entry) != 2:
            raise ValueError(f"{where}{describe(list(entry))}, {_EXPECTED}")
        return _id(entry[0], where), None if entry[1] is None else _score(entry[1], where)
    return _id(entry, where), None


def _id(value: object, where: str) -> str:
    if hasattr(value, "item") and not isinstance(value, str):  # numpy's numbers
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError(f"{where or 'found '}{describe(value)}, {_EXPECTED}")
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
