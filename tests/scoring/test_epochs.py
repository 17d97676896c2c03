"""A sample that is asked several times."""

from __future__ import annotations

import math
import pickle
import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lm_eval.filters.selection import MajorityVoteFilter
from pydantic import TypeAdapter

from pytest_llmeval.errors import ModelError
from pytest_llmeval.evaluation.pipeline import suite_scorer
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scorers import ScoreSettings
from pytest_llmeval.scorers.choice import ChoiceSettings
from pytest_llmeval.scorers.exact import ExactSettings
from pytest_llmeval.scorers.f1 import F1Settings
from pytest_llmeval.scorers.json import JsonSettings
from pytest_llmeval.scorers.letter import LetterSettings
from pytest_llmeval.scorers.mass import MassSettings
from pytest_llmeval.scorers.math import MathSettings
from pytest_llmeval.scorers.number import NumberSettings
from pytest_llmeval.scorers.pattern import PatternSettings
from pytest_llmeval.scorers.ter import TerSettings
from pytest_llmeval.scoring.base import Scorer, SettingsError
from pytest_llmeval.scoring.custom import CustomSettings
from pytest_llmeval.scoring.epochs import EpochsSpec, deciding_epoch, pass_at_k, pass_hat_k
from pytest_llmeval.scoring.filters import Filters
from pytest_llmeval.scoring.metrics.summary import names_in, summarize
from pytest_llmeval.types import GenerateRequest, GenerateResponse, LoglikelihoodResponse, Score
from tests.scoring.helpers import GENERATE, a_sample

_FILTERS: TypeAdapter[Any] = TypeAdapter(Filters)


def scorer_of(epochs: object, settings: ScoreSettings | None = None, filters: Sequence[object] = ()) -> Scorer:
    spec = EpochsSpec.model_validate(epochs)
    return suite_scorer(settings or ExactSettings(), filters=_FILTERS.validate_python(list(filters)), epochs=spec)


def judge(scorer: Scorer, *replies: str, target: Any = "1", choices: Sequence[str] = ()) -> Score:
    return scorer.score(scorer.present(a_sample(target, choices)), [GenerateResponse(text=reply) for reply in replies])


def reduced(reduce: object, *replies: str) -> Score:
    return judge(scorer_of({"count": len(replies), "reduce": reduce}), *replies)


def test_every_epoch_is_a_request_of_its_own() -> None:
    scorer = scorer_of(3)
    requests = scorer.requests(scorer.present(a_sample("1")), "Q", delimiter=" ", generate=GENERATE)
    asked = {"max_tokens": 77, "stop": ("\n",), "temperature": 0.5, "seed": 3}
    assert requests == tuple(GenerateRequest("Q", **asked, epoch=epoch) for epoch in range(3))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("replies", "status", "accuracy"),
    [("11", "correct", 1.0), ("22", "wrong", 0.0), ("1222", "scored", 0.25), ("2111", "scored", 0.75)],
)
def test_mean_averages_and_is_right_where_all_are(replies: str, status: str, accuracy: float) -> None:
    score = reduced("mean", *replies)
    assert (score.status, score.values) == (status, {"accuracy": accuracy})


def test_mean_has_no_answer_where_no_reply_has_one() -> None:
    assert reduced("mean", "", " ").no_answer
    assert not reduced("mean", "", "2").no_answer


@pytest.mark.parametrize(
    ("reduce", "replies", "right", "epoch"),
    [
        ("first", "121", True, 0),
        ("first", "211", False, 0),
        ("mode", "211", True, 1),
        ("mode", "2112", False, 0),  # the first of equals
        ("mode@1", "211", False, 0),
        ("mode@3", "211222", True, 1),
        ("any", "2212", True, 2),
        ("any", "222", False, 0),
        ("all", "111", True, 0),
        ("all", "1121", False, 2),
    ],
)
def test_reductions_that_choose_a_reply(reduce: str, replies: str, right: bool, epoch: int) -> None:
    score = reduced(reduce, *replies)
    assert (score.status, score.values) == ("correct" if right else "wrong", {"accuracy": float(right)})
    assert deciding_epoch(score) == epoch
    assert score.answer == replies[epoch]


def test_replies_without_an_answer_do_not_vote() -> None:
    scorer = scorer_of({"count": 3, "reduce": "mode"}, filters=[{"regex": "[0-9]"}])
    assert judge(scorer, "?", "?", "1").status == "correct"
    none = judge(scorer, "?", "?", "?")
    assert (none.status, none.no_answer) == ("wrong", True)


@given(st.lists(st.sampled_from("123?"), min_size=1, max_size=9))
def test_mode_is_the_majority_vote_of_lm_eval(replies: list[str]) -> None:
    """Against ``lm_eval.filters.selection.MajorityVoteFilter`` on what a regex with a fallback finds."""
    steps = [{"regex": {"pattern": "[0-9]", "fallback": "[invalid]"}}]
    found = [reply if reply != "?" else "[invalid]" for reply in replies]
    ((expected,),) = MajorityVoteFilter().apply([found], [{}])
    score = judge(scorer_of({"count": len(replies), "reduce": "mode"}, filters=steps), *replies)
    assert score.answer == expected


def test_votes_are_for_answers_or_for_texts() -> None:
    """lm-eval counts texts as filters leave them, before its metric normalises them."""
    settings = ExactSettings(normalize=("no_ascii_punctuation",))
    replies = ("2", "2", "1.", "1,", "1")
    answers = {"count": 5, "reduce": "mode"}
    assert judge(scorer_of(answers, settings, ["strip"]), *replies).answer == "1"
    assert judge(scorer_of({**answers, "vote": "text"}, settings, ["strip"]), *replies).answer == "2"


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_by_counting_all_choices_of_k(case: tuple[int, int, int]) -> None:
    num_replies, num_right, k = case
    chosen = list(combinations([1] * num_right + [0] * (num_replies - num_right), k))
    assert pass_at_k(*case) == pytest.approx(sum(map(any, chosen)) / len(chosen), abs=1e-12)
    assert pass_hat_k(*case) == pytest.approx(sum(map(all, chosen)) / len(chosen), abs=1e-12)


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_by_the_product_of_its_authors(case: tuple[int, int, int]) -> None:
    """Against the numerically stable product of Chen et al. 2021, figure 3."""
    num_replies, num_right, k = case
    wrong = num_replies - num_right
    product = 1.0 if wrong < k else 1.0 - math.prod(1.0 - k / i for i in range(wrong + 1, num_replies + 1))
    assert pass_at_k(*case) == pytest.approx(product, abs=1e-9)


@pytest.mark.parametrize("case", [(3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, 4)])
def test_counts_that_cannot_be(case: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="replies and k"):
        pass_at_k(*case)


def test_several_reductions_at_once() -> None:
    scorer = scorer_of({"count": 4, "reduce": ["pass@1", "pass@2", "pass^2", "mode", "any"]})
    assert scorer.metrics == ("pass@1", "no_answer", "pass@2", "pass^2", "mode.accuracy", "any.accuracy")
    score = judge(scorer, "2", "1", "1", "3")
    assert score.status == "scored"
    assert score.values == pytest.approx(
        {"pass@1": 1 / 2, "pass@2": 5 / 6, "pass^2": 1 / 6, "mode.accuracy": 1.0, "any.accuracy": 1.0}
    )
    metrics = summarize([score, judge(scorer, "1", "1", "1", "1")], scorer.metrics)
    assert metrics["pass@2"].value == pytest.approx(11 / 12)
    assert metrics["mode.accuracy"].value == 1.0
    assert {metric.n for metric in metrics.values()} == {2}


def test_the_interval_of_averaged_accuracies_stays_among_what_accuracy_can_be() -> None:
    scores = [reduced("mean", "1", "2"), reduced("mean", "1", "1")]
    accuracy = summarize(scores, ["accuracy"])["accuracy"]
    assert (accuracy.kind, accuracy.value) == ("mean", 0.75)
    assert (accuracy.ci_low, accuracy.ci_high) == (0.0, 1.0)


def test_pass_at_1_is_the_mean_accuracy() -> None:
    for replies in ("1111", "1222", "2222"):
        mean, estimate = reduced("mean", *replies), reduced("pass@1", *replies)
        assert mean.status == estimate.status
        assert mean.values["accuracy"] == pytest.approx(estimate.values["pass@1"])


def test_skill_is_of_one_guess() -> None:
    choices = ["x", "y", "z", "w"]
    mean = judge(scorer_of(2, LetterSettings(shuffle=False)), "A", "B", target=0, choices=choices)
    assert mean.values == {"accuracy": 0.5, "skill": pytest.approx((1 - 1 / 3) / 2)}
    assert mean.chance == 0.25
    scorer = scorer_of({"count": 2, "reduce": "any"}, LetterSettings(shuffle=False))
    score = judge(scorer, "A", "B", target=0, choices=choices)
    assert scorer.metrics == ("accuracy", "no_answer")
    assert (score.values, score.chance) == ({"accuracy": 1.0}, None)


def test_the_report_shows_every_epoch() -> None:
    score = reduced("mode", "2", "1", "1")
    assert score.details == {
        "epoch": 1,
        "epochs": [
            {"status": "wrong", "answer": "2", "no_answer": False},
            {"status": "correct", "answer": "1", "no_answer": False},
            {"status": "correct", "answer": "1", "no_answer": False},
        ],
    }


def test_one_reply_that_cannot_be_judged_leaves_the_sample_unscored() -> None:
    slow = {"regex": {"pattern": "(?:a|aa)+[bc]$", "timeout_s": 0.05}}
    score = judge(scorer_of(2, filters=[slow]), "b", "a" * 200)
    assert score.status == "unscored"
    assert score.reason == "epoch 2 of 2: filters.0.regex: the search took longer than its timeout_s"


def test_numbers_have_no_right_replies_to_count() -> None:
    from pytest_llmeval.scorers.chrf import ChrfSettings

    for reduce in ("pass@1", "pass^1", "any", "all"):
        with pytest.raises(
            SettingsError, match=f"{re.escape(reduce)} counts right replies, and chrf does not decide"
        ) as caught:
            scorer_of({"count": 2, "reduce": ["mean", reduce]}, ChrfSettings())
        assert caught.value.keys == ("epochs", "reduce")
    assert judge(scorer_of(2, ChrfSettings()), "a", "b", target="a").status == "scored"


def test_what_would_be_the_same_every_time_is_refused() -> None:
    scorer = scorer_of(3)
    greedy = GenerateSpec(temperature=0.0)
    with pytest.raises(SettingsError, match="3 times, and at temperature 0 all replies are the same") as caught:
        scorer.requests(scorer.present(a_sample("1")), "Q", delimiter=" ", generate=greedy)
    assert caught.value.keys == ("epochs",)
    once = scorer_of({"count": 1, "reduce": "pass@1"})
    assert len(once.requests(once.present(a_sample("1")), "Q", delimiter=" ", generate=greedy)) == 1
    for settings in (ChoiceSettings(), MassSettings()):
        likely = scorer_of(3, settings)
        presented = likely.present(a_sample(0, ["x", "y"]))
        with pytest.raises(SettingsError, match="compares loglikelihoods, which would be the same 3 times"):
            likely.requests(presented, "Q", delimiter=" ", generate=GENERATE)


def test_a_model_that_answers_fewer_is_named() -> None:
    with pytest.raises(ModelError, match="for each of 3 epochs, found 2"):
        judge(scorer_of(3), "1", "1")
    scorer = scorer_of(2)
    with pytest.raises(ModelError, match="expected one GenerateResponse"):
        scorer.score(scorer.present(a_sample("1")), [LoglikelihoodResponse(loglikelihood=-1.0, num_tokens=1)] * 2)


def test_it_travels_to_workers() -> None:
    scorer = scorer_of({"count": 4, "reduce": ["mode", "pass@2"]}, filters=["strip"])
    assert pickle.loads(pickle.dumps(scorer)) == scorer


@given(st.lists(st.text(st.characters(), max_size=20), min_size=1, max_size=5))
def test_any_replies_are_reduced(replies: list[str]) -> None:
    answers = Counter(reply.strip() for reply in replies if reply.strip())
    score = reduced("mode", *replies)
    assert score.answer == (answers.most_common(1)[0][0] if answers else None)
    mean = reduced("mean", *replies)
    assert mean.values["accuracy"] == pytest.approx(answers["1"] / len(replies))


def words_or_right(reply: str) -> object:
    return {"words": 1.0} if reply == "?" else reply == "1"


def test_a_scorer_in_python_that_gives_numbers_has_no_right_replies_to_count() -> None:
    custom = CustomSettings(name="mine", settings={})
    spec = EpochsSpec(count=2, reduce=("pass@1",))
    scorer = suite_scorer(custom, {"mine": words_or_right}, epochs=spec)
    assert judge(scorer, "1", "?").reason == (
        "pass@1 needs right and wrong replies, and this scorer gives numbers; set epochs.threshold, the "
        "lowest number of a right reply"
    )


def length(reply: str) -> float:
    return float(len(reply))


def named(reply: str) -> dict[str, float]:
    return {"words": 1.0, "length": float(len(reply))}


named.metrics = ("length", "words")  # type: ignore[attr-defined]


@pytest.mark.parametrize("function", [length, named])
@pytest.mark.parametrize("reduce", ["pass@2", "pass^2", "any", "all"])
def test_numbers_in_python_are_counted_from_a_threshold_on(function: Any, reduce: str) -> None:
    custom = CustomSettings(name="mine", settings={})

    def made(**epochs: Any) -> Scorer:
        return suite_scorer(custom, {"mine": function}, epochs=EpochsSpec(count=3, reduce=(reduce,), **epochs))

    with pytest.raises(SettingsError, match=f"{re.escape(reduce)} counts right replies, and mine does not decide"):
        made()
    score = judge(made(threshold=3), "long", "a", "b")
    if reduce in ("any", "all"):
        assert score.status == {"any": "correct", "all": "wrong"}[reduce]
    else:
        assert score.values == pytest.approx({reduce: {"pass@2": 2 / 3, "pass^2": 0.0}[reduce]})


def test_a_threshold_for_a_metric_that_is_better_when_lower() -> None:
    scorer = scorer_of({"count": 2, "reduce": "pass@1", "threshold": 50}, TerSettings())
    assert judge(scorer, "one two", "x y z u", target="one two").values == {"pass@1": 0.5}


def test_a_threshold_that_contradicts_an_accuracy() -> None:
    """A report that held both would be taken for one that was edited."""

    def quality(reply: str) -> Score:
        return Score(status="scored", values={"quality": float(reply), "accuracy": float(reply == "1")})

    custom, spec = CustomSettings(name="mine", settings={}), EpochsSpec(count=2, threshold=0.5)
    scorer = suite_scorer(custom, {"mine": quality}, epochs=spec)
    assert judge(scorer, "1", "0").status == "scored"
    score = judge(scorer, "1", "0.7")
    assert (score.status, score.values) == ("unscored", {})
    assert score.reason == (
        "epoch 2 of 2: epochs.threshold gave the status correct and accuracy = 0.0, expected accuracy = 1.0, or the "
        "status wrong"
    )


def test_a_threshold_where_the_scorer_knows_what_is_right() -> None:
    with pytest.raises(SettingsError, match="exact itself decides which replies are right; remove it"):
        scorer_of({"count": 2, "threshold": 1})


def test_pass_at_k_of_a_scorer_in_python_is_no_accuracy_of_those_that_agree() -> None:
    spec = EpochsSpec(count=2, reduce=("pass@1",))
    scorer = suite_scorer(CustomSettings(name="mine", settings={}), {"mine": words_or_right}, epochs=spec)
    scores = [judge(scorer, *replies) for replies in ("11", "12", "22")]
    assert [score.status for score in scores] == ["correct", "scored", "wrong"]
    assert names_in(scores) == ("pass@1",)


@pytest.mark.parametrize(
    ("settings", "target", "replies"),
    [
        (NumberSettings(), "1200", ["1,200", "1200.0", "$1200", "7", "7"]),
        (MathSettings(), "1/2", [r"\boxed{\frac{1}{2}}", r"\boxed{\dfrac12}", r"\boxed{0.5}", "7", "7"]),
        (JsonSettings(), '{"a": 1, "b": 2}', ['{"a":1,"b":2}', '{"b": 2.0, "a": 1}', '{"b":2,"a":1}', "3", "3"]),
        (F1Settings(), "cat", ["The cat", "a cat.", "Cat!", "dog", "dog"]),
        (PatternSettings(pattern="(.*)", ignore_case=True), "cat", ["cat", "Cat", "CAT", "dog", "dog"]),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_mode_counts_answers_however_they_are_written(settings: Any, target: str, replies: list[str]) -> None:
    score = judge(scorer_of({"count": 5, "reduce": "mode"}, settings), *replies, target=target)
    assert (score.status, score.details["epoch"]) == ("correct", 0)
    wrong = judge(scorer_of({"count": 5, "reduce": "mode"}, settings), *replies, target=replies[-1])
    assert wrong.status == "wrong"


def test_votes_for_texts_without_filters_are_for_replies() -> None:
    replies = ("A 5", "B 5", "C 5", "7", "7")
    answers = {"count": 5, "reduce": "mode"}
    assert judge(scorer_of(answers, NumberSettings()), *replies).answer == "5"
    assert judge(scorer_of({**answers, "vote": "text"}, NumberSettings()), *replies).answer == "7"
