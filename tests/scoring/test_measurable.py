"""Not measurable: a state of its own beside a number and unscored, however a scorer says it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import pytest_llmeval
from pytest_llmeval.evaluation.part import Part
from pytest_llmeval.evaluation.pipeline import Pipeline, suite_scorer
from pytest_llmeval.reporting.report.records import Payload, Record, without_texts
from pytest_llmeval.reporting.storage.json_form import record_from_json
from pytest_llmeval.scorers.exact import ExactSettings
from pytest_llmeval.scoring.custom import CustomSettings
from pytest_llmeval.scoring.epochs import EpochsSpec
from pytest_llmeval.scoring.metrics.summary import (
    Metric,
    count_not_measurable,
    num_missing,
    summarize,
    why_not_measurable,
)
from pytest_llmeval.scoring.score_checks import checked
from pytest_llmeval.types import GenerateResponse, NotMeasurable, Score
from tests.scoring.helpers import a_sample


def judged(function: Callable[..., object], *replies: str, epochs: Any = None) -> Score:
    spec = None if epochs is None else EpochsSpec.model_validate(epochs)
    scorer = suite_scorer(CustomSettings(name="mine"), {"mine": function}, epochs=spec)
    return checked(
        scorer.score(scorer.present(a_sample("1")), [GenerateResponse(text=text) for text in replies]), "mine"
    )


def test_a_function_says_it_of_one_metric() -> None:
    score = judged(lambda reply: {"accuracy": True, "wit": NotMeasurable("no\njoke")}, "1")
    assert (score.status, score.values, score.not_measurable) == ("correct", {"accuracy": 1.0}, {"wit": "no joke"})
    score = judged(lambda reply: {"wit": NotMeasurable("no joke"), "length": 2}, "1")
    assert (score.status, score.values, score.not_measurable) == ("scored", {"length": 2.0}, {"wit": "no joke"})


def test_a_function_says_it_of_all() -> None:
    score = judged(lambda reply: pytest_llmeval.NotMeasurable("no context"), "1")
    assert (score.status, score.values, score.not_measurable) == ("scored", {}, {"*": "no context"})
    assert why_not_measurable(score, "wit") == why_not_measurable(score, "accuracy") == "no context"
    assert summarize([score], ["accuracy"])["accuracy"].n == 0


@pytest.mark.parametrize(
    ("score", "told"),
    [
        (Score(status="wrong", values={"wit": 1.0}, not_measurable={"wit": "x"}), "wit = 1.0 and says that it is not"),
        (Score(status="wrong", not_measurable={"accuracy": "x"}), "the status wrong and an accuracy that is not"),
        (Score(status="correct", not_measurable={"*": "x"}), "the status correct and an accuracy that is not"),
        (Score(status="scored", not_measurable={"wit": " "}), "not_measurable['wit'] = ' ', expected a reason"),
        (Score(status="scored", not_measurable={"wit": 3}), "not_measurable['wit'] = 3, expected a reason"),  # type: ignore[dict-item]
        (Score(status="scored", not_measurable=["wit"]), "a not_measurable that is a list"),  # type: ignore[arg-type]
    ],
)
def test_what_contradicts_itself(score: Score, told: str) -> None:
    found = checked(score, "mine")
    assert found.status == "unscored"
    assert f"the scorer mine gave {told}" in str(found.reason)


def test_a_mean_over_epochs_is_of_those_that_have_it() -> None:
    def wit(reply: str) -> object:
        return {"length": len(reply), "wit": float(reply) if reply != "none" else NotMeasurable("no joke")}

    epochs = {"count": 3, "reduce": ["mean", "mode"]}
    score = judged(wit, "1", "none", "2", epochs=epochs)
    assert (score.values["wit"], score.not_measurable) == (1.5, {})
    score = judged(wit, "none", "none", "none", epochs=epochs)
    assert "wit" not in score.values
    assert score.not_measurable == {"wit": "no joke", "mode.wit": "no joke"}
    score = judged(lambda reply: {"wit": 1.0} if reply == "1" else {"other": 1.0}, "1", "2", epochs={"count": 2})
    assert (score.values, score.not_measurable) == ({}, {})  # missing, and nobody says why


def test_one_of_several_scorers_says_it() -> None:
    mine = suite_scorer(CustomSettings(name="mine"), {"mine": lambda reply: NotMeasurable("no joke")})
    scorer = Pipeline((Part("a", suite_scorer(ExactSettings())), Part("b", mine)))
    score = checked(scorer.score(scorer.present(a_sample("1")), [GenerateResponse(text="1")]), "several")
    assert (score.status, score.not_measurable) == ("correct", {"b.*": "no joke"})
    assert why_not_measurable(score, "b.wit") == "no joke"
    assert why_not_measurable(score, "accuracy") is None
    assert count_not_measurable([score], ["accuracy", "b.wit"]) == {"b.wit": {"no joke": 1}}


def test_what_is_counted() -> None:
    scores = [
        Score(status="scored", values={"wit": 1.0}, not_measurable={"*": "b"}),
        Score(status="scored", not_measurable={"wit": "a", "other": "a"}),
        Score(status="scored", not_measurable={"*": "b"}),
        Score(status="scored"),
        Score(status="unscored", not_measurable={"*": "b"}),
    ]
    found = count_not_measurable(scores, ["wit", "total"])
    assert found == {"wit": {"a": 1, "b": 1}, "other": {"a": 1}}
    metrics = summarize(scores, ["wit", "total"])
    assert num_missing("wit", metrics["wit"], 4, found) == 1
    assert num_missing("total", metrics["total"], 4, found) == 0
    assert num_missing("b.no_answer", Metric(value=1.0, n=1, kind="count"), 4, {}) == 0


def test_what_no_score_has_is_counted_under_the_name_that_its_scorer_gives_it() -> None:
    one = Score(status="correct", values={"accuracy": 1.0}, not_measurable={"wit": "no joke", "b.*": "no context"})
    whole = Score(status="scored", not_measurable={"*": "nope"})
    assert count_not_measurable([one, one], ["accuracy"]) == {"wit": {"no joke": 2}, "b.*": {"no context": 2}}
    assert count_not_measurable([whole, whole], []) == {"*": {"nope": 2}}
    assert count_not_measurable([whole, one], ["accuracy"])["accuracy"] == {"nope": 1}
    assert "*" not in count_not_measurable([whole, one], ["accuracy"])


def test_records_carry_it() -> None:
    record = Record(suite="s", id="1", nodeid="n", status="scored", not_measurable={"wit": "no joke"})
    assert without_texts(record).not_measurable == {"wit": "no joke"}
    assert Payload.decode(Payload(records=(record,)).encode()).records == (record,)
    assert record_from_json(json.loads(json.dumps(record.to_dict()))) == record


def test_a_built_in_scorer_says_nothing() -> None:
    scorer = suite_scorer(ExactSettings())
    assert scorer.score(scorer.present(a_sample("1")), [GenerateResponse(text="1")]).not_measurable == {}
