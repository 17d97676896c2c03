"""Options that are equally likely: what a tie is, what it is worth, and how it is counted."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytest_llmeval.scorers.choice import ChoiceMetric, ChoiceNormalize, ChoiceScorer, ChoiceSettings
from pytest_llmeval.scoring.metrics.summary import summarize
from pytest_llmeval.scoring.option_scores import TIE_TOLERANCE, Normalize
from pytest_llmeval.types import Score
from tests.scoring.helpers import a_sample, judge_loglikelihoods

NORMALIZATIONS: tuple[Normalize, ...] = ("token", "sum", "char", "byte")


def judge(
    values: list[float],
    target: Any,
    *,
    choices: list[str] | None = None,
    num_tokens: list[int] | None = None,
    normalize: ChoiceNormalize = "sum",
    ties: Literal["share", "first"] = "share",
    metrics: tuple[ChoiceMetric, ...] = (),
    id: str = "q1",
) -> Score:
    count = len(values) // (2 if normalize == "pmi" else 1)
    sample = a_sample(target, choices or [f"option {index}" for index in range(count)], id=id)
    scorer = ChoiceScorer(ChoiceSettings(normalize=normalize, ties=ties, metrics=metrics))
    return judge_loglikelihoods(scorer, sample, values, num_tokens or [1] * len(values))


@pytest.mark.parametrize("right", range(4))
def test_who_gives_all_options_the_same_has_the_accuracy_of_guessing(right: int) -> None:
    score = judge([-2.5] * 4, right)
    assert (score.status, score.answer) == ("scored", "option 0 | option 1 | option 2 | option 3 (tie)")
    assert (score.values["accuracy"], score.values["skill"], score.values["ties"]) == (0.25, 0.0, 1.0)
    assert {score.values[f"accuracy_{name}"] for name in NORMALIZATIONS} == {0.25}
    firsts = {score.values[f"{name}_first"] for name in ("accuracy", *(f"accuracy_{n}" for n in NORMALIZATIONS))}
    assert firsts == {float(right == 0)}
    assert score.details["tied"] == [0, 1, 2, 3]


@given(
    st.lists(st.sampled_from([-1.0, -2.0, -3.0]), min_size=2, max_size=6),
    st.data(),
)
def test_the_credit_is_what_breaking_ties_at_random_gives_on_average(values: list[float], data: st.DataObject) -> None:
    """Over all orders of the options, numpy's argmax (the first of equals) is right this often."""
    right = set(data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=len(values) - 1, unique=True)))
    hits = [order[int(np.argmax([values[i] for i in order]))] in right for order in permutations(range(len(values)))]
    score = judge(values, sorted(right))
    assert score.values["accuracy"] == pytest.approx(np.mean(hits))
    assert score.values["accuracy_first"] == float(int(np.argmax(values)) in right)
    assert score.values["ties"] == float(np.sum(np.array(values) == max(values)) > 1)


@pytest.mark.parametrize(
    ("target", "status", "credit"), [([0, 1], "correct", 1.0), ([0, 2], "scored", 0.5), (2, "wrong", 0.0)]
)
def test_a_tie_of_right_ones_is_right_and_one_of_wrong_ones_wrong(target: Any, status: str, credit: float) -> None:
    score = judge([-1.0, -1.0, -2.0], target)
    assert (score.status, score.values["accuracy"], score.values["ties"]) == (status, credit, 1.0)


def test_first_is_lm_evals_rule() -> None:
    found = [judge([-1.0, -1.0, -2.0], target, ties="first") for target in (0, 1)]
    assert [score.status for score in found] == ["correct", "wrong"]
    assert [score.answer for score in found] == ["option 0", "option 0"]
    assert [score.values["accuracy"] for score in found] == [1.0, 0.0]
    assert [score.values["accuracy_sum"] for score in found] == [0.5, 0.5], "a name means one thing in all suites"
    assert [score.values["ties"] for score in found] == [1.0, 1.0], "a tie is counted all the same"


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_a_model_that_knows_no_difference_ties_whatever_the_options_lengths(normalize: Normalize) -> None:
    """Every token has the logprob -ln(50257), summed as float32 does it."""
    choices = ["a", "bbb", "c" * 7, "d" * 13]
    lengths = {"sum": [3, 3, 3, 3]}.get(normalize, [len(choice) for choice in choices])
    token = np.float32(-math.log(50257))
    sums = [float(np.cumsum(np.full(length, token, dtype=np.float32))[-1]) for length in lengths]
    score = judge(sums, 2, choices=choices, num_tokens=lengths, normalize=normalize)
    assert (score.values["accuracy"], score.values["ties"]) == (0.25, 1.0)


def test_a_prompt_that_changes_nothing_ties_by_pmi() -> None:
    given = [-80.123456, -3.0, -41.7]
    noisy = [value * (1 + 2e-7) for value in given]
    score = judge([*given, *noisy], 1, normalize="pmi")
    assert [score.values["accuracy"], score.values["accuracy_pmi"]] == pytest.approx([1 / 3, 1 / 3])


def test_what_lies_further_apart_than_the_tolerance_is_no_tie() -> None:
    near, far = -10 * (1 + TIE_TOLERANCE * 0.9), -10 * (1 + TIE_TOLERANCE * 1.2)
    assert judge([-10.0, near], 0).values["ties"] == 1.0
    assert judge([-10.0, far], 0).values["ties"] == 0.0
    assert judge([-10.0, -math.inf], 0).values["ties"] == 0.0


def test_equal_texts_tie_whatever_engine_noise_lies_between_them() -> None:
    """Rows of one batch can differ by far more than a tie may: an engine that computes a text once sees none of it."""
    score = judge([-7.0, -7.01, -9.0], 1, choices=["Paris", "Paris", "Rome"])
    assert (score.values["accuracy"], score.details["tied"]) == (0.5, [0, 1])
    assert score.details["loglikelihoods"] == [-7.0, -7.0, -9.0]


def test_ties_are_counted_and_the_mean_of_credits_has_students_interval() -> None:
    scores = [judge([-1.0, -1.0], 0), judge([-1.0, -2.0], 0), judge([-2.0, -1.0], 0), judge([-1.0, -2.0], 0)]
    found = summarize(scores, ["accuracy", "accuracy_first", "ties"])
    assert (found["ties"].value, found["ties"].n, found["ties"].kind) == (1.0, 4, "count")
    assert (found["accuracy"].value, found["accuracy"].kind) == (0.625, "mean")
    low, high = stats.t.interval(0.95, 3, loc=0.625, scale=stats.sem([0.5, 1, 0, 1]))
    assert [found["accuracy"].ci_low, found["accuracy"].ci_high] == pytest.approx([max(0, low), min(1, high)])
    assert (found["accuracy_first"].value, found["accuracy_first"].kind) == (0.75, "proportion")


def test_only_ties_has_an_interval_with_a_width_and_within_its_limits() -> None:
    found = summarize([judge([-1.0] * 4, 0, id=f"q{number}") for number in range(30)], ["accuracy", "accuracy_char"])
    for metric in found.values():
        assert metric.value == 0.25
        assert metric.ci_low is not None
        assert metric.ci_high is not None
        assert 0 <= metric.ci_low < 0.25 < metric.ci_high <= 1


def test_a_tied_class_is_drawn_so_that_no_place_among_the_options_is_preferred() -> None:
    samples = [judge([-1.0] * 4, 0, metrics=("f1_micro",), id=f"q{number}") for number in range(2000)]
    counts = np.bincount([int(score.values["predicted"]) for score in samples], minlength=4)
    assert stats.chisquare(counts).pvalue > 1e-3
    again = judge([-1.0] * 4, 0, metrics=("f1_micro",), id="q7")
    assert again.values["predicted"] == samples[7].values["predicted"]
    assert judge([-1.0] * 4, 0, metrics=("f1_micro",), id="q7", ties="first").values["predicted"] == 0.0
