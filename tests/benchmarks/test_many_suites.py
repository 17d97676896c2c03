"""The benchmark of many suites, on a few: it runs, both sides run what it says, and the budgets decide."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support import REPOSITORY, clean_environment

pytestmark = pytest.mark.campaign


@pytest.mark.parametrize(
    ("budgets", "status"), [((), 0), (("--budget-ms=0.001",), 1), (("--budget-growth=0.0001",), 1)]
)
def test_lines(budgets: tuple[str, ...], status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.many_suites", "--samples=3", "--files", "5", "80", "160", *budgets],
        cwd=REPOSITORY,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    few, more, most = map(json.loads, done.stdout.splitlines())
    assert [(line["measured"], line["files"], line["samples"]) for line in (few, more, most)] == [
        ("many_suites", number, 3) for number in (5, 80, 160)
    ]
    for kind in ("seconds", "cpu_seconds", "peak_mib"):
        assert set(most[kind]) == {"ours", "bare", "ratio"}
        assert min(most[kind].values()) > 0
    assert most["peak_mib"]["ours"] > few["peak_mib"]["ours"]
    assert "ms_per_file" not in few
    assert set(more["ms_per_file"]) == {"ours", "bare", "more"}
    assert "growth" not in more
    assert most["growth"] > 0
