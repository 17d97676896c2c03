"""The line on many replies without an answer: when it is there, what it says, and that its advice helps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.reporting.report.records import Record, without_texts
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.tables.session import has_many_without_answer, no_answer_texts, unjudged_texts
from pytest_llmeval.reporting.writers.text_report import summary_lines
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.types import GenerateResponse
from tests.reporting.made_reports import summary
from tests.reporting.reports import make_record, make_report


def report(reply: str | None, *, scorer: str = "letter", count: int = 4, of: int = 5, **settings: Any) -> Report:
    """``of`` replies, of which the last ``count`` had no answer; the first of these is ``reply``."""
    odd: list[dict[str, Any]] = [
        {"output": reply if place == 0 else "later", "no_answer": True, "status": "wrong"} for place in range(count)
    ]
    records = [make_record(id_=f"s{place}", **values) for place, values in enumerate([{}] * (of - count) + odd)]
    made = make_report(records)
    (suite,) = made.suites
    return replace(made, suites=(replace(suite, info=replace(suite.info, scorer=scorer, settings=settings)),))


def lines(of: Report) -> list[str]:
    return list(no_answer_texts(of, {}))


def test_rankings_without_a_judged_document_are_said() -> None:
    def made(*values: dict[str, float], scorer: str = "retrieval") -> list[str]:
        records = [make_record(id_=f"q{place}", status="scored", values=own) for place, own in enumerate(values)]
        of = make_report(records)
        suites = tuple(replace(suite, info=replace(suite.info, scorer=scorer)) for suite in of.suites)
        return list(unjudged_texts(replace(of, suites=suites), {}))

    nothing = {"ndcg@10": 0.0, "judged@10": 0.0, "rr": 0.0}
    assert made(nothing, nothing) == [
        "sums: none of 2 rankings contains a relevant document, nor a judged one among the first 10: are the "
        "documents' ids written alike in the rankings and in the judgements?"
    ]
    assert made({"rr": 0.0})[0].startswith("sums: none of 1 rankings contains a relevant document: are")
    assert made(nothing, {**nothing, "judged@10": 0.1}) == []
    assert made(nothing, scorer="f1") == []


@pytest.mark.parametrize(
    ("num_no_answer", "num_scored", "expected"),
    [(0, 0, False), (0, 5, False), (1, 1, True), (2, 2, True), (2, 3, False), (3, 30, True), (3, 31, False)],
)
def test_what_many_are(num_no_answer: int, num_scored: int, expected: bool) -> None:
    assert has_many_without_answer(replace(summary({}, num_scored), num_no_answer=num_no_answer)) is expected


@pytest.mark.parametrize(
    ("reply", "labels", "advice"),
    [
        ("The answer is E.", "upper", "; it names E, and the options are A to C: does the prompt show them so?"),
        ("(f)", "lower", "; it names f, and the options are a to c: does the prompt show them so?"),
        ("7", "digit", "; it names 7, and the options are 1 to 3: does the prompt show them so?"),
        ("A or B", "upper", "; try filters"),
        ("no idea", "upper", "; try filters"),
    ],
)
def test_a_label_that_is_no_option(reply: str, labels: str, advice: str) -> None:
    made = report(reply, labels=labels)
    records = tuple(replace(record, choices=("x", "y", "z")) for record in made.records)
    (line,) = lines(replace(made, records=records))
    assert f"4 of 5 replies named no option; the first was '{reply}'{advice}" in line


def test_the_first_reply_and_the_advice() -> None:
    (line,) = lines(report("My answer: [C] it is", labels="upper"))
    assert line == (
        "sums: 4 of 5 replies named no option; the first was 'My answer: [C] it is'; "
        r"try filters: [{regex: '(?i:answer|option|choice)(?i: is)?[^A-Za-z0-9]*([A-Z])\b'}]"
    )
    assert lines(report("x", count=2)) == []


@pytest.mark.parametrize(
    ("reply", "scorer", "settings", "told"),
    [
        ("", "letter", {}, "named no option; the first was empty: look at the end of the prompt"),
        (None, "letter", {}, "4 of 5 replies named no option"),
        ("well", "yes_no", {}, "had no yes or no; the first was 'well'; try filters (docs/scoring.md), a larger gen"),
        ("well", "letter", {"labels": "digit"}, "named no option"),
        ("well", "number", {"filters": [{"kind": "lower"}]}, "had no number; the first was 'well'; try other filters"),
        ("<think>is it", "number", {}, "try generate.reasoning: true, or filters: [drop_reasoning], and a larger"),
        ("<think>a</think>b", "exact", {}, "no answer; the first was '<think>a</think>b'; try generate.reasoning: t"),
        ("a</think>b", "exact", {"filters": [{"kind": "drop_reasoning"}]}, "; try other filters than the suite's ("),
        ("```json\n1\n```", "json", {"fenced": False}, "had no JSON; the first was '```json\\n1\\n```'; try score: {j"),
        ("\x1b[2J\u202e" + "x" * 500, "number", {}, r"the first was '\x1b[2J"),
    ],
)
def test_what_is_said_of_other_replies(reply: str | None, scorer: str, settings: dict[str, Any], told: str) -> None:
    (line,) = lines(report(reply, scorer=scorer, **settings))
    assert told in line
    assert line.isprintable()
    assert len(line) < 400


@pytest.mark.parametrize(
    ("score", "reply", "answer"),
    [
        ("letter", "the right OPTION is <<D>>", "D"),
        ({"letter": {"labels": "lower"}}, "the choice is **d**, of course", "d"),
        ("yes_no", "I would say yes", "yes"),
    ],
)
def test_the_filters_that_are_advised_find_the_answer(score: Any, reply: str, answer: str, tmp_path: Path) -> None:
    scorer, settings = (score, {}) if isinstance(score, str) else next(iter(score.items()))
    (line,) = lines(report(reply, scorer=scorer, **settings))
    advised = yaml.safe_load(line.rpartition("try ")[2])
    choices = {"choices": ["a", "b", "c", "d"], "target": 0} if scorer == "letter" else {"target": True}
    value = {"suite": "s", "samples": [{"question": "q", **choices}], "score": score, **advised}
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(value, sort_keys=False), "utf-8")
    evaluation = Evaluation(load_suite(path))
    question = evaluation.question(evaluation.suite.samples[0])
    assert evaluation.score(question, [GenerateResponse(text=reply)]).answer == answer


def test_the_summary_has_it_from_records_without_their_texts() -> None:
    whole = report("no idea", scorer="number")
    kept: list[Record] = [without_texts(record) for record in whole.records]
    assert [record.output for record in kept] == [None, "no idea", "later", "later", "later"]
    shown = list(summary_lines(replace(whole, records=tuple(kept)), width=60))
    place = next(place for place, line in enumerate(shown) if line.startswith("sums: 4 of 5 replies had no number"))
    assert all(len(line) <= 60 for line in shown[place : place + 3])
    assert shown[place + 1].startswith("  ")


def test_a_reply_that_ended_in_its_reasoning_names_the_key_to_raise() -> None:
    ended: dict[str, Any] = {"output": "", "reasoning": "Maybe 41. Or", "no_answer": True, "num_truncated": 1}
    whole = make_report([make_record(id_=f"s{place}", status="wrong", **ended) for place in range(4)])
    expected = "4 of 4 replies had no answer; the first ended in its reasoning: a larger generate.max_tokens lets the "
    for made in (whole, replace(whole, records=tuple(map(without_texts, whole.records)))):
        (line,) = lines(made)
        assert expected in line
        assert "cut at max_tokens" not in line, "it is said once"
    assert any("cut at max_tokens 4" in line for line in summary_lines(whole, width=200))


@pytest.mark.parametrize(
    ("scorer", "accuracy", "num_cut", "told"),
    [
        ("exact", 0.5, 3, "sums: 3 replies were cut at max_tokens: raise generate.max_tokens, or end replies with"),
        ("exact", 0.5, 2, None),
        ("exact", 1.0, 3, None),
        ("letter", 0.5, 3, None),
    ],
)
def test_replies_that_were_cut(scorer: str, accuracy: float, num_cut: int, told: str | None) -> None:
    """Where all is right, or a label is read wherever it stands, nothing needs to be mended."""
    num_right = round(10 * accuracy)
    made = make_report(
        [
            make_record(
                id_=f"s{place}",
                status="correct" if place < num_right else "wrong",
                values={"accuracy": float(place < num_right)},
                num_truncated=int(place < num_cut),
            )
            for place in range(10)
        ]
    )
    (suite,) = made.suites
    made = replace(made, suites=(replace(suite, info=replace(suite.info, scorer=scorer)),))
    found = lines(made)
    assert len(found) == (told is not None)
    assert all(line.startswith(told or "") for line in found)
    assert suite.summary.num_truncated == num_cut
    assert any(f"cut at max_tokens {num_cut}" in line for line in summary_lines(made, width=200))
