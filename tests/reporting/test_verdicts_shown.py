"""What judges said of a sample, with their reasons, where samples are read."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.writers.markdown import sample_markdown
from pytest_llmeval.reporting.writers.text_report import bounded_lines, sample_lines
from pytest_llmeval.types import JSON
from tests.reporting.reports import make_record


def verdict_lines(details: dict[str, JSON]) -> list[str]:
    record = Record(suite="s", id="1", nodeid="s::1", model="m", status="wrong", details=details)
    return [line.strip() for line in sample_lines(record, whole=False, prompt=False) if "verdict" in line]


def test_verdicts_are_shown_with_their_reasons() -> None:
    labels: JSON = {"value": {"polite": "pass", "short": "fail"}, "reasons": {"polite": "please", "short": "long"}}
    assert verdict_lines({"verdicts": [labels]}) == ["verdict: polite pass (please), short fail (long)"]
    order: JSON = {"value": "reply", "reasons": "shorter", "order": ["other", "reply"]}
    assert verdict_lines({"verdicts": [order]}) == ["verdict: other first: reply (shorter)"]
    claim: JSON = {"metric": "faithfulness", "claim": "It fell.", "value": True, "reasons": "in text 1"}
    questions: JSON = {"metric": "answer_relevance", "asked": "questions", "value": ["Why?"]}
    assert verdict_lines({"verdicts": [questions, claim]}) == [
        "verdict 1 of 2: answer_relevance: questions: Why?",
        "verdict 2 of 2: faithfulness, It fell.: true (in text 1)",
    ]
    assert verdict_lines({"verdicts": [{"problem": "no JSON\x1b[31m"}]}) == ["verdict: none: no JSON\\x1b[31m"]


def test_verdicts_of_a_panel_are_shown_by_judge() -> None:
    own: list[JSON] = [{"details": {"verdicts": [{"value": said, "reasons": "r"}]}} for said in (True, False)]
    assert verdict_lines({"judges": own}) == ["verdict of judge 1: true (r)", "verdict of judge 2: false (r)"]
    many: list[JSON] = [{"value": True, "reasons": "r"}] * 23
    lines = verdict_lines({"verdicts": many})
    assert (lines[0], lines[19]) == ("verdict 1 of 23: true (r)", "verdict 20 of 23: true (r)")
    assert lines[20:] == ["verdicts: 3 more are in the report"]


def test_no_more_than_twenty_verdicts_of_a_sample_are_shown() -> None:
    """Also of many replies that were each judged by a few criteria."""
    labels: list[JSON] = [{"value": True, "reasons": "r"}] * 4
    replies: list[JSON] = [{"details": {"verdicts": labels}}] * 64
    record = Record(suite="s", id="1", nodeid="s::1", model="m", status="wrong", details={"epochs": replies})
    for lines in (bounded_lines(record), sample_lines(record, whole=True, prompt=True)):
        shown = [line.strip() for line in lines if "verdict" in line]
        assert len(shown) == 21
        assert shown[19:] == ["verdict 4 of 4 of output 5: true (r)", "verdicts: 236 more are in the report"]


def test_verdicts_of_several_scorers_and_replies_say_whose_they_are() -> None:
    def said(*values: JSON) -> dict[str, JSON]:
        return {"verdicts": [{"value": value, "reasons": "r"} for value in values]}

    def parts(first: dict[str, JSON], **others: dict[str, JSON]) -> dict[str, JSON]:
        """Of several scorers: the first decides, and its details are those of the sample."""
        shown: dict[str, JSON] = {name: {"status": "scored", "details": own} for name, own in others.items()}
        return {**first, "scorers": {"helpful": {"status": "scored"}, **shown}}

    panel: dict[str, JSON] = {"judges": [{"details": said(1, 2)}, {"details": said(3)}]}
    assert verdict_lines(parts(said(5), plain={}, answer=said(True, False), panel=panel)) == [
        "verdict of scorer helpful: 5 (r)",
        "verdict 1 of 2 of scorer answer: true (r)",
        "verdict 2 of 2 of scorer answer: false (r)",
        "verdict 1 of 2 of judge 1 of scorer panel: 1 (r)",
        "verdict 2 of 2 of judge 1 of scorer panel: 2 (r)",
        "verdict of judge 2 of scorer panel: 3 (r)",
    ]
    assert verdict_lines(parts(panel)) == [
        "verdict 1 of 2 of judge 1 of scorer helpful: 1 (r)",
        "verdict 2 of 2 of judge 1 of scorer helpful: 2 (r)",
        "verdict of judge 2 of scorer helpful: 3 (r)",
    ]
    replies: list[JSON] = [{"details": parts({}, answer=said(True))}, {"details": said(4)}, {"status": "wrong"}]
    assert verdict_lines({"epoch": 0, "epochs": replies}) == [
        "verdict of scorer answer of output 1: true (r)",
        "verdict of output 2: 4 (r)",
    ]
    nested: dict[str, JSON] = said(True)
    for _ in range(500):
        nested = {"scorers": {"a": {"details": nested}}}
    assert verdict_lines(nested) == []


@pytest.mark.parametrize(
    "details",
    [
        {"verdicts": None},
        {"verdicts": [None, 3]},
        {"judges": [None]},
        {"judges": [{}]},
        {"scorers": ["a"]},
        {"scorers": {"a": 1, "b": {"details": [1]}}},
        {"epochs": {"a": 1}},
    ],
)
def test_details_of_another_shape_are_no_verdicts(details: dict[str, JSON]) -> None:
    assert verdict_lines(details) == []


def test_a_terminal_acts_on_no_name_of_a_scorer() -> None:
    verdicts: JSON = {"details": {"verdicts": [{"value": "pass", "reasons": "Yes."}]}}
    found = make_record(details={"scorers": {"exact": None, "**a**\x1b[2J": verdicts}})
    for lines in (sample_lines(found, whole=True, prompt=True), bounded_lines(found)):
        assert any(line.startswith(r"  verdict of scorer **a**\x1b[2J: pass") for line in lines)
    assert r"**verdict of scorer \*\*a\*\*\\x1b[2J**" in [*sample_markdown(found, whole=True, prompt=True)]


def test_what_a_search_found_and_what_an_answer_was_written_from() -> None:
    details: dict[str, Any] = {
        "documents": [["d1", 2.5], ["d\x1b2", None], "d3"],
        "contexts": ["Oslo is\nthe capital.", 7],
        "relevant": [{"id": "d3", "grade": 1, "rank": 3}],
    }
    record = make_record(details=details)
    assert [*sample_lines(record, whole=True, prompt=False)][1:] == [
        "  relevant: d3 (grade 1) at 3",
        "  documents: d1 (2.5)",
        "    d\\x1b2",
        "    d3",
        "  contexts: Oslo is",
        "    the capital.",
        "",
        "    7",
        "  scores: accuracy 1",
    ]
    short = "\n".join(sample_lines(record, whole=False, prompt=False))
    assert "context" not in short
    many = make_record(details={"documents": [f"d{number}" for number in range(200)], "contexts": "no list"})
    lines = [*sample_lines(many, whole=True, prompt=False)]
    assert "    … (200)" in lines
    assert len(lines) < 110
    twice = make_record(details={"outputs": ["a", "b"], "documents": [[["d1", 1.0]], None], "contexts": [None, ["x"]]})
    lines = [*sample_lines(twice, whole=True, prompt=False)]
    assert {"  documents of output 1: d1 (1)", "  contexts of output 2: x"} <= {*lines}
    assert not [line for line in lines if "contexts of output 1" in line or "documents of output 2" in line]


def test_who_answered_in_the_place_of_the_model_is_shown() -> None:
    entries = ({"name": "m", "model": "cheap-1"}, {"role": "judge", "name": "j", "system_fingerprint": "fp_b"})
    record = Record(suite="s", id="1", nodeid="s::1", model="m", status="correct", served_by=entries)
    shown = [line for line in sample_lines(record, whole=True, prompt=False) if "answered by" in line]
    assert shown == [
        "  answered by: model cheap-1 in the place of m",
        "  answered by: system_fingerprint fp_b in the place of judge j",
    ]


def test_what_a_judge_wrote_beside_verdicts_is_shown() -> None:
    """The questions that it made of an answer, how close they are, and the ranks of texts."""
    details: dict[str, JSON] = {
        "verdicts": [
            {"metric": "answer_relevance", "asked": "questions", "value": ["Who?", "When?"]},
            {"metric": "answer_relevance", "asked": "embeddings", "value": [{"question": "Who?", "cosine": 0.5}]},
            {
                "metric": "context_precision",
                "asked": "relevant",
                "rank": 2,
                "chunk": "A",
                "value": True,
                "reasons": "r",
            },
        ]
    }
    assert verdict_lines(details) == [
        "verdict 1 of 3: answer_relevance: questions: Who? | When?",
        "verdict 2 of 3: answer_relevance: embeddings: Who?, 0.5",
        "verdict 3 of 3: context_precision, rank 2, A: true (r)",
    ]


def test_a_problem_is_shown_once_and_so_is_an_earlier_turn_that_is_wrong() -> None:
    turns: list[JSON] = [
        {"user": "First?", "reply": "one"},
        {"user": "Second?", "reply": "two"},
        {"user": "Third?", "reply": "three"},
        {"user": "Last?", "reply": "four"},
    ]
    scores: list[JSON] = [
        {"status": "wrong", "details": {"problem": "assertion", "detail": "line 1"}},
        {"status": "correct"},
        None,
        {"status": "correct"},
    ]
    details: dict[str, JSON] = {"problem": "no call", "conversation": turns, "turns": scores}
    record = make_record("1", status="wrong", output="four", target="four", details=details)
    expected = [
        "user, turn 1 of 4: First?",
        "reply, turn 1 of 4, wrong: one",
        "output: four",
        "expected: four",
        "problem: no call",
        "problem of turn 1: assertion: line 1",
    ]
    for shown in (sample_lines(record, whole=False, prompt=False), bounded_lines(record)):
        lines = [line.strip() for line in shown]
        assert [
            line for line in lines if line.startswith(("user", "reply", "output", "expected", "problem"))
        ] == expected
