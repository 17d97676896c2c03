"""The Python of docs/agents.md runs as it stands there."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

from tests.support import REPOSITORY

PAGE = (REPOSITORY / "docs" / "agents.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
OWN = [
    block
    for block in BLOCKS
    if set(re.findall(r"^(?:from|import) (\w+)", block, re.MULTILINE)) <= sys.stdlib_module_names
]
SUITE = """\
suite: sums
samples:
  - {id: a, question: 40 + 2 =, target: 42}
  - {id: b, question: 1 + 1 =, target: 2}
score: number
"""


def test_most_of_the_page_needs_no_other_package() -> None:
    assert len(OWN) >= 3
    for block in BLOCKS:
        compile(block, "docs/agents.md", "exec")


@pytest.mark.parametrize("block", OWN, ids=lambda block: re.findall(r"def (\w+)", block)[0] + str(len(block)))
def test_a_function_of_the_page(llm_pytester: pytest.Pytester, workers: list[str], block: str) -> None:
    llm_pytester.makepyfile(my_agents=block)
    llm_pytester.makefile(".yaml", sums=SUITE)
    models = ["--llm-model=python:my_agents:crew"]
    if "planning" in block:
        models.append("--llm-model=python:my_agents:crew?planning=true")
    result = llm_pytester.runpytest(*workers, *models, "--llm-report=report.json", "sums.yaml")
    assert result.ret == 0
    records: list[dict[str, Any]] = json.loads((llm_pytester.path / "report.json").read_text(encoding="utf-8"))[
        "records"
    ]
    assert {record["status"] for record in records} == {"correct", "wrong"}
    if "trace" in block:
        assert [len(record["details"]["trace"]) for record in records] == [2, 2, 3, 3]
        assert {record["cost"] for record in records} == {0.0031}
