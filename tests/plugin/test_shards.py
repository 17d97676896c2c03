"""``--llm-shard``: a stable part of a session."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_llmeval.cli import main
from tests.support import fake_model_conftest

SAMPLES = [{"id": f"q{number}", "question": f"{number} + 1 =", "target": number + 1} for number in range(40)]
SUITE = f"suite: sums\nscore: number\nsamples: {json.dumps(SAMPLES)}\n"


def ids(pytester: pytest.Pytester, *arguments: str) -> set[str]:
    pytester.runpytest("--llm-report=out.json", *arguments)
    report: dict[str, Any] = json.loads((pytester.path / "out.json").read_text(encoding="ascii"))
    return {record["id"] for record in report["records"]}


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(default_reply="3"))
    llm_pytester.makefile(".yaml", sums=SUITE)
    return llm_pytester


def test_shards_share_out_all_samples(project: pytest.Pytester, workers: list[str]) -> None:
    parts = [ids(project, *workers, f"--llm-shard={number}/3", "sums.yaml") for number in (1, 2, 3)]
    assert all(parts)
    assert sum(map(len, parts)) == 40
    assert set.union(*parts) == {sample["id"] for sample in SAMPLES}


def test_a_shard_does_not_move_when_questions_are_added(project: pytest.Pytester) -> None:
    before = ids(project, "--llm-shard=2/3", "sums.yaml")
    more = [*SAMPLES, {"id": "new", "question": "0 + 0 =", "target": 0}]
    project.makefile(".yaml", sums=f"suite: sums\nscore: number\nsamples: {json.dumps(more)}\n")
    assert ids(project, "--llm-shard=2/3", "sums.yaml") - {"new"} == before


def test_shards_of_a_limited_session(project: pytest.Pytester, workers: list[str]) -> None:
    whole = ids(project, *workers, "--llm-limit=12", "sums.yaml")
    parts = [ids(project, *workers, "--llm-limit=12", f"--llm-shard={number}/2", "sums.yaml") for number in (1, 2)]
    assert set.union(*parts) == whole
    assert sum(map(len, parts)) == 12


def test_hand_written_tests_are_shared_out_too(project: pytest.Pytester, workers: list[str]) -> None:
    project.makepyfile("import pytest\n\n\n@pytest.mark.parametrize('n', range(30))\ndef test_one(n): pass\n")
    counts = []
    for number in (1, 2):
        result = project.runpytest(*workers, f"--llm-shard={number}/2", "-k", "test_one")
        counts.append(result.parseoutcomes()["passed"])
    assert sum(counts) == 30
    assert min(counts) > 3


FAILING = """
import pytest

def test_fails():
    assert False

def test_fails_twice(request):
    request.addfinalizer(lambda: 1 / 0)
    assert False

def test_has_a_fault_behind_its_score(llm_record):
    llm_record(suite="own", id="a", correct=True)
    assert False

def test_has_no_score(llm_record):
    assert False

def test_passes(llm_record):
    llm_record(suite="own", id="b", correct=True)
"""


def test_a_failed_test_is_not_hidden_by_a_failed_gate(
    project: pytest.Pytester, workers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    project.makepyfile(test_failing=FAILING)
    arguments = ("--llm-report=out.json", "--llm-gate=sums: accuracy >= 0.9", "--llm-shard=1/1")
    assert project.runpytest(*workers, *arguments, "test_failing.py", "sums.yaml").ret == 1
    part, whole = str(project.path / "out.json"), str(project.path / "all.json")
    assert json.loads((project.path / "out.json").read_text(encoding="ascii"))["num_failed_tests"] == 3
    capsys.readouterr()
    assert main(["merge", part, "-o", whole]) == 1
    told = f"{part} ended with 3 failed tests: run it again, or --partial to merge what there is"
    assert capsys.readouterr().err == f"llmeval merge: {told}\n"
    assert project.runpytest(*workers, *arguments, "--llm-strict", "sums.yaml").ret == 1
    assert main(["merge", part, "-o", whole]) == 0  # a gate failed, and wrong samples under --llm-strict


def test_the_report_names_the_shard(project: pytest.Pytester) -> None:
    ids(project, "--llm-shard=2/3", "sums.yaml")
    report = json.loads((project.path / "out.json").read_text(encoding="ascii"))
    assert report["options"]["shard"] == "2/3"
