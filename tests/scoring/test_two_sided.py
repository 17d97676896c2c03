"""The two-sided p-values of two models' metrics: of other implementations, and of the gates."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytest_llmeval.scoring import paired_metrics
from pytest_llmeval.scoring.model_differences import compare
from pytest_llmeval.scoring.paired_metrics import PairingError, pair_metric, two_sided_p
from pytest_llmeval.scoring.statistics.paired_tests import PairedValues
from pytest_llmeval.types import Score

Scores = dict[str, Score]

PAIRS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=10)
SIDES = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=200)


def p_of(
    name: str,
    first: Scores,
    second: Scores,
    clusters: Mapping[str, str | None] | None = None,
    *,
    higher_is_better: bool = True,
) -> float | None:
    found = compare(first, second, [name], clusters)
    return two_sided_p(name, first, second, found[name], clusters, higher_is_better=higher_is_better)


def scored(values: Sequence[float], name: str = "f1") -> Scores:
    return {f"q{place}": Score(status="scored", values={name: value}) for place, value in enumerate(values)}


def answered(values: Sequence[bool]) -> Scores:
    return {
        f"q{place}": Score(status="correct" if right else "wrong", values={"accuracy": float(right)})
        for place, right in enumerate(values)
    }


def brute_force(differences: Sequence[float], clusters: Sequence[str] | None = None) -> float:
    """The share of all assignments of signs, one to each cluster, whose sum is as far from 0 as what was seen."""
    names = [str(place) for place in range(len(differences))] if clusters is None else clusters
    sums = {name: math.fsum(d for d, own in zip(differences, names, strict=True) if own == name) for name in names}
    seen = abs(math.fsum(differences))
    signs = list(itertools.product((-1, 1), repeat=len(sums)))
    reached = [abs(math.fsum(s * d for s, d in zip(own, sums.values(), strict=True))) >= seen - 1e-9 for own in signs]
    return sum(reached) / len(signs)


@given(SIDES)
def test_of_right_and_wrong_answers_it_is_that_of_scipy(pairs: list[tuple[bool, bool]]) -> None:
    first, second = answered([one for one, _ in pairs]), answered([other for _, other in pairs])
    gained, lost = (sum(pair == flip for pair in pairs) for flip in ((False, True), (True, False)))
    expected = stats.binomtest(gained, gained + lost, 0.5).pvalue if gained + lost else 1.0
    assert p_of("accuracy", first, second) == pytest.approx(expected, rel=1e-9)


@given(PAIRS)
def test_of_means_it_is_that_of_all_signs(pairs: list[tuple[int, int]]) -> None:
    first, second = scored([one / 7 for one, _ in pairs]), scored([other / 7 for _, other in pairs])
    expected = brute_force([(other - one) / 7 for one, other in pairs])
    assert p_of("f1", first, second) == pytest.approx(expected, rel=1e-9)
    assert p_of("f1", second, first) == p_of("f1", first, second)


@given(PAIRS.flatmap(lambda pairs: st.tuples(st.just(pairs), st.lists(st.sampled_from("abcde"), min_size=len(pairs)))))
def test_a_cluster_has_one_sign(drawn: tuple[list[tuple[int, int]], list[str]]) -> None:
    pairs, names = drawn
    names = names[: len(pairs)]
    first, second = scored([one / 8 for one, _ in pairs]), scored([other / 8 for _, other in pairs])
    clusters: dict[str, str | None] = {f"q{place}": name for place, name in enumerate(names)}
    expected = brute_force([(other - one) / 8 for one, other in pairs], names)
    assert p_of("f1", first, second, clusters) == pytest.approx(expected, rel=1e-9)
    rights = answered([one > 4 for one, _ in pairs]), answered([other > 4 for _, other in pairs])
    flips = brute_force([float(other > 4) - float(one > 4) for one, other in pairs], names)
    assert p_of("accuracy", *rights, clusters) == pytest.approx(flips, rel=1e-9)


def many(seed: int, shift: float = 0.0) -> Scores:
    draw = random.Random(seed)
    found = {}
    for place in range(300):
        values = {"f1": draw.random() * 0.9 + shift, "loglikelihood": -20 * draw.random() - shift, "words": 5.0}
        values |= {"confidence": draw.random(), "accuracy": float(draw.random() < 0.6)}
        status = "correct" if values["accuracy"] else "wrong"
        found[f"q{place}"] = Score(status=status, values=values)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("name", ["accuracy", "f1", "word_perplexity", "ece"])
@pytest.mark.parametrize("size", [0, 6], ids=["independent", "clustered"])
@pytest.mark.parametrize("is_higher", [True, False], ids=["higher", "lower"])
def test_it_is_of_the_test_that_a_gate_makes(name: str, size: int, is_higher: bool) -> None:
    first, second = many(1), many(2, shift=0.02)
    clusters: dict[str, str | None] | None = (
        {f"q{place}": f"c{place // size}" for place in range(300)} if size else None
    )
    gate = pair_metric(name, first, second, higher_is_better=is_higher, clusters=clusters).paired.test(2000)
    p = p_of(name, first, second, clusters, higher_is_better=is_higher)
    assert p == min(1.0, 2 * min(gate.p_drop, gate.p_improved))
    turned = dict(reversed(first.items())), dict(reversed(second.items()))
    assert p_of(name, *turned, clusters, higher_is_better=is_higher) == p, "the order of samples draws no other signs"
    assert p_of(name, second, first, clusters, higher_is_better=is_higher) == p


def test_of_many_samples_it_is_near_that_of_the_t_test() -> None:
    """Of hundreds of samples whose differences have no heavy tails, the two are the same but for the draws."""
    first, second = many(1), many(2, shift=0.03)
    sides = [[score.values["f1"] for score in scores.values()] for scores in (first, second)]
    expected = float(stats.ttest_rel(*sides).pvalue)
    assert 0.01 < expected < 0.6
    assert p_of("f1", first, second) == pytest.approx(expected, abs=4 * math.sqrt(expected / 2000))


def test_samples_without_a_value_of_one_model_are_left_out() -> None:
    first, second = scored([0.1, 0.5, 0.3, 0.9]), scored([0.2, 0.7, 0.6])
    second["q3"] = Score(status="unscored", reason="no")
    second["q4"] = Score(status="scored", values={"f1": 1.0})
    assert p_of("f1", first, second) == 0.25


def classified(seed: int, *, num_classes: int = 3) -> Scores:
    draw = random.Random(seed)
    labels = [(float(place % num_classes), float(draw.randrange(num_classes))) for place in range(60)]
    return {
        f"q{place}": Score(status="scored", values={"gold": gold, "predicted": predicted, "f1": gold})
        for place, (gold, predicted) in enumerate(labels)
    }


@pytest.mark.parametrize("name", ["mcc", "f1_macro"])
def test_of_many_samples_and_classes_there_is_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 samples of 3 classes have 60 * 9 numbers to sum, those of 4 have 60 * 12."""
    monkeypatch.setattr(paired_metrics, "_MAX_SUMMED", 540)
    assert p_of(name, classified(1), classified(2)) is not None
    many_classes = classified(1, num_classes=4), classified(2, num_classes=4)
    assert p_of(name, *many_classes) is None
    assert pair_metric(name, *many_classes, higher_is_better=True).paired.test(100).p_two_sided > 0, "a gate has it"
    assert p_of("f1", *many_classes) == 1.0
    monkeypatch.setattr(paired_metrics, "_MAX_SUMMED", 1)
    assert p_of("f1", scored([0.1, 0.5]), scored([0.2, 0.7])) == 0.5
    assert p_of("word_perplexity", many(1), many(2)) is not None


def test_columns_are_counted_in_samples_of_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where samples lie in the order of their classes, the first few show one class."""
    monkeypatch.setattr(paired_metrics, "_MAX_ROWS_READ", 10)
    monkeypatch.setattr(paired_metrics, "_MAX_SUMMED", 60 * 3 * 3)
    values = [{"gold": float(place // 6), "predicted": float(place // 6)} for place in range(60)]
    right = {f"q{place}": Score(status="scored", values=own) for place, own in enumerate(values)}
    wrong = right | {"q0": Score(status="scored", values={"gold": 0.0, "predicted": 1.0})}
    assert p_of("mcc", wrong, right) is None


@pytest.mark.parametrize("name", ["ece", "f1"])
def test_where_no_sample_has_a_finite_value_there_is_no_p(name: str) -> None:
    (found,) = compare(many(1), many(2), [name]).values()
    assert two_sided_p(name, scored([math.nan]), scored([0.2]), found) is None


def test_of_a_metric_of_all_samples_that_has_no_value_there_is_no_p() -> None:
    """``f1_binary`` has none where classes are others than 0 and 1."""
    scores = classified(1)
    (found,) = compare(scores, scores, ["mcc"]).values()
    with pytest.raises(PairingError):
        pair_metric("f1_binary", scores, scores, higher_is_better=True)
    assert two_sided_p("f1_binary", scores, scores, found) is None


def test_of_numbers_too_large_to_be_summed_there_is_no_p() -> None:
    (found,) = compare(many(1), many(2), ["f1"]).values()
    clusters: dict[str, str | None] = {"q0": "a", "q1": "a", "q2": "b"}
    scores = scored([0.0] * 3), scored([1.5e308] * 3)
    with pytest.raises(OverflowError):
        PairedValues(first=[0.0] * 3, second=[1.5e308] * 3, clusters=["a", "a", "b"]).test(100)
    assert two_sided_p("f1", *scores, found, clusters) is None
