"""Agents: what a user's program returns beside its text, in sessions as a user has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.suites_for_tests import SUMS

REPORT = "--llm-report=report.json"

AGENTS = '''
import asyncio, os, threading, time

def crew(prompt, planning=False, api_key="none-at-all"):
    """Sums right with planning, wrong without; planning takes more tokens."""
    number = eval(prompt.removesuffix("="))
    trace = [{"tool": "plan", "said": f"{prompt} with {api_key}"}] * planning + ["added \\ud800", object(), 0.5]
    return {
        "text": str(number if planning else number + 1),
        "num_prompt_tokens": 200 if planning else 10,
        "num_tokens": 40 if planning else 4,
        "cost": 0.02 if planning else 0.001,
        "trace": trace,
    }

async def talks(prompt):
    await asyncio.sleep(0)
    return {"text": str(eval(prompt.removesuffix("="))), "trace": [f"step {n}" for n in range(500)]}

def alone(prompt):
    os.mkdir("busy")  # fails where another call is under way
    time.sleep(0.05)
    os.rmdir("busy")
    return str(eval(prompt.removesuffix("=")))

async def alone_later(prompt):
    os.mkdir("busy")
    await asyncio.sleep(0.05)
    os.rmdir("busy")
    return str(eval(prompt.removesuffix("=")))

async def hangs(prompt):
    if "4 + 4" in prompt:
        await asyncio.Event().wait()
    return str(eval(prompt.removesuffix("=")))

def hangs_in_a_thread(prompt):
    if "4 + 4" in prompt:
        threading.Event().wait()
    return str(eval(prompt.removesuffix("=")))

def wrong(prompt):
    return {"text": "1", "tokens": 3}

def worse(prompt):
    return {"text": "1", "cost": -1}

class Result:
    raw = "3"

def framework(prompt):
    return Result()
'''


def run(pytester: pytest.Pytester, *arguments: str, suite: str = SUMS) -> pytest.RunResult:
    pytester.makefile(".yaml", sums=suite)
    pytester.makepyfile(my_agents=AGENTS)
    return pytester.runpytest(*arguments, REPORT, "sums.yaml")


def report_of(folder: Path, name: str = "report.json") -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def records_of(folder: Path, name: str = "report.json") -> dict[str, Any]:
    return {record["id"]: record for record in report_of(folder, name)["records"]}


def model(name: str) -> str:
    return f"--llm-model=python:my_agents:{name}"


def test_a_price_stands_beside_its_gain(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    result = run(llm_pytester, *workers, model("crew"), model("crew?planning=true"), "--llm-report=report.md")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "against *crew, over the samples that both scored:*",
            "a sample took, in the mean:",
            "suite * n  prompt tokens  tokens * cost  cost in all",
            "sums* 4 * 10 * 4 * 0.001 * 0.004",
            "sums* 4 * 200 * 40 * 0.02 * 0.08",
        ]
    )
    first, second = report_of(llm_pytester.path)["suites"]
    assert (first["cost"], second["cost"]) == (pytest.approx(0.004), pytest.approx(0.08))
    assert {name: second["per_sample"][name] for name in ("n", "num_prompt_tokens", "num_tokens", "num_priced")} == {
        "n": 4,
        "num_prompt_tokens": 200,
        "num_tokens": 40,
        "num_priced": 4,
    }
    markdown = (llm_pytester.path / "report.md").read_text(encoding="utf-8")
    assert "A sample took, in the mean:" in markdown
    assert "| cost in all |" in markdown


def test_one_model_that_costs_nothing_has_no_such_table(llm_pytester: pytest.Pytester) -> None:
    result = run(llm_pytester, model("talks"))
    result.stdout.no_fnmatch_line("a sample took*")
    assert report_of(llm_pytester.path)["suites"][0]["cost"] is None


def test_a_trace_is_kept(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """As JSON, without secrets, and shown by the command that shows samples."""
    result = run(llm_pytester, *workers, model("crew?planning=true&api_key=hush-hush-hush"))
    assert result.ret == 0
    record = records_of(llm_pytester.path)["s1"]
    plan, added, thing, number = record["details"]["trace"]
    assert plan == {"tool": "plan", "said": f"{record['prompt']} with ***"}
    assert thing.startswith("<object object at ")
    assert (added, number, record["cost"]) == (b"added \\ud800".decode("unicode_escape"), 0.5, 0.02)
    assert "hush" not in (llm_pytester.path / "report.json").read_text(encoding="utf-8")
    shown = llm_pytester.run("llmeval", "show", "report.json", "--id", "s1")
    assert shown.ret == 0
    shown.stdout.fnmatch_lines(["*step 1 of 4: *plan*", "*step 2 of 4: added*", "*output: *"])


def test_a_long_trace_is_kept_in_part(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    assert run(llm_pytester, *workers, model("talks")).ret == 0
    for record in records_of(llm_pytester.path).values():
        trace = record["details"]["trace"]
        assert len(trace) == 99
        assert (trace[0], trace[49], trace[-1]) == ("step 0", "(402 steps left out)", "step 499")
    shown = llm_pytester.run("llmeval", "show", "report.json", "--id", "s1")
    shown.stdout.fnmatch_lines(["*step 20 of 99: step 19", "*trace: 79 more steps are in the report"])


@pytest.mark.parametrize("option", ["--llm-report-prompts=none", "--llm-report-prompts=hash"])
def test_without_prompts_there_is_no_trace(llm_pytester: pytest.Pytester, option: str) -> None:
    assert run(llm_pytester, model("crew?planning=true"), option).ret == 0
    assert all("trace" not in record["details"] for record in records_of(llm_pytester.path).values())


def test_without_records_there_is_no_trace(llm_pytester: pytest.Pytester) -> None:
    assert run(llm_pytester, model("crew?planning=true"), "--llm-report-records=wrong").ret == 0
    assert all("trace" not in (record.get("details") or {}) for record in records_of(llm_pytester.path).values())


def test_the_store_and_a_replay_have_it_too(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    planned = model("crew?planning=true")
    run(llm_pytester, *workers, planned, "--llm-store=store")
    first = records_of(llm_pytester.path)
    run(llm_pytester, *workers, planned, "--llm-store=store", "--llm-store-max-age=1d")
    again = records_of(llm_pytester.path)
    (llm_pytester.path / "report.json").rename(llm_pytester.path / "earlier.json")
    result = run(llm_pytester, *workers, "--llm-model=replay:earlier.json")
    assert result.ret == 0
    replayed = records_of(llm_pytester.path)
    for name, record in first.items():
        assert again[name]["details"]["trace"] == record["details"]["trace"]
        assert again[name]["cost"] == record["cost"]
        assert again[name]["asked_at"] == record["asked_at"], "it was not asked again"
        assert replayed[name]["details"]["trace"] == record["details"]["trace"]


def test_a_limit_of_the_session_is_no_part_of_a_stored_question(llm_pytester: pytest.Pytester) -> None:
    run(llm_pytester, model("crew?planning=true"), "--llm-store=store", "--llm-store-max-age=1d")
    first = records_of(llm_pytester.path)
    limit = "--llm-model-arg=timeout=90"
    run(llm_pytester, model("crew?planning=true"), limit, "--llm-store=store", "--llm-store-max-age=1d")
    again = records_of(llm_pytester.path)
    assert {name: record["asked_at"] for name, record in again.items()} == {
        name: record["asked_at"] for name, record in first.items()
    }


def test_wrong_answers_are_shown_with_their_steps(llm_pytester: pytest.Pytester) -> None:
    run(llm_pytester, model("crew"), "-vv").stdout.fnmatch_lines(["*WRONG ANSWERS*", "  trace: 3 steps: added *"])


def test_each_epoch_has_its_trace(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    suite = f"{SUMS}epochs: 2\ngenerate: {{temperature: 1}}\n"
    assert run(llm_pytester, *workers, model("crew?planning=true"), suite=suite).ret == 0
    record = records_of(llm_pytester.path)["s1"]
    assert [len(trace) for trace in record["details"]["trace"]] == [4, 4]
    assert record["cost"] == pytest.approx(0.04)
    shown = llm_pytester.run("llmeval", "show", "report.json", "--id", "s1")
    shown.stdout.fnmatch_lines(["*step 1 of 4 of output 1: *", "*step 4 of 4 of output 2: *"])


@pytest.mark.parametrize(("name", "words"), [("hangs", ""), ("hangs_in_a_thread", "; its thread is left to itself")])
@pytest.mark.parametrize("as_option", [False, True])
def test_a_sample_without_a_reply_in_time(
    llm_pytester: pytest.Pytester, workers: list[str], name: str, words: str, as_option: bool
) -> None:
    """The others are scored. A thread may be late to start: of those only the one that never ends is asked for."""
    own = [model(name), "--llm-model-arg=timeout=0.05"] if as_option else [model(f"{name}?timeout=0.05")]
    result = run(llm_pytester, *workers, *own, *(["-k", "s3"] if words else []))
    assert result.ret == 1
    records = records_of(llm_pytester.path)
    assert {id_: record["status"] == "unscored" for id_, record in records.items()} == {
        id_: id_ == "s3" for id_ in (("s3",) if words else ("s1", "s2", "s3", "s4"))
    }
    assert records["s3"]["reason"].endswith(f"no reply within 0.05 s{words}")
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    "name", ["alone?concurrency=1", pytest.param("alone_later?concurrency=1", marks=pytest.mark.slow)]
)
def test_a_number_of_calls_is_the_sessions(llm_pytester: pytest.Pytester, name: str) -> None:
    """The workers ask one at a time between them: there is time enough to find another call under way."""
    rows = "".join(f'  - {{id: t{number}, question: "{number} + 0 =", target: {number}}}\n' for number in range(16))
    suite = SUMS.replace("score: number", f"{rows}score: number")
    assert run(llm_pytester, "-n2", "--llm-batch-size=1", model(name), suite=suite).ret == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wrong", "a mapping with the keys 'text', 'tokens', expected a str, or a mapping with text and contexts, *"),
        ("worse", "cost: found -1 (a whole number), expected a finite number, 0 or more"),
        ("framework", "<my_agents.Result object at * (Result), expected a str: return its .raw"),
    ],
)
def test_what_it_cannot_return(llm_pytester: pytest.Pytester, workers: list[str], name: str, words: str) -> None:
    result = run(llm_pytester, *workers, model(name))
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"*sample 's1': python:my_agents:{name} returned {words}"])
    result.stdout.no_fnmatch_line("*Traceback*")
