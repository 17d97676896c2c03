"""Documents that a search found, scored by relevance judgements."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self, TypeAlias

import regex
from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, model_validator

from pytest_llmeval.data.spec import FROM_LIST, Spec, each_once, refuse_here
from pytest_llmeval.errors import ModelError
from pytest_llmeval.scorers.json import parse_json
from pytest_llmeval.scorers.reading.rankings import (
    MEASURES,
    JudgedRanking,
    Judgements,
    Qrels,
    read_judgements,
    relevance_judgements,
)
from pytest_llmeval.scoring.base import FileReader, PreparedSample, ScorerSettings, SettingsScorer, SuiteView
from pytest_llmeval.scoring.metrics.definitions import WILDCARD
from pytest_llmeval.scoring.references import no_column, quote
from pytest_llmeval.text.documents import Documents, found_documents, written_value
from pytest_llmeval.text.wording import Keys, describe, expected_one_of, quoted
from pytest_llmeval.types import JSON, GenerateResponse, Response, Sample, Score

__all__ = ["RetrievalScorer", "RetrievalSettings"]

_WITH_CUTOFF = ("ndcg", "ndcg_exp", "recall", "precision", "f1", "hit_rate", "judged")
_WITH_OPTIONAL_CUTOFF = ("ap", "rr")
_WITHOUT_CUTOFF = ("r_precision", "bpref")
"""Metrics that have a cut-off, ``recall@10``; that are of the whole ranking unless they have one; that have none."""
_KNOWN = (*_WITH_CUTOFF, *_WITH_OPTIONAL_CUTOFF, *_WITHOUT_CUTOFF)
_NAME = regex.compile(r"([a-z_0-9]+?)(?:@(\d+))?")
_IN_SCHEMA = (
    f"^(?:(?:{'|'.join((*_WITH_CUTOFF, *_WITH_OPTIONAL_CUTOFF))})(?:@[1-9][0-9]*)?|{'|'.join(_WITHOUT_CUTOFF)})$"
)
Cutoff: TypeAlias = Annotated[int, Field(ge=1)]


def _metric(name: object) -> object:
    if not isinstance(name, str):
        raise refuse_here(f"found {describe(name)}, expected the name of a metric, such as ndcg or ndcg@10")
    found = _NAME.fullmatch(name)
    base, k = (found[1], found[2]) if found else (name.partition("@")[0], None)
    if base not in _KNOWN:
        raise refuse_here(f"there is no metric {quoted(name)}{expected_one_of(base, _KNOWN)}")
    if not found or (k is not None and (base in _WITHOUT_CUTOFF or k.startswith("0"))):
        expected = f"{base}, which has no cut-off" if base in _WITHOUT_CUTOFF else f"{base}@10, with a number from 1 on"
        raise refuse_here(f"found {quoted(name)}, expected {expected}")
    return name


Metric: TypeAlias = Annotated[str, BeforeValidator(_metric), Field(json_schema_extra={"pattern": _IN_SCHEMA})]


class QrelsFile(Spec):
    """A file of relevance judgements."""

    path: str = Field(
        description="The file, relative to the suite file: TREC's qrels, BEIR's TSV, or JSON Lines.", min_length=1
    )


def _qrels(value: object) -> object:
    """Accept a file of judgements. Pydantic's own words on a union name each of its parts."""
    if value is None or isinstance(value, str | dict | QrelsFile):
        return value
    raise refuse_here(f"found {describe(value)}, expected the name of a column, or {{path: FILE}}")


class RetrievalSettings(ScorerSettings):
    """The documents that a search found, compared with relevance judgements."""

    kind: Literal["retrieval"] = "retrieval"
    needs_target = False
    at: Annotated[tuple[Cutoff, ...], FROM_LIST, AfterValidator(each_once("cut-off"))] = Field(
        (10,),
        json_schema_extra={"minItems": 1, "uniqueItems": True},
        description="How many of the first documents count, for each metric that is named without a number.",
    )
    metrics: Annotated[tuple[Metric, ...], FROM_LIST, AfterValidator(each_once("metric"))] | None = Field(
        None,
        json_schema_extra={"minItems": 1, "uniqueItems": True},
        description="What is measured: ndcg, recall, … at each cut-off, ap, or a metric with its own cut-off: "
        "ndcg@20, ap@100. Default: all of them.",
    )
    gain: Literal["linear", "exponential"] = Field(
        "linear",
        description="The gain of a grade g, if metrics are not named: with linear, ndcg has the gain g; with "
        "exponential, ndcg_exp has 2^g - 1.",
    )
    relevant_from: int = Field(
        1, ge=1, description="The lowest grade of a relevant document; nDCG counts every grade above 0."
    )
    ties: Literal["order", "trec"] = Field(
        "order",
        description="order: documents count in the order in which they are given. trec: they are sorted by their "
        "scores, as trec_eval does it; documents with equal scores are sorted by id, the last first.",
    )
    no_relevant: Literal["not_measurable", "one"] = Field(
        "not_measurable",
        description="The value of a query for which no document is judged relevant: none (not measurable), or 1. Its "
        "precision is 0.",
    )
    qrels: Annotated[str | QrelsFile | None, BeforeValidator(_qrels)] = Field(
        None,
        description="The relevance judgements: a column with a mapping of ids to grades, or a list of relevant ids "
        "(default: qrels), or a file, {path: FILE}.",
    )
    _judgements: Judgements | None = PrivateAttr(None)

    @property
    def optional_columns(self) -> tuple[str, ...]:
        return (self.qrels or "qrels",) if self.qrels is None or isinstance(self.qrels, str) else ()

    @property
    def judgements(self) -> Judgements | None:
        """Return the judgements of the file ``qrels``, once it is read; None without one."""
        return self._judgements

    @property
    def names(self) -> tuple[str, ...]:
        """Return the metrics' whole names, the one that decides first: nDCG at the largest cut-off, unless they are
        named.
        """
        if self.metrics is not None:
            return tuple(dict.fromkeys(whole for name in self.metrics for whole in self._expanded(name)))
        ndcg, other = ("ndcg_exp", "ndcg") if self.gain == "exponential" else ("ndcg", "ndcg_exp")
        first = [f"{ndcg}@{k}" for k in sorted(self.at, reverse=True)]
        others = [f"{name}@{k}" for name in _WITH_CUTOFF if name not in (ndcg, other) for k in sorted(self.at)]
        return (*first, *others, *_WITH_OPTIONAL_CUTOFF, *_WITHOUT_CUTOFF)

    def _expanded(self, name: str) -> tuple[str, ...]:
        return tuple(f"{name}@{k}" for k in sorted(self.at, reverse=True)) if name in _WITH_CUTOFF else (name,)

    @model_validator(mode="after")
    def _gain_is_for_the_default(self) -> Self:
        if "gain" in self.model_fields_set and self.metrics is not None:
            raise refuse_here("found metrics too, whose names say the gain (ndcg, ndcg_exp); remove it", "gain")
        return self

    def with_files_read(self, files: FileReader, keys: Keys = ("score",)) -> Self:
        """Return the settings with the judgements of the file. Its path is no part of the settings: each sample's own
        judgements say what they are.
        """
        if not isinstance(self.qrels, QrelsFile):
            return self
        found = files.read(read_judgements, self.qrels.path, (*keys, "retrieval", "qrels"))
        copy = self.model_copy(update={"qrels": None})
        copy._judgements = found
        return copy

    def make(self) -> RetrievalScorer:
        return RetrievalScorer.of(self)


_QRELS = "qrels"
"""The column that is read by default, and the name of a sample's judgements in ``judged_with``."""
_FENCED = regex.compile(r"```(?:json)?[ \t]*\r?\n(.*?)\n[ \t]*```", regex.DOTALL | regex.IGNORECASE)
_MAX_LISTED = 100
"""Documents that a record lists."""
_MAX_ANSWER = 10
"""Documents that an answer names."""


class RetrievalScorer(SettingsScorer[RetrievalSettings]):
    """Each metric is a number from the ranks of the judged documents; nothing is right or wrong."""

    @property
    def metrics(self) -> tuple[str, ...]:
        return (*self.settings.names, "no_answer")

    @property
    def reads_documents(self) -> bool:
        return True

    def suite_problem(self, suite: SuiteView) -> tuple[str, Keys] | None:
        judgements = self.settings.judgements
        if judgements is None or not suite.samples or any(sample.id in judgements for sample in suite.samples):
            return None
        first, own = next(iter(judgements)), suite.samples[0].id
        message = (
            f"the file judges no query of the suite: its first one is {quote(first)}, and the suite's {quote(own)}"
        )
        return f"{message}; dataset.fields.id names the column with the ids", ("score", "retrieval", "qrels")

    def present(self, sample: Sample) -> PreparedSample:
        qrels = self._qrels(sample)
        if qrels is None:
            return PreparedSample(sample=sample, target=())
        relevant = [name for name, grade in _sorted(qrels) if grade >= self.settings.relevant_from]
        return PreparedSample(
            sample=sample, target=tuple(relevant[:_MAX_LISTED]), judged_with={_QRELS: json.dumps(_sorted(qrels))}
        )

    def answer_text(self, presented: PreparedSample) -> str:
        """Return the relevant documents, best first, as JSON."""
        return json.dumps(list(presented.target))

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Score the documents; ``no_answer`` if nothing was found, or a text lists no documents.

        A query that nobody judged has no metric: it is none of those that the judgements are about.
        """
        if len(responses) != 1 or not isinstance(responses[0], GenerateResponse):
            raise ModelError(f"expected one GenerateResponse from the model, found {len(responses)}")
        found, problem = _documents(responses[0])
        try:
            documents = self._in_order(found)
        except ValueError as error:
            return Score(status="unscored", reason=str(error))
        answer = _listed([name for name, _ in documents])
        if _QRELS not in presented.judged_with:
            return Score(status="scored", answer=answer, not_measurable={WILDCARD: "no judgements"})
        qrels: Qrels = dict(json.loads(presented.judged_with[_QRELS]))
        judged = JudgedRanking(
            [qrels.get(name) for name, _ in documents], list(qrels.values()), self.settings.relevant_from
        )
        values, not_measurable = self._values(judged)
        return Score(
            status="scored",
            answer=answer,
            no_answer=not documents,
            values=values,
            details={**_details(documents, qrels, judged), **({} if problem is None else {"problem": problem})},
            not_measurable=not_measurable,
        )

    def _values(self, judged: JudgedRanking) -> tuple[dict[str, float], dict[str, str]]:
        """Return the metrics' values, and why others have none."""
        values: dict[str, float] = {}
        not_measurable: dict[str, str] = {}
        for name in self.settings.names:
            base, _, k = name.partition("@")
            measure = MEASURES[base]
            problem = measure.lacks(judged)
            if problem is None:
                values[name] = measure.value(judged, int(k) if k else None)
            elif self.settings.no_relevant == "one" and base != "judged":
                values[name] = 0.0 if base in ("precision", "f1") else 1.0
            else:
                not_measurable[name] = problem
        return values, not_measurable

    def _qrels(self, sample: Sample) -> Qrels | None:
        """Return the judgements of the sample; None for a query that was not judged at all."""
        judgements = self.settings.judgements
        if judgements is not None:
            return judgements.get(sample.id)
        name = _QRELS if self.settings.qrels is None else str(self.settings.qrels)
        if name not in sample.variables:
            raise ValueError(f"{no_column(sample, name)}; relevance judgements of a file are qrels: {{path: FILE}}")
        value = sample.variables[name]
        try:
            return None if value is None or value == "" else relevance_judgements(_parsed(value))
        except ValueError as error:
            raise ValueError(f"the column {quote(name)}: {error}") from None

    def _in_order(self, documents: Documents) -> Documents:
        """Return the documents as they are given, or as trec_eval sorts them, whose scores are of single precision."""
        if self.settings.ties == "order":
            return documents
        scored = []
        for name, score in documents:
            if score is None:
                raise ValueError(f"ties: trec sorts by scores, and the document {quote(name)} has none")
            scored.append((_single(score), name, score))
        return tuple((name, score) for _, name, score in sorted(scored, reverse=True))


def _single(score: float) -> float:
    try:
        found: float = struct.unpack("f", struct.pack("f", score))[0]
    except OverflowError:
        return score
    return found


def _sorted(qrels: Qrels) -> list[tuple[str, int]]:
    """Return the highest grade first, and equal ones by their ids."""
    return sorted(qrels.items(), key=lambda entry: (-entry[1], entry[0]))


def _parsed(value: object) -> JSON:
    """Return what a text is written as, as a CSV has mappings; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            found: JSON = json.loads(value, object_pairs_hook=_each_once)
        except _TwiceError:
            raise
        except (ValueError, RecursionError):
            written = written_value(value)
            return value if written is None else written  # type: ignore[return-value]
        return found
    return value  # type: ignore[return-value]


class _TwiceError(ValueError):
    pass


def _each_once(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _TwiceError(f"the document {quote(twice)} stands twice, expected it once")
    return found


def _documents(response: GenerateResponse) -> tuple[Documents, str | None]:
    """Return the documents that came with the reply, or that its text lists as JSON; and why there are none.

    A list that repeats itself is the model's mistake: no answer, and no error.
    """
    if response.documents is not None:
        return response.documents, None
    fenced = _FENCED.search(response.text)
    text = (response.text if fenced is None else fenced[1]).strip()
    try:
        return found_documents(parse_json(text)), None
    except ValueError as error:
        return (), f"no list of documents: {error}"


def _listed(names: Sequence[str]) -> str | None:
    if not names:
        return None
    more = f", … ({len(names)})" if len(names) > _MAX_ANSWER else ""
    return f"{', '.join(names[:_MAX_ANSWER])}{more}"


def _details(documents: Documents, qrels: Mapping[str, int], judged: JudgedRanking) -> dict[str, JSON]:
    """Return the relevant documents with their grades, at their ranks, then those that were missed, the best first."""
    ranks = {name: rank for rank, (name, _) in enumerate(documents, 1)}
    relevant = [(name, grade) for name, grade in _sorted(qrels) if grade >= judged.relevant_from]
    relevant.sort(key=lambda entry: ranks.get(entry[0], len(ranks) + 1))
    shown: list[JSON] = [{"id": name, "grade": grade, "rank": ranks.get(name)} for name, grade in relevant]
    return {
        "relevant": shown[:_MAX_LISTED],
        "num_relevant": len(relevant),
        "num_found": judged.num_hits(None),
        "num_judged": sum(grade is not None for grade in judged.grades),
    }
