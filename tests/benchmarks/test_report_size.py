"""The benchmark of a report's size, on a few records: it runs, and keeps its budgets."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support import REPOSITORY, clean_environment

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("budget_mib", "code"), [("2000", 0), ("1", 1)])
def test_lines(budget_mib: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.report_size", "--records", "60", "120", "--budget-mib", budget_mib],
        cwd=REPOSITORY,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["records"] for line in lines] == [60, 120]
    assert lines[1]["report_mib"] > lines[0]["report_mib"] > 0
    assert all(line["take_in_peak_mib"] > 1 and line["read_back_peak_mib"] > 1 for line in lines)
