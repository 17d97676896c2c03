"""Gates on money, time and tokens, in sessions as a user has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.suites_for_tests import SUMS

PRICED = """
import json
from pytest_llmeval.types import GenerateResponse

def answer(prompt, tokens=4, cost=0.001):
    return {"text": str(eval(prompt.removesuffix("="))), "num_prompt_tokens": 10, "num_tokens": tokens, "cost": cost}

def plain(prompt):
    return str(eval(prompt.removesuffix("=")))

class Judge:
    def generate(self, requests):
        text = json.dumps({"reason": "", "equivalent": True})
        return [GenerateResponse(text=text, num_tokens=3, cost=0.01) for _ in requests]
"""


def run(pytester: pytest.Pytester, *arguments: str, suite: str = SUMS) -> pytest.RunResult:
    pytester.makefile(".yaml", sums=suite)
    pytester.makepyfile(my_models=PRICED)
    return pytester.runpytest(*arguments, "sums.yaml")


def report_of(folder: Path, name: str = "report.json") -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_a_suites_own_gates(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    gates = 'gates: [cost <= 0.002, sum(cost) <= 0.003, "p95(seconds) <= 100", num_tokens < 5, num_prompt_tokens < 5]\n'
    result = run(
        llm_pytester, *workers, "--llm-model=python:my_models:answer", "--llm-report=report.json", suite=SUMS + gates
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "gates: 2 failed, 3 passed",
            "failed: sums, sum(cost) <= 0.003: sum(cost) 0.00400, n 4: above 0.003",
            "failed: sums, num_prompt_tokens < 5: num_prompt_tokens 10.000, n 4: not below 5",
        ]
    )
    by_name = {gate["name"]: gate for gate in report_of(llm_pytester.path)["gates"]}
    assert by_name["sum(cost) <= 0.003"]["value"] == pytest.approx(0.004)
    assert by_name["p95(seconds) <= 100"]["metric"] == "seconds"
    assert "cost" not in report_of(llm_pytester.path)["suites"][0]["metrics"]


@pytest.mark.parametrize("model", ["random", "replay:replies.jsonl"])
def test_a_model_for_which_nothing_is_paid_costs_0(
    llm_pytester: pytest.Pytester, workers: list[str], model: str
) -> None:
    replies = [json.dumps({"response": str(n)}) for n in range(SUMS.count("question"))]
    (llm_pytester.path / "replies.jsonl").write_text("\n".join(replies), encoding="utf-8")
    if model == "random":
        suite = "suite: sums\nscore: choice\nsamples: [{question: a, choices: [b, c], target: 0}]\n"
    else:
        suite = SUMS
    options = (*workers, f"--llm-model={model}", "--llm-budget=1")
    result = run(llm_pytester, *options, "--llm-gate=sum(cost) <= 1", "--llm-report=main.json", suite=suite)
    result.stdout.fnmatch_lines(["passed: sums, sum(cost) <= 1: sum(cost) 0.000, n *"])
    decided = llm_pytester.run("llmeval", "gate", "main.json", "--gate", "cost <= 1")
    assert decided.ret == 0


def test_no_price_is_no_pass(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    result = run(llm_pytester, *workers, "--llm-model=python:my_models:plain", "--llm-gate=cost <= 5")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["failed: *cost is not known for 4 of 4 samples: a model or judge that was asked has no price: give*"]
    )


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("sun(seconds) <= 3", "'sun' is not a known statistic; expected ci_low"),
        ("sum(accuracy) <= 3", "sum is for cost, seconds"),
        ("macro.cost <= 3", "leave out macro."),
    ],
)
def test_a_rule_that_cannot_be_is_an_error_before_anything_runs(
    llm_pytester: pytest.Pytester, rule: str, said: str
) -> None:
    result = run(llm_pytester, "--llm-model=python:my_models:plain", f"--llm-gate=sums: {rule}")
    assert result.ret in (2, 4)
    assert said in result.stdout.str() + result.stderr.str()


def test_replies_of_a_store_have_no_time(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    store = ["--llm-model=python:my_models:answer", "--llm-store=kept", "--llm-store-max-age=1d"]
    gates = ["--llm-gate=p95(seconds) <= 100", "--llm-gate=sum(cost) <= 0.004"]
    assert run(llm_pytester, *workers, *store, *gates).ret == 0
    again = run(llm_pytester, *workers, *store, *gates, "--llm-report=report.json")
    assert again.ret == 0
    again.stdout.fnmatch_lines(["gates: 1 skipped, 1 passed"])
    reasons = {gate["name"]: gate["reason"] for gate in report_of(llm_pytester.path)["gates"]}
    assert reasons["p95(seconds) <= 100"].startswith(
        "4 of 4 samples were not timed by themselves: replies from a store"
    )
    assert run(llm_pytester, *workers, *store, *gates, "--llm-require-gates").ret == 1


def test_the_judges_replies_cost_too(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    suite = """\
suite: asked
samples:
  - {id: m1, question: "1", target: "1"}
  - {id: m2, question: "2", target: "3"}
prompt: {template: "{{ question }}"}
score: {equivalence: {math: false}}
"""
    judge = ["--llm-model=python:my_models:answer", "--llm-judge=python:my_models:Judge", "--llm-report=report.json"]
    result = run(llm_pytester, *workers, *judge, "--llm-gate=sum(cost) <= 0.01", suite=suite)
    records = {one["id"]: one for one in report_of(llm_pytester.path)["records"]}
    assert records["m1"]["judge_cost"] is None, "nobody was asked"
    assert records["m2"]["judge_cost"] == pytest.approx(0.01)
    assert report_of(llm_pytester.path)["suites"][0]["judge_cost"] == pytest.approx(0.01)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*cost in all  judges' cost", "failed: *sum(cost) 0.0120, n 2: above 0.01"])


def test_more_tokens_than_the_baseline(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    samples = "".join(f'  - {{id: "{n}", question: "{n} + 1 =", target: {n + 1}}}\n' for n in range(12))
    suite = f"suite: sums\nsamples:\n{samples}score: number\n"
    model = "--llm-model=python:my_models:answer"
    assert run(llm_pytester, *workers, model, "--llm-report=base.json", suite=suite).ret == 0
    more = [f"{model}?tokens=5", "--llm-baseline=base.json", "--llm-max-drop=num_tokens=10%", "--llm-report=new.json"]
    result = run(llm_pytester, *workers, *more, "--llm-report=new.md", suite=suite)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "failed: sums, num_tokens vs baseline: num_tokens 4.000 -> 5.000: +1.000*",
            "*beyond the margin 0.400",
            "*the margin is 10% of the baseline's 4.000*",
        ]
    )
    assert "num_tokens vs baseline" in (llm_pytester.path / "new.md").read_text(encoding="utf-8")
    compare = llm_pytester.run("llmeval", "compare", "base.json", "new.json", "--max-drop", "num_tokens=30%")
    assert compare.ret == 0, compare.stdout.str()
    gate = llm_pytester.run("llmeval", "gate", "new.json", "--gate", "sums: sum(num_tokens) <= 59")
    assert gate.ret == 1


def test_several_baselines(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """No mean is taken of what samples used, and no gate says so."""
    samples = "".join(f'  - {{id: "{n}", question: "{n} + 1 =", target: {n + 1}}}\n' for n in range(12))
    suite = f"suite: sums\nsamples:\n{samples}score: number\n"
    llm_pytester.mkdir("runs")
    for number, tokens in enumerate((3, 5)):
        model = f"--llm-model=python:my_models:answer?tokens={tokens}"
        assert run(llm_pytester, *workers, model, f"--llm-report=runs/{number}.json", suite=suite).ret == 0
    margin = ("--llm-baseline=runs/*.json", "--llm-max-drop=num_tokens=10%")
    result = run(llm_pytester, *workers, model, *margin, suite=suite)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "failed: sums, num_tokens vs oldest report: num_tokens 3.000 -> 5.000*",
            "passed: sums, accuracy vs mean of 2 reports: *",
            "passed: sums, num_tokens vs latest report: num_tokens 5.000 -> 5.000*",
        ]
    )
