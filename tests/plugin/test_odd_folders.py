"""Folders whose names hold what pytest gives a meaning to in a node id.

As an argument pytest itself refuses them, of any test (``path cannot contain [] parametrization``, ``not found``): they
are run from within, or with what holds them.
"""

from __future__ import annotations

import json

import pytest

from tests.plugin.suites_for_tests import SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest

BENCH = """
from pytest_llmeval import Benchmark
class Bench(Benchmark):
    score = 'exact'
    def load(self):
        return [{'id': 'k', 'question': 'q', 'target': 'yes'}]
"""


def test_brackets_and_colons(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, errors={"5 + 4": "too long"}))
    llm_pytester.makeini("[pytest]\n")
    for name in ("a[1]", "b::c"):
        folder = llm_pytester.mkdir(name)
        gated = SUMS.replace("suite: sums", f"suite: of {name[0]}") + "gates: [accuracy >= 0.1]\n"
        (folder / "sums.yaml").write_text(gated, encoding="utf-8")
        (folder / "test_bench.py").write_text(
            "from pytest_llmeval import Benchmark\n"
            f"class Bench{name[0].upper()}(Benchmark):\n"
            "    score = 'number'\n"
            "    def load(self):\n"
            "        return [{'id': 'k', 'question': '1 + 1 =', 'target': 2}]\n",
            encoding="utf-8",
        )
    result = llm_pytester.runpytest(*workers, "--import-mode=importlib", "--llm-report=out.json", ".")
    assert result.ret == 1
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    report = json.loads((llm_pytester.path / "out.json").read_text(encoding="utf-8"))
    found = {(record["suite"], record["id"]): record["status"] for record in report["records"]}
    sums = {"s1": "correct", "s2": "wrong", "s3": "wrong", "s4": "unscored"}
    expected = {(suite, sample): status for suite in ("of a", "of b") for sample, status in sums.items()}
    assert found == expected | {("BenchA", "k"): "correct", ("BenchB", "k"): "correct"}
    assert [gate["outcome"] for gate in report["gates"]] == ["failed", "failed"]


def test_from_within(llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES))
    llm_pytester.makeini("[pytest]\n")
    for name in ("a[1]", "b::c"):
        folder = llm_pytester.mkdir(name)
        (folder / "sums.yaml").write_text(SUMS, encoding="utf-8")
        monkeypatch.chdir(folder)
        result = llm_pytester.runpytest("-p", "no:xdist", "sums.yaml::s1")
        assert result.ret == 0
        result.stdout.fnmatch_lines(["*= 1 passed in *"])


def test_last_failed(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """What stands before the first ``::`` pytest takes for the file of a test that failed, and skips the true one."""
    llm_pytester.makeconftest(fake_model_conftest(replies={"q": "no"}))
    llm_pytester.makeini("[pytest]\n")
    wrong = ["a[1]/s.yaml::w", "b::c/s.yaml::w", "b::c/test_bench.py::Bench::k", "d/s.yaml::w"]
    rows = "[{id: r, question: q, target: 'no'}, {id: w, question: q, target: 'yes'}]"
    for name in ("a[1]", "b::c", "d", "e"):
        folder = llm_pytester.mkdir(name)
        own = rows if name != "e" else rows.partition(", {id: w")[0] + "]"
        (folder / "s.yaml").write_text(f"suite: of {name[0]}\nsamples: {own}\nscore: exact\n", encoding="utf-8")
    (llm_pytester.path / "b::c" / "test_bench.py").write_text(BENCH, encoding="utf-8")
    (llm_pytester.path / "b::c" / "test_own.py").write_text("def test_own(): pass\n", encoding="utf-8")
    arguments = (*workers, "--import-mode=importlib", ".")
    llm_pytester.runpytest(*arguments).stdout.fnmatch_lines(["*= 5 passed, 4 wrong in *"])
    for status in ("wrong", "wrong", "correct"):  # what failed again is remembered again
        if status == "correct":
            llm_pytester.makeconftest(fake_model_conftest(replies={"q": "yes"}))
        llm_pytester.runpytest(*arguments, "--lf", "--llm-report=out.json")
        report = json.loads((llm_pytester.path / "out.json").read_text(encoding="utf-8"))
        assert sorted(record["nodeid"] for record in report["records"]) == wrong
        assert {record["status"] for record in report["records"]} == {status}
    assert remembered(llm_pytester) == []


def test_last_failed_there_alone(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies={"q": "no", "p": "no"}))
    llm_pytester.makeini("[pytest]\n")
    for name, wrong in (("b::c", "yes"), ("d", "no")):
        rows = f"[{{id: r, question: q, target: 'no'}}, {{id: w, question: p, target: '{wrong}'}}]"
        text = f"suite: of {name[0]}\nsamples: {rows}\nscore: exact\n"
        (llm_pytester.mkdir(name) / "s.yaml").write_text(text, encoding="utf-8")
    llm_pytester.runpytest("-pno:xdist", ".")
    assert remembered(llm_pytester) == ["b::c/s.yaml::w"]
    result = llm_pytester.runpytest("-pno:xdist", "--lf", ".")
    result.stdout.fnmatch_lines(
        ["run-last-failure: and 1 of suites without a file of that name", "*= 3 deselected, 1 wrong in *"]
    )
    result = llm_pytester.runpytest("-pno:xdist", "--lf", "-k", "r", ".")  # what -k leaves out stays out
    assert remembered(llm_pytester) == ["b::c/s.yaml::w"]
    result.stdout.fnmatch_lines(["*= 2 passed, 2 deselected in *"])


def remembered(project: pytest.Pytester) -> list[str]:
    path = project.path / ".pytest_cache/v/cache/lastfailed"
    return sorted(json.loads(path.read_text(encoding="utf-8")))
