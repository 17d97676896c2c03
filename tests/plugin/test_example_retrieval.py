"""The example suite of retrieval: a search, and the answers that are written from what it finds, in one table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_llmeval.cli import main

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "example_suites" / "retrieval"
SEARCH = f"python:{FOLDER / 'search.py'}:bm25"


@pytest.fixture
def in_examples(llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.chdir(FOLDER.parent)
    return llm_pytester


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    own = (f"--rootdir={FOLDER.parent}", "-c", str(pytester.path / "pytest.ini"), "-p", "no:cacheprovider")
    pytester.path.joinpath("pytest.ini").write_text("[pytest]\n")
    return pytester.runpytest(*args, *own)


def test_a_search_and_its_answers_stand_in_one_table(in_examples: pytest.Pytester, workers: list[str]) -> None:
    report = in_examples.path / "report.json"
    models = (f"--llm-model={SEARCH}?stem=false", f"--llm-model={SEARCH}")
    result = run(in_examples, "retrieval", *models, f"--llm-report={report}", *workers)
    assert result.ret == 1  # without plurals too little is found
    gates = json.loads(report.read_text())["gates"]
    assert [gate["outcome"] for gate in gates] == ["failed", "passed"]
    plain, stemmed = (suite["metrics"] for suite in json.loads(report.read_text())["suites"])
    assert plain["ndcg@3"]["value"] < stemmed["ndcg@3"]["value"]
    assert stemmed["answer.faithfulness"]["value"] == 1.0  # each answer is a sentence of what was found
    assert plain["answer.context_recall"]["value"] < stemmed["answer.context_recall"]["value"]


def test_reasons_of_the_judge_of_the_answers_are_shown(
    in_examples: pytest.Pytester, workers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The judge is one scorer of several, and not the one that decides."""
    report = in_examples.path / "report.json"
    run(in_examples, "retrieval", f"--llm-model={SEARCH}", f"--llm-report={report}", *workers)
    capsys.readouterr()
    main(["show", str(report), "--id", "ferry-02"])
    verdicts = [line.strip() for line in capsys.readouterr().out.splitlines() if "verdict" in line]
    claim = "The boat to Tamsay sails on Tuesdays and Fridays"
    shown = [
        f"faithfulness: claims: {claim} only.",
        f"faithfulness, {claim} only.: true (In one text, or not: Fridays, Tamsay, Tuesdays.)",
        "answer_relevance: questions: What is it? | What is the capital?",
        "answer_relevance: embeddings: What is it?, 0.0 | What is the capital?, 0.0",
        *(f"context_precision, rank {rank}, " for rank in (1, 2, 3)),
        f"context_recall: claims: {claim}.",
        f"context_recall, {claim}.: true",
    ]
    assert len(verdicts) == len(shown)
    for number, (line, beginning) in enumerate(zip(verdicts, shown, strict=True), 1):
        assert line.startswith(f"verdict {number} of 9 of scorer answer: {beginning}")


def test_a_folder_with_requirements_is_collected_where_it_is_named(in_examples: pytest.Pytester) -> None:
    whole = run(in_examples, ".", "--collect-only", "-q").stdout.str()
    assert "gsm8k.yaml" in whole
    assert "ferries" not in whole
    named = run(in_examples, "retrieval/ferries.yaml::ferry-01", "--collect-only", "-q").stdout.str()
    assert "ferries.yaml::ferry-01" in named
