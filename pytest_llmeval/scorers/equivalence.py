"""The reply means the same as a target: as text, as mathematics, else by the verdict of a judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self, TypeAlias

from pydantic import Field

from pytest_llmeval.models.base import JudgeSteps
from pytest_llmeval.scorers.exact import Normalization, normalized
from pytest_llmeval.scorers.judging.judged_scorer import (
    MAX_REPLY,
    REASON,
    PromptedScorer,
    PromptedSettings,
    checked_keys,
    object_schema,
    reason_in,
)
from pytest_llmeval.scorers.judging.verdicts import no_verdict, verdict
from pytest_llmeval.scorers.math import MathScorer, MathSettings
from pytest_llmeval.scoring.base import PreparedSample
from pytest_llmeval.scoring.responses import reply, right_or_wrong, said_to_be_cut
from pytest_llmeval.types import JSON, Response, Sample, Score

__all__ = ["EquivalenceScorer", "EquivalenceSettings"]


class EquivalenceSettings(PromptedSettings):
    """The reply means the same as a target: as text, as mathematics, else by the verdict of a judge."""

    kind: Literal["equivalence"] = "equivalence"
    needs_target = True
    math: bool = Field(
        True, description="First compare the final answers with Math-Verify, if it is installed and can read them."
    )
    form: Literal["json", "yes_no"] = Field(
        "json",
        description="What the judge writes: JSON with its reason, or only YES or NO, for judges that cannot write "
        "JSON.",
    )

    @property
    def unsaid(self) -> tuple[str, ...]:
        return (*super().unsaid, "form") if self.form == "json" else super().unsaid

    def make(self) -> EquivalenceScorer:
        return EquivalenceScorer.of(self)


_By: TypeAlias = Literal["exact", "math", "judge"]
_STEPS: tuple[Normalization, ...] = ("unicode", "lower", "collapse_whitespace")
_SCHEMA = object_schema({**REASON, "equivalent": {"type": "boolean"}})


@dataclass(frozen=True, slots=True)
class _Equivalent:
    is_equivalent: bool
    reason: str


@dataclass(frozen=True, slots=True)
class EquivalenceScorer(PromptedScorer[EquivalenceSettings]):
    """Right where the reply means the same as a target; ``decided_by_judge`` counts what the judge had to decide.

    Made by ``of``. ``math`` compares by value, None where the suite does without, or Math-Verify is not installed.
    """

    math: MathScorer | None = None

    @classmethod
    def of(cls, settings: EquivalenceSettings) -> Self:
        if not settings.math:
            return cls(settings)
        try:
            return cls(settings, MathScorer.of(MathSettings()))
        except ValueError:  # not installed
            return cls(settings)

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy", "no_answer", "decided_by_exact", "decided_by_math", "decided_by_judge")

    @property
    def default_prompt(self) -> str:
        return (
            "You decide whether a reply to a question gives the same answer as a reference answer. How it is written, "
            "what stands beside it, and steps on the way to it do not matter; every part of the answer does. Where "
            "there are several reference answers, one of them is enough."
            f"{' First give your reason in a sentence or two.' if self._is_json else ''}"
        )

    @property
    def _is_json(self) -> bool:
        return self.settings.form == "json"

    @property
    def meaning(self) -> str:
        if not self._is_json:
            return "YES says that the reply gives the same answer as a reference answer, NO that it does not."
        return "Equivalent is true where the reply gives the same answer as a reference answer, else false."

    def versions(self) -> list[JSON]:
        """Return its versions with those of the mathematics, or that there is none: it decides which samples the judge
        sees.
        """
        return [self.name, self.version, "no mathematics" if self.math is None else self.math.versions()]

    def present(self, sample: Sample) -> PreparedSample:
        """Prepare the sample; a target is a text or a list of texts."""
        if sample.target is None:
            raise ValueError("the sample has no target to compare the reply with")
        return super(EquivalenceScorer, self).present(sample)

    def asking(self, presented: PreparedSample, responses: Sequence[Response]) -> JudgeSteps:
        """Judge; an empty reply is wrong. Unscored if the judge has to decide and does not."""
        text = reply(responses)
        if not text.strip():
            return _decided(False, None, "exact")
        if any(normalized(text, _STEPS) == normalized(target, _STEPS) for target in presented.references):
            return _decided(True, text.strip(), "exact")
        if self.math is not None and (answer := self._equal_in_value(presented, responses)) is not None:
            return _decided(True, answer, "math")
        schema, read = (_SCHEMA, _read) if self._is_json else (None, _read_word)
        request = self.request(presented, self.task(presented), schema, ("Reply", text))
        found = yield from verdict(request, read, is_json=self._is_json)
        if found.value is None:
            return no_verdict(found.problem, {"verdicts": [{**found.shown, "problem": found.problem}]})
        said: dict[str, JSON] = {"reasons": found.value.reason} if self._is_json else {"asked": "equivalent"}
        shown: JSON = {"value": found.value.is_equivalent, **said, **found.shown}
        score = _decided(found.value.is_equivalent, text.strip(), "judge")
        return replace(score, details={**score.details, "verdicts": [shown], **said_to_be_cut(text, MAX_REPLY)})

    def _equal_in_value(self, presented: PreparedSample, responses: Sequence[Response]) -> str | None:
        """Return the answer in the reply, where mathematics says that it equals a target's; None where it does not say
        so.
        """
        assert self.math is not None
        try:
            score = self.math.score(self.math.present(presented.sample), responses)
        except ValueError:  # a target in which it finds no answer
            return None
        return score.answer or "" if score.status == "correct" else None


def _read(found: Mapping[str, JSON]) -> _Equivalent:
    checked_keys(found, ("reason", "equivalent"))
    one = reason_in(found)
    if not isinstance(one["equivalent"], bool):
        raise ValueError("equivalent is neither true nor false")
    return _Equivalent(one["equivalent"], str(one["reason"]))


def _read_word(found: Mapping[str, JSON]) -> _Equivalent:
    return _Equivalent(bool(found["yes"]), "")


def _decided(is_right: bool, answer: str | None, by: _By) -> Score:
    values = {f"decided_by_{name}": float(name == by) for name in ("exact", "math", "judge")}
    return right_or_wrong(is_right, answer, values=values, details={"decided_by": by})
