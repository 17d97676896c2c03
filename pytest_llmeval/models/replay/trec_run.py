"""Reads the runs of TREC, in which each line is a document that was found: query, Q0, document, rank, score, name."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence

from pytest_llmeval.data.files import Source, decode, open_bytes
from pytest_llmeval.text.documents import Documents, found_documents
from pytest_llmeval.text.wording import describe, quoted

__all__ = ["read_run"]

_MAX_BYTES = 2_000_000_000


def read_run(source: Source) -> Iterator[tuple[int, str, Documents]]:
    """Yield each query's first line, its id, and its documents by their scores, equal ones as they stand.

    The score decides, as in trec_eval, and not the rank. ``ValueError`` says where the file is none, ``SuiteError``
    where it cannot be read.
    """
    found: dict[str, dict[str, float]] = {}
    first: dict[str, int] = {}
    with open_bytes(source, max_bytes=_MAX_BYTES, too_large="split it") as lines:
        for number, data in enumerate(lines, 1):  # one by one: a run can have millions
            if not (cells := decode(source, data, number).split()):
                continue
            try:
                query, document, score = _of_line(cells)
                own = found.setdefault(query, {})
                if document in own:
                    raise ValueError(f"the document {quoted(document)} stands twice for the query {quoted(query)}")
            except ValueError as error:
                raise ValueError(f"{source.shown}:{number}: {error}") from None
            first.setdefault(query, number)
            own[document] = score
    if not found:
        raise ValueError(f"{source.shown} holds no rows, expected a TREC run")
    for query, own in found.items():
        yield first[query], query, found_documents(own)


def _of_line(cells: Sequence[str]) -> tuple[str, str, float]:
    """Return query, document and score. ``ValueError`` where these are not what stands there."""
    if len(cells) != 6:
        raise ValueError(
            f"found {len(cells)} columns, expected the six of a TREC run: query, Q0, document, rank, score, name"
        )
    try:
        score = float(cells[4])
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(f"the score: found {describe(cells[4])}, expected a finite number")
    return unicodedata.normalize("NFC", cells[0]), cells[2], score
