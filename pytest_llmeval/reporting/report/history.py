"""Several reports of the same suites in the order of time, as data: ``gates/history.py`` makes it of reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pytest_llmeval.reporting.report.origin import ReportOrigin

__all__ = ["History", "HistoryPoint", "HistoryRun", "HistorySeries", "HistoryStep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRun:
    """One report of a history. ``is_partial``: it was stopped, or ran a selection. ``origin`` is empty if unknown."""

    path: str
    created: str
    models: tuple[str, ...]
    exit_code: int
    is_partial: bool = False
    origin: ReportOrigin = field(default_factory=ReportOrigin)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryStep:
    """The difference of a metric between a run and the one before it, over the ``n`` samples of both.

    ``before`` is the place of the run before. ``difference`` is this run minus that one, with its 95% interval.
    ``p_value`` is two-sided, ``p_adjusted`` Holm's over all steps of the history. ``is_better`` is None if it is not
    known which direction is better.
    """

    before: int
    n: int
    difference: float
    ci_low: float | None
    ci_high: float | None
    p_value: float
    p_adjusted: float
    is_significant: bool
    is_better: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """A metric in the run at the place ``run``, with its step, or with the reason ``untested`` why there is none.

    ``models`` answered the suite in this run.
    """

    run: int
    value: float | None
    n: int
    ci_low: float | None
    ci_high: float | None
    models: tuple[str, ...] = ()
    step: HistoryStep | None = None
    untested: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySeries:
    """A metric of a suite over time; ``model`` is None if no run has the suite on several models.

    ``is_usage``: it is what samples used, such as money, whose numbers may be very small.
    """

    suite: str
    model: str | None
    metric: str
    higher_is_better: bool | None
    points: tuple[HistoryPoint, ...]
    is_usage: bool = False

    @property
    def steps(self) -> Iterator[tuple[HistoryPoint, HistoryStep]]:
        """Yield the significant steps, each with its point."""
        for point in self.points:
            if point.step is not None and point.step.is_significant:
                yield point, point.step


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Runs in the order of time, and a series for each suite, model and metric. ``num_tests`` steps were tested."""

    runs: tuple[HistoryRun, ...]
    series: tuple[HistorySeries, ...]
    alpha: float
    num_tests: int
