"""No server outlives a session that is killed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.faults.launched_kills import kill_sessions

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are looked for in /proc")


@pytest.mark.slow
def test_some_kills_leave_no_process(tmp_path: Path) -> None:
    assert not [str(kill) for kill in kill_sessions(tmp_path, 3, seed=1) if kill.left]


@pytest.mark.campaign
def test_fifty_kills_leave_no_process(tmp_path: Path) -> None:
    assert not [str(kill) for kill in kill_sessions(tmp_path, 50, seed=0) if kill.left]
