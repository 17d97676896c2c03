"""``--llm-budget`` and ``--llm-budget-tokens``, in sessions as a user has them."""

from __future__ import annotations

import json
from typing import Any

import pytest

MODELS = """
import asyncio, os
from pathlib import Path
from pytest_llmeval.types import GenerateResponse

def _asked():
    with Path(__file__).with_name("asked").open("a") as file:
        file.write("x")

def answer(prompt):
    _asked()
    return {"text": str(eval(prompt.removesuffix("="))), "num_prompt_tokens": 10, "num_tokens": 10, "cost": 1.0}

async def later(prompt):
    await asyncio.sleep(0)
    return answer(prompt)

def silent(prompt):
    _asked()
    return str(eval(prompt.removesuffix("=")))

def growing(prompt):
    first = int(prompt.partition("+")[0])
    return {**answer(prompt), "cost": 1.0 if first < 4 else 4.0}

class Sums:
    def generate(self, requests):
        return [GenerateResponse(text=silent(request.prompt)) for request in requests]

class Batches:
    def generate(self, requests):
        return []
"""
SAMPLES = "".join(f'  - {{id: "{n}", question: "{n} + 1 =", target: {n + 1}}}\n' for n in range(30))
SUITE = f"suite: sums\nsamples:\n{SAMPLES}score: number\ngenerate: {{max_tokens: 10}}\n"


def run(pytester: pytest.Pytester, *arguments: str, model: str = "answer") -> pytest.RunResult:
    pytester.makefile(".yaml", sums=SUITE)
    pytester.makepyfile(my_models=MODELS)
    return pytester.runpytest(
        *arguments, f"--llm-model=python:my_models:{model}", "--llm-report=report.json", "sums.yaml"
    )


def num_asked(pytester: pytest.Pytester) -> int:
    path = pytester.path / "asked"
    return len(path.read_text()) if path.exists() else 0


def report_of(pytester: pytest.Pytester) -> Any:
    return json.loads((pytester.path / "report.json").read_text(encoding="utf-8"))


def statuses(pytester: pytest.Pytester) -> list[str]:
    return [record["status"] for record in report_of(pytester)["records"]]


@pytest.mark.parametrize("model", ["answer", "later"])
def test_what_is_left_is_unscored(llm_pytester: pytest.Pytester, workers: list[str], model: str) -> None:
    result = run(llm_pytester, *workers, "--llm-budget=7", model=model)
    assert result.ret == 1
    assert num_asked(llm_pytester) == 7
    found = statuses(llm_pytester)
    assert len(found) == 30
    assert found.count("correct") == 7
    assert found.count("unscored") == 23
    problem = (
        "nothing more was asked: the next reply could pass the budget of 7 (--llm-budget); 7.00 of 7 paid, 140 tokens"
    )
    result.stdout.fnmatch_lines(
        ["*not scored: *not asked: the next reply could pass the budget of 7 (--llm-budget)*", f"problem: {problem}"]
    )
    report = report_of(llm_pytester)
    assert report["problems"] == [problem]
    assert report["budget"] == {
        "cost": 7.0,
        "num_tokens": 140,
        "most_cost": 7.0,
        "most_tokens": None,
        "ended": "the next reply could pass the budget of 7 (--llm-budget)",
    }


def test_unscored_samples_that_are_allowed_do_not_forgive_it(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    gates = ["--llm-allow-unscored=30", "--llm-gate=accuracy >= 0.5"]
    result = run(llm_pytester, *workers, "--llm-budget=7", *gates)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["problem: nothing more was asked: *; 7.00 of 7 paid, 140 tokens", "gates: 1 passed"])
    assert llm_pytester.run("llmeval", "gate", "report.json", *gates[1:2], "--allow-unscored=30").ret != 0


def test_tokens_are_counted(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    result = run(llm_pytester, *workers, "--llm-budget-tokens=205")
    assert result.ret == 1
    assert num_asked(llm_pytester) == 10
    limit = "the next reply could pass the budget of 205 tokens (--llm-budget-tokens)"
    result.stdout.fnmatch_lines([f"problem: nothing more was asked: {limit}; 10.00 paid, 200 of 205 tokens"])


def test_a_budget_that_suffices_says_what_was_paid(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    result = run(llm_pytester, *workers, "--llm-budget=100", "--llm-report=report.md")
    assert result.ret == 0
    assert num_asked(llm_pytester) == 30
    result.stdout.fnmatch_lines(["budget: 30.00 of 100 paid, 600 tokens"])
    assert "Budget: 30.00 of 100 paid, 600 tokens." in (llm_pytester.path / "report.md").read_text(encoding="utf-8")
    assert report_of(llm_pytester)["budget"]["ended"] is None


def test_the_next_run_goes_on(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    store = ["--llm-store=kept", "--llm-store-max-age=1d", "--llm-budget=13"]
    asked, paid = [], []
    for _ in range(4):
        result = run(llm_pytester, *workers, *store)
        asked.append(num_asked(llm_pytester))
        paid.append(report_of(llm_pytester)["budget"]["cost"])
        assert statuses(llm_pytester).count("correct") == asked[-1], "nothing was lost"
        if result.ret == 0:
            break
    assert result.ret == 0
    assert asked == [13, 26, 30], "nothing was asked twice"
    assert paid == [13.0, 13.0, 4.0], "replies of the store cost nothing"


def test_a_function_that_says_no_cost_is_asked_no_more(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    result = run(llm_pytester, *workers, "--llm-budget=7", model="silent")
    assert result.ret == 1
    assert num_asked(llm_pytester) == 1
    result.stdout.fnmatch_lines(
        ["problem: nothing more was asked: python:my_models:silent does not say what a reply costs, *; 0 of 7 paid"]
    )


def test_a_function_whose_price_is_0_says_what_it_costs(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """It counts no tokens; that it costs nothing is known all the same."""
    llm_pytester.makeini("[pytest]\nllm_budget = 7\n")
    result = run(llm_pytester, *workers, "--llm-model-arg=price_in=0", "--llm-gate=cost <= 0", model="silent")
    assert result.ret == 0
    assert num_asked(llm_pytester) == 30
    result.stdout.fnmatch_lines(["budget: 0 of 7 paid", "gates: 1 passed"])
    # An object that is asked for many at once says no price behind its name, and the session's is for it as well.
    assert run(llm_pytester, *workers, "--llm-model-arg=price_in=0", model="Sums").ret == 0
    for model in ("silent", "Sums"):
        assert run(llm_pytester, *workers, "--llm-model-arg=price_in=1", model=model).ret != 0


@pytest.mark.parametrize("budget", ["5", "6"])
def test_a_budget_that_a_reply_has_passed_is_called_so(llm_pytester: pytest.Pytester, budget: str) -> None:
    """The fifth reply costs four times as much as any before it."""
    result = run(llm_pytester, "-p", "no:xdist", f"--llm-budget={budget}", model="growing")
    assert result.ret == 1
    assert num_asked(llm_pytester) == 5
    why = f"the budget of {budget} (--llm-budget) was passed: a reply took more than could be foreseen"
    result.stdout.fnmatch_lines(
        [f"*not asked: {why}*", f"problem: nothing more was asked: {why}; 8.00 of {budget} paid, 100 tokens"]
    )
    # If nothing is left to ask, the line on what was paid says it.
    last = run(llm_pytester, "-p", "no:xdist", f"--llm-budget={budget}", "--llm-limit=first:5", model="growing")
    assert last.ret == 0
    last.stdout.fnmatch_lines([f"budget: 8.00 of {budget} paid, 100 tokens; a reply took more than could be foreseen"])


def test_a_function_that_counts_no_tokens_is_asked_no_more(llm_pytester: pytest.Pytester) -> None:
    result = run(llm_pytester, "-p", "no:xdist", "--llm-budget-tokens=700", model="silent")
    assert result.ret == 1
    assert num_asked(llm_pytester) == 1
    result.stdout.fnmatch_lines(["problem: *python:my_models:silent does not count tokens, as --llm-budget-tokens*"])


LONG = "9" * 309
ABOVE_0 = "--llm-budget: expected an amount of money above 0, such as 5 or 0.50, found"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        *((["--llm-budget=" + text], f"{ABOVE_0} {text!r}") for text in ("0", "0.00", "-1", "nan", "inf", "1e3", "5€")),
        (
            ["--llm-budget=" + LONG],
            f"{ABOVE_0[:-7]}, below 1,000,000,000 and with 9 decimals at most, found '{LONG[:59]}…'",
        ),
        (
            ["--llm-budget-tokens=" + LONG],
            f"--llm-budget-tokens: expected a whole number above 0 and below 1,000,000,000, found '{LONG[:59]}…'",
        ),
        (["--llm-budget-tokens=0"], "--llm-budget-tokens: expected a whole number above 0, found '0'"),
        (["--llm-budget-tokens=1.5"], "--llm-budget-tokens: expected a whole number above 0, found '1.5'"),
        (
            ["--llm-budget=5", "--llm-model=http://localhost:9/v1"],
            "--llm-budget: http://localhost:9/v1 has no price; give price_in and price_out, for a million tokens, *",
        ),
        (
            ["--llm-budget=5", "--llm-model=random", "--llm-judge=http://localhost:9/v1"],
            "--llm-budget: http://localhost:9/v1* has no price; *",
        ),
        (
            ["--llm-budget=5", "--llm-model=python:my_models:answer", "--llm-judge=http://localhost:9/v1?price_in=1"],
            "--llm-budget: http://localhost:9/v1* has no price; *",
        ),
    ],
)
def test_refusals(llm_pytester: pytest.Pytester, options: list[str], problem: str) -> None:
    llm_pytester.makefile(".yaml", sums=SUITE)
    llm_pytester.makepyfile(my_models=MODELS)
    result = llm_pytester.runpytest("-p", "no:xdist", *options, "sums.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: {problem}".replace("[", "[[]")])


@pytest.mark.parametrize("budget", ["llm_budget", "llm_budget_tokens"])
def test_models_that_cost_nothing_keep_to_any_budget(
    llm_pytester: pytest.Pytester, workers: list[str], budget: str
) -> None:
    """A budget of the ini file holds for sessions with the model that is paid for, and does not stop others."""
    llm_pytester.makefile(".yaml", sums=SUITE)
    llm_pytester.makeini(f"[pytest]\n{budget} = 5\n")
    replies = "".join(f'{{"id": "{n}", "response": "{n + 1}"}}\n' for n in range(30))
    llm_pytester.path.joinpath("replies.jsonl").write_text(replies)
    for model in ("random", "replay:replies.jsonl"):
        result = llm_pytester.runpytest(*workers, f"--llm-model={model}", "sums.yaml")
        assert result.ret == 0
        result.stdout.fnmatch_lines(["budget: 0 of 5 *"])


def test_the_model_of_a_conftest_cannot_keep_to_it(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makefile(".yaml", sums=SUITE)
    llm_pytester.makeconftest("import pytest\n@pytest.fixture(scope='session')\ndef llm_model(): return object()")
    result = llm_pytester.runpytest(*workers, "--llm-budget=5", "sums.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --llm-budget: nothing says what the model of a conftest.py costs; *"])


def test_an_object_that_is_asked_for_many_at_once_is_refused(llm_pytester: pytest.Pytester) -> None:
    result = run(llm_pytester, "-p", "no:xdist", "--llm-budget=5", model="Batches")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*an object that is asked for many replies at once cannot keep to a budget*"])


KIND = """
import time
from pathlib import Path
from types import SimpleNamespace
from pytest_llmeval import ModelKind
from pytest_llmeval.models.budget import Amount, BudgetError
from pytest_llmeval.types import GenerateResponse

class Paid(ModelKind):
    name = "paid"
    budgeting = "kept"

    def load(self, spec, settings):
        def answer(request):
            try:
                while (held := settings.budget.try_hold(Amount(tokens=20))) is None:
                    time.sleep(0.001)
            except BudgetError as error:
                return error
            settings.budget.settle(held, Amount(tokens=20))
            with Path(__file__).with_name("asked").open("a") as file:
                file.write("x")
            return GenerateResponse(text=str(eval(request.prompt.removesuffix("="))))

        return SimpleNamespace(generate=lambda requests: [answer(request) for request in requests])

def pytest_llmeval_models():
    return [Paid()]
"""


def test_the_workers_of_a_kind_of_ones_own_share_it(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(KIND)
    llm_pytester.makefile(".yaml", sums=SUITE)
    options = ["--llm-model=paid:x", "--llm-budget-tokens=140", "--llm-report=report.json"]
    assert llm_pytester.runpytest(*workers, *options, "sums.yaml").ret == 1
    assert num_asked(llm_pytester) == 7
    assert report_of(llm_pytester)["budget"]["num_tokens"] == 140
