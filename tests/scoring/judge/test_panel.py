"""How the scores of several judges become one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.models.base import JudgeSteps
from pytest_llmeval.scorers.judging.raters import panel, panel_metrics
from pytest_llmeval.scoring.base import score_without_judge
from pytest_llmeval.types import Ask, GenerateRequest, GenerateResponse, Score
from tests.properties import examples

LABELS = {1.0: "correct", 0.0: "wrong"}


def judgement(score: Score) -> JudgeSteps:
    yield from ()
    return score


def of(scores: Sequence[Score], rated: str = "accuracy") -> Score:
    return score_without_judge(panel([judgement(score) for score in scores], rated))


@settings(max_examples=examples(100))
@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=7))
def test_labels_are_those_of_the_majority(labels: list[float]) -> None:
    scores = [
        Score(status="correct" if one else "wrong", answer=LABELS[one], values={"accuracy": one}) for one in labels
    ]
    found = of(scores)
    (label, votes), *_ = Counter(labels).most_common()
    if votes * 2 == len(labels):
        assert (found.status, found.values["accuracy"]) == ("scored", 0.5)
    else:
        assert (found.status, found.values["accuracy"], found.answer) == (LABELS[label], label, LABELS[label])
    assert [found.values[f"judge.{number}.accuracy"] for number in range(1, len(labels) + 1)] == labels
    assert {*found.values} >= {*panel_metrics("accuracy", len(labels))} - {"judge.alpha"}


@settings(max_examples=examples(60))
@given(st.lists(st.floats(1, 5), min_size=2, max_size=5))
def test_numbers_are_the_mean(numbers: list[float]) -> None:
    found = of([Score(status="scored", values={"aspects": one}) for one in numbers], "aspects")
    assert found.status == "scored"
    assert found.values["aspects"] == pytest.approx(sum(numbers) / len(numbers))


def test_what_one_judge_cannot_measure_is_the_others() -> None:
    measured = Score(status="scored", values={"faithfulness": 0.5})
    none = Score(status="scored", not_measurable={"faithfulness": "no claims"})
    found = of([none, measured, measured], "faithfulness")
    assert found.values["faithfulness"] == 0.5
    assert found.not_measurable == {"judge.1.faithfulness": "no claims", "judge.1.dissent": "no claims"}
    found = of([none, none], "faithfulness")
    assert "faithfulness" not in found.values
    assert found.not_measurable["faithfulness"] == "no claims"
    assert found.not_measurable["judge.alpha"] == "fewer than two judges gave a number"


def test_each_judge_is_asked_for_itself() -> None:
    """Also where one has to be asked again, and the other is done."""

    def asking(times: int) -> JudgeSteps:
        for _ in range(times):
            yield Ask("judge", (GenerateRequest("q"),))
        return Score(status="correct", values={"accuracy": 1.0})

    whole = panel([asking(1), asking(2)], "accuracy")
    asked = [next(whole), whole.send([GenerateResponse(text="r")]), whole.send([GenerateResponse(text="r")])]
    assert sorted(ask.judge for ask in asked) == [0, 1, 1]
    with pytest.raises(StopIteration) as stop:
        whole.send([GenerateResponse(text="r")])
    assert stop.value.value.status == "correct"
