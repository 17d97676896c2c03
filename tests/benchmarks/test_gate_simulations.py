"""The simulations of the gate against a baseline, with few repetitions: they hold, and find what does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import gate_creep, gate_false_alarms, gate_power
from benchmarks.gate_simulation import failed
from pytest_llmeval.gates.baseline import compare_reports
from pytest_llmeval.gates.earlier_reports import EarlierReports
from pytest_llmeval.gates.options import BaselineSettings, GateOptions, Selection
from pytest_llmeval.gates.regressions import fails
from pytest_llmeval.scoring.statistics.paired_tests import PairedValues, run_family
from tests.gates.reports_for_tests import ran, report

pytestmark = pytest.mark.slow


@pytest.mark.campaign
def test_false_alarms(capsys: pytest.CaptureFixture[str]) -> None:
    assert gate_false_alarms.main(["--sessions", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 24 + 2 + 1
    assert lines[-1] == "held"


@pytest.mark.campaign
def test_power(capsys: pytest.CaptureFixture[str]) -> None:
    assert gate_power.main(["--sessions", "200"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(gate_power.SETTINGS) + 1
    assert lines[-1] == "held"


def test_without_holm_there_are_too_many(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def each_alone(session: Sequence[PairedValues]) -> list[bool]:
        return [failed([suite])[0] for suite in session]

    monkeypatch.setattr(gate_false_alarms, "failed", each_alone)
    assert gate_false_alarms.main(["--sessions", "10"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("NOT HELD")


def test_a_weak_gate_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def of_half(session: Sequence[PairedValues]) -> list[bool]:
        halves = [PairedValues(first=suite.first[::2], second=suite.second[::2]) for suite in session]
        return failed(halves)

    monkeypatch.setattr(gate_power, "failed", of_half)
    assert gate_power.main(["--sessions", "100"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("NOT HELD")


@pytest.mark.campaign
def test_creep(capsys: pytest.CaptureFixture[str]) -> None:
    assert gate_creep.main(["--histories", "40"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 3 * len(gate_creep.MODELS) + 1
    assert lines[-1] == "held"


def test_drops_that_are_too_small_are_not_called_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gate_creep, "DROP", 0.001)
    monkeypatch.setattr(gate_creep, "MODELS", ("kept",))
    assert gate_creep.main(["--histories", "10"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("NOT HELD")


@pytest.mark.parametrize("model", ["even", "hard", "pairs", "kept"])
def test_runs_differ_as_much_as_is_said_and_drop_by_a_point_each(model: str) -> None:
    random = np.random.default_rng(1)
    histories = [list(gate_creep.history(model, random, 0.01)) for _ in range(40)]
    differing = np.mean([np.mean(one[place] != one[place + 1]) for one in histories for place in range(10)])
    assert differing == pytest.approx(0.1, abs=0.012)
    assert np.mean([one[0].mean() - one[10].mean() for one in histories]) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("model", gate_creep.MODELS)
def test_the_simulated_tests_are_those_of_reports(model: str) -> None:
    n = 200
    runs = list(gate_creep.history(model, np.random.default_rng(2), 0.02, n))
    clusters = gate_creep.clusters_of(model, n)
    named = None if clusters is None else {str(place): str(own) for place, own in enumerate(clusters)}
    suites = [ran([*map(outcome, run)], clusters=named, min_measurable=0.5) for run in runs]
    reports = [
        (f"{day}.json", replace(report(suite), created=f"2026-01-{day:02}")) for day, suite in enumerate(suites, 1)
    ]
    settings = BaselineSettings()
    seen = set()
    for place in range(1, gate_creep.NUM_RUNS):
        earlier = EarlierReports.of(reports[:place])
        options = GateOptions(comparison=settings, allow_unscored=n)
        results = compare_reports(earlier, reports[place][1], options, Selection())
        tests = gate_creep.tests_of(runs[:place], runs[place], clusters)
        expected = [one.p_drop for one in run_family(tests, settings.alpha)]
        found = [one.regression for one in results if one.regression]
        assert [one.p_adjusted for one in found] == pytest.approx(expected)
        assert [fails(one, None) for one in found] == failed(tests)
        seen |= {one.outcome for one in results}
    assert seen == {"passed", "failed"}


def outcome(value: float) -> bool | dict[str, float] | None:
    """Return what ``ran`` takes for a value of a simulation."""
    if np.isnan(value):
        return None
    return bool(value) if value in (0, 1) else {"accuracy": float(value)}
