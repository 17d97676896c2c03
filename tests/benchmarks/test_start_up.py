"""The benchmark of a session's start, on a tiny model: it runs, and prints what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.start_up import main
from benchmarks.works_for_bench import data_problem

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(data_problem() is not None, reason=str(data_problem())),
]


def test_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--work", str(tmp_path), "--model", "tiny", "--runs", "1", "--budget", "1000"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["measured"] for line in lines] == ["start_up_later", "start_up_first"]
    for line in lines:
        assert (line["model"], line["runs"]) == ("tiny", 1)
        for kind in ("seconds", "cpu_seconds"):
            ratio = line[f"ours_{kind}"] / line[f"script_{kind}"]
            assert line[f"ratio_{kind}"] == pytest.approx(ratio, rel=0.02)
