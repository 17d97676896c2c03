"""A judge says which of two replies is better, in both orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Literal, Self, TypeAlias, cast, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

from pytest_llmeval.data.spec import Spec, refuse_here
from pytest_llmeval.models.base import JudgeSteps
from pytest_llmeval.scorers.judging.judged_scorer import (
    MAX_REPLY,
    REASON,
    PromptedScorer,
    PromptedSettings,
    checked_keys,
    columns,
    object_schema,
    reason_in,
)
from pytest_llmeval.scorers.judging.verdicts import no_verdict, verdict
from pytest_llmeval.scoring.base import Better, PreparedSample, side_by_side
from pytest_llmeval.scoring.metrics.definitions import WILDCARD
from pytest_llmeval.scoring.references import column, quote
from pytest_llmeval.scoring.responses import reply, said_to_be_cut
from pytest_llmeval.text.wording import Keys, describe
from pytest_llmeval.types import JSON, EarlierReply, Response, Sample, Score

__all__ = ["PairwiseScorer", "PairwiseSettings"]


class AgainstBaseline(Spec):
    """The other reply is that of the baseline (``--llm-baseline``) to the same sample."""

    baseline: Literal[True] = Field(description="Compare with the reply in the report that --llm-baseline names.")


def _against(value: object) -> object:
    if isinstance(value, str | AgainstBaseline):
        return value
    if value == {"baseline": True}:
        return AgainstBaseline(baseline=True)
    raise refuse_here(f"found {describe(value)}, expected a column, or {{baseline: true}}")


_Pair: TypeAlias = Annotated[list[str], Field(min_length=1, max_length=2, json_schema_extra={"uniqueItems": True})]


class PairwiseSettings(PromptedSettings):
    """A judge says whether the reply or another one is better, in both orders."""

    kind: Literal["pairwise"] = "pairwise"
    against: Annotated[
        str | AgainstBaseline, BeforeValidator(_against, json_schema_input_type=str | AgainstBaseline)
    ] = Field(
        description="The column with the other reply; or {baseline: true}, for the reply in the report of "
        "--llm-baseline to the same sample of the suite of the same name."
    )
    criterion: str | None = Field(
        None, description="The criterion of the comparison, in the words that the judge is told."
    )
    ties: bool = Field(True, description="Whether the judge may say that neither is better.")
    recorded: Annotated[tuple[str, ...], BeforeValidator(columns, json_schema_input_type=str | _Pair)] | None = Field(
        None,
        description="The column with verdicts (reply, other or tie) that a judge gave earlier about pairs in one "
        "order, or a list of two columns: in the order reply, other, and in the opposite order. No judge is asked "
        "then. Verdicts in one order have no order_consistency.",
    )

    @field_validator("recorded", mode="before")
    @classmethod
    def _one_or_two(cls, value: object) -> object:
        if isinstance(value, list) and (not value or len(value) > 2):
            raise refuse_here(
                f"found {len(value)} entries, expected two columns, that of the order reply, other first, or one"
            )
        return value

    @model_validator(mode="after")
    def _recorded_verdicts_are_about_columns(self) -> Self:
        if self.needs_baseline and self.recorded is not None:
            raise refuse_here("found verdicts on the replies of a baseline, expected a column in against", "recorded")
        return self

    @property
    def recorded_columns(self) -> tuple[str, ...]:
        return self.recorded or ()

    @property
    def needs_baseline(self) -> bool:
        """Tell whether the other reply is the baseline's."""
        return isinstance(self.against, AgainstBaseline)

    @property
    def column_of_reply(self) -> str | None:
        return self.against if isinstance(self.against, str) else None

    @property
    def why_alone(self) -> tuple[str, Keys] | None:
        """Say why it stands alone: with a baseline's replies the suite's fingerprint changes with each baseline, for
        all of its scorers.
        """
        if not self.needs_baseline:
            return None
        return "a comparison with the replies of a baseline stands alone; give it a suite of its own", (
            "pairwise",
            "against",
        )

    def make(self) -> PairwiseScorer:
        return PairwiseScorer.of(self)


_Winner: TypeAlias = Literal["reply", "other", "tie"]
_POINTS: Mapping[_Winner, float] = {"reply": 1.0, "tie": 0.5, "other": 0.0}

_BY_LABEL: tuple[Mapping[str, _Winner], ...] = (
    {"A": "reply", "B": "other", "tie": "tie"},
    {"A": "other", "B": "reply", "tie": "tie"},
)
"""The meaning of a label in each of the two orders."""
_OTHER = "other reply"
_NO_DETAILS: Mapping[str, JSON] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Verdict:
    winner: _Winner
    reason: str


class PairwiseScorer(PromptedScorer[PairwiseSettings]):
    """``win_rate`` is 1 where the reply wins in both orders, 0 where it loses in both, else a half.

    ``order_consistency`` is the share of samples with one verdict in both orders, ``order_kappa`` Cohen's kappa of the
    two orders.
    """

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics. Verdicts in one order have no consistency."""
        is_of_one_order = self.settings.recorded is not None and len(self.settings.recorded) == 1
        return ("win_rate",) if is_of_one_order else ("win_rate", "order_consistency", "order_kappa")

    @property
    def better(self) -> Mapping[str, Better]:
        return {}

    @property
    def default_prompt(self) -> str:
        tie = ", or tie where neither is." if self.settings.ties else "."
        return (
            f"You compare two replies to a question and say which one is better: A, B{tie} Their order means nothing. "
            "First give your reason in a sentence or two."
        )

    @property
    def facts(self) -> tuple[str, ...]:
        return (self.settings.criterion,) if self.settings.criterion else ()

    @property
    def meaning(self) -> str:
        return f"Better is A or B{', or tie where neither is' if self.settings.ties else ''}."

    @property
    def columns_of_replies(self) -> tuple[str, ...]:
        against = self.settings.against
        return (*super().columns_of_replies, *((against,) if isinstance(against, str) else ()))

    def present(self, sample: Sample) -> PreparedSample:
        """Raise ``ValueError`` where the sample lacks a column that the settings name, or has another verdict in
        one.
        """
        settings = self.settings
        if isinstance(settings.against, str):
            other = column(sample, settings.against)
            if not isinstance(other, str):
                raise ValueError(f"{settings.against} is {quote(other)}, expected a text")
        else:
            other = None if sample.earlier is None else sample.earlier.text
        verdicts = {name: _winner_in(sample, name) or "" for name in settings.recorded or ()}
        if not settings.ties and "tie" in verdicts.values():
            raise ValueError("a recorded verdict is 'tie', and ties is false")
        presented = super().present(sample)
        return replace(presented, judged_with={**presented.judged_with, **verdicts, _OTHER: other or ""})

    def asking(self, presented: PreparedSample, responses: Sequence[Response]) -> JudgeSteps:
        """Ask in both orders. The sample is unscored unless there is a verdict in each order; not measurable where the
        baseline has no reply.
        """
        settings, sample = self.settings, presented.sample
        if settings.recorded is not None:
            recorded = {name: _winner_in(sample, name) for name in settings.recorded}
            given = [winner for winner in recorded.values() if winner is not None]
            if len(given) < len(recorded):
                lacking = next(name for name, winner in recorded.items() if winner is None)
                return no_verdict(f"none was recorded in {lacking}", {"recorded": dict(recorded)})
            return self._score(given)
        shown_too: dict[str, JSON] = {}
        if settings.needs_baseline:
            earlier = sample.earlier or EarlierReply(problem="there is no baseline")
            if earlier.problem is not None:
                return Score(status="unscored", reason=earlier.problem)
            if earlier.text is None:
                return Score(status="scored", not_measurable={WILDCARD: "the baseline has no reply to the sample"})
            shown_too = {_OTHER.replace(" ", "_"): earlier.text}
        mine, other = reply(responses), presented.judged_with[_OTHER]
        labels = [*("A", "B"), *(["tie"] if settings.ties else [])]
        task = self.task(presented)
        schema = object_schema({**REASON, "better": {"type": "string", "enum": list(labels)}})
        askings = []
        for number, (one, two) in enumerate(((mine, other), (other, mine))):
            request = self.request(presented, task, schema, ("Reply A", one), ("Reply B", two), number=number)
            askings.append(verdict(request, _Reader(number, tuple(labels))))
        found = yield from side_by_side(askings)
        shown: list[JSON] = [
            {
                **({"problem": one.problem} if one.value is None else _shown(one.value)),
                "order": ["reply", "other"] if number == 0 else ["other", "reply"],
                **one.shown,
            }
            for number, one in enumerate(found)
        ]
        winners = [one.value.winner for one in found if one.value is not None]
        if len(winners) < len(found):
            problem = next(one.problem for one in found if one.value is None)
            return no_verdict(problem, {"verdicts": shown})
        return self._score(winners, {"verdicts": shown, **shown_too, **said_to_be_cut(mine, MAX_REPLY)})

    def _score(self, winners: Sequence[_Winner], details: Mapping[str, JSON] = _NO_DETAILS) -> Score:
        """Score the verdicts in the two orders, or the only one that was recorded."""
        if len(winners) == 1:
            values = {"win_rate": _POINTS[winners[0]]}
            return Score(status="scored", answer=winners[0], values=values, details=details)
        first, second = winners
        values = {
            "win_rate": _POINTS[first] if first == second else 0.5,
            "order_consistency": float(first == second),
            "first_order": _POINTS[first],
            "second_order": _POINTS[second],
        }
        answer = first if first == second else f"{first}, then {second}"
        return Score(status="scored", answer=answer, values=values, details=details)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the verdict of one order."""

    order: int
    labels: tuple[str, ...]

    def __call__(self, found: Mapping[str, JSON]) -> _Verdict:
        checked_keys(found, ("reason", "better"))
        one = reason_in(found)
        label = one["better"]
        if not isinstance(label, str) or label not in self.labels:
            raise ValueError(f"better is {quote(label)}, expected {' or '.join(self.labels)}")
        return _Verdict(_BY_LABEL[self.order][label], str(one["reason"]))


def _shown(one: _Verdict) -> dict[str, JSON]:
    return {"value": one.winner, "reasons": one.reason}


def _winner_in(sample: Sample, name: str) -> _Winner | None:
    """Return a verdict that was recorded; None where the judge gave none."""
    found = column(sample, name)
    if found is None or found == "":
        return None
    if found not in get_args(_Winner):
        raise ValueError(f"{name} is {quote(found)}, expected reply, other or tie, or nothing")
    return cast("_Winner", found)
