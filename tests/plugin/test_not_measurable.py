"""A scorer or test that says of a sample that a metric has no meaning there, and one that leaves the metric out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import FAKE_MODEL_CONFTEST, fake_model_conftest

SUITE = """
suite: jokes
samples:
  - {id: a, question: one, target: "1", kind: x}
  - {id: b, question: two, target: "2", kind: x}
  - {id: c, question: three, target: "3", kind: y}
  - {id: d, question: four, target: "4", kind: y}
category: kind
score: wit
gates: ["wit >= 0.8", "category.x.wit >= 0.8"]
"""
SCORER = """
from pytest_llmeval import NotMeasurable

def wit(reply):
    if reply == "none":
        return {LACKING}
    return {"wit": float(reply)}

wit.metrics = ("wit",)

def pytest_llmeval_scorers():
    return {"wit": wit}
"""
REPLIES = {"one": "1", "two": "none", "three": "1", "four": "none"}


def run(project: pytest.Pytester, lacking: str, *arguments: str) -> pytest.RunResult:
    project.makeconftest(fake_model_conftest(replies=REPLIES) + SCORER.replace("{LACKING}", lacking))
    project.makefile(".yaml", jokes=SUITE)
    return project.runpytest(*arguments, "--llm-report=out.json", "jokes.yaml")


def report(project: pytest.Pytester) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.path / "out.json").read_text())
    return found


def test_it_is_counted_with_its_reason_and_closes_no_gate(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    result = run(llm_pytester, 'NotMeasurable("it makes no joke")', *workers)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "jokes: wit not measurable 2 (it makes no joke)",
            "passed: jokes, wit >= 0.8: wit 1.000*, n 2",
            "*wit is not measurable on 2 of 4 samples",
        ]
    )
    (suite,) = report(llm_pytester)["suites"]
    assert suite["not_measurable"] == {"wit": {"it makes no joke": 2}}
    assert suite["categories"]["x"]["not_measurable"] == {"wit": {"it makes no joke": 1}}
    assert (suite["num_scored"], suite["metrics"]["wit"]["n"]) == (4, 2)
    records = {record["id"]: record for record in report(llm_pytester)["records"]}
    assert [records[id]["not_measurable"] for id in "ab"] == [{}, {"*": "it makes no joke"}]
    assert llm_pytester.run("llmeval", "gate", "out.json").ret == 0
    assert (
        llm_pytester.run("llmeval", "compare", "out.json", "out.json", "--gate-mode", "margin").ret == 1
    )  # wit: better?
    shown = llm_pytester.run("llmeval", "show", "out.json", "--id", "b")
    shown.stdout.fnmatch_lines(["*not measurable: *: it makes no joke"])


@pytest.mark.parametrize(
    ("lacking", "counted", "shown"),
    [
        ('{"accuracy": 1, "faith": NotMeasurable("no claim")}', "faith", "faith not measurable 3 (no claim)"),
        ('NotMeasurable("no claim")', "*", "not measurable 3 (no claim)"),
    ],
)
def test_on_every_sample(llm_pytester: pytest.Pytester, lacking: str, counted: str, shown: str) -> None:
    """Then no score has the metric's name: it comes from the reasons."""
    scorer = f"from pytest_llmeval import NotMeasurable\ndef mine(reply): return {lacking}\n"
    scorer += "def pytest_llmeval_scorers(): return {'mine': mine}\n"
    llm_pytester.makeconftest(fake_model_conftest(replies={"q": "x"}) + scorer)
    rows = ", ".join(f"{{id: {id}, question: q, target: x, kind: {id > 'a'}}}" for id in "abc")
    llm_pytester.makefile(".yaml", claims=f"suite: claims\nsamples: [{rows}]\ncategory: kind\nscore: mine\n")
    gates = [f"--llm-gate={text} >= 0.5" for text in ("faith", "claims: faith", "category.True.faith", "macro.faith")]
    result = llm_pytester.runpytest("-pno:xdist", *gates, "--llm-report=out.json", "--llm-report=out.md", "claims.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"claims: {shown}"])
    assert f"Counts: {shown}" in (llm_pytester.path / "out.md").read_text(encoding="utf-8")
    (suite,) = report(llm_pytester)["suites"]
    assert suite["not_measurable"] == {counted: {"no claim": 3}}
    assert [gate["reason"] for gate in report(llm_pytester)["gates"]] == [
        "faith is not measurable on 3 of 3 samples (no claim)",
        "category.True.faith is not measurable on 2 of 2 samples (no claim)",
        "macro.faith is not measurable on 3 of 3 samples (no claim)",
    ]
    again = llm_pytester.run("llmeval", "gate", "out.json", "--gate", "faith >= 0.5")
    again.stdout.fnmatch_lines(["failed: claims, faith >= 0.5: faith is not measurable on 3 of 3 samples (no claim)"])


def test_a_metric_that_is_left_out_fails_its_gates(llm_pytester: pytest.Pytester) -> None:
    result = run(llm_pytester, '{"other": 1.0}', "-pno:xdist")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*wit is missing on 2 of 4 scored samples*"])
    assert [gate["outcome"] for gate in report(llm_pytester)["gates"]] == ["failed", "failed"]
    assert report(llm_pytester)["suites"][0]["not_measurable"] == {}
    gate = llm_pytester.run("llmeval", "gate", "out.json", "--gate", "wit >= 0")
    assert gate.ret == 1
    assert "wit is missing on 2 of 4 scored samples" in " ".join(gate.stdout.str().split())


def test_hand_written_tests_say_it(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(FAKE_MODEL_CONFTEST)
    llm_pytester.makepyfile(
        test_tone="""
        import pytest
        from pytest_llmeval import NotMeasurable

        def test_tone(llm_record):
            llm_record(suite="tone", id=1, score=0.5, values={"wit": 1.0})
            llm_record(suite="tone", id=2, score=NotMeasurable("no reply"), values={"wit": NotMeasurable("no joke")})
            for empty in (NotMeasurable(""), NotMeasurable(None)):
                with pytest.raises(ValueError, match="expected text"):
                    llm_record(suite="tone", id=3, score=empty)
        """
    )
    gates = ("--llm-gate", "tone: score >= 0.5", "--llm-gate", "tone: wit >= 1")
    result = llm_pytester.runpytest("-pno:xdist", *gates, "--llm-report=out.json")
    assert result.ret == 0
    (suite,) = report(llm_pytester)["suites"]
    assert suite["not_measurable"] == {"score": {"no reply": 1}, "wit": {"no joke": 1}}
