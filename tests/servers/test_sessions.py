"""Whole sessions: what workers share, and that no key gets out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugin.suites_for_tests import CAPITALS, SUMS
from tests.servers.stub import StubServer

KEY = "planted-4f7d2a91c0"

KIND = """
from pathlib import Path
from types import SimpleNamespace
from pytest_llmeval import ModelKind
from pytest_llmeval.types import LoglikelihoodResponse

class Far(ModelKind):
    name, is_remote = "far", True

    def load(self, spec, settings):
        shared = settings.shared_folder
        with Path(__file__).with_name("loads.txt").open("a") as file:
            file.write(f"{shared} {shared is not None and shared.is_dir()}\\n")
        return SimpleNamespace(
            loglikelihood=lambda requests: [LoglikelihoodResponse(loglikelihood=-1.0, num_tokens=1) for _ in requests]
        )

def pytest_llmeval_models():
    return [Far()]
"""


@pytest.fixture
def suite(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makefile(".yaml", capitals=CAPITALS, sums=SUMS)
    return llm_pytester


def test_workers_share_a_folder_while_they_run(suite: pytest.Pytester, workers: list[str]) -> None:
    suite.makeconftest(KIND)
    suite.runpytest(*workers, "--llm-model=far:x", "capitals.yaml")
    loads = (suite.path / "loads.txt").read_text().splitlines()
    if "-n2" not in workers:
        assert loads == ["None False"]
        return
    assert len(set(loads)) == 1
    folder, was_there = loads[0].split()
    assert was_there == "True"
    assert not Path(folder).exists()


@pytest.fixture(params=["unauthorized", "errors-30"])
def stub(request: pytest.FixtureRequest) -> Iterator[StubServer]:
    with StubServer("openai", faults=[request.param], instant=True, key=KEY) as server:
        yield server


def test_no_key_in_anything_that_a_session_writes(
    suite: pytest.Pytester, workers: list[str], stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused key, which the server repeats; and one that works, with failures between."""
    monkeypatch.setenv("SOME_VARIABLE", KEY)
    result = suite.runpytest(
        *workers,
        f"--llm-model={stub.url}?dialect=openai&api_key_env=SOME_VARIABLE#demo",
        "--log-cli-level=DEBUG",
        "--log-file=log.txt",
        "--log-file-level=DEBUG",
        "--showlocals",
        "--full-trace",
        "-rA",
        "-vv",
        "--junitxml=junit.xml",
        "--llm-report=out.json",
        "--llm-report=out.md",
        "sums.yaml",
    )
    shown = result.stdout.str() + result.stderr.str()
    assert "Traceback" not in shown
    if "unauthorized" in stub.faults:
        assert re.search(r"refuses access \(401: Incorrect API key provided: (Bearer )?\*\*\*\)", shown)
    else:
        assert "4 samples" in shown
    assert any(KEY in "".join(seen.headers.values()) for seen in stub.seen)  # it was sent
    assert KEY not in shown
    files = [path for path in suite.path.rglob("*") if path.is_file()]
    if "unauthorized" not in stub.faults:  # then there was a session
        assert {"log.txt", "junit.xml"} <= {path.name for path in files}
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_workers_share_one_limit(llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers, each with more samples than slots: never are more than three requests open at the server."""
    monkeypatch.setenv("SOME_VARIABLE", KEY)
    samples = "".join(f'  - {{id: s{number}, question: "{number} + 1 =", target: 2}}\n' for number in range(60))
    llm_pytester.makefile(".yaml", sums=f"suite: sums\nsamples:\n{samples}score: number\n")
    with StubServer("openai", instant=True, key=KEY, delay_s=0.01) as stub:
        model = f"--llm-model={stub.url}?dialect=openai&api_key_env=SOME_VARIABLE&max_connections=3#demo"
        result = llm_pytester.runpytest("-n2", model, "sums.yaml")
        summary = stub.summary()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*60 samples, *"])
    assert summary["num_questions"] >= 60
    assert summary["max_open"] <= 3
