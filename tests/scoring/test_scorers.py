"""What holds for every scorer."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.errors import ModelError
from pytest_llmeval.evaluation.pipeline import make_scorer
from pytest_llmeval.scorers import ScoreSettings
from pytest_llmeval.scorers.choice import ChoiceSettings
from pytest_llmeval.scorers.contains import ContainsSettings
from pytest_llmeval.scorers.continuation import ContinuationSettings
from pytest_llmeval.scorers.exact import ExactSettings, Remove
from pytest_llmeval.scorers.f1 import F1Settings
from pytest_llmeval.scorers.letter import LetterSettings
from pytest_llmeval.scorers.mass import MassSettings
from pytest_llmeval.scorers.number import NumberSettings
from pytest_llmeval.scorers.pattern import PatternSettings
from pytest_llmeval.scorers.tool_calls import ToolCallsSettings
from pytest_llmeval.scorers.yes_no import YesNoSettings
from pytest_llmeval.scoring.metrics.definitions import METRICS
from pytest_llmeval.scoring.metrics.summary import summarize
from pytest_llmeval.scoring.regular_expressions import PythonRegex
from pytest_llmeval.scoring.score_checks import checked
from pytest_llmeval.types import GenerateRequest, GenerateResponse, LoglikelihoodResponse
from tests.scoring.helpers import GENERATE, a_sample, judge_reply

GENERATED: list[tuple[ScoreSettings, Any]] = [
    (LetterSettings(), 1),
    (LetterSettings(labels="lower"), 1),
    (LetterSettings(labels="digit"), 1),
    (YesNoSettings(), True),
    (NumberSettings(), 72),
    (ExactSettings(normalize=("unicode", "lower", "no_punctuation", "no_articles", "collapse_whitespace")), "Paris"),
    (PatternSettings(pattern=r"is (\w+)", match="last"), "Paris"),
    (F1Settings(), ["Paris", "in Paris"]),
    (F1Settings(rule="drop"), ["Paris", "Rome\nParis", "12"]),
    (ExactSettings(normalize=(Remove(remove=r"[,$]"), "no_digits"), allow_empty=True), "Paris"),
    (ContainsSettings(match="all", normalize=("lower", Remove(remove=r"\s+"))), ["Paris", "Rome"]),
    (ToolCallsSettings(), [{"f": {"a": 1}}]),
]
SCORED: list[tuple[ScoreSettings, Any]] = [
    (ChoiceSettings(), 1),
    (ChoiceSettings(normalize="pmi", metrics=("mcc", "greedy_match")), 1),
    (MassSettings(), 1),
    (ContinuationSettings(), "Paris"),
    (YesNoSettings(by="loglikelihood"), True),
]
CHOICES = ("Rome", "Paris")


def name(case: Any) -> str:
    return getattr(case, "kind", "")


@pytest.mark.parametrize(("settings", "target"), GENERATED + SCORED, ids=name)
def test_a_scorer_describes_itself(settings: ScoreSettings, target: Any) -> None:
    scorer = make_scorer(settings)
    assert scorer.name == settings.kind
    assert scorer.version >= 1
    assert set(scorer.metrics) <= set(METRICS)
    assert len(set(scorer.metrics)) == len(scorer.metrics)
    if settings.kind != "letter":
        assert scorer.default_template == "{{ question }}"
        assert scorer.variables(scorer.present(a_sample(target, CHOICES))) == {}


@pytest.mark.parametrize(("settings", "target"), GENERATED + SCORED, ids=name)
def test_scorers_and_what_they_present_travel_to_workers(settings: ScoreSettings, target: Any) -> None:
    scorer = make_scorer(settings)
    presented = scorer.present(a_sample(target, CHOICES))
    copy = pickle.loads(pickle.dumps(scorer))
    assert copy == scorer
    assert copy.present(a_sample(target, CHOICES)) == presented


@pytest.mark.parametrize(("settings", "target"), GENERATED, ids=name)
def test_generation_is_as_the_suite_says(settings: ScoreSettings, target: Any) -> None:
    scorer = make_scorer(settings)
    (request,) = scorer.requests(scorer.present(a_sample(target, CHOICES)), "Q", delimiter=" ", generate=GENERATE)
    assert request == GenerateRequest("Q", max_tokens=77, stop=("\n",), temperature=0.5, seed=3)


@pytest.mark.parametrize(("settings", "target"), GENERATED, ids=name)
@given(reply=st.text(st.characters(), max_size=200))
def test_any_reply_is_right_or_wrong(settings: ScoreSettings, target: Any, reply: str) -> None:
    score = judge_reply(settings, target, reply, choices=CHOICES)
    assert score.status in ("correct", "wrong")
    assert score.values["accuracy"] == float(score.status == "correct")
    assert score.no_answer == (score.answer is None)
    assert not (score.no_answer and score.status == "correct")
    assert checked(score, "it") == score
    summary = summarize([score], make_scorer(settings).metrics)
    assert all(metric.n == 1 for metric in summary.values())


PIECES = ["9", "1 ", "-", " ", "\x00", "\ud800", "A", "the ", "#### "]


@pytest.mark.parametrize(
    ("settings", "target", "piece"),
    [
        # By default each scorer and each piece thrice: a third of all pairs.
        pytest.param(*case, piece, marks=() if (row + column) % 3 == 0 else pytest.mark.slow)
        for row, case in enumerate(GENERATED)
        for column, piece in enumerate(PIECES)
    ],
    ids=name,
)
def test_a_reply_of_half_a_million_characters_is_judged(
    settings: ScoreSettings, target: Any, piece: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The limit is wall-clock time, of which a busy machine gives a test too little.
    monkeypatch.setitem(PythonRegex.of.__kwdefaults__ or {}, "timeout_s", 600.0)
    reply = piece * (500_000 // len(piece))
    assert judge_reply(settings, target, reply, choices=CHOICES).status in ("correct", "wrong")


@pytest.mark.parametrize(("settings", "target"), GENERATED, ids=name)
def test_a_model_that_does_not_answer_with_a_reply_is_named(settings: ScoreSettings, target: Any) -> None:
    scorer = make_scorer(settings)
    presented = scorer.present(a_sample(target, CHOICES))
    reply = GenerateResponse(text="x")
    for responses in ([], [reply, reply], [LoglikelihoodResponse(loglikelihood=-1.0, num_tokens=1)]):
        with pytest.raises(ModelError, match="expected one GenerateResponse from the model, found"):
            scorer.score(presented, responses)


@pytest.mark.parametrize(("settings", "target"), GENERATED + SCORED, ids=name)
def test_a_sample_without_a_target_is_refused(settings: ScoreSettings, target: Any) -> None:
    with pytest.raises(ValueError, match="has no target"):
        make_scorer(settings).present(a_sample(None, CHOICES))
