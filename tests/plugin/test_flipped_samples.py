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
        assert [mover["id"] for mover in one["better"]] == ["q2"]
        assert [mover["id"] for mover in one["worse"]] == ["q4"]
    spread = report["suites"][0]["distributions"]["f1"]
    assert (spread["n"], spread["min"], spread["max"]) == (4, 0.0, 1.0)
    assert spread["mean"] == pytest.approx(report["suites"][0]["metrics"]["f1"]["value"])
    shown = llm_pytester.path.joinpath("new.md").read_text()
    assert "## Samples that changed most" in shown
    assert "| better | q2 " in shown
    assert "## Distribution of metrics over samples" in shown
    capsys.readouterr()
    main(["compare", "main.json", "new.json"])
    out = capsys.readouterr().out
    assert " vs baseline: " in out
    assert "\nbetter  q2 " in out
    assert out.index("better  q2 ") < out.index("gates: "), "the verdict is what stands last"
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


PROBABLE = """
suite: likely
choices: [Paris, Oslo]
samples:
  - {id: q1, question: One, target: 0}
  - {id: q2, question: Two, target: 0}
score: choice
"""


def write_scores(pytester: pytest.Pytester, name: str, first: float, second: float) -> None:
    """The Brier score of q1 becomes lower the larger ``first`` is."""
    rows = ({"id": id_, "scores": [value, 0.0]} for id_, value in (("q1", first), ("q2", second)))
    pytester.path.joinpath(name).write_text("\n".join(map(json.dumps, rows)))


def test_of_a_metric_whose_lower_values_are_better(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makefile(".yaml", likely=PROBABLE)
    write_scores(llm_pytester, "one.jsonl", 1.0, 3.0)
    write_scores(llm_pytester, "two.jsonl", 2.0, 2.0)
    run = (*workers, "likely.yaml", "--llm-report=new.json")
    llm_pytester.runpytest(*workers, "likely.yaml", "--llm-report=main.json", "--llm-model=replay:one.jsonl")
    llm_pytester.runpytest(*run, "--llm-baseline=main.json", "--llm-model=replay:two.jsonl", "--llm-max-drop=brier=0.5")
    gates = json.loads(llm_pytester.path.joinpath("new.json").read_text())["gates"]
    (moved,) = (found["regression"]["movers"] for found in gates if found["metric"] == "brier")
    assert [one["id"] for one in moved["better"]] == ["q1"]
    assert [one["id"] for one in moved["worse"]] == ["q2"]
    llm_pytester.runpytest(*run, "--llm-model=replay:one.jsonl", "--llm-model=replay:two.jsonl")
    (comparison,) = json.loads(llm_pytester.path.joinpath("new.json").read_text())["comparisons"]
    moved = comparison["movers"]["brier"]
    assert [one["id"] for one in moved["better"]] == ["q1"]
    assert [one["id"] for one in moved["worse"]] == ["q2"]


def test_movers_of_many_metrics_are_shown_in_part(
    llm_pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(12):
        samples = "".join(f"  - {{id: q{place}, question: x, target: a b, response: RESPONSE}}\n" for place in range(6))
        text = f"suite: s{number:02}\nsamples:\n{samples}score: f1\n"
        llm_pytester.path.joinpath(f"s{number}.yaml").write_text(text.replace("RESPONSE", "a b"))
    llm_pytester.runpytest("--llm-report=main.json")
    for path in llm_pytester.path.glob("s*.yaml"):
        path.write_text(path.read_text().replace("response: a b", "response: a c"))
    llm_pytester.runpytest("--llm-report=new.json")
    capsys.readouterr()
    main(["compare", "main.json", "new.json"])
    out = capsys.readouterr().out
    assert out.count(": accuracy vs baseline: 6 samples worse, 0 better, 0 the same") == 10
    assert "… and 2 more metrics with samples that changed: --format json" in out
