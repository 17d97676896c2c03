"""The benchmark of a session's overhead, on a few items: it runs, and both sides run what it says."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support import REPOSITORY, clean_environment

pytestmark = pytest.mark.campaign


@pytest.mark.parametrize("shots", ["0", "2"])
def test_lines(shots: str) -> None:
    script = REPOSITORY / "tests" / "bench" / "session_overhead.py"
    done = subprocess.run(
        [sys.executable, str(script), "--runs=1", "--items=60", "--shots", shots],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["workers"], line["items"], line["shots"]) for line in lines] == [
        (0, 60, int(shots)),
        (2, 60, int(shots)),
    ]
    for line in lines:
        for kind in ("wall_s", "cpu_s"):
            assert set(line[kind]) == {"ours", "bare", "ratio"}
            assert min(line[kind].values()) > 0
