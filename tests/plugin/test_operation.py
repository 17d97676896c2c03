"""Arguments that say how a model is asked, and decide no reply: in no identity, of no kind and in no role."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.servers.stub import StubServer

ALONE = ["-p", "no:xdist"]
REPORT = "--llm-report=report.json"
KEPT = ("--llm-store=kept", "--llm-store-max-age=7d")
CODE = """
from pathlib import Path

def log(name):
    with Path(__file__).with_name("asked.txt").open("a") as file:
        file.write(name + "\\n")

async def answers(prompt):
    log("model")
    return "good"

async def judges(messages):
    log("judge")
    return '{"reason": "r", "equivalent": true}'

def embeds(texts):
    log("embedder")
    return [[float(len(text)), 1.0] for text in texts]
"""
SUITE = """\
suite: asked
samples: [{id: a, question: Say a., target: Alpha!}, {id: b, question: Say b., target: Beta!}]
score: {equivalence: {math: false}}
generate: {max_tokens: 4}
"""
CONFTEST = """
from pytest_llmeval.scoring.base import Scorer
from pytest_llmeval.types import Ask, EmbeddingRequest, Score

class Close(Scorer):
    name, metrics, roles = "close", ("accuracy",), frozenset(("embedder",))
    def score(self, presented, responses):
        raise RuntimeError("it asks")
    def asking(self, presented, responses):
        yield Ask("embedder", (EmbeddingRequest(responses[0].text), EmbeddingRequest(presented.sample.question)))
        return Score(status="correct", values={"accuracy": 1.0})

def pytest_llmeval_scorers():
    return {"close": Close}
"""
OF_PYTHON = ("", "?concurrency=2", "?timeout=30&concurrency=4")
OF_SERVERS = ("", "?timeout=30", "?max_connections=2&price_in=3&price_out=4", "?api_key_env=HOME")


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makepyfile(my_code=CODE)
    llm_pytester.makeconftest(CONFTEST)
    llm_pytester.makefile(".yaml", asked=SUITE)
    llm_pytester.makefile(
        ".yaml", close=SUITE.replace("asked", "close").replace("{equivalence: {math: false}}", "close")
    )
    return llm_pytester


def report_of(folder: Path, name: str = "report.json") -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def names_in(folder: Path, name: str = "report.json") -> list[Any]:
    """What models, judges and embedders are called."""
    report = report_of(folder, name)
    options = [report["options"].get(role) for role in ("model", "judge", "embedder")]
    judges = [text.rpartition(", ")[2] for suite in report["suites"] for text in suite["judged_by"]]
    return [*options, judges, sorted({record["model"] for record in report["records"]})]


def num_asked(folder: Path, name: str) -> int:
    path = folder / "asked.txt"
    return path.read_text(encoding="utf-8").split().count(name) if path.exists() else 0


def check_same(
    project: pytest.Pytester, workers: list[str], option: str, spec: str, others: tuple[str, ...], *more: str
) -> None:
    """Sessions with these arguments behind the spec find the replies of the first, and can be compared with it."""
    first = project.runpytest(*workers, f"{option}={spec}", *more, *KEPT, "--llm-report=first.json")
    assert first.ret == 0, first.stdout.str()
    for arguments in others:
        options = [f"{option}={spec}{arguments}", "--llm-baseline=first.json", "--llm-max-drop=accuracy=0.1"]
        result = project.runpytest(*workers, *options, *more, *KEPT, REPORT)
        text = result.stdout.str()
        assert "2 of 2 samples reused" in text, text
        assert "another judge" not in text, text
        assert names_in(project.path) == names_in(project.path, "first.json")


def test_a_python_model(project: pytest.Pytester, workers: list[str]) -> None:
    judge = "--llm-judge=python:my_code:judges"
    check_same(project, workers, "--llm-model", "python:my_code:answers", OF_PYTHON, judge, "asked.yaml")
    assert (num_asked(project.path, "model"), num_asked(project.path, "judge")) == (2, 2)


def test_a_python_judge(project: pytest.Pytester, workers: list[str]) -> None:
    model = "--llm-model=python:my_code:answers"
    check_same(project, workers, "--llm-judge", "python:my_code:judges", OF_PYTHON, model, "asked.yaml")
    assert (num_asked(project.path, "model"), num_asked(project.path, "judge")) == (2, 2)


def test_a_python_embedder(project: pytest.Pytester, workers: list[str]) -> None:
    model = "--llm-model=python:my_code:answers"
    check_same(project, workers, "--llm-embedder", "python:my_code:embeds", OF_PYTHON, model, "close.yaml")
    assert num_asked(project.path, "embedder") <= 4


@pytest.mark.parametrize(
    "role", ["model", *(pytest.param(role, marks=pytest.mark.slow) for role in ("judge", "embedder"))]
)
def test_servers(project: pytest.Pytester, workers: list[str], role: str) -> None:
    says = '{"reason": "r", "equivalent": true}'
    others = {
        "model": ("--llm-judge=python:my_code:judges", "asked.yaml"),
        "judge": ("--llm-model=python:my_code:answers", "asked.yaml"),
        "embedder": ("--llm-model=python:my_code:answers", "close.yaml"),
    }
    with (
        StubServer("vllm", instant=True, says=lambda _: says) as stub,
        StubServer("vllm", instant=True, says=lambda _: says) as replica,
    ):
        arguments = (*OF_SERVERS, f"?base_url={replica.url},max_connections=3")
        check_same(project, workers, f"--llm-{role}", stub.url, arguments, *others[role])
        given = [f"--llm-{role}={stub.url}", "--llm-model-arg=timeout=20", "--llm-model-arg=max_connections=1"]
        result = project.runpytest(*workers, *given, *others[role], *KEPT, REPORT)
        assert "2 of 2 samples reused" in result.stdout.str(), result.stdout.str()


@pytest.mark.parametrize("option", ["model", "judge"])
def test_two_that_differ_in_nothing_that_decides_are_refused_in_one_line(project: pytest.Pytester, option: str) -> None:
    given = [f"--llm-{option}=python:my_code:judges?concurrency={number}" for number in (1, 2)]
    result = project.runpytest(
        *ALONE, *given, "--llm-model=python:my_code:answers" if option == "judge" else REPORT, "asked.yaml"
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.stderr.lines if line.startswith("ERROR: ")]
    assert line.startswith(f"ERROR: --llm-{option} python:my_code:judges was given twice: ")


def test_reports_with_such_arguments_in_their_names_still_pair(project: pytest.Pytester) -> None:
    """As versions before this one wrote them, of a session of two models."""
    project.makepyfile(my_other="def other(prompt): return 'bad'")
    exact = SUITE.replace("asked", "exact").replace("{equivalence: {math: false}}", "contains")
    project.makefile(".yaml", exact=exact.replace("Alpha!", "good").replace("Beta!", "good"))
    models = ["--llm-model=python:my_code:answers", "--llm-model=python:my_other:other"]
    assert project.runpytest(*ALONE, *models, "exact.yaml", "--llm-report=old.json").ret == 0
    old = project.path / "old.json"
    text = old.read_text(encoding="utf-8")
    report = json.loads(text.replace("python:my_code:answers", "python:my_code:answers?concurrency=4"))
    del report["selection"], report["digest"]  # which schema 2 has not
    old.write_text(json.dumps({**report, "schema": 2}), encoding="utf-8")
    result = project.runpytest(*ALONE, *models, "exact.yaml", "--llm-baseline=old.json", REPORT)
    assert result.ret == 1, "so few samples decide nothing"
    gates = report_of(project.path)["gates"]
    compared = [(gate["model"], gate["regression"]["n"]) for gate in gates if gate["regression"] is not None]
    assert compared == [("python:my_code:answers", 2), ("python:my_other:other", 2)], gates
    assert not any("did not run" in gate["reason"] for gate in gates)
