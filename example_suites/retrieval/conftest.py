"""The judge and the embedder of ``judged/``, for the suite in this folder."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

_JUDGED = Path(__file__).parents[1] / "judged"


@pytest.fixture(scope="session")
def llm_judge() -> object:
    """A judge made of rules, in the place of ``--llm-judge``."""
    return runpy.run_path(str(_JUDGED / "judge.py"))["RuleJudge"]()


@pytest.fixture(scope="session")
def llm_embedder() -> object:
    """An embedder that counts words, in the place of ``--llm-embedder``."""
    return runpy.run_path(str(_JUDGED / "embedder.py"))["WordCounts"]()
