"""Several scorers on one reply."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import TypeAdapter

from pytest_llmeval.evaluation.pipeline import make_scorer, suite_scorer
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scorers import ScoreSettings
from pytest_llmeval.scorers.bleu import BleuSettings
from pytest_llmeval.scoring.base import Scorer, SettingsError
from pytest_llmeval.scoring.custom import CustomSettings
from pytest_llmeval.scoring.epochs import EpochsSpec
from pytest_llmeval.scoring.filters import Filters
from pytest_llmeval.scoring.metrics.summary import expanded, summarize
from pytest_llmeval.scoring.score_checks import checked
from pytest_llmeval.types import GenerateRequest, GenerateResponse, Score
from tests.scoring.helpers import GENERATE, a_sample

_SCORE: TypeAdapter[Any] = TypeAdapter(ScoreSettings)
_FILTERS: TypeAdapter[Any] = TypeAdapter(Filters)

STRICT = {"filters": [{"regex": r"#### (-?[0-9.,]+)"}], "score": "exact"}
FLEXIBLE = {"filters": [{"regex": {"pattern": r"-?[0-9]+", "match": "last"}}], "score": "exact"}
BOTH = {"strict": STRICT, "flexible": FLEXIBLE}


def scorer_of(
    scorers: dict[str, Any], *, decides: str | None = None, filters: Sequence[object] = (), epochs: object = None
) -> Scorer:
    settings = _SCORE.validate_python({"several": {"scorers": scorers, "decides": decides}})
    spec = None if epochs is None else EpochsSpec.model_validate(epochs)
    return suite_scorer(settings, filters=_FILTERS.validate_python(list(filters)), epochs=spec)


def judge(scorer: Scorer, target: Any, *replies: str, **fields: Any) -> Score:
    presented = scorer.present(a_sample(target, **fields))
    return scorer.score(presented, [GenerateResponse(text=reply) for reply in replies])


def test_each_scorer_judges_what_its_own_filters_leave() -> None:
    score = judge(scorer_of(BOTH), "18", "It is 18.")
    assert (score.status, score.answer, score.no_answer) == ("wrong", None, True)
    assert score.values == {"accuracy": 0.0, "flexible.accuracy": 1.0, "flexible.no_answer": 0.0}
    assert score.details["scorers"] == {
        "strict": {"status": "wrong", "answer": None, "no_answer": True},
        "flexible": {"status": "correct", "answer": "18", "no_answer": False},
    }


def test_the_first_decides_unless_another_is_named() -> None:
    scorer = scorer_of(BOTH, decides="flexible")
    score = judge(scorer, "18", "It is 18.")
    assert (score.status, score.answer) == ("correct", "18")
    assert score.values == {"accuracy": 1.0, "strict.accuracy": 0.0, "strict.no_answer": 1.0}
    assert scorer.metrics == ("accuracy", "no_answer", "strict.accuracy", "strict.no_answer")


def test_metrics_of_all_scorers_are_summarised() -> None:
    scorer = scorer_of(BOTH)
    replies = ["#### 18", "It is 18.", "It is 17, so #### 18. Or 19.", "no idea"]
    scores = [judge(scorer, "18", reply) for reply in replies]
    assert all(checked(score, "it") == score for score in scores)
    metrics = summarize(scores, scorer.metrics)
    assert {name: metric.value for name, metric in metrics.items()} == {
        "accuracy": 0.25,  # «18.» is what the strict filter takes of the third
        "no_answer": 2,
        "flexible.accuracy": 0.5,
        "flexible.no_answer": 1,
    }


def test_the_suites_filters_come_before_the_scorers() -> None:
    scorer = scorer_of(BOTH, filters=["drop_reasoning"])
    score = judge(scorer, "18", "<think>#### 17</think> #### 18 ")
    assert (score.status, score.answer, score.values["flexible.accuracy"]) == ("correct", "18", 1.0)


def test_one_request_for_all() -> None:
    scorer = scorer_of({**BOTH, "number": {"score": "number"}})
    presented = scorer.present(a_sample("18"))
    (request,) = scorer.requests(presented, "Q", delimiter=" ", generate=GENERATE)
    assert request == GenerateRequest("Q", max_tokens=77, stop=("\n",), temperature=0.5, seed=3)


def test_scorers_that_ask_for_different_things_are_named() -> None:
    scorer = scorer_of({"one": {"score": "exact"}, "two": {"score": {"letter": {"max_tokens": 10}}}})
    presented = scorer.present(a_sample("x", ["x", "y"]))
    with pytest.raises(SettingsError, match=r"sends different requests from one: max_tokens 10 where .* 77") as caught:
        scorer.requests(presented, "Q", delimiter=" ", generate=GENERATE)
    assert caught.value.keys == ("score", "several", "scorers", "two")
    scorer = scorer_of({"one": {"score": "exact"}, "two": {"score": "yes_no"}})
    presented = scorer.present(a_sample("yes"))
    with pytest.raises(SettingsError, match=r"max_tokens 10 where the other has 256; set generate\.max_tokens$"):
        scorer.requests(presented, "Q", delimiter=" ", generate=GenerateSpec())
    scorer.requests(presented, "Q", delimiter=" ", generate=GENERATE)
    scorer = scorer_of({"one": {"score": "exact"}, "two": {"score": "choice"}})
    presented = scorer.present(a_sample("x", ["x", "y"]))
    with pytest.raises(SettingsError, match="one judges a reply, and the other compares loglikelihoods"):
        scorer.requests(presented, "Q", delimiter=" ", generate=GENERATE)


def test_scorers_that_show_different_things_are_named() -> None:
    scorer = scorer_of({"one": {"score": "letter"}, "two": {"score": {"letter": {"labels": "digit"}}}})
    presented = scorer.present(a_sample("x", ["x", "y"]))
    with pytest.raises(SettingsError, match="shows different lettered_choices from one"):
        scorer.variables(presented)


def test_two_scorers_of_one_kind_can_show_the_same() -> None:
    scorer = scorer_of({"one": {"score": "letter"}, "two": {"filters": ["last_line"], "score": "letter"}})
    presented = scorer.present(a_sample("x", ["x", "y"]))
    assert presented.labels == ("A", "B")
    assert "lettered_choices" in scorer.variables(presented)


def test_a_sample_that_one_of_them_cannot_use_is_refused_by_its_name() -> None:
    scorer = scorer_of({"one": {"score": "exact"}, "two": {"score": "number"}})
    with pytest.raises(ValueError, match=r"^the scorer two: target 'none' has no number to compare with$"):
        scorer.present(a_sample("none"))


def test_one_that_cannot_judge_leaves_the_sample_unscored() -> None:
    slow = {"filters": [{"regex": {"pattern": "(?:a|aa)+[bc]$", "timeout_s": 0.05}}], "score": "exact"}
    score = judge(scorer_of({"one": {"score": "exact"}, "two": slow}), "a", "a" * 200)
    assert score.status == "unscored"
    where = "score.several.scorers.two.filters.0.regex"
    assert score.reason == f"two: {where}: the search took longer than its timeout_s"


def test_each_scorer_reduces_its_own_epochs() -> None:
    """As lm-eval's gsm8k-cot-self-consistency: score-first, maj@64, maj@8."""
    parts = {
        "score-first": {**FLEXIBLE, "reduce": "first"},
        "maj@2": {**FLEXIBLE, "reduce": "mode@2"},
        "maj": {**FLEXIBLE, "reduce": "mode"},
        "strict": STRICT,
    }
    scorer = scorer_of(parts, epochs={"count": 5, "reduce": "mean"})
    score = judge(scorer, "18", "17", "18", "18", "18 #### 18", "16")
    assert (score.status, score.answer) == ("wrong", "17")
    assert score.values["maj@2.accuracy"] == 0.0
    assert score.values["maj.accuracy"] == 1.0
    assert score.values["strict.accuracy"] == pytest.approx(1 / 5)
    assert "strict.accuracy" in scorer.metrics


@pytest.mark.parametrize(
    ("part", "epochs", "message", "keys"),
    [
        ({"score": "exact", "reduce": "mode"}, None, "found it in a suite without epochs", ("reduce",)),
        ({"score": "exact", "reduce": "pass@4"}, 3, "'pass@4' needs 4 replies, and .* 3 times", ("reduce",)),
        ({"score": {"pattern": {"pattern": "("}}}, None, "not a regular expression", ("score",)),
        ({"score": "perplexity"}, None, "give it its own suite", ("score",)),
        ({"score": "exact", "filters": [{"regex": "("}]}, None, "not a regular", ("filters", 0, "regex")),
        ({"score": {"json": {"schema": {"type": "x"}}}}, None, "'x' is not valid", ("score", "json", "schema", "type")),
    ],
)
def test_a_part_that_cannot_be_used_is_named_with_its_place(
    part: dict[str, Any], epochs: int | None, message: str, keys: tuple[str | int, ...]
) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        scorer_of({"one": {"score": "exact"}, "two": part}, epochs=epochs)
    assert caught.value.keys == ("score", "several", "scorers", "two", *keys)


def test_it_travels_to_workers() -> None:
    scorer = scorer_of(BOTH, filters=["strip"], epochs=3)
    copy = pickle.loads(pickle.dumps(scorer))
    assert copy == scorer
    assert copy.present(a_sample("1")) == scorer.present(a_sample("1"))


def test_a_scorer_that_names_no_metrics_leaves_the_others_theirs() -> None:
    settings = _SCORE.validate_python({"several": {"scorers": {"mine": {"score": "exact"}, "b": {"score": "bleu"}}}})
    mine = settings.scorers["mine"].model_copy(update={"score": CustomSettings(name="mine", settings={})})
    for scorers in (
        {"mine": mine, "b": settings.scorers["b"]},
        {"b": settings.scorers["b"], "mine": mine},
    ):
        scorer = suite_scorer(settings.model_copy(update={"scorers": scorers}), {"mine": lambda reply: len(reply)})
        scores = [judge(scorer, "one two", reply) for reply in ("one two", "two")]
        names = expanded(scorer.metrics, scores)
        first, second = scorers
        bleu = make_scorer(BleuSettings()).metrics
        own = {"mine": ["score"], "b": list(bleu)}
        assert list(names) == [*own[first], *(f"{second}.{name}" for name in own[second])]
        assert all(metric.n == 2 for metric in summarize(scores, names).values())


def test_pass_at_k_of_another_scorer_is_no_accuracy() -> None:
    parts = {"strict": STRICT, "flexible": {**FLEXIBLE, "reduce": ["pass@1"]}}
    score = judge(scorer_of(parts, epochs=2), "1", "1", "#### 1")
    assert score.values == {"accuracy": 0.5, "flexible.pass@1": 1.0, "flexible.no_answer": 0.0}
