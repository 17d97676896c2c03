"""Similarity: the cosine of the embeddings of a reply and of its targets, and what comes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.evaluation.pipeline import suite_scorer
from pytest_llmeval.models.base import Failed
from pytest_llmeval.scorers.similarity import SimilaritySettings
from pytest_llmeval.types import EmbeddingResponse, GenerateResponse, LoglikelihoodResponse, Response, Score
from tests.scoring.helpers import a_sample
from tests.scoring.judge.helpers import Embedder, check_refused, drive, no_embedder, scripted
from tests.suites.conftest import (
    Load,
    load,  # noqa: F401  # a fixture
)

VECTORS: Mapping[str, Sequence[float]] = {
    "reply": (1.0, 0.0),
    "near": (4.0, 3.0),
    "far": (0.0, 2.0),
    "opposite": (-3.0, 0.0),
    "nothing": (0.0, 0.0),
}


def similarity(
    target: Any = "near", text: str = "reply", embedder: Embedder = VECTORS.__getitem__, least: float | None = None
) -> Score:
    """The score of a reply."""
    scorer = suite_scorer(SimilaritySettings.model_validate({} if least is None else {"pass": least}))
    presented = scorer.present(a_sample(target, question="Q"))
    return drive(scorer.asking(presented, [GenerateResponse(text=text)]), scripted("no judge"), embedder)[0]


@pytest.mark.parametrize(
    ("target", "least", "status", "values"),
    [
        ("near", None, "scored", {"similarity": 0.8}),
        (["far", "near", "opposite"], None, "scored", {"similarity": 0.8}),
        ("opposite", None, "scored", {"similarity": -1.0}),
        (["nothing", "far"], None, "scored", {"similarity": 0.0}),
        ("near", 0.8, "correct", {"accuracy": 1.0, "similarity": 0.8}),
        ("near", 0.801, "wrong", {"accuracy": 0.0, "similarity": 0.8}),
        ("reply", 1, "correct", {"accuracy": 1.0, "similarity": 1.0}),
        ("far", 0, "correct", {"accuracy": 1.0, "similarity": 0.0}),
    ],
)
def test_by_hand(target: Any, least: float | None, status: str, values: Mapping[str, float]) -> None:
    score = similarity(target, least=least)
    assert score.status == status
    assert dict(score.values) == pytest.approx(values)
    assert score.answer == "reply"
    assert not score.no_answer


def test_the_record_has_the_cosine_with_each_target() -> None:
    details: Any = similarity(["far", "near"]).details
    assert [shown["asked"] for shown in details["verdicts"]] == ["embeddings"]
    assert details["verdicts"][0]["value"] == [
        {"target": "far", "cosine": 0.0},
        {"target": "near", "cosine": pytest.approx(0.8)},
    ]


_VECTOR = st.lists(st.floats(-100, 100), min_size=3, max_size=3).filter(lambda vector: max(map(abs, vector)) > 1e-3)


@given(reply=_VECTOR, targets=st.lists(_VECTOR, min_size=1, max_size=4))
def test_it_is_the_largest_cosine_that_numpy_finds(reply: list[float], targets: list[list[float]]) -> None:
    vectors = {"reply": reply, **{f"t{place}": target for place, target in enumerate(targets)}}
    found = similarity([f"t{place}" for place in range(len(targets))], embedder=vectors.__getitem__)
    expected = max(
        float(numpy.dot(reply, target) / (numpy.linalg.norm(reply) * numpy.linalg.norm(target))) for target in targets
    )
    assert found.values["similarity"] == pytest.approx(expected, abs=1e-9)


@given(vector=_VECTOR)
def test_a_reply_that_is_the_target_reaches_any_pass(vector: list[float]) -> None:
    assert similarity("reply", embedder=lambda _: vector, least=1.0).status == "correct"


@pytest.mark.parametrize("text", ["", " \n"])
@pytest.mark.parametrize(("least", "status"), [(None, "scored"), (-0.5, "wrong")])
def test_an_empty_reply_is_no_answer_and_nobody_is_asked(text: str, least: float | None, status: str) -> None:
    score = similarity(text=text, embedder=no_embedder, least=least)
    assert (score.status, score.no_answer, score.values["similarity"]) == (status, True, 0.0)
    assert score.values.get("accuracy") == (None if least is None else 0.0)


@pytest.mark.parametrize(("target", "text"), [("near", "nothing"), (["nothing", "nothing"], "reply")])
def test_a_vector_without_direction_is_not_measurable(target: Any, text: str) -> None:
    score = similarity(target, text, least=0.5)
    assert (score.status, dict(score.values)) == ("scored", {})
    assert dict(score.not_measurable) == dict.fromkeys(("accuracy", "similarity"), "an embedding is the zero vector")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (RequestError("it was refused\nand more"), "it was refused"),
        (LoglikelihoodResponse(loglikelihood=-1.0, num_tokens=1), "found a LoglikelihoodResponse, expected an embed"),
        (EmbeddingResponse(vector=(1.0,)), "found vectors of 1 and of 2 numbers, expected vectors of one length"),
    ],
)
@pytest.mark.parametrize("least", [None, 0.5])
def test_what_is_no_embedding_is_no_number(answer: Response | Failed, problem: str, least: float | None) -> None:
    score = similarity(["far", "near"], embedder=lambda text: answer if text == "near" else VECTORS[text], least=least)
    assert (score.status, dict(score.values)) == ("unscored", {})
    assert score.reason is not None
    assert score.reason.startswith(f"no embedding: the embedder: {problem}")


def test_it_describes_itself() -> None:
    plain, judging = suite_scorer(SimilaritySettings()), suite_scorer(SimilaritySettings.model_validate({"pass": 0.8}))
    assert (plain.metrics, judging.metrics) == (
        ("similarity", "no_answer"),
        ("accuracy", "similarity", "no_answer"),
    )
    assert (plain.tells_right_from_wrong, judging.tells_right_from_wrong) == (False, True)
    assert plain.roles == judging.roles == {"embedder"}
    with pytest.raises(ModelError, match="the scorer asks the embedder, and there is none"):
        plain.score(plain.present(a_sample("near")), [GenerateResponse(text="reply")])


_SUITE = "suite: s\nsamples: [{question: q, target: %s}]\nscore: {similarity: %s}\n"


@pytest.mark.parametrize(
    ("settings", "target", "words"),
    [
        ("{pass: 1.5}", "a", ["score.similarity.pass", "1.5", "expected a number of at most 1"]),
        ("{pass: -1}", "a", ["score.similarity.pass", "-1", "expected a number above -1"]),
        ("{pass: high}", "a", ["score.similarity.pass", "high", "number"]),
        ("{pass: .nan}", "a", ["score.similarity.pass", "number"]),
        ("{pas: 0.8}", "a", ["unknown key 'pas' in score.similarity; did you mean 'pass'?"]),
        ("{}", "null", ["has no target"]),
        ("{}", "[a, '']", ["the target '' has no text"]),
        ("{}", "[]", ["the target is an empty list"]),
    ],
)
def test_what_a_suite_cannot_say(load: Load, settings: str, target: str, words: list[str]) -> None:  # noqa: F811
    check_refused(lambda text: Evaluation(load(text)).fingerprints(), _SUITE % (target, settings), words)


def test_no_cosine_is_out_of_bounds() -> None:
    tiny = (1e-200, math.pi * 1e-200)
    assert similarity(embedder=lambda _: tiny).values["similarity"] <= 1
