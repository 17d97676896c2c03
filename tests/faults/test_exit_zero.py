"""The campaign of ways to exit code 0: its judge, a sample of its ways, all of them, and the remedy for what is out of
reach.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.exit_zero import POOLS, Outcome, draw, made_reports, main, problem, run
from tests.faults.unmeasured import OUT_OF_REACH, documented_passes
from tests.faults.ways import AGENTS, Way, suite
from tests.forked import ForkServer
from tests.support import REPOSITORY

GATES = (REPOSITORY / "docs" / "gates.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("passes", "exit_code", "output", "found"),
    [
        (None, 0, "", "exit 0"),
        (None, 1, "", None),
        (None, -9, "", None),
        (None, None, "", "hangs"),
        (None, 4, "ERROR: unrecognized arguments: --llm-gates", "unfair"),
        (None, 1, "SyntaxError: invalid syntax", "unfair"),
        ("They are skipped.", 0, "", None),
        ("They are skipped.", 1, "", "documented pass, exit 1"),
        ("They are skipped.", None, "", "hangs"),
    ],
)
def test_what_the_campaign_counts(passes: str | None, exit_code: int | None, output: str, found: str | None) -> None:
    way = Way(name="way", arguments=(), passes=passes)
    assert problem(way, Outcome(exit_code, output, 0.1)) == found


def test_ways_are_the_same_for_the_same_seed() -> None:
    ways, passes = draw(60, 3)
    assert [way.name for way in ways] == [way.name for way in draw(60, 3)[0]]
    assert [way.name for way in ways] != [way.name for way in draw(60, 4)[0]]
    assert len(ways) == 60
    assert len({(way.name, way.arguments) for way in ways}) == 60
    assert not any(way.passes for way in ways)
    assert all(way.passes for way in passes)


def test_the_documentation_says_what_passes() -> None:
    said = " ".join(GATES.split())
    pools = (*POOLS.values(), documented_passes)
    sentences = {way.passes for pool in pools for way in pool()} - {None}
    assert len(sentences) > 5
    for sentence in sentences:
        assert str(sentence) in said


@pytest.fixture
def server() -> Iterator[ForkServer]:
    """Of the campaign's own, without what the processes of other tests have loaded."""
    server = ForkServer()
    yield server
    server.close()


EARLIER = {"agents.py": AGENTS, "sums.yaml": suite()}


@pytest.mark.parametrize("way", OUT_OF_REACH, ids=lambda way: way.name)
def test_the_remedy_for_what_a_session_cannot_notice(fork_server: ForkServer, tmp_path: Path, way: Way) -> None:
    """The command of docs/gates.md, where the last run has left its report, on which the gate passes."""
    (line,) = re.findall(r"^rm -f .*$", GATES, re.MULTILINE)
    remove, measure, decide = (shlex.split(command) for command in line.split("&&"))
    assert remove == ["rm", "-f", "out.json"]
    assert measure[0] == "pytest"
    assert measure[2:] == ["suites/", "--llm-report", "out.json"]
    assert decide[:4] == ["llmeval", "gate", "out.json", "--gate"]
    gate = Way(name="gate", command="llmeval", arguments=("gate", "out.json", "--gate", "sums: accuracy >= 0.7"))
    earlier = replace(way, arguments=tuple(option.replace(":bad", ":good") for option in way.arguments), files=EARLIER)
    assert run(earlier, fork_server, {}, tmp_path).exit_code == 0
    assert run(gate, fork_server, {}, tmp_path).exit_code == 0
    (tmp_path / "out.json").unlink()
    assert run(way, fork_server, {}, tmp_path).exit_code == 0
    assert run(gate, fork_server, {}, tmp_path).exit_code == 1


@pytest.mark.slow
def test_a_sample_of_the_ways(server: ForkServer, tmp_path: Path) -> None:
    reports = made_reports(server, tmp_path / "made")
    ways, _ = draw(22, 0)
    for number, way in enumerate(ways):
        outcome = run(way, server, reports, tmp_path / str(number))
        assert problem(way, outcome) is None, (way.name, outcome.output)


@pytest.mark.campaign
def test_all_ways(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "400 ways, 0 exit 0, 0 hangs, 0 unfair" in capsys.readouterr().out
