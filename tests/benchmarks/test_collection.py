"""The benchmark of collection, on a few items: it runs, and both sides collect what it says."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support import REPOSITORY, clean_environment

pytestmark = pytest.mark.campaign


@pytest.mark.parametrize(("budgets", "status"), [((), 0), (("--budget=0.001",), 1), (("--budget-bytes=1",), 1)])
def test_lines(budgets: tuple[str, ...], status: int) -> None:
    sizes = ("--runs=1", "--items=60", "--shots=2", "--few=50", "--many=2000")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.collection", *sizes, *budgets],
        cwd=REPOSITORY,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    seconds, memory = map(json.loads, done.stdout.splitlines())
    assert (seconds["measured"], seconds["items"], seconds["shots"]) == ("time", 60, 2)
    for kind in ("wall_s", "cpu_s"):
        assert set(seconds[kind]) == {"ours", "bare", "ratio"}
        assert min(seconds[kind].values()) > 0
    assert (memory["measured"], memory["few"], memory["many"]) == ("memory", 50, 2000)
    assert memory["peak_mib_of_many"] > memory["peak_mib_of_few"] > 10
