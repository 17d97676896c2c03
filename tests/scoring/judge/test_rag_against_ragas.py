"""``score: rag`` against ragas' own functions (0.4.3, Apache-2.0) on the same verdicts and the same vectors.

ragas is no dependency of the tests: where it is not installed, they are skipped. Its prompts are not compared.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.evaluation.pipeline import suite_scorer
from pytest_llmeval.scorers.rag import RagSettings
from pytest_llmeval.types import GenerateRequest, GenerateResponse, Score
from tests.plugin.judge_for_tests import form_of
from tests.scoring.helpers import a_sample
from tests.scoring.judge.helpers import drive

pytestmark = pytest.mark.slow

faithfulness: Any = pytest.importorskip("ragas.metrics._faithfulness", exc_type=ImportError)
recall: Any = pytest.importorskip("ragas.metrics._context_recall", exc_type=ImportError)
precision: Any = pytest.importorskip("ragas.metrics._context_precision", exc_type=ImportError)
relevance: Any = pytest.importorskip("ragas.metrics._answer_relevance", exc_type=ImportError)

VERDICTS = st.lists(st.booleans(), min_size=1, max_size=10)
VECTOR = st.lists(st.integers(-9, 9), min_size=3, max_size=3).filter(any)


def ours(verdicts: Sequence[bool], *metrics: str, vectors: Sequence[Sequence[float]] = (), **settings: Any) -> Score:
    """The judge says these one after the other; the vectors are those of the question and of what it asks."""
    left, given_vectors = list(verdicts), iter(vectors)

    def judge(request: GenerateRequest) -> str:
        system = next(turn.content for turn in request.prompt if not isinstance(turn, str))
        form = form_of(system)
        if "claims" in form:
            return json.dumps({"claims": [f"claim {number}" for number in range(len(verdicts))]})
        if "claim_1" in form:
            said = [{"reason": "", "supported": one} for one in verdicts]
            return json.dumps(dict(zip(form, said, strict=True)))
        if "sentences" in form:
            said = [{"sentence": "s", "reason": "", "attributed": one} for one in verdicts]
            return json.dumps({"sentences": said})
        if "noncommittal" in form:
            return json.dumps({"question": f"q{request.epoch}", "noncommittal": verdicts[request.epoch]})
        if "question_1" in form:
            return json.dumps({name: name for name in form})
        return json.dumps({"reason": "", next(name for name in form if name != "reason"): left.pop(0)})

    scorer = suite_scorer(RagSettings.model_validate({"metrics": list(metrics), **settings}))
    sample = a_sample("reference", question="q", variables={"contexts": ["chunk"] * len(verdicts)})
    asking = scorer.asking(scorer.present(sample), [GenerateResponse(text="answer")])
    return drive(asking, judge, lambda _: [float(x) for x in next(given_vectors)])[0]


@given(verdicts=VERDICTS)
def test_faithfulness(verdicts: list[bool]) -> None:
    statements = [
        faithfulness.StatementFaithfulnessAnswer(statement="s", reason="r", verdict=int(one)) for one in verdicts
    ]
    theirs = faithfulness.Faithfulness()._compute_score(faithfulness.NLIStatementOutput(statements=statements))
    assert ours(verdicts, "faithfulness").values["faithfulness"] == theirs
    assert ours(verdicts, "faithfulness_ragas").values["faithfulness_ragas"] == theirs


@given(verdicts=VERDICTS)
def test_context_recall(verdicts: list[bool]) -> None:
    found = [recall.ContextRecallClassification(statement="s", reason="r", attributed=int(one)) for one in verdicts]
    theirs = recall.LLMContextRecall()._compute_score(found)
    assert ours(verdicts, "context_recall").values["context_recall"] == theirs
    assert ours(verdicts, "context_recall_ragas").values["context_recall_ragas"] == theirs


@given(verdicts=VERDICTS)
def test_context_precision(verdicts: list[bool]) -> None:
    """But for the 1e-10 that ragas adds to the divisor."""
    found = [precision.Verification(reason="r", verdict=int(one)) for one in verdicts]
    theirs = precision.LLMContextPrecisionWithReference()._calculate_average_precision(found)
    assert ours(verdicts, "context_precision").values["context_precision"] == pytest.approx(theirs, abs=1e-9)


class Vectors:
    """Embeddings as ragas asks for them."""

    def __init__(self, vectors: Sequence[Sequence[float]]) -> None:
        self.first, *self.others = vectors

    def embed_query(self, _: str) -> Sequence[float]:
        return self.first

    def embed_documents(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        assert len(texts) == len(self.others)
        return self.others


@given(said=st.lists(st.tuples(st.booleans(), VECTOR), min_size=1, max_size=5), question=VECTOR)
def test_answer_relevance(said: list[tuple[bool, list[float]]], question: list[float]) -> None:
    verdicts, vectors = [one for one, _ in said], [question, *(vector for _, vector in said)]
    metric = relevance.ResponseRelevancy(embeddings=Vectors(vectors))

    def theirs(noncommittal: Sequence[bool]) -> float:
        answers = [
            relevance.ResponseRelevanceOutput(question=f"q{number}", noncommittal=int(one))
            for number, one in enumerate(noncommittal)
        ]
        return float(metric._calculate_score(answers, {"user_input": "q"}))

    score = ours(verdicts, "answer_relevance_ragas", vectors=vectors, questions=len(verdicts))
    assert score.values["answer_relevance_ragas"] == pytest.approx(theirs(verdicts), abs=1e-12)
    score = ours(verdicts, "answer_relevance", vectors=vectors, questions=len(verdicts))
    assert score.values["answer_relevance"] == pytest.approx(theirs([False] * len(verdicts)), abs=1e-12)
    assert numpy.isfinite(theirs(verdicts))
