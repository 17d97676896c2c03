"""What was found of one metric on one sample, of the verdicts that it took."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeAlias, TypeVar

from pytest_llmeval.models.base import Failed
from pytest_llmeval.scorers.judging.rag_verdicts import Judged
from pytest_llmeval.scorers.judging.verdicts import Verdict
from pytest_llmeval.types import JSON, Ask, Response

__all__ = ["Found", "Gathering", "number_of", "problem_of", "shown_verdict"]

T = TypeVar("T")


Gathering: TypeAlias = Generator[Ask, Sequence[Response | Failed], T]
"""Something that asks models, and returns what came of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One metric of a sample: a ``value``, or the ``reason`` why it is not measurable, or a ``problem``: no verdict.

    ``verdicts`` are all that was asked for it, as a report shows it.
    """

    value: float | None = None
    reason: str | None = None
    problem: str | None = None
    verdicts: tuple[dict[str, JSON], ...] = ()

    def after(self, *verdicts: dict[str, JSON]) -> Self:
        """With verdicts that were there before."""
        return replace(self, verdicts=(*verdicts, *self.verdicts))


def number_of(
    found: Sequence[Verdict[Judged]],
    verdicts: tuple[dict[str, JSON], ...],
    formula: Callable[[Sequence[bool]], float],
) -> Found:
    """Return the value of a formula over verdicts, if all are there."""
    held = [one.value.holds for one in found if one.value is not None]
    if len(held) < len(found):
        return Found(problem=problem_of(found), verdicts=verdicts)
    return Found(value=formula(held), verdicts=verdicts)


def problem_of(found: Sequence[Verdict[T]]) -> str | None:
    return next((one.problem for one in found if one.value is None), None)


def shown_verdict(
    one: Verdict[T], head: Mapping[str, JSON], of_value: Callable[[T], Mapping[str, JSON]]
) -> dict[str, JSON]:
    """Return one asking as a report shows it: what was asked, what the judge said, and what that took."""
    if one.value is None:
        return {**head, "problem": one.problem, **one.shown}
    return {**head, **of_value(one.value), **one.shown}
