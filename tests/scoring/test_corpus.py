"""Corpus metrics in general: names with a prefix, bootstraps, what cannot be computed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytest_llmeval.scoring.metrics.corpus import CORPUS, corpus_formula, corpus_value
from pytest_llmeval.scoring.metrics.definitions import METRICS, definition, is_known, shown_order, split_name
from pytest_llmeval.scoring.metrics.summary import names_in, summarize
from pytest_llmeval.scoring.model_differences import compare
from pytest_llmeval.scoring.statistics.intervals import bootstrap_of_sums
from pytest_llmeval.types import Score
from tests.scoring.expected_intervals import of_mean

FAMILIES = ("bleu_3", "sentence_bleu_12", "rouge_2", "pass@10", "pass^4")
PREFIXES = ("strict.", "flexible.", "a.b.")


def scored(**values: float) -> Score:
    return Score(status="scored", values=values)


# Names


@given(st.sampled_from([name for name in [*METRICS, *FAMILIES] if "." not in name]), st.sampled_from(["", *PREFIXES]))
def test_a_prefix_keeps_the_definition(base: str, prefix: str) -> None:
    found = definition(prefix + base)
    assert found.name == prefix + base
    if prefix and base in ("correct", "total"):
        assert (found.kind, is_known(prefix + base)) == ("mean", False), "they count what the deciding scorer says"
        return
    assert is_known(prefix + base)
    assert split_name(prefix + base) == (prefix, base)
    assert (found.kind, found.higher_is_better) == (definition(base).kind, definition(base).higher_is_better)


@pytest.mark.parametrize(
    "name", ["rating", "bleu_0", "bleu_", "bleu_4x", "xbleu_4", ".accuracy", "v1.5", "pass@0", "pass@k", "flexible."]
)
def test_other_names_are_a_users(name: str) -> None:
    assert not is_known(name)
    assert (definition(name).kind, definition(name).higher_is_better) == ("mean", None)
    assert split_name(name) == ("", name)


def test_a_number_in_a_name_is_in_its_description() -> None:
    assert "up to 3 words" in definition("bleu_3").description
    assert "one of 10 replies" in definition("pass@10").description
    assert (definition("pass^4").lowest, definition("pass^4").highest) == (0, 1)


def test_every_formula_has_a_definition_and_the_other_way_round() -> None:
    defined = {name for name, metric in METRICS.items() if metric.kind == "corpus"}
    assert {name for name in (*METRICS, *FAMILIES) if corpus_formula(name) is not None} == {*defined, "bleu_3"}
    assert set(CORPUS) <= defined


def test_names_are_shown_known_ones_first_then_prefixed_ones_then_a_users() -> None:
    names = [
        "zeal",
        "strict.f1",
        "bleu_10",
        "bleu_2",
        "flexible.no_answer",
        "flexible.accuracy",
        "f1",
        "accuracy",
        "age",
    ]
    expected = ["accuracy", "f1", "bleu_2", "bleu_10", "flexible.accuracy", "flexible.no_answer", "strict.f1", "age"]
    assert sorted(names, key=shown_order) == [*expected, "zeal"]
    assert names_in([scored(**dict.fromkeys(names, 1.0))]) == (*expected, "zeal")


# Metrics of one scorer of several


def several(number: int) -> Score:
    right = number % 3 == 0
    values = {
        "accuracy": float(number % 2 == 0),
        "flexible.accuracy": float(right),
        "flexible.skill": 1.0 if right else -1 / 3,
        "flexible.no_answer": float(number == 1),
        "flexible.gold": float(right),
        "flexible.predicted": float(number % 2),
        "flexible.loglikelihood": -float(number + 1),
        "flexible.words": 2.0,
        "flexible.f1": number / 10,
    }
    return Score(status="correct" if number % 2 == 0 else "wrong", values=values, chance=0.25)


def unprefixed(score: Score) -> Score:
    values = {
        name.removeprefix("flexible."): value for name, value in score.values.items() if name.startswith("flexible.")
    }
    status = "correct" if values["accuracy"] else "wrong"
    return Score(status=status, values=values, chance=score.chance, no_answer=bool(values["no_answer"]))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["accuracy", "no_answer", "mcc", "f1_macro", "word_perplexity", "f1"])
def test_a_metric_with_a_prefix_is_the_metric_of_its_own_values(name: str) -> None:
    scores = [several(number) for number in range(10)]
    found = summarize(scores, [f"flexible.{name}"])[f"flexible.{name}"]
    assert found == summarize([unprefixed(score) for score in scores], [name])[name]
    assert found.value is not None
    ids = [str(number) for number in range(10)]
    before = dict(zip(ids, scores, strict=True))
    after = dict(zip(ids, reversed(scores), strict=True))
    prefixed = compare(before, after, [f"flexible.{name}"]).get(f"flexible.{name}")
    plain = compare(
        {key: unprefixed(score) for key, score in before.items()},
        {key: unprefixed(score) for key, score in after.items()},
        [name],
    ).get(name)
    assert prefixed == plain
    assert (prefixed is None) == (name == "no_answer")


def test_a_prefixed_total_of_a_user_is_no_count() -> None:
    found = summarize([scored(**{"train.total": 3.0}), scored(**{"train.total": 4.0})], ["train.total"])["train.total"]
    assert (found.value, found.kind) == (3.5, "mean")


# What cannot be computed


def test_without_ingredients_there_is_no_value() -> None:
    metric = summarize([Score(status="correct", values={"accuracy": 1.0})], ["mcc", "bleu_4"])
    assert {(found.value, found.n, found.kind) for found in metric.values()} == {(None, 0, "corpus")}


def test_a_users_value_under_the_name_of_a_corpus_metric_is_averaged() -> None:
    metric = summarize([scored(mcc=0.5), scored(mcc=0.7)], ["mcc"])["mcc"]
    assert metric.value == pytest.approx(0.6)
    assert metric.kind == "mean"


def test_another_name_is_no_corpus_metric() -> None:
    with pytest.raises(ValueError, match="accuracy is not a corpus metric"):
        corpus_value("accuracy", [])


# The bootstrap


def test_a_bootstrap_of_a_mean_is_near_its_standard_error() -> None:
    values = [float(value) for value in np.random.default_rng(4).exponential(2.0, 300)]
    by_sums = bootstrap_of_sums([(value, 1.0) for value in values], lambda total: total[0] / total[1])
    assert by_sums is not None
    assert by_sums.stderr == pytest.approx(stats.sem(values), rel=0.1)
    expected = stats.bootstrap([values], np.mean, n_resamples=5000, method="percentile", random_state=4)
    interval = tuple(expected.confidence_interval)
    assert (by_sums.low, by_sums.high) == pytest.approx(interval, abs=0.3 * expected.standard_error)


def test_a_bootstrap_is_the_same_each_time_and_another_seed_is_another_one() -> None:
    rows = [(float(number % 7), 1.0) for number in range(50)]

    def share(total: Sequence[float]) -> float:
        return total[0] / total[1]

    assert bootstrap_of_sums(rows, share) == bootstrap_of_sums(rows, share)
    assert bootstrap_of_sums(rows, share) != bootstrap_of_sums(rows, share, seed=5)


def test_resamples_without_a_value_are_left_out_while_they_are_few() -> None:
    rows = [(0.0,)] * 30 + [(1.0,)] * 4
    found = bootstrap_of_sums(rows, lambda total: total[0] or None)
    assert found is not None
    assert found.low >= 1
    assert bootstrap_of_sums([(0.0,)] * 30 + [(1.0,)], lambda total: total[0] or None) is None
    assert bootstrap_of_sums([(1.0,)], lambda total: total[0]) is None
    assert bootstrap_of_sums([], lambda total: 1.0) is None


def test_many_samples_are_resampled_in_bounded_memory() -> None:
    rows = [(float(number % 2), 1.0) for number in range(200_000)]
    found = bootstrap_of_sums(rows, lambda total: total[0] / total[1], num_resamples=100)
    assert found is not None
    assert found.stderr == pytest.approx(0.5 / math.sqrt(200_000), rel=0.3)


def test_the_skill_of_another_scorer_knows_nothing_of_the_deciding_ones_chance() -> None:
    scores = [several(number) for number in range(10)]
    found = summarize(scores, ["flexible.skill"])["flexible.skill"]
    values = [score.values["flexible.skill"] for score in scores]
    assert (found.ci_low, found.ci_high) == pytest.approx(of_mean(values))


def test_what_metrics_are_made_of_is_none_of_their_names() -> None:
    made_of = {
        **dict.fromkeys(("bleu_length", "bleu_smoothing", "bleu_matches_4", "chrf_pp_beta", "ter_edits"), 1.0),
        "loglikelihood": -1.0,
        "words": 1.0,
        "gold": 1.0,
        "predicted": 0.0,
        "sentence_bleu_4": 5.0,
        "zeal": 2.0,
    }
    assert names_in([scored(**made_of)]) == ("sentence_bleu_4", "zeal")
    assert names_in([scored(**{f"b.{name}": value for name, value in made_of.items()})]) == (
        "b.sentence_bleu_4",
        "b.zeal",
    )
    assert names_in([scored(words=1.0, confidence=0.5)]) == ("confidence", "words")
