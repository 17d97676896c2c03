"""``score: rag``: answers and what was retrieved for them, in sessions as a user has them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.plugin.judge_for_tests import FORM_OF, asked, records_of, report_of

JUDGE, EMBEDDER = "--llm-judge=python:my_rag:Judge", "--llm-embedder=python:my_rag:Embedder"
REPORT = "--llm-report=report.json"
ALONE = ("-p", "no:xdist")

_MODULE = """
# Sentences are claims; a context supports a claim that stands in it, and is relevant if it has the letter x.

from pathlib import Path

from pytest_llmeval.errors import RequestError
from pytest_llmeval.types import EmbeddingResponse, GenerateResponse, ModelIdentity

HERE = Path(__file__).parent
PART = re.compile(r"^([A-Z][a-z ]+):\\n```\\n(.*?)\\n```$", re.DOTALL | re.MULTILINE)


def log(name, texts):
    with HERE.joinpath("asked.jsonl").open("a") as file:
        file.write(json.dumps({"name": name, "texts": texts}) + "\\n")


def verdict(system, user):
    form, parts = form_of(system), dict(PART.findall(user))
    if "claims" in form:
        return {"claims": [claim for claim in parts["Answer"].split(". ") if claim]}
    if "supported" in form:
        return {"reason": "looked", "supported": parts["Claim"] in parts["Context"]}
    if "relevant" in form:
        return {"reason": "looked", "relevant": "x" in parts["Text"]}
    return {name: "aab" for name in form}


class Judge:
    identity = ModelIdentity(name="judge", backend="test", fingerprint="j")

    def generate(self, requests):
        log("judge", [request.prompt[1].content for request in requests])
        return [self.answer(*(turn.content for turn in request.prompt)) for request in requests]

    def answer(self, system, user):
        text = "I cannot say." if "PROSE" in user else json.dumps(verdict(system, user))
        return GenerateResponse(text=text, num_prompt_tokens=30, num_tokens=10, seconds=0.5)


class Embedder:
    identity = ModelIdentity(name="embedder", backend="test", fingerprint="e")

    def embed(self, requests):
        log("embedder", [request.text for request in requests])
        return [
            RequestError("no vector") if "REFUSE" in request.text
            else EmbeddingResponse(vector=[float(request.text.count(letter)) for letter in "ab"], num_prompt_tokens=7)
            for request in requests
        ]


def pipeline(prompt):
    log("pipeline", [prompt])
    found = {"abb": ["red x", "blue"], "a": []}
    return {"text": "red. green", "contexts": found[prompt]}


def forgetful(prompt):
    return "red"
"""

ROWS: list[dict[str, Any]] = [
    {
        "id": "r1",
        "question": "abb",
        "response": "red. green. blue",
        "target": "red. blue",
        "contexts": ["red x", "blue"],
    },
    {"id": "r2", "question": "aab", "response": "red", "target": "grey", "contexts": ["y", {"text": "x"}, "x red"]},
    {"id": "r3", "question": "b", "response": "", "target": "red", "contexts": ["red"]},
    {"id": "r4", "question": "aab", "response": "red", "contexts": []},
]


def suite(rows: list[dict[str, Any]], score: str = "rag", more: str = "") -> str:
    return f"suite: retrieval\nsamples: {json.dumps(rows)}\nscore: {score}\n{more}"


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makepyfile(my_rag=FORM_OF + _MODULE)
    llm_pytester.makefile(".yaml", rag=suite(ROWS))
    return llm_pytester


def test_answers_and_what_was_retrieved(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, JUDGE, EMBEDDER, REPORT, "rag.yaml")
    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(
        [
            "suite*n*faithfulness*answer_relevance*context_precision*context_recall",
            "retrieval*4*0.833*(n 2)*",
            "retrieval: faithfulness not measurable 2 (the answer is empty 1; there is no context 1),",
            "*answer_relevance not measurable 1 (the answer is empty),*",
        ]
    )
    records = records_of(project.path)
    assert {name: record["status"] for name, record in records.items()} == dict.fromkeys(
        ("r1", "r2", "r3", "r4"), "scored"
    )
    assert records["r1"]["values"] == pytest.approx(
        {"faithfulness": 2 / 3, "answer_relevance": 0.8, "context_precision": 1, "context_recall": 1}
    )
    assert records["r2"]["values"] == pytest.approx(
        {"faithfulness": 1, "answer_relevance": 1, "context_precision": (1 / 2 + 2 / 3) / 2, "context_recall": 0}
    )
    assert records["r3"]["values"] == {"context_precision": 0, "context_recall": 1}
    assert records["r3"]["not_measurable"] == dict.fromkeys(("faithfulness", "answer_relevance"), "the answer is empty")
    (found,) = report_of(project.path)["suites"]
    assert {name: (metric["n"], metric["value"]) for name, metric in found["metrics"].items()} == {
        "faithfulness": (2, pytest.approx(5 / 6)),
        "answer_relevance": (3, pytest.approx((0.8 + 1 + 1) / 3)),
        "context_precision": (3, pytest.approx((1 + 7 / 12) / 3)),
        "context_recall": (3, pytest.approx(2 / 3)),
    }
    assert len(found["judged_by"]) == 2
    verdicts = records["r1"]["details"]["verdicts"]
    assert [one["metric"] for one in verdicts] == [
        *["faithfulness"] * 4,
        *["answer_relevance"] * 2,
        *["context_precision"] * 2,
        *["context_recall"] * 3,
    ]
    assert verdicts[1] == {
        "metric": "faithfulness",
        "asked": "supported",
        "claim": "red",
        "value": True,
        "reasons": "looked",
        "raw": '{"reason": "looked", "supported": true}',
        "num_prompt_tokens": 30,
        "num_tokens": 10,
        "seconds": 0.5,
        "tries": 1,
    }
    assert records["r1"]["num_judge_requests"] == 10 + 4


def test_a_row_without_an_optional_column_is_not_measurable_where_that_is_needed(
    project: pytest.Pytester, workers: list[str]
) -> None:
    whole = {"q": "aab", "answer": "red. blue", "texts": ["red x", "blue x"], "best": "red. green"}
    rows = [whole, *({name: value for name, value in whole.items() if name != left_out} for left_out in whole)]
    project.path.joinpath("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = "{question: q, response: answer, target: best}"
    project.makefile(
        ".yaml", rag=f"suite: s\ndataset: {{path: rows.jsonl, fields: {fields}}}\nscore: {{rag: {{contexts: texts}}}}\n"
    )
    result = project.runpytest(*workers, JUDGE, EMBEDDER, REPORT, "rag.yaml")
    # A question is what every prompt is made of: a suite that maps it needs it in each row.
    assert "rag.yaml:2: dataset.fields.question: rows.jsonl:2 has no column 'q'" in result.stdout.str()
    project.path.joinpath("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows if "q" in row))
    result = project.runpytest(*workers, JUDGE, EMBEDDER, REPORT, "rag.yaml")
    assert result.ret == 0, result.stdout.str()
    found = records_of(project.path)
    assert {name: record["not_measurable"] for name, record in found.items()} == {
        "1": {},
        "2": dict.fromkeys(("faithfulness", "answer_relevance"), "the answer is empty"),
        "3": dict.fromkeys(("faithfulness", "context_precision", "context_recall"), "there is no context"),
        "4": {"context_recall": "there is no reference answer"},
    }
    nulls = [{**dict.fromkeys(whole), **row} for row in rows if "q" in row]
    project.path.joinpath("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in nulls))
    assert project.runpytest(*workers, JUDGE, EMBEDDER, REPORT, "rag.yaml").ret == 0
    assert {name: record["values"] for name, record in records_of(project.path).items()} == {
        name: record["values"] for name, record in found.items()
    }


def test_a_column_that_no_row_has_is_a_warning_where_rows_differ_and_else_an_error(project: pytest.Pytester) -> None:
    rows: list[dict[str, Any]] = [
        {"question": "a", "response": "red", "best": "red"},
        {"question": "a", "response": "red"},
    ]
    text = (
        "suite: s\ndataset: {path: rows.jsonl, fields: {target: bets}}\nscore: {rag: {metrics: [answer_relevance]}}\n"
    )
    project.makefile(".yaml", rag=text)
    for own in (rows, rows[:1]):
        project.path.joinpath("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own))
        result = project.runpytest(*ALONE, "-Wdefault", JUDGE, EMBEDDER, "rag.yaml")
        said = "rag.yaml:2: dataset.fields.target: rows.jsonl:1 has no column 'bets'; did you mean 'best'?"
        assert said in result.stdout.str()
        assert result.ret == (0 if len(own) == 2 else 2)


def test_contexts_of_a_csv_as_ragas_writes_them(project: pytest.Pytester, workers: list[str]) -> None:
    head = "user_input,retrieved_contexts,response,reference\n"
    rows = """a,"['red x', ""Bob's""]",red,red\na,['blue'],blue,red\n"""
    project.path.joinpath("rows.csv").write_text(head + rows)
    fields = "{question: user_input, target: reference, contexts: retrieved_contexts}"
    metrics = "{rag: {metrics: [context_precision, faithfulness]}}"
    project.makefile(".yaml", rag=f"suite: s\ndataset: {{path: rows.csv, fields: {fields}}}\nscore: {metrics}\n")
    assert project.runpytest(*workers, JUDGE, REPORT, "rag.yaml").ret == 0
    chunks = [
        [one["chunk"] for one in record["details"]["verdicts"] if "chunk" in one]
        for record in records_of(project.path).values()
    ]
    assert chunks == [["red x", "Bob's"], ["blue"]]
    project.path.joinpath("rows.csv").write_text(head + "a,['red' 'blue'],red,red\n")
    result = project.runpytest(*workers, JUDGE, "rag.yaml")
    assert "rows.csv:2: sample '1': contexts: found \"['red' 'blue']\", a list without commas" in result.stdout.str()


def test_one_call_holds_what_all_samples_ask_at_once(project: pytest.Pytester) -> None:
    assert project.runpytest(*ALONE, JUDGE, EMBEDDER, "rag.yaml").ret == 0
    assert [len(call) for call in asked(project.path)] == [5 + 6 + 2 + 1, 5 + 2 + 1]
    assert [len(call) for call in asked(project.path, "embedder")] == [4, 2 * 4], "r4 has no claims to wait for"


def test_a_gate_sees_what_is_measurable(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", rag=suite(ROWS, more="gates: [faithfulness >= 0.8, context_recall >= 0.7]\n"))
    result = project.runpytest(*workers, JUDGE, EMBEDDER, "rag.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["failed: retrieval, context_recall >= 0.7: *0.667*n 3*", "passed: retrieval, faithfulness >= 0.8*n 2*"]
    )


def test_without_answer_relevance_no_embedder(project: pytest.Pytester) -> None:
    result = project.runpytest(*ALONE, JUDGE, "rag.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "rag.yaml needs an embedder: give --llm-embedder" in result.stdout.str() + result.stderr.str()
    project.makefile(".yaml", rag=suite(ROWS, "{rag: {metrics: [faithfulness, context_precision], k: 1}}"))
    result = project.runpytest(*ALONE, JUDGE, REPORT, "rag.yaml")
    assert result.ret == 0, result.stdout.str()
    assert records_of(project.path)["r2"]["values"] == {"faithfulness": 1, "context_precision": 0}


def test_a_program_returns_what_it_has_retrieved(project: pytest.Pytester, workers: list[str]) -> None:
    rows = [{"id": "p1", "question": "abb", "target": "red"}, {"id": "p2", "question": "a", "target": "red"}]
    project.makefile(".yaml", rag=suite(rows))
    options = [*workers, "--llm-model=python:my_rag:pipeline", JUDGE, EMBEDDER, REPORT]
    store = ["--llm-store=replies", "--llm-store-max-age=1d"]
    for _ in range(2):
        result = project.runpytest(*options, *store, "rag.yaml")
        assert result.ret == 0, result.stdout.str()
        records = records_of(project.path)
        assert records["p1"]["output"] == "red. green"
        assert records["p1"]["details"]["contexts"] == ["red x", "blue"]
        assert records["p1"]["values"] == pytest.approx(
            {"faithfulness": 0.5, "answer_relevance": 0.8, "context_precision": 1, "context_recall": 1}
        )
        assert records["p2"]["details"]["contexts"] == []
        assert set(records["p2"]["values"]) == {"answer_relevance"}
        assert len(asked(project.path, "pipeline")) == 2, "contexts are kept with their answer"


def test_contexts_of_a_file_of_replies(project: pytest.Pytester) -> None:
    """Of rows, of a report, and of several replies in one."""
    rows = [{"id": "p1", "question": "abb", "target": "red"}, {"id": "p2", "question": "a", "target": "red"}]
    expected = {"faithfulness": 0.5, "context_precision": 1}

    def judged(model: str, more: str = "") -> dict[str, Any]:
        project.makefile(".yaml", rag=suite(rows, "{rag: {metrics: [faithfulness, context_precision]}}", more))
        result = project.runpytest(*ALONE, f"--llm-model={model}", JUDGE, REPORT, "rag.yaml")
        assert result.ret == 0, result.stdout.str()
        (project.path / "report.json").rename(project.path / "before.json")
        return records_of(project.path, "before.json")

    replies = [
        {"id": "p1", "response": "red. green", "docs": ["red x", "blue"]},
        {"id": "p2", "response": "red. green", "docs": []},
    ]
    (project.path / "out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in replies))
    epochs = "epochs: 2\ngenerate: {temperature: 1}\n"
    ways = [
        ("replay:out.jsonl?contexts=docs", ""),
        ("replay:before.json", ""),
        ("python:my_rag:pipeline", epochs),
        ("replay:before.json", epochs),
    ]
    for model, more in ways:
        records = judged(model, more)
        assert records["p1"]["values"] == expected, model
        assert records["p2"]["not_measurable"] == dict.fromkeys(expected, "there is no context"), model
        one = records["p1"]["details"]["contexts"]
        assert one == ([["red x", "blue"]] * 2 if more else ["red x", "blue"]), model


def test_a_column_of_another_meaning_is_no_contexts(project: pytest.Pytester) -> None:
    project.makefile(".yaml", rag="suite: s\nsamples: [{id: p1, question: q, target: red}]\nscore: exact\n")
    (project.path / "out.jsonl").write_text(json.dumps({"id": "p1", "response": "red", "contexts": 7}))
    assert project.runpytest(*ALONE, "--llm-model=replay:out.jsonl", "rag.yaml").ret == 0
    result = project.runpytest(*ALONE, "--llm-model=replay:out.jsonl?contexts=contexts", "rag.yaml")
    assert result.ret != 0
    assert "out.jsonl:1: contexts: found 7 (a whole number), expected a text" in result.stdout.str()


def test_a_model_that_returns_no_contexts(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", rag=suite([{"id": "p1", "question": "a", "target": "red"}]))
    result = project.runpytest(*workers, "--llm-model=python:my_rag:forgetful", JUDGE, EMBEDDER, REPORT, "rag.yaml")
    assert result.ret == 1
    record = records_of(project.path)["p1"]
    assert record["status"] == "unscored"
    assert record["reason"].startswith("the model returned no contexts with its answer, and the data have no column")


def test_no_verdict_and_no_vector(project: pytest.Pytester, workers: list[str]) -> None:
    rows = [*ROWS[:2], {**ROWS[0], "id": "r5", "response": "red. PROSE"}, {**ROWS[0], "id": "r6", "question": "REFUSE"}]
    project.makefile(".yaml", rag=suite(rows))
    result = project.runpytest(*workers, JUDGE, EMBEDDER, REPORT, "rag.yaml")
    assert result.ret == 1
    records = records_of(project.path)
    assert {name: record["reason"] for name, record in records.items()} == {
        "r1": None,
        "r2": None,
        "r5": "no verdict: the verdict is not one JSON object",
        "r6": "no verdict: the embedder: no vector",
    }
    assert not records["r5"]["values"]
    assert not records["r6"]["values"]


def test_contexts_that_cannot_be_read(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(
        ".yaml", rag="suite: s\nsamples:\n- {id: one, question: q, response: r, contexts: 5}\nscore: rag\n"
    )
    result = project.runpytest(*workers, JUDGE, EMBEDDER, "rag.yaml")
    assert result.ret in (1, 2)  # pytest-xdist counts it as a failure
    text = result.stdout.str()
    assert "rag.yaml:3: " in text
    assert (
        "contexts: found 5 (a whole number), expected a text, or a mapping with a text under text, content or" in text
    )
    assert "Traceback" not in text


def test_two_ways_of_searching_are_compared(project: pytest.Pytester) -> None:
    """What was retrieved is no part of the question."""
    options = [*ALONE, JUDGE, EMBEDDER]
    assert project.runpytest(*options, "--llm-report=before.json", "rag.yaml").ret == 0
    other = [{**row, "contexts": ["nothing"]} if row["id"] == "r1" else row for row in ROWS]
    project.makefile(".yaml", rag=suite(other))
    result = project.runpytest(*options, REPORT, "--llm-baseline=before.json", "rag.yaml")
    text = result.stdout.str()
    assert "context_precision" in text
    assert "differ" not in text, text
    assert records_of(project.path)["r1"]["values"]["context_precision"] == 0
    before = records_of(project.path, "before.json")["r1"]
    assert before["fingerprint"] == records_of(project.path)["r1"]["fingerprint"]


def test_among_several_scorers_and_epochs(project: pytest.Pytester) -> None:
    score = "{several: {scorers: {text: {score: exact}, search: {score: {rag: {metrics: [faithfulness]}}}}}}"
    rows = [{"id": "p1", "question": "abb", "target": "red"}, {"id": "p2", "question": "a", "target": "red. green"}]
    more = "epochs: 2\ngenerate: {temperature: 1}\n"
    project.makefile(".yaml", rag=suite(rows, score, more))
    result = project.runpytest(*ALONE, "--llm-model=python:my_rag:pipeline", JUDGE, REPORT, "rag.yaml")
    assert result.ret == 0, result.stdout.str()
    records = records_of(project.path)
    assert records["p1"]["values"]["search.faithfulness"] == 0.5
    assert records["p2"]["not_measurable"] == {"search.faithfulness": "there is no context"}
    assert records["p2"]["status"] == "correct"
