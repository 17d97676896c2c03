"""The simulation of intervals runs, counts what it says, and fails where an interval is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import interval_coverage
from benchmarks.interval_coverage import Case, cases, flips, holds, in_clusters, main


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--draws", "40", "--largest", "100", "--only", "proportion"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["of", "a", "n", "cluster", "of", "icc", "flips", "covered", "%", "worst", "%"]
    found = [line.split() for line in lines]
    assert [line[:5] for line in found] == [
        ["proportion", "100", "-", "-", "-"],
        ["proportion", "100", "5", "0", "-"],
        ["proportion", "100", "5", "0.3", "-"],
    ]
    assert all(94 <= float(line[5]) <= 96 for line in found)


def test_each_kind_of_line_draws_and_covers() -> None:
    random = np.random.default_rng(3)
    for case in cases():
        if case.n == 100:
            covered = list(case.covered(np.linspace(0.3, 0.7, 40), random))
            assert len(covered) == 40
            assert sum(covered) > 30, case


def test_an_interval_that_covers_too_little_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of them hold the truth."""
    monkeypatch.setattr(interval_coverage, "_wilson", lambda successes, n: (0.0, 1.0) if successes % 2 else (2.0, 3.0))
    assert main(["--draws", "40", "--largest", "100", "--only", "proportion"]) == 1
    first, *others = capsys.readouterr().out.splitlines()[1:]
    assert first.endswith("FAILED")
    assert not any(line.endswith("FAILED") for line in others)


def test_what_each_line_is_held_to() -> None:
    def limits(what: str, n: int, **settings: float) -> tuple[float, float]:
        return Case(what, n, lambda p, random: iter(()), **settings).limits  # type: ignore[arg-type]

    assert limits("proportion", 100) == (94, 96)
    assert limits("difference", 250, discordance=0.02) == (94, 96)
    assert limits("difference", 100, discordance=0.02) == (94, 100)
    assert limits("difference", 250, discordance=0.02, cluster_size=5, icc=0.3) == (94, 100)
    assert limits("mean", 250) == (94, 96)
    assert limits("mean", 250, cluster_size=5, icc=0.3) == (93, 96)


def test_clusters_are_as_alike_as_asked() -> None:
    random = np.random.default_rng(1)
    chances = in_clusters(np.full((1, 3), 1 / 3), 40_000, 0.3, random)[0]
    assert chances.sum(axis=1) == pytest.approx(np.ones(40_000))
    assert chances.mean(axis=0) == pytest.approx(np.full(3, 1 / 3), abs=0.01)
    # Two answers of a cluster are both right with probability E[c²], which is p² + icc p (1 - p).
    assert (chances**2).mean(axis=0) == pytest.approx(np.full(3, 1 / 9 + 0.3 * 2 / 9), abs=0.01)
    extreme = in_clusters(np.array([[0.001, 0.999]]), 1000, 0.9, random)
    assert np.isfinite(extreme).all()
    assert in_clusters(np.array([[0.2, 0.8]]), 2, 0.0, random).tolist() == [[[0.2, 0.8], [0.2, 0.8]]]


def test_flips_are_shared_out() -> None:
    assert flips(0.1, np.array([0.25])).tolist() == [[0.025, pytest.approx(0.075), 0.9]]


def test_no_interval_holds_nothing() -> None:
    assert not holds(None, 0.5)
    assert holds((0.5, 0.6), 0.5)
    assert not holds((0.5, 0.6), 0.61)
