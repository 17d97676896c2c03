"""Files of relevance judgements (qrels): TREC's four columns, BEIR's TSV, and JSON Lines."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from pytest_llmeval.data.files import Source, read_text
from pytest_llmeval.data.rows import MAX_DATA_BYTES, format_of, read_rows
from pytest_llmeval.text.wording import describe, quoted
from pytest_llmeval.types import JSON

__all__ = ["Judgements", "Qrels", "read_judgements", "relevance_judgements"]

Qrels: TypeAlias = Mapping[str, int]
"""The grades of documents, by their ids: those of one query."""
Judgements: TypeAlias = Mapping[str, Qrels]
"""The judgements of each query, by its id."""

_QUERY = ("query_id", "query-id", "qid", "_id", "id")
_DOCUMENT = ("corpus_id", "corpus-id", "doc_id", "docid", "document_id")
_GRADE = ("score", "grade", "relevance", "label")
_OF_ALL = ("relevant_docs", "qrels")
_HEADER = frozenset((*_QUERY, *_DOCUMENT, "score", "grade", "relevance", "rel")) - {"id", "_id"}
_WHOLE = re.compile(r"[+-]?[0-9]{1,9}")
_MAX_GRADE = 1000
"""2 to the power of a grade is a gain, which a float has to hold."""
_EXPECTED = "expected query, 0, document and grade (TREC), or query, document and grade (BEIR)"


def relevance_judgements(value: JSON) -> Qrels:
    """Return the judgements on one query: of a mapping of ids to grades, or of a list of relevant ids, whose grade is
    1.

    ``ValueError`` says what is neither.
    """
    if isinstance(value, dict):
        return {_document(name): _grade(grade, name) for name, grade in value.items()}
    if not isinstance(value, list):
        raise ValueError(f"found {describe(value)}, expected a mapping of ids to grades, or a list of ids")
    found: dict[str, int] = {}
    for name in value:
        if _document(name) in found:
            raise ValueError(f"the document {quoted(str(name))} stands twice, expected it once")
        found[_document(name)] = 1
    return found


def read_judgements(source: Source) -> Judgements:
    """Return the judgements of a file; its suffix says which form it has, and whatever is no data file's is TREC's.

    Raises ``SuiteError`` at the line that is wrong.
    """
    format_ = format_of(source.path)
    lines = _of_rows(source, format_) if format_ not in (None, "csv", "tsv") else _of_text(source)
    found: dict[str, dict[str, int]] = {}
    for query, document, grade, line in lines:
        own = found.setdefault(query, {})
        if document is None:
            continue
        if document in own:
            raise source.error(f"the document {quoted(document)} is judged twice for the query {quoted(query)}", line)
        own[document] = grade
    if not found:
        raise source.error("holds no relevance judgements")
    return found


_Line: TypeAlias = tuple[str, str | None, int, int | None]
"""Query, document, grade and line; without a document it says that the query was judged, and nothing found."""


def _of_text(source: Source) -> Iterator[_Line]:
    text = read_text(source, max_bytes=MAX_DATA_BYTES, too_large="split it")
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    format_ = format_of(source.path)
    has_tabs = format_ == "tsv" and not all(_is_trec(line) for _, line in lines)
    for number, line in lines:
        if format_ == "csv":
            cells = next(csv.reader([line.strip()]), [])
        else:
            cells = line.split("\t" if has_tabs and "\t" in line else None)
        cells = [cell.strip() for cell in cells]
        if len(cells) not in (3, 4):
            raise source.error(f"found {len(cells)} columns, {_EXPECTED}", number)
        if number == 1 and _WHOLE.fullmatch(cells[-1]) is None and _HEADER.intersection(map(str.lower, cells)):
            continue
        if has_tabs and len(cells) == 3 and _is_trec(line):
            raise source.error(
                f"can be read in two ways, as the document {quoted(cells[1])} by its tabs, and as "
                f"{quoted(line.split()[2])} by its blanks, as other lines of the file cannot; separate the columns of "
                "all lines by tabs alone",
                number,
            )
        try:
            yield _query(cells[0]), _document(cells[-2]), _grade(cells[-1], cells[-2]), number
        except ValueError as error:
            raise source.error(str(error), number) from None


def _is_trec(line: str) -> bool:
    """Tell whether a line is query, iteration, document and grade between white space, as trec_eval reads it."""
    cells = line.split()
    return len(cells) == 4 and cells[1].lstrip("Qq").isdecimal() and _WHOLE.fullmatch(cells[3]) is not None


def _of_rows(source: Source, format_: str | None) -> Iterator[_Line]:
    assert format_ is not None
    for row in read_rows(source, format_):
        try:
            query = _query(_column(row.columns, _QUERY, "a query"))
            whole = next((row.columns[name] for name in _OF_ALL if name in row.columns), None)
            if whole is not None:
                yield query, None, 0, row.line
                for document, grade in relevance_judgements(whole).items():
                    yield query, document, grade, row.line
                continue
            document = _document(_column(row.columns, _DOCUMENT, "a document"))
            yield query, document, _grade(_column(row.columns, _GRADE, "a grade"), document), row.line
        except ValueError as error:
            raise row.error(str(error)) from None


def _column(columns: Mapping[str, JSON], names: tuple[str, ...], what: str) -> JSON:
    for name in names:
        if name in columns:
            return columns[name]
    raise ValueError(f"found no column with {what}, expected one of {', '.join(names)}")


def _query(value: JSON) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError(f"the query's id: found {describe(value)}, expected text or a whole number")
    return unicodedata.normalize("NFC", str(value))


def _document(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError(f"a document's id: found {describe(value)}, expected text or a whole number")
    return str(value)


def _grade(value: object, document: object) -> int:
    number: object = value
    if (isinstance(value, str) and _WHOLE.fullmatch(value)) or (isinstance(value, float) and value.is_integer()):
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int) or abs(number) > _MAX_GRADE:
        expected = f"expected a whole number from {-_MAX_GRADE} to {_MAX_GRADE}"
        raise ValueError(f"the grade of {quoted(str(document))}: found {describe(value)}, {expected}")
    return number
