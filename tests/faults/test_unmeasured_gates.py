"""The campaign of comparisons that measured nothing: some of its ways, and all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.exit_zero import draw, problem, run
from tests.faults.unmeasured_gates import POOLS, LazyReports, main
from tests.forked import ForkServer
from tests.support import REPOSITORY

GATES = " ".join((REPOSITORY / "docs" / "gates.md").read_text(encoding="utf-8").split())
FEW = (
    "scorer: wit is not measurable on 0 -> 14 of 20; compare --require",
    "a baseline by -k; ",
    "a model of suite was swapped; common",
    "the same selection; margin",
)


def test_there_are_enough_ways_and_the_documentation_says_what_passes() -> None:
    ways = [way for pool in POOLS.values() for way in pool()]
    assert len({way.name for way in ways}) == len(ways)
    assert sum(way.passes is None for way in ways) > 300
    sentences = {way.passes for way in ways} - {None}
    assert len(sentences) == 2
    for sentence in sentences:
        assert str(sentence) in GATES
    assert len({way.name for way in draw(120, 1, None, POOLS)[0]}) == 120


@pytest.mark.parametrize("name", FEW)
def test_a_few_of_the_ways(fork_server: ForkServer, tmp_path: Path, name: str) -> None:
    (way,) = (way for pool in POOLS.values() for way in pool() if way.name == name)
    outcome = run(way, fork_server, LazyReports(fork_server, tmp_path / "made"), tmp_path / "way")
    assert problem(way, outcome) is None, outcome.output


@pytest.mark.campaign
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_none_of_the_ways_passes(capsys: pytest.CaptureFixture[str], seed: int) -> None:
    assert main(["--seed", str(seed)]) == 0
    assert "120 ways, 0 exit 0, 0 hangs, 0 unfair" in capsys.readouterr().out
