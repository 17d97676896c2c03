"""Rankings of documents: files of relevance judgements (qrels), and the measures against them that trec_eval computes.

Judgements are TREC's four columns, BEIR's TSV, or JSON Lines. The formulas of all measures but ``f1``, ``judged`` and
``ndcg_exp`` are those of NIST's trec_eval 9; ``judged`` is that of ir-measures.
"""

from __future__ import annotations

import csv
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

from pytest_llmeval.data.files import Source, read_text
from pytest_llmeval.data.rows import MAX_DATA_BYTES, format_of, read_rows
from pytest_llmeval.text.wording import describe, quoted
from pytest_llmeval.types import JSON

__all__ = ["MEASURES", "JudgedRanking", "Judgements", "Measure", "Qrels", "read_judgements", "relevance_judgements"]

Qrels: TypeAlias = Mapping[str, int]
"""The grades of documents, by their ids: those of one query."""
Judgements: TypeAlias = Mapping[str, Qrels]
"""The judgements of each query, by its id."""
_QUERY = ("query_id", "query-id", "qid", "_id", "id")
_DOCUMENT = ("corpus_id", "corpus-id", "doc_id", "docid", "document_id")
_GRADE = ("score", "grade", "relevance", "label")
_JUDGEMENT_COLUMNS = ("relevant_docs", "qrels")
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
            whole = next((row.columns[name] for name in _JUDGEMENT_COLUMNS if name in row.columns), None)
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


@dataclass(frozen=True)
class JudgedRanking:
    """A ranking as judgements see it: ``grades[i]`` is that of the document at rank i + 1, None where it is unjudged.

    ``judgements`` are the grades of all documents that were judged for the query. A document is relevant from the grade
    ``relevant_from`` on.
    """

    grades: Sequence[int | None]
    judgements: Sequence[int]
    relevant_from: int = 1

    @cached_property
    def num_relevant(self) -> int:
        """Return how many documents are relevant, found or not."""
        return sum(grade >= self.relevant_from for grade in self.judgements)

    @cached_property
    def hits(self) -> Sequence[bool]:
        """Tell whether each document of the ranking is relevant."""
        return [grade is not None and grade >= self.relevant_from for grade in self.grades]

    def num_hits(self, k: int | None) -> int:
        """Return how many of the first ``k`` documents are relevant; of all of them for None."""
        return sum(self.hits[:k])


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure of a ranking.

    ``value`` is that of the first k documents, or of all of them for None. ``lacks`` says why it has no meaning for a
    ranking; None where it has one.
    """

    value: Callable[[JudgedRanking, int | None], float]
    lacks: Callable[[JudgedRanking], str | None]


NO_RELEVANT = "no document is relevant"


def _without_relevant(judged: JudgedRanking) -> str | None:
    return None if judged.num_relevant else NO_RELEVANT


def _without_gain(judged: JudgedRanking) -> str | None:
    """Say that nothing is a gain, if so: any grade above 0 is one, whatever ``relevant_from`` says."""
    return None if any(grade > 0 for grade in judged.judgements) else NO_RELEVANT


def _without_documents(judged: JudgedRanking) -> str | None:
    return None if judged.grades else "nothing was found"


def precision(judged: JudgedRanking, k: int | None) -> float:
    """Return the number of relevant documents among the first k over k, also if fewer were found."""
    k = len(judged.grades) if k is None else k
    return judged.num_hits(k) / k if k else 0.0


def recall(judged: JudgedRanking, k: int | None) -> float:
    """Return the number of relevant documents among the first k over that of all relevant ones."""
    return judged.num_hits(k) / judged.num_relevant


def f1(judged: JudgedRanking, k: int | None) -> float:
    """Return the harmonic mean of precision and recall."""
    hits = judged.num_hits(k)
    num_shown = len(judged.grades) if k is None else k
    return 2 * hits / (num_shown + judged.num_relevant)


def hit_rate(judged: JudgedRanking, k: int | None) -> float:
    """Tell whether one of the first k documents is relevant (trec_eval's success)."""
    return float(judged.num_hits(k) > 0)


def reciprocal_rank(judged: JudgedRanking, k: int | None) -> float:
    """Return 1 over the rank of the first relevant document; 0 if none of the first k is."""
    return next((1 / rank for rank, is_hit in enumerate(judged.hits[:k], 1) if is_hit), 0.0)


def average_precision(judged: JudgedRanking, k: int | None) -> float:
    """Return the sum of the precisions at the ranks of relevant documents among the first k, over all relevant ones."""
    total, hits = 0.0, 0
    for rank, is_hit in enumerate(judged.hits[:k], 1):
        if is_hit:
            hits += 1
            total += hits / rank
    return total / judged.num_relevant


def r_precision(judged: JudgedRanking, _: int | None) -> float:
    """Return precision at the rank that is the number of relevant documents."""
    return precision(judged, judged.num_relevant)


def bpref(judged: JudgedRanking, _: int | None) -> float:
    """Return how seldom documents that were judged not relevant stand before relevant ones; what is unjudged does not
    count.

    C. Buckley and E. M. Voorhees (2004, doi:10.1145/1008992.1009000), as trec_eval counts: a grade below 0 is no
    judgement.
    """
    num_relevant = judged.num_relevant
    bound = min(num_relevant, sum(0 <= grade < judged.relevant_from for grade in judged.judgements))
    total, num_before = 0.0, 0
    for grade, is_hit in zip(judged.grades, judged.hits, strict=True):
        if is_hit:
            total += 1 - min(num_before, num_relevant) / bound if num_before else 1.0
        elif grade is not None and grade >= 0:
            num_before += 1
    return total / num_relevant


def judged_share(judged: JudgedRanking, k: int | None) -> float:
    """Return the share of the first k documents, as far as so many were found, that were judged."""
    shown = judged.grades[:k]
    return sum(grade is not None for grade in shown) / len(shown)


def ndcg(judged: JudgedRanking, k: int | None) -> float:
    """Return normalised discounted cumulative gain: the gain is the grade, the discount log2(rank + 1).

    K. Järvelin and J. Kekäläinen (2002, doi:10.1145/582415.582418), with the discount from the first rank on.
    """
    return _ndcg(judged, k, float)


def ndcg_exp(judged: JudgedRanking, k: int | None) -> float:
    """Return ``ndcg`` with the gain 2^grade - 1, by C. Burges et al. (2005, doi:10.1145/1102351.1102363)."""
    return _ndcg(judged, k, lambda grade: 2.0**grade - 1)


def _ndcg(judged: JudgedRanking, k: int | None, gain: Callable[[int], float]) -> float:
    best = sorted((grade for grade in judged.judgements if grade > 0), reverse=True)
    return _dcg(judged.grades[:k], gain) / _dcg(best[:k], gain)


def _dcg(grades: Iterable[int | None], gain: Callable[[int], float]) -> float:
    return sum(gain(grade) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1) if grade and grade > 0)


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "ndcg": Measure(ndcg, _without_gain),
        "ndcg_exp": Measure(ndcg_exp, _without_gain),
        "recall": Measure(recall, _without_relevant),
        "precision": Measure(precision, _without_relevant),
        "f1": Measure(f1, _without_relevant),
        "hit_rate": Measure(hit_rate, _without_relevant),
        "ap": Measure(average_precision, _without_relevant),
        "rr": Measure(reciprocal_rank, _without_relevant),
        "r_precision": Measure(r_precision, _without_relevant),
        "bpref": Measure(bpref, _without_relevant),
        "judged": Measure(judged_share, _without_documents),
    }
)
"""The measures by the names that metrics have before their ``@k``, in the order in which they are shown."""
