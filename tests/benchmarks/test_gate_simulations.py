"""The simulations of the gate against a baseline, with few repetitions: they hold, and find what does not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks import gate_false_alarms, gate_power
from benchmarks.gate_simulation import failed
from pytest_llmeval.scoring.statistics.paired_tests import PairedValues

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
