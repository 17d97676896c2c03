"""Which figures of a report are drawn: no more than the limit, and all others where one fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.figures import curves
from pytest_llmeval.reporting.figures.catalogue import KINDS, figures_of, planned_figures
from pytest_llmeval.reporting.report.report import Report
from tests.reporting.figures.drawn import report_of_all


@pytest.fixture(scope="module")
def whole() -> Report:
    return report_of_all()


def broken(*_: object, **__: object) -> None:
    raise OverflowError("too large")


def test_no_more_than_the_limit_is_drawn(whole: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = [one.name for one in planned_figures(whole)]
    monkeypatch.setattr(curves, "_panels", broken)
    monkeypatch.setattr(curves, "_risk_figure", broken)
    limit = next(place for place, name in enumerate(planned) if name.startswith("reliability"))
    figures = figures_of(whole, limit=limit)
    assert figures.num_left_out == 0
    assert [figure.name for figure in figures] == planned[:limit]
    assert figures.num_left_out == len(planned) - limit
    assert not figures.failed
    assert [*figures] == []
    assert figures.num_left_out == len(planned) - limit


def test_a_limit_that_is_not_reached(whole: Report) -> None:
    planned = [one.name for one in planned_figures(whole)]
    figures = figures_of(whole, limit=len(planned))
    assert [figure.name for figure in figures] == planned
    assert figures.num_left_out == 0


def test_figures_of_all_suites_come_before_those_of_each(whole: Report) -> None:
    """However many suites there are, the first figures are those that compare them."""
    members = [suite for suite in whole.suites if suite.reliability]
    many = [replace(suite, info=replace(suite.info, name=f"suite {place}")) for place in range(50) for suite in members]
    names = [one.name for one in planned_figures(replace(whole, suites=(*many, *whole.suites)))]
    kinds = [next(kind for kind in KINDS if name.startswith(kind)) for name in names]
    assert kinds == sorted(kinds, key=KINDS.index)
    assert {"forest", "differences", "agreement", "price"} <= set(kinds[:40])
    assert len(names) > 50


@pytest.mark.parametrize("part", ["_bins", "_panels"])
def test_a_kind_that_fails_costs_no_other(
    whole: Report, part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As it is planned, and as it is drawn."""
    monkeypatch.setattr(curves, part, broken)
    figures = figures_of(whole)
    kinds = list(dict.fromkeys(figure.kind for figure in figures))
    assert kinds == [kind for kind in KINDS if kind != "reliability"]
    (failed,) = figures.failed
    assert failed.startswith("reliability")
    assert failed.endswith(" (OverflowError: too large)")
    assert "could not be drawn" in caplog.text
    assert "Traceback" in caplog.text


def test_records_that_cannot_be_read_are_an_error(whole: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(_: Report) -> None:
        raise ReportError("gone")

    monkeypatch.setattr(curves, "risk_curves", unreadable)
    with pytest.raises(ReportError, match="gone"):
        list(figures_of(whole))
