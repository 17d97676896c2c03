"""The script that measures pages runs, on a few samples."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.browser.installed import browser_path
from tests.support import REPOSITORY, clean_environment

pytestmark = pytest.mark.slow


def test_a_row() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.html_report", "--samples", "1000", "--runs", "1", "--json"],
        cwd=REPOSITORY,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["samples"] == 1000
    assert found["left_out"] == 0
    assert 0 < found["html_mb"] < 3
    assert found["html_json_s"] > 0
    assert found["html_json_mib"] > 0
    if browser_path() is not None and "rows_ms" in found:
        assert all(found[name] > 0 for name in ("rows_ms", "filter_ms", "open_ms", "sort_ms"))
