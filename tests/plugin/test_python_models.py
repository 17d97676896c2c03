"""``--llm-model python:MODULE:NAME``: functions and classes of the user's own in a model's place."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.suites_for_tests import CAPITALS, SUMS

AGENTS = '''
import asyncio, os, pathlib

def crew(prompt, planning=False, api_key=None):
    """Sums right with planning, wrong without."""
    if "4 + 4" in prompt:
        raise ValueError(f"no quota for {api_key}")
    number = eval(prompt.removesuffix("="))
    return str(number if planning else number + 1)

async def later(prompt):
    await asyncio.sleep(0)
    if "4 + 4" in prompt:
        raise TimeoutError("too slow")
    return str(eval(prompt.removesuffix("=")))

def returns_a_number(prompt):
    return 5

def chat(messages):
    return f"{len(messages)} {messages[-1]['role']}"

class Agent:
    def __init__(self, k=0):
        self.k = k

    def __call__(self, prompt):
        return str(eval(prompt.removesuffix("=")) + self.k)

class Likelihoods:
    def loglikelihood(self, requests):
        from pytest_llmeval.types import LoglikelihoodResponse
        return [LoglikelihoodResponse(loglikelihood=-float(len(r.continuation)), num_tokens=1) for r in requests]
'''


def run(pytester: pytest.Pytester, workers: list[str], *models: str, suite: str = SUMS) -> pytest.RunResult:
    pytester.makefile(".yaml", sums=suite)
    pytester.makepyfile(my_agents=AGENTS)
    options = [f"--llm-model={model}" for model in models]
    return pytester.runpytest(*workers, *options, "--llm-report=report.json", "-v", "sums.yaml")


def report_of(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def test_two_configurations_side_by_side(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    models = ["python:my_agents:crew?planning=true", "python:my_agents:crew", "python:my_agents:Agent?k=0"]
    result = run(llm_pytester, workers, *models)
    assert result.ret == 1  # one sample of each crew could not be scored
    result.stdout.fnmatch_lines(["llm-model: python:my_agents:crew[?]planning=true (Python code)"])
    report = report_of(llm_pytester.path)
    assert [(suite["models"], suite["num_scored"]) for suite in report["suites"]] == [
        ([models[0]], 3),
        ([models[1]], 3),
        ([models[2]], 4),
    ]
    assert [suite["metrics"]["accuracy"]["value"] for suite in report["suites"]] == [1.0, 0.0, 1.0]
    nodeids = {record["nodeid"] for record in report["records"] if record["model"] == models[0]}
    assert "sums.yaml::python:my_agents:crew?planning=true::s1" in nodeids
    assert [one["second"] for one in report["comparisons"]] == models[1:]


@pytest.mark.parametrize(
    ("name", "error"), [("crew", "ValueError: no quota for None"), ("later", "TimeoutError: too slow")]
)
def test_an_exception_is_that_samples_error(
    llm_pytester: pytest.Pytester, workers: list[str], name: str, error: str
) -> None:
    """With the traceback of the user's own code, and of no other."""
    result = run(llm_pytester, workers, f"python:my_agents:{name}")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            f"not scored: sums.yaml:5: sample 's3': python:my_agents:{name} raised {error}",
            "Traceback (most recent call last):",
            f'  File "*my_agents.py", line *, in {name}',
            "    raise *",
            error,
        ],
        consecutive=False,
    )
    assert not re.search(r"pytest_llmeval[\\/]", result.stdout.str())
    records = {record["id"]: record for record in report_of(llm_pytester.path)["records"]}
    assert [records[id_]["status"] == "unscored" for id_ in ("s1", "s2", "s3", "s4")] == [False, False, True, False]
    assert records["s3"]["reason"] == f"python:my_agents:{name} raised {error}"


def test_controls_in_what_is_raised_are_seen_as_escapes(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makepyfile(red="def crew(prompt):\n    raise ValueError('a \\x1b[31m red \\x07 \\u202e quota')")
    result = run(llm_pytester, [*workers, "--llm-report=report.html"], "python:red.py:crew")
    said = r"python:red.py:crew raised ValueError: a \x1b[31m red \x07 \u202e quota"
    assert said in result.stdout.str()
    assert {record["reason"] for record in report_of(llm_pytester.path)["records"]} == {said}
    assert said in (llm_pytester.path / "report.html").read_text()
    assert not {"\x1b", "\x07", "\u202e"} & {*result.stdout.str()}


def test_secrets_reach_nothing_that_is_shown(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    models = ["python:my_agents:crew?planning=true&api_key=hush-hush-hush", "python:my_agents:Agent"]
    result = run(llm_pytester, workers, *models)
    result.stdout.fnmatch_lines(["*raised ValueError: no quota for [*][*][*]"])
    shown = result.stdout.str() + result.stderr.str() + (llm_pytester.path / "report.json").read_text()
    assert "hush" not in shown
    assert "api_key=***" in shown
    alone = run(llm_pytester, workers, models[0])
    assert "hush" not in alone.stdout.str() + (llm_pytester.path / "report.json").read_text()
    twice = run(llm_pytester, workers, models[0], models[0] + "2")
    assert twice.ret == 4
    assert "hush" not in twice.stderr.str()


def test_what_is_no_text(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    result = run(llm_pytester, workers, "python:my_agents:returns_a_number")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*sample 's1': python:my_agents:returns_a_number returned 5 (int), expected a str*"])


def test_a_chat(llm_pytester: pytest.Pytester) -> None:
    suite = SUMS.replace("score: number", "prompt: {chat: true, system: Be brief.}\nscore: number")
    assert run(llm_pytester, [], "python:my_agents:chat", suite=suite).ret == 0
    assert {record["output"] for record in report_of(llm_pytester.path)["records"]} == {"2 user"}


def test_likelihoods(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """A function has none; a class may."""
    suite = CAPITALS.replace("Rome, Oslo, Bern]", "Longer, Longest, The longest]").replace("target: Rome", "target: 1")
    result = run(llm_pytester, workers, "python:my_agents:Agent", suite=suite)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["sums.yaml:*: score: choice compares log-likelihoods, and python:my_agents:Agent *"])
    assert run(llm_pytester, workers, "python:my_agents:Likelihoods", suite=suite).ret == 0
    assert {record["model"] for record in report_of(llm_pytester.path)["records"]} == {"python:my_agents:Likelihoods"}
    assert {record["answer"] for record in report_of(llm_pytester.path)["records"]} == {"Paris"}


def test_a_file_and_a_module_of_the_rootdir(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """Modules are found from the rootdir too, where the run begins in a folder below."""
    assert run(llm_pytester, workers, "python:my_agents.py:Agent").ret == 0
    folder = llm_pytester.mkdir("below")
    llm_pytester.makeini("[pytest]")
    (llm_pytester.path / "sums.yaml").rename(folder / "sums.yaml")
    llm_pytester.chdir()
    llm_pytester._monkeypatch.chdir(folder)
    result = llm_pytester.runpytest(*workers, "--llm-model=python:my_agents:Agent", "sums.yaml")
    assert result.ret == 0


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("python:not_there:f", "ERROR: model python:not_there:f: there is no module 'not_there' on the import path*"),
        ("python:no/file.py:f", "ERROR: model python:no/file.py:f: there is no file no/file.py"),
        (
            "python:my_agents",
            "ERROR: --llm-model python:my_agents: expected python:MODULE:NAME or python:FILE.py:NAME*",
        ),
    ],
)
def test_what_is_refused_before_the_run(
    llm_pytester: pytest.Pytester, workers: list[str], model: str, message: str
) -> None:
    result = run(llm_pytester, workers, model)
    assert result.ret == 4
    result.stderr.fnmatch_lines([message])
    result.stderr.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "my_agents:Agnt",
            "*model python:my_agents:Agnt: there is no 'Agnt' in my_agents (*); did you mean 'Agent'[?]*",
        ),
        (
            "my_agents:Agent?kk=1",
            "*model python:my_agents:Agent[?]kk=1: Agent cannot be called with these *",
        ),
        ("breaks:f", "*model python:breaks:f: cannot import breaks: ZeroDivisionError: division by zero*"),
    ],
)
def test_what_cannot_be_loaded_stops_the_run(
    llm_pytester: pytest.Pytester, workers: list[str], name: str, message: str
) -> None:
    llm_pytester.makepyfile(breaks="1 / 0")
    result = run(llm_pytester, workers, f"python:{name}")
    assert result.ret in (1, 2)
    result.stdout.fnmatch_lines([message])
    assert ("Traceback" in result.stdout.str()) == (name == "breaks:f")


def test_in_hand_written_tests(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makepyfile(my_agents=AGENTS)
    llm_pytester.makepyfile(test_it="def test_it(llm_model): assert llm_model.generate('1 + 1 =').text == '3'")
    result = llm_pytester.runpytest(*workers, "--llm-model=python:my_agents:crew")
    result.assert_outcomes(passed=1)


_ASYNC = '''
import asyncio, json

_client = None

class Client:
    """As clients of HTTP do, it belongs to the loop of its first use."""

    def __init__(self):
        self.loop, self.turn = asyncio.get_running_loop(), asyncio.Lock()

    async def ask(self, text):
        assert asyncio.get_running_loop() is self.loop, "another loop"
        async with self.turn:
            await asyncio.sleep(0)
        return text

def client():
    global _client
    _client = _client or Client()
    return _client

async def crew(prompt):
    return await client().ask(str(eval(prompt.removesuffix("="))))

def runs_its_own(prompt):
    return asyncio.run(Client.ask(type("C", (), {"loop": property(lambda _: asyncio.get_running_loop()),
        "turn": property(lambda _: asyncio.Lock())})(), str(eval(prompt.removesuffix("=")))))

async def judge(messages):
    return await client().ask(json.dumps({"reason": "r", "equivalent": True}))
'''
_EQUIVALENT = "suite: same\nsamples: [{id: a, question: 1 + 1=, target: two}]\nscore: equivalence\n"


@pytest.mark.parametrize("name", ["crew", "runs_its_own"])
def test_a_session_where_an_event_loop_runs(llm_pytester: pytest.Pytester, name: str) -> None:
    """As in a notebook. The model and its judge share a client."""
    llm_pytester.makefile(".yaml", sums=SUMS, same=_EQUIVALENT)
    llm_pytester.makepyfile(my_agents=_ASYNC)
    options = [f"--llm-model=python:my_agents:{name}", "--llm-judge=python:my_agents:judge", "sums.yaml", "same.yaml"]

    async def in_a_notebook() -> pytest.RunResult:
        return llm_pytester.runpytest_inprocess(*options)

    result = asyncio.run(in_a_notebook())
    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(["*5 passed*"])


def test_in_async_tests_and_in_threads(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """The conftest runs coroutines as plugins for async tests do."""
    llm_pytester.makepyfile(my_agents=_ASYNC)
    llm_pytester.makeconftest(
        "import asyncio, inspect, pytest\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_pyfunc_call(pyfuncitem):\n"
        "    if inspect.iscoroutinefunction(pyfuncitem.obj):\n"
        "        names = pyfuncitem._fixtureinfo.argnames\n"
        "        asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))\n"
        "        return True\n"
    )
    llm_pytester.makepyfile(
        test_sums="""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        async def test_here(llm_model, llm_judge, llm_record):
            reply = llm_model.generate("1 + 1=")
            llm_record(suite="sums", id="here", correct=reply.text == "2")
            assert "equivalent" in llm_judge.generate("is it?").text

        async def test_beside_others(llm_model, llm_record):
            replies = await asyncio.gather(*(asyncio.to_thread(llm_model.generate, f"{n} + 1=") for n in range(5)))
            for n, reply in enumerate(replies):
                llm_record(suite="sums", id=f"beside {n}", correct=reply.text == str(n + 1))

        def test_in_threads(llm_model, llm_record):
            with ThreadPoolExecutor(5) as pool:
                for n, reply in enumerate(pool.map(lambda n: llm_model.generate(f"{n} + 1="), range(5))):
                    llm_record(suite="sums", id=f"thread {n}", correct=reply.text == str(n + 1))
        """
    )
    options = ["--llm-model=python:my_agents:crew", "--llm-judge=python:my_agents:judge", "--llm-report=report.json"]
    result = llm_pytester.runpytest(*workers, *options)
    assert result.ret == 0, result.stdout.str()
    assert [record["status"] for record in report_of(llm_pytester.path)["records"]] == ["correct"] * 11
