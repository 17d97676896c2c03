"""Distributions, winners and losers: in a session's report, in ``llmeval compare`` and in ``llmeval show``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_llmeval.cli import main

BEFORE = {"q1": "e f g h", "q2": "e f x y", "q3": "e f x y", "q4": "e f g h"}
NOW = {"q1": "e f g h", "q2": "e f g h", "q3": "x x x x", "q4": "e f g x"}


def write(pytester: pytest.Pytester, replies: dict[str, str]) -> None:
    rows = (f"  - {{id: {id_}, question: {id_}, target: e f g h, response: {text}}}" for id_, text in replies.items())
    pytester.makefile(".yaml", texts="\n".join(("suite: texts", "samples:", *rows, "score: f1", "")))


def test_against_a_baseline(
    llm_pytester: pytest.Pytester, workers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write(llm_pytester, BEFORE)
    assert llm_pytester.runpytest(*workers, "texts.yaml", "--llm-report=main.json").ret == 0
    write(llm_pytester, NOW)
    llm_pytester.runpytest(
        *workers, "texts.yaml", "--llm-baseline=main.json", "--llm-report=new.json", "--llm-report=new.md"
    )
    report: dict[str, Any] = json.loads(llm_pytester.path.joinpath("new.json").read_text())
    moved = [found["regression"]["movers"] for found in report["gates"] if found["regression"]]
    assert moved
    for one in moved:
        assert one["num_worse"] + one["num_better"] + one["num_same"] == 4
        assert [mover["id"] for mover in one["better"]] in (["q2"], [])
    spread = report["suites"][0]["distributions"]["f1"]
    assert (spread["n"], spread["min"], spread["max"]) == (4, 0.0, 1.0)
    assert spread["mean"] == pytest.approx(report["suites"][0]["metrics"]["f1"]["value"])
    shown = llm_pytester.path.joinpath("new.md").read_text()
    assert "## Samples that changed most" in shown
    assert "## Distribution of metrics over samples" in shown
    capsys.readouterr()
    main(["compare", "main.json", "new.json"])
    out = capsys.readouterr().out
    assert " vs baseline: " in out
    assert "  better  q2 " in out
    main(["show", "new.json", "--distribution"])
    assert capsys.readouterr().out.count("  sd  ") == 1


def test_of_two_models(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    for name, replies in (("one", BEFORE), ("two", NOW)):
        lines = (json.dumps({"id": id_, "response": text}) for id_, text in replies.items())
        llm_pytester.path.joinpath(f"{name}.jsonl").write_text("\n".join(lines))
    write(llm_pytester, BEFORE)
    models = ("--llm-model=replay:one.jsonl", "--llm-model=replay:two.jsonl")
    result = llm_pytester.runpytest(*workers, *models, "texts.yaml", "--llm-report=out.json")
    assert result.ret == 0
    (comparison,) = json.loads(llm_pytester.path.joinpath("out.json").read_text())["comparisons"]
    moved = comparison["movers"]["f1"]
    assert (moved["num_worse"], moved["num_better"], moved["num_same"]) == (2, 1, 1)
    assert [one["id"] for one in moved["worse"]] == ["q3", "q4"]
    assert [one["id"] for one in moved["better"]] == ["q2"]
