"""What gates are to do, and what of everything the session was to run: handed on whole to all that decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pytest_llmeval.gates.margins import Margin
from pytest_llmeval.reporting.report.gate_results import GateMode, GateOutcome
from pytest_llmeval.reporting.report.records import SuiteInfo
from pytest_llmeval.suites.format.gate_rules import GivenGate

__all__ = ["BaselineSettings", "GateOptions", "Given", "Selection", "parse_alpha"]

Given: TypeAlias = Sequence[tuple[GivenGate, Literal["ini", "option"]]]
"""Gates from outside of suites, with where they come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineSettings:
    """How a session is compared with its baseline. ``compare`` ``common`` takes the samples that are the same in both,
    where the suites differ; ``alpha`` is the chance of a false alarm in the whole session.
    """

    mode: GateMode = "significant"
    margins: tuple[Margin, ...] = ()
    compare: Literal["all", "common"] = "all"
    alpha: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """What was asked for: the gates ``given`` from outside of suites, and a ``comparison`` with a baseline.

    ``origin`` says where the baseline comes from: the project's ini file asks for nothing where there is nothing to
    compare. ``allow_unscored`` samples of the session may be unscored, and as many of the suites of the baseline that
    they are compared with. ``require`` has undecided gates, and selections, fail.
    """

    given: Given = ()
    comparison: BaselineSettings | None = None
    origin: Literal["ini", "option"] = "option"
    allow_unscored: int = 0
    require: bool = False

    @property
    def undecided(self) -> GateOutcome:
        """What a gate comes to that cannot be decided."""
        return "failed" if self.require else "skipped"


def parse_alpha(value: str) -> float:
    """``BaselineSettings.alpha`` from an option's text. ``ValueError`` says what is expected."""
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < 0.5:
        raise ValueError("expected a number above 0 and below 0.5, such as 0.05")
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What of everything that there is the session was to run.

    ``covers`` says of a suite of the baseline whether it stands where the session looked for suites; ``is_partial``,
    whether tests were left out there (``-k``, ``-m``, …), ``is_by_outcome``, whether they were chosen by how they came
    out the last time (``--lf``). ``is_whole``: it looked at the whole project, and nothing was left out. ``absent`` are
    suites that were collected and have no sample that was to run. ``has_model`` is False where nobody was there to
    answer the suites.
    """

    covers: Callable[[SuiteInfo], bool] = lambda info: True
    is_partial: bool = False
    is_by_outcome: bool = False
    is_whole: bool = False
    absent: Sequence[SuiteInfo] = ()
    has_model: bool = True
