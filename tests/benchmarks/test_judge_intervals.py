"""The simulation of a judge's intervals runs, knows the truth, and fails where an interval is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import judge_intervals
from benchmarks.judge_intervals import LINES, SETTINGS, lowest, main


@pytest.mark.parametrize("name", sorted(LINES))
@pytest.mark.parametrize("setting", SETTINGS)
def test_truth_is_what_many_samples_show(
    name: str, setting: judge_intervals.Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one large data set; the bootstrap of alpha, of which only the value counts here, is left out."""
    monkeypatch.setattr("pytest_llmeval.scoring.statistics.raters.bootstrap_of_counts", lambda *_, **__: None)
    found = LINES[name].simulate(setting, 10_000, np.random.default_rng(2))
    assert found.value == pytest.approx(LINES[name].truth(setting), abs=0.05)


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--draws", "40", "--sizes", "50", "100", "--only", "sensitivity"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["of", "a", "base", "sens", "spec", "truth", "n=50", "width", "n=100", "width"]
    assert [line.split()[:5] for line in lines] == [
        ["sensitivity", "0.5", "0.9", "0.8", "0.900"],
        ["sensitivity", "0.5", "0.98", "0.95", "0.980"],
        ["sensitivity", "0.8", "0.9", "0.8", "0.900"],
        ["sensitivity", "0.8", "0.98", "0.95", "0.980"],
    ]


def test_an_interval_that_covers_too_little_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = judge_intervals.Line(LINES["sensitivity"].simulate, lambda setting: setting.sensitivity - 0.1)
    monkeypatch.setattr(judge_intervals, "LINES", {"sensitivity": line})
    assert main(["--draws", "40", "--sizes", "100"]) == 1
    assert all(row.endswith("FAILED") for row in capsys.readouterr().out.splitlines()[1:])
    assert main(["--draws", "40", "--sizes", "50"]) == 0


def test_what_a_line_is_held_to() -> None:
    assert lowest(2000) == pytest.approx(91.86, abs=0.01)
    assert lowest(500) == pytest.approx(90.72, abs=0.01)
