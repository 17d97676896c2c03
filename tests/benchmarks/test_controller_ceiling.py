"""The benchmark of a controller's ceiling, on a few items: it runs, and prints what it says."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support import REPOSITORY, clean_environment

pytestmark = pytest.mark.campaign


def test_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.controller_ceiling", "--items=60"],
        cwd=REPOSITORY,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert line["items"] == 60
    assert line["samples_per_s"] > 0 < line["cpu_ms_per_sample"]
