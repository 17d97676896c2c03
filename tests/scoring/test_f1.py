"""SQuAD's and DROP's exact match and F1, against the published scripts' own lines, which lm-eval carries too."""

from __future__ import annotations

import importlib.util
import re
import string
from collections import Counter
from functools import cache
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


@cache
def script_in_lm_eval(task: str) -> Any:
    """A copy of a script in a task of lm-eval: a module that does not import lm-eval."""
    found = importlib.util.find_spec("lm_eval")
    if found is None or found.origin is None:
        pytest.skip("lm_eval is not installed: pip install 'lm_eval[hf]==0.4.13'")
    path = Path(found.origin).parent / "tasks" / task / "utils.py"
    spec = importlib.util.spec_from_file_location("script_in_lm_eval", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_values_are_those_of_the_script_in_lm_eval() -> None:
    script = script_in_lm_eval("afrobench/afriqa/prompt_2")
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


DROP_WORDS = st.sampled_from(
    [
        "the",
        "The",
        "a",
        "12",
        "12.0",
        "1,000",
        "1000",
        "-5",
        "3.5",
        "twelve",
        "first-half",
        "Ann's",
        "25%",
        "nan",
        "1e3",
        "é",
    ]
)
DROP_TEXTS = st.lists(DROP_WORDS, max_size=5).map(" ".join) | st.text(max_size=8).filter(lambda text: "\n" not in text)


@given(DROP_TEXTS, st.lists(st.lists(DROP_TEXTS, min_size=1, max_size=3), min_size=1, max_size=3))
def test_values_by_the_rule_of_drop_are_those_of_its_script(reply: str, answers: list[list[str]]) -> None:
    """lm-eval leaves out answers that begin with nothing; a suite does not have them."""
    answers = [[spans[0] if spans[0].strip() else "x", *spans[1:]] for spans in answers]
    score = judge_reply(F1Settings(rule="drop"), ["\n".join(spans) for spans in answers], reply)
    expected = script_in_lm_eval("drop").process_results({"answers": list(map(tuple, answers))}, [reply])
    assert score.values == {"accuracy": expected["em"], "f1": pytest.approx(expected["f1"], abs=1e-12)}


@pytest.mark.parametrize(
    ("reply", "target", "accuracy", "f1"),
    [
        ("12 games", "12", 0, 0.67),
        ("12.0", "12", 1, 1),
        ("13 games", "12 games", 0, 0),  # without its number, the rest counts for nothing
        ("first half", "the first-half", 1, 1),
        ("Bears", "Bears\nGiants", 0, 0.5),
        ("Bears, Giants", "Bears\nGiants", 0, 0.33),
        ("1000", "1,000", 1, 1),
        ("4", ["3", "4"], 1, 1),
    ],
)
def test_the_rule_of_drop(reply: str, target: str | list[str], accuracy: float, f1: float) -> None:
    score = judge_reply(F1Settings(rule="drop"), target, reply)
    assert score.values == {"accuracy": accuracy, "f1": f1}


def test_the_metrics() -> None:
    scorer = make_scorer(F1Settings())
    scores = [judge_reply(F1Settings(), "the cat", reply) for reply in ("A cat", "a cat sat", "")]
    found = summarize(scores, scorer.metrics)
    assert list(found) == ["accuracy", "f1", "no_answer"]
    assert found["accuracy"].kind == "proportion"
    assert found["f1"].value == pytest.approx((1 + 2 / 3) / 3)
    assert found["f1"].kind == "mean"
    assert found["no_answer"].value == 1
