"""The judge of the suites in this folder; without this file they need ``--llm-judge``."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

_NAMES = runpy.run_path(str(Path(__file__).with_name("judge.py")))


@pytest.fixture(scope="session")
def llm_judge() -> object:
    """A judge made of rules, in the place of ``--llm-judge``."""
    return _NAMES["RuleJudge"]()
