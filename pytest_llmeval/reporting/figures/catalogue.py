"""The figures of a report, one at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, NoReturn

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.text.redaction import describe

if TYPE_CHECKING:
    from pytest_llmeval.reporting.figures.report_figure import PlannedFigure, ReportFigure, Shown
    from pytest_llmeval.reporting.report.report import Report

__all__ = [
    "KINDS",
    "FiguresUnavailable",
    "ReportFigures",
    "figures_of",
    "planned_figures",
]

KINDS = ("forest", "differences", "agreement", "price", "reliability", "risk-coverage", "pass-at-k")
"""The kinds of figures in their order: those about all suites before those about one."""

MAX_FIGURES = 40
"""The most figures of a page or a document. Each takes a tenth of a second or more."""

_LOG = logging.getLogger("pytest_llmeval")


class FiguresUnavailable(LLMEvalError):
    """matplotlib is not installed."""

    def __init__(self) -> None:
        super().__init__("figures need matplotlib: pip install 'pytest-llmeval-suites[report]'")


class ReportFigures(Iterator["ReportFigure"]):
    """An iterator of figures that draws each when it is its turn. A figure that cannot be drawn is left out.

    At the end, ``num_left_out`` counts the figures beyond the limit, and ``failed`` has a text for each figure that
    could not be drawn: its name and why.
    """

    def __init__(self, planned: Iterable[PlannedFigure], limit: int | None = None) -> None:
        self._planned, self._limit, self._num_begun = iter(planned), limit, 0
        self.num_left_out = 0
        self.failed: list[str] = []

    def __next__(self) -> ReportFigure:
        for planned in self._planned:
            if self._num_begun == self._limit:
                self.num_left_out = 1 + sum(1 for _ in self._planned)
                break
            self._num_begun += 1
            try:
                return planned.draw()
            except LLMEvalError:
                raise
            except Exception as error:  # from matplotlib, which is given numbers of any size
                self.note_failure(planned.name, error)
        raise StopIteration

    def note_failure(self, name: str, error: Exception) -> None:
        """Note a figure that could not be drawn or, since matplotlib draws some parts late, not be written."""
        _LOG.error("the figure %s could not be drawn", name, exc_info=error)
        self.failed.append(f"{name} ({describe(error)})")


def figures_of(
    report: Report,
    kinds: Collection[str] = KINDS,
    *,
    metrics: Collection[str] = (),
    limit: int | None = MAX_FIGURES,
) -> ReportFigures:
    """Return the report's figures of these kinds, drawn one at a time, in the order of ``KINDS``.

    There are at most ``limit`` figures; None is no limit. ``metrics`` choose what the kinds forest, differences and
    price show, by default the main metric of each suite. All intervals are the report's own, but for risk over
    coverage, which has Wilson's. Its records are read at most once, and only for that kind. Raise
    ``FiguresUnavailable``, and ``ReportError`` for records that cannot be read.
    """
    return ReportFigures(planned_figures(report, kinds, metrics=metrics), limit)


def planned_figures(
    report: Report, kinds: Collection[str] = KINDS, *, metrics: Collection[str] = ()
) -> Iterator[PlannedFigure]:
    """Return everything that ``figures_of`` would draw, with the names."""
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise ValueError(f"there is no kind of figures {min(unknown)!r}; there are {', '.join(KINDS)}")
    _check_available()
    from pytest_llmeval.reporting.figures.report_figure import Shown

    return _planned(Shown(report, tuple(dict.fromkeys(metrics))), kinds)


def _check_available() -> None:
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise FiguresUnavailable from None


def _planned(shown: Shown, kinds: Collection[str]) -> Iterator[PlannedFigure]:
    from pytest_llmeval.reporting.figures.curves import pass_at_k_figures, reliability_figures, risk_coverage_figures
    from pytest_llmeval.reporting.figures.forest_plots import agreement_figures, differences_figures, forest_figures
    from pytest_llmeval.reporting.figures.price import price_figures

    planners = (
        forest_figures,
        differences_figures,
        agreement_figures,
        price_figures,
        reliability_figures,
        risk_coverage_figures,
        pass_at_k_figures,
    )
    for kind, planner in zip(KINDS, planners, strict=True):
        if kind in kinds:
            yield from _of_kind(kind, planner, shown)


def _of_kind(kind: str, planner: Callable[[Shown], Iterator[PlannedFigure]], shown: Shown) -> Iterator[PlannedFigure]:
    """Return the planned figures of one kind. If planning fails, the last one fails when it is drawn, so that the other
    kinds go on.
    """
    try:
        yield from planner(shown)
    except LLMEvalError:
        raise
    except Exception as error:
        from pytest_llmeval.reporting.figures.report_figure import PlannedFigure

        failure = error

        def fail(_: str) -> NoReturn:
            raise failure

        yield PlannedFigure(shown.names.new(kind), fail)
