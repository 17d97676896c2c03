"""A judge says of each criterion of a rubric how far the reply meets it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, field_validator, model_validator

from pytest_llmeval.data.spec import FROM_LIST, Spec, each_once, refuse_here
from pytest_llmeval.models.base import JudgeSteps
from pytest_llmeval.scorers.judging.judged_scorer import (
    MAX_REPLY,
    NAMES_IN_SCHEMA,
    REASON,
    PromptedScorer,
    PromptedSettings,
    check_metric_names,
    checked_keys,
    object_schema,
    reason_in,
)
from pytest_llmeval.scorers.judging.verdicts import no_verdict, verdict
from pytest_llmeval.scoring.base import Better, PreparedSample
from pytest_llmeval.scoring.references import quote
from pytest_llmeval.scoring.responses import reply, said_to_be_cut
from pytest_llmeval.text.wording import describe
from pytest_llmeval.types import JSON, Response, Score

__all__ = ["Criterion", "RubricScorer", "RubricSettings"]


class Criterion(Spec):
    """One line of a rubric."""

    text: str = Field(min_length=1, description="The criterion in words.")
    labels: Annotated[tuple[str, ...], FROM_LIST] = Field(
        ("fail", "pass"),
        json_schema_extra={"minItems": 2, "uniqueItems": True},
        description="The answers that the judge can give, from the worst, worth 0, to the best, worth 1.",
    )
    points: int | None = Field(
        None,
        ge=1,
        le=100,
        description="Instead of labels: the judge gives a whole number of points from 0 to this. It is the weight "
        "too, unless weight is given.",
    )
    weight: float = Field(1.0, gt=0, le=1e6, description="How much the criterion counts.")

    @model_validator(mode="after")
    def _labels_or_points(self) -> Self:
        if self.points is not None and "labels" in self.model_fields_set:
            raise refuse_here("found labels and points, expected one of them")
        return self

    @property
    def counts(self) -> float:
        """Return the weight; by default the number of points, if the criterion has points."""
        return self.weight if self.points is None or "weight" in self.model_fields_set else float(self.points)

    @property
    def grades(self) -> tuple[str, ...] | tuple[int, ...]:
        """Return the judge's possible verdicts, from the worst to the best: labels, or points."""
        return self.labels if self.points is None else tuple(range(self.points + 1))

    @field_validator("labels")
    @classmethod
    def _two(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        each_once("label")(labels)
        if len(labels) < 2:
            raise refuse_here(f"found {list(labels)}, expected two labels or more")
        return labels


def _criterion(value: object) -> object:
    """Take a text alone for a criterion that is met or not."""
    if isinstance(value, str):
        return {"text": value}
    if isinstance(value, dict | Criterion):
        return value
    raise refuse_here(f"found {describe(value)}, expected a text, or a mapping with text, labels or points, and weight")


OneCriterion: TypeAlias = Annotated[Criterion, BeforeValidator(_criterion, json_schema_input_type=str | Criterion)]


class RubricSettings(PromptedSettings):
    """A judge says of each criterion how far the reply meets it."""

    kind: Literal["rubric"] = "rubric"
    criteria: dict[str, OneCriterion] = Field(
        json_schema_extra=NAMES_IN_SCHEMA,
        description="The criteria by name. Each is a text, which is met (pass) or not (fail), or a mapping with "
        "text, labels or points, and weight.",
    )
    pass_: float = Field(
        1.0,
        alias="pass",
        gt=0,
        le=1,
        description="The reply is right if it has at least this share of the weighted points.",
    )

    @field_validator("criteria")
    @classmethod
    def _named(cls, criteria: dict[str, Criterion]) -> dict[str, Criterion]:
        check_metric_names("criterion", criteria)
        return criteria

    def make(self) -> RubricScorer:
        return RubricScorer.of(self)


SHARE = "rubric"
"""The metric that is the share of a sample's points."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class _Label:
    label: str | int
    reason: str


class RubricScorer(PromptedScorer[RubricSettings]):
    """``rubric`` is the share of the weighted points, ``criterion_polite`` that of one criterion.

    A reply is right (``accuracy``) where its share reaches ``pass``.
    """

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy", SHARE, *map(_metric, self.settings.criteria))

    @property
    def better(self) -> Mapping[str, Better]:
        return dict.fromkeys(self.metrics[1:], "higher")

    @property
    def default_prompt(self) -> str:
        has_points = any(one.points is not None for one in self.settings.criteria.values())
        return (
            "You say of a reply to a question how far it meets some criteria. For each criterion give your reason "
            f"in a sentence or two, and then one of its labels{', or a number of points' if has_points else ''}."
        )

    @property
    def facts(self) -> tuple[str, ...]:
        criteria = self.settings.criteria
        return tuple(f"- {name} ({_shown_grades(one)}): {one.text}" for name, one in criteria.items())

    @property
    def meaning(self) -> str:
        text = "Each label is one of those in brackets behind the name of its criterion"
        has_points = any(one.points is not None for one in self.settings.criteria.values())
        return f"{text}{'; points are a whole number' if has_points else ''}."

    def asking(self, presented: PreparedSample, responses: Sequence[Response]) -> JudgeSteps:
        """Judge each criterion; the sample is unscored unless there is a label for each."""
        criteria = self.settings.criteria
        schema = object_schema(
            {
                name: object_schema({**REASON, "label": {"type": _type(one), "enum": list(one.grades)}})
                for name, one in criteria.items()
            }
        )
        text = reply(responses)
        request = self.request(presented, self.task(presented), schema, ("Reply", text))
        found = yield from verdict(request, self._read)
        if found.value is None:
            return no_verdict(found.problem, {"verdicts": [{**found.shown, "problem": found.problem}]})
        shown: JSON = {
            "value": {name: one.label for name, one in found.value.items()},
            "reasons": {name: one.reason for name, one in found.value.items()},
            **found.shown,
        }
        points = {name: _points(criteria[name], one.label) for name, one in found.value.items()}
        weights = {name: one.counts for name, one in criteria.items()}
        share = math.fsum(points[name] * weights[name] for name in criteria) / math.fsum(weights.values())
        is_right = share >= self.settings.pass_ - _ROUNDING
        return Score(
            status="correct" if is_right else "wrong",
            answer=", ".join(f"{name}: {one.label}" for name, one in found.value.items()),
            values={
                "accuracy": float(is_right),
                SHARE: share,
                **{_metric(name): value for name, value in points.items()},
            },
            details={"verdicts": [shown], **said_to_be_cut(text, MAX_REPLY)},
        )

    def _read(self, found: Mapping[str, JSON]) -> dict[str, _Label]:
        criteria = self.settings.criteria
        checked_keys(found, list(criteria))
        return {name: _read_label(name, criterion, found[name]) for name, criterion in criteria.items()}


def _read_label(name: str, criterion: Criterion, entry: JSON) -> _Label:
    one = reason_in(entry)
    checked_keys(one, ("reason", "label"))
    label = one["label"]
    if isinstance(label, float) and label.is_integer():  # JSON knows no difference
        label = int(label)
    if isinstance(label, bool) or not isinstance(label, str | int) or label not in criterion.grades:
        raise ValueError(f"the label of {name} is {quote(label)}, expected {_shown_grades(criterion)}")
    return _Label(label, str(one["reason"]))


def _points(criterion: Criterion, label: str | int) -> float:
    grades: tuple[str | int, ...] = criterion.grades
    return grades.index(label) / (len(grades) - 1)


def _shown_grades(criterion: Criterion) -> str:
    return " or ".join(criterion.labels) if criterion.points is None else f"0 to {criterion.points} points"


def _type(criterion: Criterion) -> JSON:
    return "string" if criterion.points is None else "integer"


def _metric(criterion: str) -> str:
    return f"criterion_{criterion}"
