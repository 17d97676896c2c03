"""HumanEval and MBPP as published: their solutions pass, and mutants are judged as by a plain run of the tests.

The plain run is what the published scripts do: program and tests are one text in one process.
"""

from __future__ import annotations

import ast
import gzip
import json
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_llmeval.scorers.code import CodeScorer, CodeSettings
from pytest_llmeval.scoring.sandbox import launch
from pytest_llmeval.types import GenerateResponse, Sample
from tests.presets.comparisons import DATA

pytestmark = [
    pytest.mark.slow,
    pytest.mark.campaign,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the published data sets are not here: no folder {DATA}"),
]
TIMEOUT_S = 10


@dataclass(frozen=True)
class Problem:
    name: str
    setup: str
    solution: str
    tests: str
    entry_point: str | None = None

    def __str__(self) -> str:
        return self.name


def problems() -> Iterator[Problem]:
    if not DATA.is_dir():
        return
    with gzip.open(DATA / "humaneval" / "HumanEval.jsonl.gz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            tests = f"{row['test']}\ncheck({row['entry_point']})"
            yield Problem(row["task_id"], row["prompt"], row["canonical_solution"], tests, row["entry_point"])
    for line in (DATA / "mbpp" / "mbpp.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if 11 <= row["task_id"] <= 510:
            tests = "\n".join((row["test_setup_code"], *row["test_list"]))
            yield Problem(f"MBPP/{row['task_id']}", "", row["code"], tests)


PROBLEMS = list(problems())


class Mutation(ast.NodeTransformer):
    """Changes one place of a program, ``chosen`` among those below a line that can be changed, and counts these."""

    def __init__(self, below: int, chosen: int | None) -> None:
        self.number = 0
        self._below = below
        self._chosen = chosen

    def _is_chosen(self, node: ast.expr | ast.stmt) -> bool:
        if node.lineno <= self._below:
            return False
        self.number += 1
        return self.number - 1 == self._chosen

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool | int) and self._is_chosen(node):
            return ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        others: dict[type[ast.cmpop], type[ast.cmpop]] = {
            ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
            ast.In: ast.NotIn, ast.NotIn: ast.In,
        }  # fmt: skip
        if type(node.ops[0]) in others and self._is_chosen(node):
            node.ops[0] = others[type(node.ops[0])]()
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        others: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add}
        if type(node.op) in others and self._is_chosen(node):
            node.op = others[type(node.op)]()
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        if node.value is not None and self._is_chosen(node):
            node.value = ast.Constant(None)
        return node


def mutant(problem: Problem) -> str:
    """The solution with the head before it, and one place of the solution changed; the same on each run."""
    program, below = problem.setup + problem.solution, problem.setup.count("\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in published solutions
        counted = Mutation(below, None)
        counted.visit(ast.parse(program))
        tree = Mutation(below, random.Random(problem.name).randrange(counted.number)).visit(ast.parse(program))
    return ast.unparse(ast.fix_missing_locations(tree))


def passes_plain(program: str, tests: str) -> bool:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-"],
            input=f"{program}\n{tests}\n",
            text=True,
            encoding="utf-8",
            capture_output=True,
            timeout=60,  # of a busy machine; the scorer bounds processor time
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


@pytest.fixture
def scorer(monkeypatch: pytest.MonkeyPatch) -> CodeScorer:
    try:
        sandbox = launch.find_sandbox("bubblewrap")
    except launch.SandboxError:
        sandbox = launch.find_sandbox("none")
    monkeypatch.setattr(launch, "_allowed", [sandbox])
    return CodeSettings(timeout_s=TIMEOUT_S).make()


def status(scorer: CodeScorer, problem: Problem, reply: str, **more: Any) -> str:
    variables = {"tests": problem.tests, "setup": problem.setup, "entry_point": problem.entry_point} | more
    sample = Sample(id="1", path="p", line=1, target=problem.solution, variables=variables)
    return scorer.score(scorer.present(sample), [GenerateResponse(text=reply)]).status


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_published_solution_passes_and_a_mutant_is_judged_as_by_a_plain_run(
    scorer: CodeScorer, problem: Problem
) -> None:
    assert status(scorer, problem, problem.solution) == "correct"
    changed = mutant(problem)
    expected = "correct" if passes_plain(changed, problem.tests) else "wrong"
    assert status(scorer, problem, f"```python\n{changed}\n```") == expected
