"""The figures of a report, one at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.reporting.figures.report_figure import ReportFigure

if TYPE_CHECKING:
    from pytest_llmeval.reporting.figures.shown import Shown
    from pytest_llmeval.reporting.report.report import Report

__all__ = ["KINDS", "FiguresUnavailable", "ReportFigure", "figures_of", "svg_text"]

KINDS = ("forest", "differences", "reliability", "risk-coverage", "pass-at-k", "agreement", "price")
"""What a figure can show, in the order in which figures come."""


class FiguresUnavailable(LLMEvalError):
    """matplotlib is not installed."""

    def __init__(self) -> None:
        super().__init__("figures need matplotlib: pip install 'pytest-llmeval-suites[report]'")


def figures_of(
    report: Report, kinds: Collection[str] = KINDS, *, metrics: Collection[str] = ()
) -> Iterator[ReportFigure]:
    """The report's figures of these kinds, drawn one at a time, in the order of ``KINDS``; none where nothing fits.

    ``metrics`` are those of the kinds forest, differences and price, without any the main one of each suite. All
    intervals are the report's own; risk over coverage has Wilson's. The report's records are read at most once, and
    only for the latter. Raises ``FiguresUnavailable``, and ``ReportError`` for records that cannot be read.
    """
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise ValueError(f"there is no kind of figures {min(unknown)!r}; there are {', '.join(KINDS)}")
    _check_available()
    from pytest_llmeval.reporting.figures.shown import Shown

    return _drawn(Shown(report, tuple(dict.fromkeys(metrics))), kinds)


def svg_text(figure: ReportFigure) -> str:
    """One ``<svg …>…</svg>`` for a page, see ``svg.svg_text``."""
    from pytest_llmeval.reporting.figures import svg

    return svg.svg_text(figure)


def _check_available() -> None:
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise FiguresUnavailable from None


def _drawn(shown: Shown, kinds: Collection[str]) -> Iterator[ReportFigure]:
    from pytest_llmeval.reporting.figures.curves import pass_at_k_figures, risk_coverage_figures
    from pytest_llmeval.reporting.figures.differences import differences_figures
    from pytest_llmeval.reporting.figures.forest import agreement_figures, forest_figures
    from pytest_llmeval.reporting.figures.price import price_figures
    from pytest_llmeval.reporting.figures.reliability import reliability_figures

    drawers = (
        forest_figures,
        differences_figures,
        reliability_figures,
        risk_coverage_figures,
        pass_at_k_figures,
        agreement_figures,
        price_figures,
    )
    for kind, draw in zip(KINDS, drawers, strict=True):
        if kind in kinds:
            yield from draw(shown)
