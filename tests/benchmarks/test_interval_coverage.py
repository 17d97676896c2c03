"""The simulation of intervals runs, counts what it says, and fails where an interval is wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import interval_coverage
from benchmarks.interval_coverage import FEW, LAYOUTS, LOWEST, Cell, Row, in_clusters, main, rows, simulated, sizes_of


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--draws", "400", "--largest", "100", "--only", "perplexity"]) == 0
    head, rule, line = capsys.readouterr().out.splitlines()
    assert (head, rule) == ("| | n 30 | n 100 |", "|---|---|---|")
    what, *shares = line.strip("| ").split(" | ")
    assert what == "perplexity: texts of lognormal length"
    assert all(93 <= float(share) <= 99 for share in shares)


def test_each_row_draws_and_covers() -> None:
    for row in rows():
        cell = simulated(row, 100, 40, 3)
        assert cell is not None, row
        assert cell.num_missed <= 6, row
        assert cell.num_without <= 16, row


@pytest.mark.slow
@pytest.mark.parametrize("what", ["10 clusters, share 0.95", "10 clusters, lognormal, sigma 1 values"])
def test_few_clusters_of_skewed_values(what: str) -> None:
    """Clusters of which one is far from the others: without their own rules 90% and 91% are covered."""
    (row,) = (row for row in rows() if row.what == what)
    cell = simulated(row, 1000, 500, 0)
    assert cell is not None
    assert cell.covered > LOWEST


def test_an_interval_that_covers_too_little_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of them hold the truth; of 30 samples that is shown, and nothing more."""

    def half(n: int, random: np.random.Generator) -> tuple[tuple[float, float], float]:
        return (0.0, 1.0), float(random.integers(2)) * 3

    monkeypatch.setattr(interval_coverage, "rows", lambda: iter([Row("mean", "made up", half)]))
    assert main(["--draws", "100", "--largest", "100"]) == 1
    (line,) = capsys.readouterr().out.splitlines()[2:]
    assert line.count("FAILED") == 1
    assert line.endswith("FAILED |")
    assert main(["--draws", "100", "--largest", "30"]) == 0


def test_what_has_no_interval_is_counted_apart() -> None:
    assert str(Cell(95, 5, 0)) == "95.0"
    assert str(Cell(95, 5, 1)) == "95.0"
    assert str(Cell(60, 20, 20)) == "75.0 (20% have none)"
    assert str(Cell(0, 0, 7)) == "none"
    assert math.isnan(Cell(0, 0, 7).covered)
    row = Row("mean", "none of one sign", lambda n, random: (None if random.random() < 0.5 else (0.0, 1.0), 0.5))
    cell = simulated(row, 30, 200, 0)
    assert cell is not None
    assert 60 < cell.num_without < 140
    assert cell.covered == 100


@pytest.mark.parametrize("layout", dict.fromkeys((*LAYOUTS, *FEW)))
def test_layouts(layout: str) -> None:
    assert sizes_of(layout, 30) in (None, (3,) * 10)
    for n in (100, 1000):
        sizes = sizes_of(layout, n)
        assert sizes is not None
        assert min(sizes) >= 1
        assert sum(sizes) == pytest.approx(n, rel=0.05)
        assert len(sizes) == (int(layout.split()[0]) if layout in FEW else n // 5)
        assert len(set(sizes)) == 1 or max(sizes) > 3 * np.median(sizes)


def test_clusters_are_as_alike_as_they_should_be() -> None:
    chances = in_clusters([1 / 3] * 3, 40_000, np.random.default_rng(1))
    assert chances.sum(axis=1) == pytest.approx(np.ones(40_000))
    assert chances.mean(axis=0) == pytest.approx(np.full(3, 1 / 3), abs=0.01)
    # Two answers of a cluster are both right with probability E[c²], which is p² + icc p (1 - p).
    assert (chances**2).mean(axis=0) == pytest.approx(np.full(3, 1 / 9 + 0.3 * 2 / 9), abs=0.01)
