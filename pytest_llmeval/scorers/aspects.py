"""A judge rates the reply on aspects."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, field_validator, model_validator

from pytest_llmeval.data.spec import FROM_LIST, each_once, refuse_here
from pytest_llmeval.models.base import JudgeSteps
from pytest_llmeval.scorers.judging.judged_scorer import (
    MAX_REPLY,
    NAMES_IN_SCHEMA,
    REASON,
    PromptedScorer,
    PromptedSettings,
    check_metric_names,
    checked_keys,
    columns,
    object_schema,
    reason_in,
)
from pytest_llmeval.scorers.judging.verdicts import no_verdict, verdict
from pytest_llmeval.scoring.base import Better, PreparedSample, side_by_side
from pytest_llmeval.scoring.references import column, quote
from pytest_llmeval.scoring.responses import reply, said_to_be_cut
from pytest_llmeval.text.wording import describe, expected_one_of, quoted
from pytest_llmeval.types import JSON, Response, Sample, Score

__all__ = ["ASPECTS", "AspectsScorer", "AspectsSettings"]

ASPECTS: Mapping[str, str] = {
    "accuracy": "What the reply says is true, and agrees with the reference answer where there is one.",
    "completeness": "The reply answers all of the question, and leaves out nothing that matters.",
    "clarity": "The reply is easy to understand, well ordered, and says nothing twice.",
}
"""The aspects that need no description in a suite."""
_Known: TypeAlias = Literal["accuracy", "completeness", "clarity"]
_Described: TypeAlias = Annotated[dict[str, str], Field(json_schema_extra=NAMES_IN_SCHEMA)]


def _aspects(value: object) -> object:
    """Return ``[accuracy, {tone: …}]`` as a mapping of names to descriptions; built-in aspects have ours."""
    if not isinstance(value, list):
        return value
    found: list[tuple[str, object]] = []
    for place, entry in enumerate(value):
        if isinstance(entry, dict) and len(entry) == 1:
            found += entry.items()
        elif isinstance(entry, str) and entry in ASPECTS:
            found.append((entry, ASPECTS[entry]))
        elif isinstance(entry, str):
            advice = f"{expected_one_of(entry, ASPECTS)}; describe one of your own: {{{entry}: …}}"
            raise refuse_here(f"there is no aspect {quoted(entry)}{advice}", place)
        else:
            raise refuse_here(f"found {describe(entry)}, expected an aspect's name, or {{name: description}}", place)
    each_once("aspect")(tuple(name for name, _ in found))
    return dict(found)


_Columns: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(columns, json_schema_input_type=str | list[str])]


class AspectsSettings(PromptedSettings):
    """A judge rates the reply on aspects, each with a whole number."""

    kind: Literal["aspects"] = "aspects"
    aspects: Annotated[
        dict[str, str], BeforeValidator(_aspects, json_schema_input_type=list[_Known | _Described] | _Described)
    ] = Field(
        default_factory=lambda: dict(ASPECTS),
        description="What the judge rates: a mapping of names to descriptions, or a list of accuracy, completeness, "
        "clarity and such mappings.",
    )
    scale: Annotated[tuple[int, int], FROM_LIST] = Field((1, 5), description="The lowest and the highest rating.")
    n_iter: int = Field(
        3,
        ge=1,
        le=100,
        description="How often the judge is asked, each time with another seed; the mean of its ratings counts.",
    )
    temperature: float = Field(
        0.7,
        ge=0,
        le=10,
        description="The judge's temperature: at 0 it gives its likeliest verdict, the same each time.",
    )
    domain: str | None = Field(None, description="The field of knowledge of the questions, which the judge is told.")

    recorded: dict[str, _Columns] | None = Field(
        None,
        description="For each aspect, the column with ratings that a judge gave earlier, or a list of columns, one "
        "for each time it was asked. No judge is asked then. Ratings in one column have no spread.",
    )

    @model_validator(mode="before")
    @classmethod
    def _what_was_rated(cls, data: object) -> object:
        """Take recorded aspects for what is rated where no others are named: nobody is told what they mean."""
        recorded = data.get("recorded") if isinstance(data, dict) else None
        if isinstance(data, dict) and isinstance(recorded, dict) and data.get("aspects") is None:
            return {**data, "aspects": {name: ASPECTS.get(name, str(name)) for name in recorded}}
        return data

    @model_validator(mode="after")
    def _each_is_recorded(self) -> Self:
        for name in () if self.recorded is None else self.aspects:
            if name not in (self.recorded or ()):
                raise refuse_here(f"found no column for the aspect {quoted(name)}, expected one for each", "recorded")
        for name in self.recorded or ():
            if name not in self.aspects:
                raise refuse_here(f"{quoted(name)} is not among the aspects", "recorded", name)
        return self

    @property
    def recorded_columns(self) -> tuple[str, ...]:
        return tuple(column for columns in (self.recorded or {}).values() for column in columns)

    @property
    def unsaid(self) -> tuple[str, ...]:
        return (*super().unsaid, "recorded") if self.recorded is None else super().unsaid

    @field_validator("aspects")
    @classmethod
    def _named(cls, aspects: dict[str, str]) -> dict[str, str]:
        check_metric_names("aspect", aspects)
        for name, description in aspects.items():
            if not description.strip():
                raise refuse_here("found an empty text, expected what is rated, in words", name)
        return aspects

    @field_validator("scale", mode="before")
    @classmethod
    def _bounds(cls, value: object) -> object:
        if isinstance(value, list) and len(value) != 2:
            found = f"{len(value)} {'entry' if len(value) == 1 else 'entries'}"
            raise refuse_here(f"found {found}, expected two whole numbers, the lower one first")
        return value

    @field_validator("scale")
    @classmethod
    def _rising(cls, scale: tuple[int, int]) -> tuple[int, int]:
        if not scale[0] < scale[1]:
            raise refuse_here(f"found {list(scale)}, expected two whole numbers, the lower one first")
        return scale

    def make(self) -> AspectsScorer:
        return AspectsScorer.of(self)


MEAN = "aspects"
"""The metric that is the mean of a sample's aspects."""
_MOST_LISTED = 101
"""Ratings that a schema lists."""


@dataclass(frozen=True, slots=True)
class _Rating:
    score: int
    reason: str


class AspectsScorer(PromptedScorer[AspectsSettings]):
    """``aspect_clarity`` is the mean rating of clarity over the askings, ``aspects`` the mean over the aspects."""

    @property
    def metrics(self) -> tuple[str, ...]:
        return (MEAN, *map(_metric, self.settings.aspects))

    @property
    def better(self) -> Mapping[str, Better]:
        return dict.fromkeys(self.metrics, "higher")

    @property
    def default_prompt(self) -> str:
        low, high = self.settings.scale
        return (
            f"You rate a reply to a question on some aspects, each with a whole number from {low} (the worst) to "
            f"{high} (the best). First give your reason in a sentence or two."
        )

    @property
    def facts(self) -> tuple[str, ...]:
        settings = self.settings
        domain = () if settings.domain is None else (f"The question is from the field of {settings.domain}.",)
        return (*domain, *(f"- {name}: {description}" for name, description in settings.aspects.items()))

    @property
    def meaning(self) -> str:
        low, high = self.settings.scale
        return f"Each score is a whole number from {low} (the worst) to {high} (the best)."

    def present(self, sample: Sample) -> PreparedSample:
        """Raise ``ValueError`` where the sample lacks a column of recorded ratings, or has another value in one."""
        presented = super().present(sample)
        ratings = {name: str(self._recorded(sample, name)) for name in self.settings.recorded_columns}
        return replace(presented, judged_with={**presented.judged_with, **ratings})

    def asking(self, presented: PreparedSample, responses: Sequence[Response]) -> JudgeSteps:
        """Ask ``n_iter`` times. The sample is unscored unless each of the askings gives a rating of each aspect."""
        if self.settings.recorded is not None:
            return self._recorded_score(presented.sample, self.settings.recorded)
        text, settings = reply(responses), self.settings
        low, high = settings.scale
        task = self.task(presented)
        rating = object_schema({**REASON, "score": _whole_numbers(low, high)})
        schema = object_schema(dict.fromkeys(settings.aspects, rating))
        requests = [
            self.request(presented, task, schema, ("Reply", text), number=number) for number in range(settings.n_iter)
        ]
        found = yield from side_by_side([verdict(request, self._read) for request in requests])
        shown: list[JSON] = [
            {**_shown(one.value), **one.shown, **({} if one.problem is None else {"problem": one.problem})}
            for one in found
        ]
        problem = next((one.problem for one in found if one.problem is not None), None)
        if problem is not None:
            return no_verdict(problem, {"verdicts": shown})
        ratings = [one.value for one in found if one.value is not None]
        of_aspect = {name: [float(rating[name].score) for rating in ratings] for name in settings.aspects}
        spread: dict[str, JSON] = {name: statistics.pstdev(scores) for name, scores in of_aspect.items()}
        return _score(of_aspect, {"verdicts": shown, "spread": spread, **said_to_be_cut(text, MAX_REPLY)})

    def _recorded_score(self, sample: Sample, recorded: Mapping[str, Sequence[str]]) -> Score:
        """Score the ratings of the data; unscored where one is missing. Those of one time have no spread."""
        found = {name: self._recorded(sample, name) for name in self.settings.recorded_columns}
        details: dict[str, JSON] = {"recorded": dict(found)}
        if lacking := [name for name, rating in found.items() if rating is None]:
            return no_verdict(f"none was recorded in {lacking[0]}", details)
        of_aspect = {
            name: [rating for one in recorded[name] if (rating := found[one]) is not None]
            for name in self.settings.aspects
        }
        spread: dict[str, JSON] = {
            name: statistics.pstdev(ratings) for name, ratings in of_aspect.items() if len(ratings) > 1
        }
        return _score(of_aspect, {**details, **({"spread": spread} if spread else {})})

    def _recorded(self, sample: Sample, name: str) -> float | None:
        """Return a rating that was recorded, which may be the mean of several; None where the judge gave none."""
        found = column(sample, name)
        if found is None or found == "":
            return None
        low, high = self.settings.scale
        with suppress(TypeError, ValueError):
            rating = float(found) if isinstance(found, str | int | float) and not isinstance(found, bool) else math.nan
            if low <= rating <= high:
                return rating
        raise ValueError(f"{name} is {quote(found)}, expected a rating from {low} to {high}, or nothing")

    def _read(self, found: Mapping[str, JSON]) -> dict[str, _Rating]:
        checked_keys(found, list(self.settings.aspects))
        return {name: self._rating(name, found[name]) for name in self.settings.aspects}

    def _rating(self, name: str, entry: JSON) -> _Rating:
        one = reason_in(entry)
        checked_keys(one, ("reason", "score"))
        score, (low, high) = one["score"], self.settings.scale
        if isinstance(score, float) and score.is_integer():  # JSON knows no difference, nor does its schema
            score = int(score)
        if isinstance(score, bool) or not isinstance(score, int) or not low <= score <= high:
            raise ValueError(f"the rating of {name} is no whole number from {low} to {high}")
        return _Rating(score, str(one["reason"]))


def _whole_numbers(low: int, high: int) -> JSON:
    """Return the JSON Schema of whole numbers from ``low`` to ``high``. Some servers leave bounds aside, and hold a
    reply to a list.
    """
    if high - low < _MOST_LISTED:
        return {"type": "integer", "enum": list(range(low, high + 1))}
    return {"type": "integer", "minimum": low, "maximum": high}


def _score(of_aspect: Mapping[str, Sequence[float]], details: Mapping[str, JSON]) -> Score:
    """Return the score of the ratings of each aspect."""
    means = {name: math.fsum(ratings) / len(ratings) for name, ratings in of_aspect.items()}
    return Score(
        status="scored",
        answer=", ".join(f"{name} {mean:.3g}" for name, mean in means.items()),
        values={
            MEAN: math.fsum(means.values()) / len(means),
            **{_metric(name): mean for name, mean in means.items()},
        },
        details=details,
    )


def _metric(aspect: str) -> str:
    return f"aspect_{aspect}"


def _shown(ratings: Mapping[str, _Rating] | None) -> dict[str, JSON]:
    if ratings is None:
        return {}
    return {
        "value": {name: one.score for name, one in ratings.items()},
        "reasons": {name: one.reason for name, one in ratings.items()},
    }
