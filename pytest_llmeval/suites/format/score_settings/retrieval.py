"""Settings of the scorer that judges what a search found."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

import regex
from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, model_validator

from pytest_llmeval.data.judgements import Judgements, read_judgements
from pytest_llmeval.data.spec import FROM_LIST, Spec, each_once, refuse_here
from pytest_llmeval.suites.format.score_settings.scorer_settings import FileReader, ScorerSettings
from pytest_llmeval.text.wording import Keys, describe, expected_one_of, quoted

__all__ = ["QrelsFile", "RetrievalSettings"]

_WITH_CUTOFF = ("ndcg", "ndcg_exp", "recall", "precision", "f1", "hit_rate", "judged")
_OF_ALL = ("ap", "rr")
_WITHOUT_CUTOFF = ("r_precision", "bpref")
"""Metrics that have a cut-off, ``recall@10``; that are of the whole ranking unless they have one; that have none."""

_KNOWN = (*_WITH_CUTOFF, *_OF_ALL, *_WITHOUT_CUTOFF)
_NAME = regex.compile(r"([a-z_0-9]+?)(?:@(\d+))?")
_IN_SCHEMA = f"^(?:(?:{'|'.join((*_WITH_CUTOFF, *_OF_ALL))})(?:@[1-9][0-9]*)?|{'|'.join(_WITHOUT_CUTOFF)})$"

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
    """Pydantic's own words on a union name each of its parts."""
    if value is None or isinstance(value, str | dict | QrelsFile):
        return value
    raise refuse_here(f"found {describe(value)}, expected the name of a column, or {{path: FILE}}")


class RetrievalSettings(ScorerSettings):
    """What a search found, by relevance judgements of its documents."""

    kind: Literal["retrieval"] = "retrieval"
    scorer = "retrieval.scorer:RetrievalScorer"
    needs_target = False
    at: Annotated[tuple[Cutoff, ...], FROM_LIST, AfterValidator(each_once("cut-off"))] = Field(
        (10,),
        json_schema_extra={"minItems": 1, "uniqueItems": True},
        description="How many of the first documents count, for each metric that is named without a number.",
    )
    metrics: Annotated[tuple[Metric, ...], FROM_LIST, AfterValidator(each_once("metric"))] | None = Field(
        None,
        json_schema_extra={"minItems": 1, "uniqueItems": True},
        description="What is measured: ndcg, recall, … at each cut-off, or ndcg@20, ap, ap@100. Default: all of them.",
    )
    gain: Literal["linear", "exponential"] = Field(
        "linear",
        description="The gain of a grade g where metrics are not named: ndcg has g, and ndcg_exp 2^g - 1.",
    )
    relevant_from: int = Field(
        1, ge=1, description="The lowest grade of a relevant document; nDCG counts every grade above 0."
    )
    ties: Literal["order", "trec"] = Field(
        "order",
        description="order: documents count as they are given. trec: by their scores, as trec_eval sorts them: equal "
        "ones by their ids, the last first.",
    )
    no_relevant: Literal["not_measurable", "one"] = Field(
        "not_measurable",
        description="What a query counts of which no judged document is relevant: nothing, or 1. Precision is 0.",
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
        """What the file of ``qrels`` holds, once it is read; None without one."""
        return self._judgements

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics' whole names, the one that decides first: nDCG at the largest cut-off, unless they are named."""
        if self.metrics is not None:
            return tuple(dict.fromkeys(whole for name in self.metrics for whole in self._expanded(name)))
        ndcg, other = ("ndcg_exp", "ndcg") if self.gain == "exponential" else ("ndcg", "ndcg_exp")
        first = [f"{ndcg}@{k}" for k in sorted(self.at, reverse=True)]
        others = [f"{name}@{k}" for name in _WITH_CUTOFF if name not in (ndcg, other) for k in sorted(self.at)]
        return (*first, *others, *_OF_ALL, *_WITHOUT_CUTOFF)

    def _expanded(self, name: str) -> tuple[str, ...]:
        return tuple(f"{name}@{k}" for k in sorted(self.at, reverse=True)) if name in _WITH_CUTOFF else (name,)

    @model_validator(mode="after")
    def _gain_is_for_the_default(self) -> Self:
        if "gain" in self.model_fields_set and self.metrics is not None:
            raise refuse_here("found metrics too, whose names say the gain (ndcg, ndcg_exp); remove it", "gain")
        return self

    def with_files_read(self, files: FileReader, keys: Keys = ("score",)) -> Self:
        """With the judgements of the file. Its path is no part of the settings: each sample's own judgements say what
        they are.
        """
        if not isinstance(self.qrels, QrelsFile):
            return self
        found = files.read(read_judgements, self.qrels.path, (*keys, "retrieval", "qrels"))
        copy = self.model_copy(update={"qrels": None})
        copy._judgements = found
        return copy
