"""SQuAD's exact match and F1, against the published script's own lines, which lm-eval carries too."""

from __future__ import annotations

import importlib.util
import re
import string
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.evaluation.pipeline import make_scorer
from pytest_llmeval.scorers.f1 import F1Settings
from pytest_llmeval.scoring.metrics.summary import summarize
from tests.scoring.helpers import judge_reply

WORDS = st.sampled_from(
    ["the", "The", "a", "an", "Ann", "cat", "cats", "Cat.", "U.S.", "--", "\N{EM DASH}", "ée", "a-b"]
)
TEXTS = st.lists(WORDS, max_size=6).map(" ".join) | st.text(max_size=12)


# Definitions of evaluate-v1.1.py, the script of the Stanford Question Answering Dataset


def normalize_answer(s: str) -> str:
    lowered = s.lower()
    exclude = set(string.punctuation)
    without_punctuation = "".join(ch for ch in lowered if ch not in exclude)
    without_articles = re.sub(r"\b(a|an|the)\b", " ", without_punctuation)
    return " ".join(without_articles.split())


def f1_score(prediction: str, ground_truth: str) -> float:
    prediction_tokens = normalize_answer(prediction).split()
    ground_truth_tokens = normalize_answer(ground_truth).split()
    common = Counter(prediction_tokens) & Counter(ground_truth_tokens)
    num_same = sum(common.values())
    if num_same == 0:
        return 0
    precision = 1.0 * num_same / len(prediction_tokens)
    recall = 1.0 * num_same / len(ground_truth_tokens)
    return (2 * precision * recall) / (precision + recall)


@given(TEXTS, st.lists(TEXTS.filter(normalize_answer), min_size=1, max_size=3))
def test_values_are_those_of_squads_script(reply: str, references: list[str]) -> None:
    score = judge_reply(F1Settings(), references, reply)
    exact = max(normalize_answer(reply) == normalize_answer(reference) for reference in references)
    assert score.values == {
        "accuracy": float(exact),
        "f1": max(f1_score(reply, reference) for reference in references),
    }
    assert score.status == ("correct" if exact else "wrong")


def script_in_lm_eval() -> Any:
    """The copy of the script in lm-eval's task AfriQA: a module that imports the standard library alone."""
    found = importlib.util.find_spec("lm_eval")
    if found is None or found.origin is None:
        pytest.skip("lm_eval is not installed: pip install 'lm_eval[hf]==0.4.13'")
    path = Path(found.origin).parent / "tasks" / "afrobench" / "afriqa" / "prompt_2" / "utils.py"
    spec = importlib.util.spec_from_file_location("squad_script_in_lm_eval", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_values_are_those_of_the_script_in_lm_eval() -> None:
    script = script_in_lm_eval()
    pairs = [
        ("The Eiffel Tower, in Paris!", "eiffel tower"),
        ("paris paris paris", "Paris, the Paris of France"),
        ("", "nothing"),
        ("Über-Straße", "über straße"),
        ("42", "42."),
    ]
    scores = [judge_reply(F1Settings(), reference, reply) for reply, reference in pairs]
    assert summarize(scores, ["f1"])["f1"].value == pytest.approx(
        script.f1([(reference, reply) for reply, reference in pairs]), rel=1e-15
    )
    for score, (reply, reference) in zip(scores, pairs, strict=True):
        assert score.values["f1"] == script.f1([(reference, reply)])
        assert score.values["accuracy"] == (script.normalize_answer(reply) == script.normalize_answer(reference))


def test_exact_match_decides() -> None:
    near = judge_reply(F1Settings(), ["Denver Broncos", "the Broncos"], "The Denver Broncos won")
    assert (near.status, near.answer) == ("wrong", "The Denver Broncos won")
    assert near.values["f1"] == pytest.approx(0.8)
    assert judge_reply(F1Settings(), ["Denver Broncos", "the Broncos"], " Broncos.\n").status == "correct"


def test_an_empty_reply_is_no_answer() -> None:
    score = judge_reply(F1Settings(), "Paris", "  \n")
    assert (score.status, score.answer, score.no_answer) == ("wrong", None, True)
    assert score.values == {"accuracy": 0.0, "f1": 0.0}
    expected = judge_reply(F1Settings(), ["", "none"], "")
    assert (expected.status, expected.no_answer, expected.values["f1"]) == ("correct", False, 1.0)


@pytest.mark.parametrize(
    ("reference", "reply", "f1"),
    [
        ("A", "A", 1),
        ("A", "a", 1),
        ("A", "'A.'", 1),
        ("A", "A B", 2 / 3),
        ("A", "the", 0),
        ("A", "An", 0),
        ("A", "", 0),
        ("A", "!", 0),
        ("The The", "the the", 1),
        ("The The", "The", 2 / 3),
        ("#", "#", 1),
        ("#", "# a", 2 / 3),
        ("#", "!!!", 0),
        ("#", "the", 0),
        ("#", "", 0),
        (["A", "Paris"], "", 0),
        (["A", "Paris"], "Paris", 1),
        ("", "", 1),
        ("", "the", 1),
        ("", "Paris", 0),
    ],
)
def test_a_reference_of_which_normalisation_leaves_nothing_is_compared_as_it_is_written(
    reference: str | list[str], reply: str, f1: float
) -> None:
    score = judge_reply(F1Settings(), reference, reply)
    assert score.values == {"accuracy": float(f1 == 1), "f1": pytest.approx(f1)}
    assert score.status == ("correct" if f1 == 1 else "wrong")


@given(TEXTS)
def test_a_reference_is_right_and_nothing_is_not(reference: str) -> None:
    score = judge_reply(F1Settings(), reference, reference)
    assert score.values == {"accuracy": 1.0, "f1": 1.0}
    assert (judge_reply(F1Settings(), reference, "").status == "correct") == (not reference.split())


def test_the_metrics() -> None:
    scorer = make_scorer(F1Settings())
    scores = [judge_reply(F1Settings(), "the cat", reply) for reply in ("A cat", "a cat sat", "")]
    found = summarize(scores, scorer.metrics)
    assert list(found) == ["accuracy", "f1", "no_answer"]
    assert found["accuracy"].kind == "proportion"
    assert found["f1"].value == pytest.approx((1 + 2 / 3) / 3)
    assert found["f1"].kind == "mean"
    assert found["no_answer"].value == 1
