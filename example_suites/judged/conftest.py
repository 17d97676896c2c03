"""The judge of the suites in this folder, and the embedder; without this file they need ``--llm-judge`` and
``--llm-embedder``.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

_JUDGE, _EMBEDDER = (runpy.run_path(str(Path(__file__).with_name(name))) for name in ("judge.py", "embedder.py"))


@pytest.fixture(scope="session")
def llm_judge() -> object:
    """A judge made of rules, in the place of ``--llm-judge``."""
    return _JUDGE["RuleJudge"]()


@pytest.fixture(scope="session")
def llm_embedder() -> object:
    """An embedder that counts words, in the place of ``--llm-embedder``."""
    return _EMBEDDER["WordCounts"]()
