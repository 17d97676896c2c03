"""The options of gates: the gates that are given, the drops that are allowed, and what the session selected."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pytest_llmeval.reporting.report.records import SuiteInfo
from pytest_llmeval.reporting.report.report import GateMode, GateOutcome, Report
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.suites.format.gates_spec import ANY_SUITE, GateRuleError, GivenGate
from pytest_llmeval.text.wording import quoted

__all__ = [
    "BaselineSettings",
    "Compare",
    "GateOptions",
    "Given",
    "Margin",
    "Selection",
    "parse_alpha",
    "parse_number_of_reports",
]

_EXAMPLE = "expected a metric, =, and a number of at least 0, such as 'accuracy=0.01' or 'boolq: seconds=10%'"


@dataclass(frozen=True, slots=True)
class Margin:
    """A drop of a metric that is allowed, in the metric's unit, in a suite (``*``: in all that have it).

    ``is_share``: it is a share of the baseline's value instead. ``text`` is the user's, if there was one.
    """

    suite: str
    metric: str
    value: float
    text: str = field(default="", compare=False)
    is_share: bool = False

    @classmethod
    def parse(cls, text: str) -> Margin:
        """Read ``SUITE: METRIC=VALUE``, or ``10%``; a suite's name may hold colons. Raises ``GateRuleError``."""
        left, equals, number = text.rpartition("=")
        suite, colon, metric = left.rpartition(":")
        suite, metric, number = suite.strip(), metric.strip(), number.strip()
        if not equals or not metric or not number or not text.isprintable() or (colon and not suite):
            raise GateRuleError(f"found {quoted(text)}, {_EXAMPLE}")
        is_share = number.endswith("%")
        try:
            value = float(number.removesuffix("%")) / (100 if is_share else 1)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0:
            raise GateRuleError(f"found {quoted(text)}, in which {quoted(number)} is not a valid drop; {_EXAMPLE}")
        known = definition(metric)
        widest = known.highest - known.lowest
        if is_share:
            if math.isfinite(widest):
                raise GateRuleError(
                    f"found {quoted(text)}: a share of the baseline's value is for metrics without an upper "
                    f"limit, such as seconds; write {metric}={value:g} for a drop of {value:g}"
                )
            return cls(suite or ANY_SUITE, metric, value, text, is_share=True)
        if value >= widest:
            hint = f"; did you mean {value / 100:g}?" if value / 100 < widest else ""
            raise GateRuleError(
                f"found {quoted(text)}, which allows every drop: {metric} lies between {known.lowest:g} and "
                f"{known.highest:g}{hint}"
            )
        return cls(suite or ANY_SUITE, metric, value, text)

    def matches(self, suite: SuiteInfo) -> bool:
        """Tell whether it is for the suite: for it by its name, for all variants of a suite, or for all suites."""
        return self.suite in (ANY_SUITE, suite.name, suite.base)

    def __str__(self) -> str:
        prefix = "" if self.suite == ANY_SUITE else f"{self.suite}: "
        return (
            f"{prefix}{self.metric}={100 * self.value:g}%" if self.is_share else f"{prefix}{self.metric}={self.value:g}"
        )


Given: TypeAlias = Sequence[tuple[GivenGate, Literal["ini", "option"]]]
"""Gates that do not stand in suites, each with its source."""


Compare: TypeAlias = Literal["all", "common", "questions"]
"""The samples of a suite that are compared if it differs from the baseline's: none; those that are the same; or those
whose question, target and scorer are, whatever the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineSettings:
    """The rules by which a session is compared with its baseline. ``alpha`` is the chance of a false alarm in the whole
    session.
    """

    mode: GateMode = "significant"
    margins: tuple[Margin, ...] = ()
    compare: Compare = "all"
    alpha: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """The gates of a session: those ``given`` outside of suites, and a ``comparison`` with a baseline.

    ``origin`` is the baseline's: one of the ini file fails nothing if there is nothing to compare. ``allow_unscored``
    samples of the session may be unscored, and as many of the baseline's suites that they are compared with. With
    ``require``, undecided gates and selections fail. ``is_first``: there is no baseline yet, this session writes it.
    """

    given: Given = ()
    comparison: BaselineSettings | None = None
    origin: Literal["ini", "option"] = "option"
    allow_unscored: int = 0
    require: bool = False
    is_first: bool = False

    @property
    def undecided(self) -> GateOutcome:
        """Return the outcome of a gate that cannot be decided."""
        return "failed" if self.require else "skipped"


def parse_alpha(value: str) -> float:
    """Read ``BaselineSettings.alpha`` from an option's text. Raise ``ValueError`` with what is expected."""
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < 0.5:
        raise ValueError("expected a number above 0 and below 0.5, such as 0.05")
    return number


def parse_number_of_reports(value: str) -> int:
    """Read how many of several baselines a mean is of. Raise ``ValueError`` with what is expected."""
    if not (value.isascii() and value.isdecimal() and len(value) < 10 and int(value)):
        raise ValueError("expected a whole number above 0")
    return int(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The part of all samples that the session was to run.

    ``covers`` tells whether a suite of the baseline stands where the session looked for suites; ``is_partial``, whether
    tests were left out there (``-k``, ``-m``, …), ``is_by_outcome``, whether they were chosen by their last outcome
    (``--lf``). ``is_whole``: it looked at the whole project, and nothing was left out. ``absent`` are suites that were
    collected and have no selected sample. ``has_model`` is False if no model could answer the suites.
    """

    covers: Callable[[SuiteInfo], bool] = lambda info: True
    is_partial: bool = False
    is_by_outcome: bool = False
    is_whole: bool = False
    absent: Sequence[SuiteInfo] = ()
    has_model: bool = True

    @classmethod
    def of(cls, report: Report) -> Selection:
        """Return the selection that a report says it is of."""
        selected, is_short = report.selected, any(suite.is_selection for suite in report.suites)
        return cls(
            is_partial=bool(selected.by) or is_short,
            is_by_outcome=selected.is_by_outcome
            and (is_short or any(suite.info.num_samples is None for suite in report.suites)),
        )
