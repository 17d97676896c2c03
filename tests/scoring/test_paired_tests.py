from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.multitest import multipletests

from pytest_llmeval.scoring.metrics.corpus import POOLED, corpus_formula, pooled
from pytest_llmeval.scoring.paired_metrics import PairingError, pair_metric
from pytest_llmeval.scoring.statistics.null_distributions import (
    NullDistribution,
    exchanged_sums,
    flipped_sums,
    swapped_values,
)
from pytest_llmeval.scoring.statistics.paired_tests import (
    PairedSums,
    PairedTest,
    PairedValues,
    draws_for,
    holm,
    mcnemar,
    row_by_row,
    run_family,
)
from pytest_llmeval.types import Score
from tests.properties import examples

COUNTS = st.integers(0, 400)
ANSWERS = st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), min_size=1, max_size=60)
VALUES = st.lists(st.tuples(st.floats(-100, 100), st.floats(-100, 100)), min_size=1, max_size=40)
DRAWS = 400


def values(pairs: Sequence[tuple[float, float]], *, clusters: Sequence[int] | None = None) -> PairedValues:
    return PairedValues(first=[one for one, _ in pairs], second=[other for _, other in pairs], clusters=clusters)


def test_mcnemar_as_published() -> None:
    """Approval of a prime minister, asked of 1,600 voters twice (A. Agresti, Categorical Data Analysis, 2nd ed., 2002,
    table 10.1): 794 and 570 did not change, 150 turned away and 86 turned to. z there is 4.17, without an exact p.
    """
    found = mcnemar(150, 86)
    first, second = [1.0] * 944 + [0.0] * 656, [1.0] * 794 + [0.0] * 150 + [1.0] * 86 + [0.0] * 570
    assert PairedValues(first=first, second=second).test(DRAWS) == found
    assert found.p_drop == pytest.approx(stats.binomtest(150, 236, 0.5, alternative="greater").pvalue, rel=1e-12)
    assert found.p_drop == pytest.approx(stats.norm.sf(4.17), rel=0.3)  # normal, without continuity correction
    assert (found.method, found.num_draws) == ("mcnemar", None)
    assert found.p_improved > 0.9999


@given(COUNTS, COUNTS)
def test_mcnemar_is_a_binomial_test(worse: int, better: int) -> None:
    found = mcnemar(worse, better)
    flipped = worse + better
    expected = [
        stats.binomtest(count, flipped, 0.5, alternative="greater").pvalue if flipped else 1.0
        for count in (worse, better)
    ]
    assert [found.p_drop, found.p_improved] == pytest.approx(expected, rel=1e-9)
    two_sided = statsmodels_mcnemar([[0, worse], [better, 0]], exact=True).pvalue
    assert min(1.0, 2 * min(found.p_drop, found.p_improved)) == pytest.approx(two_sided, rel=1e-9)


@pytest.mark.parametrize(("worse", "better", "bound"), [(7, 5, 0.0), (7, 5, 2.0), (3, 4, 1.5), (0, 0, 0.0), (2, 0, 5)])
def test_a_false_alarm_is_a_net_loss_beyond_the_margin(worse: int, better: int, bound: float) -> None:
    flips = list(itertools.product([-1, 1], repeat=worse + better))
    expected = sum(-sum(signs) > bound for signs in flips) / len(flips)
    assert mcnemar(worse, better, bound=bound).false_alarm_rate == pytest.approx(expected, rel=1e-9)


def test_counts_are_counts() -> None:
    with pytest.raises(ValueError, match="no counts"):
        mcnemar(-1, 2)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(st.integers(-40, 40), st.integers(-40, 40)), min_size=2, max_size=9))
def test_sign_flip_is_exact_for_few(pairs: list[tuple[int, int]]) -> None:
    found = values([(one / 7, other / 7) for one, other in pairs]).test(DRAWS)
    _agrees_with_scipy(found, [(other - one) / 7 for one, other in pairs])
    if any(one != other for one, other in pairs):
        assert found.num_draws is None


def test_few_values_of_any_size_are_enumerated() -> None:
    differences = [0.31, -1.7, math.pi, 0.02, -0.4, 2.2, 0.9, -3.3, 1.234, 0.0, 5.5]
    found = values([(0.0, difference) for difference in differences]).test(DRAWS)
    assert (found.method, found.num_draws) == ("sign-flip", None)
    _agrees_with_scipy(found, differences)


def _agrees_with_scipy(found: PairedTest, differences: Sequence[float]) -> None:
    for alternative, p in (("less", found.p_drop), ("greater", found.p_improved)):
        expected = stats.permutation_test(
            (np.array(differences),), np.sum, permutation_type="samples", alternative=alternative, n_resamples=np.inf
        )
        assert p == pytest.approx(expected.pvalue, rel=1e-9)


def test_draws_are_near_the_exact_distribution() -> None:
    random = np.random.default_rng(3)
    differences = random.normal(-0.25, 1, size=40)
    found = values([(0.0, difference) for difference in differences.tolist()]).test(40_000)
    expected = stats.permutation_test(
        (differences,), np.sum, permutation_type="samples", alternative="less", n_resamples=40_000, rng=random
    )
    assert found.num_draws == 40_000
    assert found.p_drop == pytest.approx(expected.pvalue, abs=4 * math.sqrt(2 * 0.25 / 40_000))
    assert found.p_drop + found.p_improved == pytest.approx(1, abs=0.02)


def test_steps_are_exact_where_draws_are_near() -> None:
    """Right and wrong by cluster, and averages over epochs: their sums are whole numbers of one step."""
    random = np.random.default_rng(4)
    sizes = random.integers(1, 6, size=60) / 3
    exact, drawn = flipped_sums(sizes, 100), flipped_sums(sizes + random.random(60) * 1e-6, 100_000)
    assert (exact.num_draws, drawn.num_draws) == (None, 100_000)
    assert exact.weights is not None
    assert exact.weights.sum() == pytest.approx(1, abs=1e-12)
    for bound in (-10.0, -1.0, 0.0, 3.0, 12.0):
        assert exact.share_beyond(bound + 0.01) == pytest.approx(drawn.share_beyond(bound + 0.01), abs=0.008)
    assert exact.values @ exact.weights == pytest.approx(0, abs=1e-9)
    assert exact.values**2 @ exact.weights == pytest.approx((sizes**2).sum(), rel=1e-9)


def test_suites_of_one_size_are_not_off_by_the_same_amount() -> None:
    """With one seed for all, the draws of similar suites would be the same, and so would be their error."""
    random = np.random.default_rng(8)
    one, other = (np.abs(random.normal(size=400)) for _ in range(2))
    signs = [flipped_sums(sizes, 2000).values for sizes in (one, other)]
    runs = [exchanged_sums([np.stack([sizes, 2 * sizes, 0 * sizes], axis=1)], 2000).values for sizes in (one, other)]
    swaps = [
        swapped_values(sizes[:, None], 0 * sizes[:, None], lambda a, b: (a - b)[:, 0], 5000).values
        for sizes in (one, other)
    ]
    for first, second in (signs, runs, swaps):
        assert abs(np.corrcoef(first, second)[0, 1]) < 0.1


def test_ties_count_whatever_the_rounding() -> None:
    """0.1 + 0.2 is not 0.3 as a float: a flip of all is as large as what was seen."""
    differences = [-0.1, -0.2, 0.3, -0.7, -0.1, -0.2]
    found = values([(0.0, difference) for difference in differences]).test(DRAWS)
    exact = [round(10 * difference) for difference in differences]
    count = sum(
        sum(sign * abs(one) for sign, one in zip(signs, exact, strict=True)) <= sum(exact)
        for signs in itertools.product([-1, 1], repeat=6)
    )
    assert found.p_drop == pytest.approx(count / 64, rel=1e-12)


def test_zeros_are_dropped() -> None:
    some = [(0.0, 0.31), (2.0, 1.1), (0.5, 0.2)]
    assert values(some).test(DRAWS) == values([*some, (0.7, 0.7), (0.1, 0.1)]).test(DRAWS)


def test_partly_right_is_no_mcnemar() -> None:
    """Two epochs of one sample, one of them right: its value is a half."""
    assert values([(1.0, 0.5), (1.0, 1.0)]).test(DRAWS).method == "sign-flip"
    assert values([(1.0, 0.0), (1.0, 1.0)]).test(DRAWS).method == "mcnemar"


@settings(deadline=None)
@given(ANSWERS)
def test_mcnemar_is_the_sign_flip_of_right_and_wrong(pairs: list[tuple[float, float]]) -> None:
    scaled = values([(2 * one, 2 * other) for one, other in pairs]).test(DRAWS)
    found = values(pairs).test(DRAWS)
    assert scaled.p_drop == pytest.approx(found.p_drop, rel=1e-9)
    assert scaled.p_improved == pytest.approx(found.p_improved, rel=1e-9)
    assert scaled.false_alarm_rate == pytest.approx(found.false_alarm_rate, rel=1e-9, abs=1e-15)


@settings(deadline=None)
@given(st.one_of(ANSWERS, VALUES), st.randoms(use_true_random=False), st.booleans())
def test_order_and_sides(pairs: list[tuple[float, float]], random: object, is_clustered: bool) -> None:
    clusters = [place // 3 for place in range(len(pairs))] if is_clustered else None
    found = values(pairs, clusters=clusters).test(DRAWS)
    places = list(range(len(pairs)))
    random.shuffle(places)  # type: ignore[attr-defined]
    own = None if clusters is None else [clusters[place] for place in places]
    assert values([pairs[place] for place in places], clusters=own).test(DRAWS) == found
    swapped = values([(other, one) for one, other in pairs], clusters=clusters).test(DRAWS)
    assert (swapped.p_drop, swapped.p_improved) == (found.p_improved, found.p_drop)
    assert 0 < found.p_drop <= 1
    lower = PairedValues(
        first=[one for one, _ in pairs],
        second=[other for _, other in pairs],
        clusters=clusters,
        higher_is_better=False,
    )
    assert lower.test(DRAWS).p_drop == found.p_improved


@settings(deadline=None)
@given(st.one_of(ANSWERS, VALUES))
@example([(0.0, 1.0), (0.0, 2.5e-291)])  # beside the largest difference the other is none
def test_clusters_of_one_are_no_clusters(pairs: list[tuple[float, float]]) -> None:
    assert values(pairs, clusters=list(range(len(pairs)))).test(DRAWS) == values(pairs).test(DRAWS)


def test_of_all_assignments_what_was_seen_is_one() -> None:
    """Summed in another order it can lie a digit above all of them."""
    null = NullDistribution(np.array([1.0, -1.0]), None, None, 0.0)
    assert null.p_at_least(math.nextafter(1.0, 2.0)) == 0.5


def test_a_cluster_has_one_sign() -> None:
    pairs = [(0.0, 1.0), (1.0, 0.0), (1.0, 0.0), (1.0, 0.0), (1.0, 0.0), (1.0, 1.0)]
    found = values(pairs, clusters=[0, 0, 1, 1, 2, 2]).test(DRAWS)
    _agrees_with_scipy(found, [0.0, -2.0, -1.0])
    assert found.method == "sign-flip"


def test_many_samples_are_drawn_in_bounded_memory() -> None:
    """The signs of 14,042 samples in 8,000 draws, held at once, would be 900 MB."""
    gains = np.random.default_rng(5).normal(size=14_042).tolist()
    paired = values([(0.0, gain) for gain in gains])
    paired.test(1)
    tracemalloc.start()
    found = paired.test(draws_for(20, 0.05))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.num_draws == 8000
    assert peak < 100e6


GRADES = st.sampled_from([0.0, 1.0]) | st.sampled_from([0.0, 0.25, 1 / 3, 1.0]) | st.floats(-3, 3)


@st.composite
def several_runs(draw: st.DrawFn) -> tuple[list[list[float | None]], list[int]]:
    """Two to five runs, of which the first and the last have all samples, and a cluster for each sample."""
    grades = draw(st.sampled_from([st.sampled_from([0.0, 1.0]), GRADES]))
    number = draw(st.integers(1, 6))
    complete: st.SearchStrategy[list[float | None]] = st.lists(grades, min_size=number, max_size=number)
    with_gaps = st.lists(st.none() | grades, min_size=number, max_size=number)
    runs = [draw(complete), *draw(st.lists(with_gaps, min_size=1, max_size=3)), draw(complete)]
    return runs, draw(st.lists(st.integers(0, 5), min_size=number, max_size=number))


def exchanged_p(runs: Sequence[Sequence[float | None]], clusters: Sequence[int], *, sign: int) -> float:
    """How likely so small a sum of differences from the means is (times ``sign``), if of each cluster any run that all
    of its samples have could have been the last one. All ways are tried, each from the values themselves.
    """

    def difference(place: int, last: int) -> float:
        own = [run[place] for run in runs]
        own[last], own[-1] = own[-1], own[last]
        *earlier, now = [value for value in own if value is not None]
        return now - math.fsum(earlier) / len(earlier)

    names = sorted(set(clusters))
    members = {name: [place for place, own in enumerate(clusters) if own == name] for name in names}
    shared = [
        [last for last, run in enumerate(runs) if None not in (run[one] for one in members[name])] for name in names
    ]
    observed = sign * math.fsum(difference(place, len(runs) - 1) for place in range(len(clusters)))
    sums = [
        sign * math.fsum(difference(one, last) for name, last in zip(names, way, strict=True) for one in members[name])
        for way in itertools.product(*shared)
    ]
    return sum(one <= observed + 1e-9 for one in sums) / len(sums)


@settings(max_examples=examples(150), deadline=None)
@given(several_runs(), st.booleans(), st.booleans())
def test_against_a_mean_p_is_also_that_of_exchanging_runs(
    drawn: tuple[list[list[float | None]], list[int]], is_clustered: bool, higher_is_better: bool
) -> None:
    (*runs, last), clusters = drawn
    now = [value for value in last if value is not None]
    own = [[value for value in column if value is not None] for column in zip(*runs, strict=True)]
    paired = PairedValues(
        first=[math.fsum(values) / len(values) for values in own],
        second=now,
        clusters=clusters if is_clustered else None,
        higher_is_better=higher_is_better,
    )
    signs, found = paired.test(DRAWS), replace(paired, runs=runs).test(DRAWS)
    each = clusters if is_clustered else list(range(len(now)))
    sign = 1 if higher_is_better else -1
    expected = [exchanged_p([*runs, last], each, sign=one) for one in (sign, -sign)]
    assert found.p_drop == pytest.approx(max(signs.p_drop, expected[0]), rel=1e-9)
    assert found.p_improved == pytest.approx(max(signs.p_improved, expected[1]), rel=1e-9)
    assert found.num_draws is None


def test_a_false_alarm_against_a_mean_is_a_drop_beyond_the_margin_by_signs_or_exchanged_runs() -> None:
    """Of one sample that was wrong twice, 0.5 is the mean of the others if this run is exchanged with one of these."""
    paired = PairedValues(first=[0.0], second=[1.0], runs=[[0.0], [0.0]])
    assert [replace(paired, margin=margin).test(DRAWS).false_alarm_rate for margin in (0.4, 0.6)] == [
        pytest.approx(2 / 3),
        0.5,
    ]


def test_a_model_that_changed_once_is_tested_by_signs() -> None:
    """Five runs gave the same answers. Of those that differ now, 8 became worse and 3 better, which says little."""
    old = [1.0] * 8 + [0.0] * 3 + [1.0] * 20
    paired = PairedValues(first=old, second=[0.0] * 8 + [1.0] * 3 + [1.0] * 20, runs=[old] * 5)
    assert paired.test(DRAWS).p_drop == mcnemar(8, 3).p_drop
    exchanged = exchanged_sums([np.array([[0.0, *[-1.2] * 5]] * 8 + [[0.0, *[1.2] * 5]] * 3)], DRAWS)
    assert exchanged.p_at_least(0.0) < mcnemar(8, 3).p_drop / 20


def tables(random: np.random.Generator, counts: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """Tables of so many rows and columns, of whole numbers and a 0 in each row."""
    return [np.append(random.integers(-6, 7, (rows, width - 1)), np.zeros((rows, 1)), axis=1) for rows, width in counts]


def test_picked_sums_are_the_same_by_convolution_and_by_draws() -> None:
    changes = tables(np.random.default_rng(3), [(40, 2), (30, 3), (20, 6)])
    weights = np.ones(1)
    lowest = 0
    for row in (row for own in changes for row in own.astype(int)):
        weights = np.convolve(weights, np.bincount(row - row.min()) / len(row))
        lowest += row.min()
    exact = {lowest + place: weight for place, weight in enumerate(weights)}
    found = exchanged_sums([own / 7 for own in changes], DRAWS)
    drawn = exchanged_sums(
        [own / 7 + 1e-7 * (own != 0) * np.arange(own.size).reshape(own.shape) for own in changes], 20_000
    )
    assert (found.num_draws, drawn.num_draws) == (None, 20_000)
    mean = sum(value * weight for value, weight in exact.items())
    for bound in (mean - 40, mean - 15, mean, mean + 15, mean + 40):
        expected = sum(weight for value, weight in exact.items() if value >= bound)
        assert found.p_at_least(bound / 7) == pytest.approx(expected, abs=1e-12)
        assert drawn.p_at_least(bound / 7) == pytest.approx(expected, abs=4 * (0.25 / 20_000) ** 0.5 + 1e-3)


def test_many_runs_of_many_samples_take_no_square_of_their_number() -> None:
    """Their sums span 100,000 steps; a convolution of two such tables would need ten thousand million products."""
    random = np.random.default_rng(5)
    changes = [np.where(random.random((50_000, 6)) < share, 1.2, 0.0) for share in (0.2, 0.5)]
    for own in changes:
        own[:, 0] = 0.0
    found = exchanged_sums(changes, DRAWS)
    assert found.num_draws is None
    assert found.weights is not None
    mean = sum(float(own.mean(axis=1).sum()) for own in changes)
    variance = sum(float(own.var(axis=1).sum()) for own in changes)
    assert found.weights.sum() == pytest.approx(1, abs=1e-9)
    assert found.p_at_least(mean + 2 * variance**0.5) == pytest.approx(stats.norm.sf(2), rel=0.02)


def test_swaps_of_a_mean_are_sign_flips() -> None:
    random = np.random.default_rng(6)
    table = random.normal(size=(2, 9)).tolist()
    means = PairedValues(first=table[0], second=table[1], margin=0.1)
    sums = PairedSums(
        first=[[value, 1.0] for value in table[0]],
        second=[[value, 1.0] for value in table[1]],
        values=lambda table: table[:, 0] / table[:, 1],
        margin=0.1,
    )
    one, other = means.test(DRAWS), sums.test(DRAWS)
    assert one.num_draws is other.num_draws is None
    for name in ("p_drop", "p_improved", "false_alarm_rate"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-9)


@pytest.mark.parametrize("num_samples", [8, 60])
def test_swaps_of_f1_are_those_of_its_formula(num_samples: int) -> None:
    """Against ``permutation_test`` of scipy over pairs, with F1 macro computed from the samples of each side."""
    formula = corpus_formula("f1_macro")
    assert formula is not None
    random = np.random.default_rng(7)
    gold = random.integers(3, size=num_samples)
    answers = [np.where(random.random(num_samples) < right, gold, 0) for right in (0.7, 0.4)]

    def samples(predicted: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[dict[str, float]]:
        return [{"gold": float(one), "predicted": float(other)} for one, other in zip(gold, predicted, strict=True)]

    sums = formula.sums([*samples(answers[0]), *samples(answers[1])])
    paired = PairedSums(first=sums.rows[:num_samples], second=sums.rows[num_samples:], values=row_by_row(sums.value))
    found = paired.test(4000)

    def drop(
        first: np.ndarray[tuple[int], np.dtype[np.int64]], second: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> float:
        before, after = formula.compute(samples(first)), formula.compute(samples(second))
        assert before is not None
        assert after is not None
        return before - after

    resamples = np.inf if num_samples < 10 else 4000
    expected = stats.permutation_test(
        (answers[0], answers[1]),
        drop,
        permutation_type="samples",
        alternative="greater",
        n_resamples=resamples,
        rng=random,
    )
    assert (found.num_draws is None) == (num_samples < 10)
    assert found.p_drop == pytest.approx(expected.pvalue, rel=1e-9 if num_samples < 10 else 0, abs=0.03)
    swapped = PairedSums(first=paired.second, second=paired.first, values=paired.values).test(4000)
    assert (swapped.p_drop, swapped.p_improved) == (found.p_improved, found.p_drop)
    order = random.permutation(num_samples)
    shuffled = PairedSums(
        first=[paired.first[place] for place in order],
        second=[paired.second[place] for place in order],
        values=paired.values,
    )
    assert shuffled.test(4000) == found


def test_a_metric_without_a_value_is_not_tested() -> None:
    with pytest.raises(ValueError, match="without a value"):
        PairedSums(first=[[1.0]], second=[[2.0]], values=row_by_row(lambda total: None)).test(DRAWS)


def test_a_swap_without_a_value_counts_against_significance() -> None:
    """Of two samples, exchanging one leaves a side without a positive sum: neither side's p is small for that."""
    rows = [[4.0], [-3.0]], [[3.0], [-2.0]]
    by_row = row_by_row(lambda total: math.log(total[0]) if total[0] > 0.5 else None)
    found = PairedSums(first=rows[0], second=rows[1], values=by_row).test(DRAWS)
    # Both sides sum to 1. Exchanged: (3 - 3, 4 - 2) and (4 - 2, 3 - 3): no value.
    assert (found.p_drop, found.p_improved) == (1.0, 1.0)


@pytest.mark.parametrize("name", POOLED)
@settings(max_examples=examples(40), deadline=None)
@given(
    rows=st.lists(
        st.tuples(*[st.tuples(st.floats(-1500, 10), st.integers(0, 5).map(float))] * 2), min_size=1, max_size=4
    )
)
@example(rows=[((9.0, 1.0), (9.0, 0.0)), ((0.0, 0.0), (0.0, 1.0))])  # exp(-9 / 0) is no 0
def test_pooled_metrics_of_many_sums_are_those_of_one(
    name: str, rows: list[tuple[tuple[float, float], tuple[float, float]]]
) -> None:
    """All tables at once, against ``pooled`` of each side of each exchange; also where exp is too large, or no unit."""
    unit = POOLED[name].unit

    def score(row: tuple[float, float]) -> Score:
        return Score(status="scored", values={"loglikelihood": row[0], unit: row[1]})

    sides = [{str(place): score(pair[side]) for place, pair in enumerate(rows)} for side in (0, 1)]
    try:
        paired = pair_metric(name, *sides, higher_is_better=False).paired
    except PairingError:
        reject()
    assert isinstance(paired, PairedSums)
    for signs in itertools.product([0, 1], repeat=len(rows)):
        chosen = [pair[sign] for pair, sign in zip(rows, signs, strict=True)]
        expected = pooled(name, [score(row).values for row in chosen]).value
        (found,) = paired.values(np.array([chosen]).sum(axis=1)).tolist()
        if expected is None:
            assert not math.isfinite(found)
        else:
            assert found == pytest.approx(expected, rel=1e-9)
    assert 0 < paired.test(DRAWS).p_drop <= 1


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1].tolist(), abs=1e-12)


def test_holm_as_published() -> None:
    """Three hypotheses with p 0.01, 0.03 and 0.04: only the first is rejected at 0.05, for 2 x 0.03 is above it."""
    assert holm([0.03, 0.01, 0.04]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([]) == []
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([math.nan])


def test_a_family_is_drawn_for_its_smallest_level() -> None:
    assert draws_for(20, 0.05) == 8000
    assert draws_for(1, 0.05) == 400
    random = np.random.default_rng(8)
    family = [values([(0.0, gain) for gain in random.normal(-shift, 1, size=30).tolist()]) for shift in (1.5, 0.0)]
    found = run_family(family, 0.05)
    assert [one.test.num_draws for one in found] == [800, 800]
    assert [one.p_drop for one in found] == holm([one.test.p_drop for one in found])
    assert [one.p_improved for one in found] == holm([one.test.p_improved for one in found])
    assert found[0].p_drop == pytest.approx(2 / 801)
