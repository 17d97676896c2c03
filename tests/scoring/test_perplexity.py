"""Perplexities: against lm-eval's aggregations, statsmodels' standard errors and scipy's bootstrap."""

from __future__ import annotations

import importlib.util
import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.regression.linear_model import WLS

from pytest_llmeval.errors import ModelError
from pytest_llmeval.reporting.storage.json_form import part_from_json
from pytest_llmeval.scorers.perplexity import PerplexityScorer, PerplexitySettings, count_words
from pytest_llmeval.scoring.base import PreparedSample
from pytest_llmeval.scoring.metrics.corpus import POOLED, pooled, pseudo_values
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.summary import Metric, by_category, names_in, summarize
from pytest_llmeval.scoring.model_differences import compare
from pytest_llmeval.scoring.statistics.clustered import mean_interval, standard_error
from pytest_llmeval.scoring.statistics.intervals import estimate_ratio, mean
from pytest_llmeval.types import (
    GenerateResponse,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    Message,
    Response,
    Score,
)
from tests.scoring.expected_intervals import of_mean, of_ratio
from tests.scoring.helpers import GENERATE, a_sample

NAMES = PerplexityScorer(PerplexitySettings()).metrics
needs_lm_eval = pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None, reason="lm_eval is not installed: pip install 'lm_eval[hf]==0.4.13'"
)


def scored(loglikelihood: float, words: int, num_bytes: int, tokens: int) -> Score:
    values = {"loglikelihood": loglikelihood, "words": words, "bytes": num_bytes, "tokens": tokens}
    return Score(status="scored", values={name: float(value) for name, value in values.items()})


TEXTS = st.builds(
    scored,
    st.integers(-4000, 0).map(lambda number: number / 8),
    st.integers(1, 50),
    st.integers(50, 500),
    st.integers(20, 200),
)
CORPUS = [scored(-10, 4, 21, 6), scored(-55.5, 17, 90, 26), scored(-3.25, 2, 9, 3), scored(-40, 11, 70, 19)]


# The scorer


def judge(text: str, response: Response) -> Score:
    scorer = PerplexityScorer(PerplexitySettings())
    return scorer.score(PreparedSample(sample=a_sample(), prompt=text), [response])


def test_a_text_is_asked_for_as_a_whole() -> None:
    for settings, stride in ((PerplexitySettings(), None), (PerplexitySettings(stride=64), 64)):
        scorer = PerplexityScorer(settings)
        presented = scorer.present(a_sample())
        requests = scorer.requests(presented, " a text\n", delimiter="; ", generate=GENERATE)
        assert requests == (LoglikelihoodRollingRequest(" a text\n", stride),)
        assert scorer.answer_text(presented) == presented.target == ""


def test_sums_of_a_text() -> None:
    score = judge("één  tekst\nhier", LoglikelihoodResponse(loglikelihood=-7.5, num_tokens=9))
    assert score == Score(
        status="scored", values={"loglikelihood": -7.5, "words": 3.0, "bytes": 17.0, "tokens": 9.0}, answer=None
    )


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (LoglikelihoodResponse(loglikelihood=0.0, num_tokens=0), "the model reports 0 tokens in the text"),
        (LoglikelihoodResponse(loglikelihood=-math.inf, num_tokens=3), "the loglikelihood of the text is -inf"),
        (LoglikelihoodResponse(loglikelihood=math.nan, num_tokens=3), "the loglikelihood of the text is nan"),
    ],
)
def test_what_has_no_perplexity_is_unscored(response: LoglikelihoodResponse, reason: str) -> None:
    score = judge("a text", response)
    assert (score.status, score.reason, score.values) == ("unscored", reason, {})


def test_an_empty_text_is_refused() -> None:
    scorer = PerplexityScorer(PerplexitySettings())
    with pytest.raises(ValueError, match=r"the text is empty: .*dataset\.where"):
        scorer.requests(scorer.present(a_sample()), "", delimiter=" ", generate=GENERATE)


def test_what_is_no_text_and_no_loglikelihood_is_refused() -> None:
    scorer = PerplexityScorer(PerplexitySettings())
    with pytest.raises(ValueError, match="turns of a chat"):
        scorer.requests(
            scorer.present(a_sample()), (Message(role="user", content="a"),), delimiter=" ", generate=GENERATE
        )
    with pytest.raises(ModelError, match="expected 1 LoglikelihoodResponse from the model, found GenerateResponse"):
        judge("a text", GenerateResponse(text="x"))


@needs_lm_eval
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@given(st.text(st.sampled_from("ab \n\té\u00a0\U0001f600"), max_size=30))
def test_words_and_bytes_are_those_of_lm_eval(text: str) -> None:
    from lm_eval.api.task import PerplexityTask, Task

    assert count_words(text) == Task.count_words(text) == PerplexityTask.count_words(text)
    if text:
        score = judge(text, LoglikelihoodResponse(loglikelihood=-1.0, num_tokens=1))
        assert score.values["bytes"] == Task.count_bytes(text)


# Pooled metrics


def test_by_hand() -> None:
    metrics = summarize([scored(-6, 2, 8, 3), scored(-2, 2, 8, 5)], NAMES)
    assert metrics["word_perplexity"].value == pytest.approx(math.exp(8 / 4))
    assert metrics["byte_perplexity"].value == pytest.approx(math.exp(8 / 16))
    assert metrics["bits_per_byte"].value == pytest.approx(8 / 16 / math.log(2))
    assert metrics["token_perplexity"].value == pytest.approx(math.exp(8 / 8))
    assert {(metric.n, metric.kind) for metric in metrics.values()} == {(2, "pooled")}
    assert [definition(name).higher_is_better for name in NAMES] == [False] * 4


@needs_lm_eval
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@given(st.lists(TEXTS, min_size=1, max_size=20))
def test_values_are_those_of_lm_eval(scores: list[Score]) -> None:
    from lm_eval.api.metrics import bits_per_byte, weighted_perplexity

    metrics = summarize(scores, NAMES)
    for name in NAMES:
        items = [(score.values["loglikelihood"], score.values[POOLED[name].unit]) for score in scores]
        aggregate = bits_per_byte if name == "bits_per_byte" else weighted_perplexity
        assert metrics[name].value == pytest.approx(aggregate(items), rel=1e-12), name


@given(st.lists(TEXTS, min_size=2, max_size=20).filter(lambda scores: len({str(s.values) for s in scores}) > 1))
def test_standard_errors_are_those_of_a_regression_in_statsmodels(scores: list[Score]) -> None:
    """Through the origin, weighted by 1 / tokens, robust (HC2)."""
    x = [-score.values["loglikelihood"] for score in scores]
    w = [score.values["tokens"] for score in scores]
    error, (low, high) = of_ratio(x, w)
    rate = sum(x) / sum(w)
    assert estimate_ratio(x, w).stderr == pytest.approx(error, rel=1e-6, abs=1e-12)
    metric = summarize(scores, ["token_perplexity"])["token_perplexity"]
    assert metric.stderr == pytest.approx(math.exp(rate) * error, rel=1e-6, abs=1e-9)
    if error < 1e-6 * rate:  # rounding has no skewness, and no width is no interval
        return
    assert estimate_ratio(x, w).interval() == pytest.approx((low, high), rel=1e-5, abs=1e-9)
    assert metric.ci_high == pytest.approx(math.exp(high), rel=1e-5)
    assert metric.ci_low == pytest.approx(max(1.0, math.exp(low)), rel=1e-5)


def test_standard_errors_are_near_those_of_scipys_bootstrap() -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(20, 400, 200)
    nats = words * rng.normal(3.0, 0.4, 200)
    scores = [scored(-float(x), int(w), 5 * int(w), 2 * int(w)) for x, w in zip(nats, words, strict=True)]
    metric = summarize(scores, ["word_perplexity"])["word_perplexity"]
    found = stats.bootstrap(
        (nats, words),
        lambda x, w, axis: np.exp(x.sum(axis) / w.sum(axis)),
        paired=True,
        vectorized=True,
        n_resamples=4000,
        method="percentile",
        random_state=rng,
    )
    assert metric.stderr == pytest.approx(found.standard_error, rel=0.1)
    interval = found.confidence_interval
    assert (metric.ci_low, metric.ci_high) == pytest.approx((interval.low, interval.high), rel=0.01)


@given(st.lists(st.integers(-100, 100).map(lambda number: number / 8), min_size=2, max_size=20))
def test_with_equal_denominators_a_ratio_is_a_mean(values: list[float]) -> None:
    found = estimate_ratio(values, [1.0] * len(values))
    assert found.stderr == pytest.approx(standard_error(values), rel=1e-12, abs=1e-12)
    assert found.interval() == pytest.approx(mean_interval(values), rel=1e-9, abs=1e-9)


def test_one_text_has_no_interval() -> None:
    for name, metric in summarize(CORPUS[:1], NAMES).items():
        assert metric.value == pytest.approx(pooled(name, [CORPUS[0].values]).value)
        assert metric == Metric(value=metric.value, n=1, kind="pooled", no_interval="n is 1")


def test_nothing_scored_is_no_number() -> None:
    unscored = Score(status="unscored", reason="too long", values=dict(CORPUS[0].values))
    assert summarize([], NAMES) == summarize([unscored], NAMES)
    assert summarize([], NAMES)["word_perplexity"] == Metric(value=None, n=0, kind="pooled")
    assert summarize([*CORPUS, unscored], NAMES) == summarize(CORPUS, NAMES)


def test_a_perplexity_too_large_for_a_float_is_no_number() -> None:
    metrics = summarize([scored(-60_000, 1, 30_000, 9_000), scored(-61_000, 1, 30_000, 9_000)], NAMES)
    assert metrics["word_perplexity"] == Metric(value=None, n=2, kind="pooled")
    assert metrics["byte_perplexity"].value == pytest.approx(math.exp(121 / 60))
    high = summarize([scored(-1_380, 2, 30_000, 9_000), scored(-40, 2, 3_000, 900)], ["word_perplexity"])
    assert high["word_perplexity"].value == pytest.approx(math.exp(355))
    assert high["word_perplexity"].ci_high is None
    top = summarize([scored(-709, 1, 1, 1), scored(-1, 1, 1, 1), scored(-1417, 1, 1, 1)], ["word_perplexity"])
    assert top["word_perplexity"].value == pytest.approx(math.exp(709))
    assert top["word_perplexity"].stderr is None
    assert pseudo_values("word_perplexity", [scored(-709, 1, 1, 1).values, scored(-700, 1, 1, 1).values]) is not None
    assert pseudo_values("word_perplexity", [scored(-1, 1, 1, 1).values, scored(-1417, 1, 1, 1).values]) is None
    json.dumps([asdict(metric) for metric in (*metrics.values(), *high.values(), *top.values())], allow_nan=False)


def test_denominators_that_sum_to_nothing() -> None:
    assert summarize([scored(-1, 1, 0, 1)], ["bits_per_byte"])["bits_per_byte"].value is None
    with pytest.raises(ValueError, match="sum to more than 0"):
        estimate_ratio([1.0, 1.0], [0.0, 0.0])


def test_categories_are_pooled_by_themselves() -> None:
    parts = by_category(CORPUS, ["b", "a", "b", None], NAMES)
    assert parts == {"a": summarize([CORPUS[1]], NAMES), "b": summarize([CORPUS[0], CORPUS[2]], NAMES)}


@given(st.lists(TEXTS, max_size=8), st.randoms(use_true_random=False))
def test_order_makes_no_difference_and_metrics_survive_json(scores: list[Score], random: Any) -> None:
    metrics = summarize(scores, NAMES)
    shuffled = list(scores)
    random.shuffle(shuffled)
    assert summarize(shuffled, NAMES) == metrics
    for metric in metrics.values():
        assert part_from_json(Metric, json.loads(json.dumps(asdict(metric), allow_nan=False))) == metric


# Two models on the same texts


@given(st.lists(TEXTS, min_size=2, max_size=12))
def test_pseudo_values_have_the_metric_as_their_mean_and_its_standard_error(scores: list[Score]) -> None:
    """But for each text's leverage, in the place of which they have ``n / (n - 1)``: statsmodels' HC1."""
    nats = np.array([-score.values["loglikelihood"] for score in scores])
    for name, metric in summarize(scores, NAMES).items():
        found = pseudo_values(name, [score.values for score in scores])
        assert found is not None
        assert metric.value == pytest.approx(mean(found), rel=1e-9)
        formula = POOLED[name]
        w = np.array([score.values[formula.unit] for score in scores])
        error = float(WLS(nats, w, weights=1 / w).fit(cov_type="HC1").bse[0])
        assert standard_error(found) == pytest.approx(
            formula.slope(float(nats.sum() / w.sum())) * error, rel=1e-6, abs=1e-9
        )


def two_models() -> tuple[dict[str, Score], dict[str, Score]]:
    """The second is better by about a tenth, on texts that are as hard for the one as for the other; it has another
    tokenizer.
    """
    rng = np.random.default_rng(1)
    first, second = {}, {}
    for number in range(150):
        words = int(rng.integers(20, 400))
        nats = words * rng.normal(3.0, 0.4)
        better = 0.9 * nats + words * rng.normal(0.0, 0.05)
        first[f"t{number}"] = scored(-float(nats), words, 5 * words, 2 * words)
        second[f"t{number}"] = scored(-float(better), words, 5 * words, int(words * rng.uniform(2.2, 2.6)))
    return first, second


@pytest.mark.parametrize("name", NAMES)
def test_a_difference_is_near_that_of_scipys_bootstrap(name: str) -> None:
    first, second = two_models()
    difference = compare(first, second, [name])[name]
    before, after = (summarize(list(scores.values()), [name])[name].value for scores in (first, second))
    assert before is not None
    assert after is not None
    assert (difference.first, difference.second) == pytest.approx((before, after))
    assert difference.difference == pytest.approx(after - before)
    assert (difference.n, difference.kind, difference.num_gained) == (150, "pooled", None)
    unit, of_rate = POOLED[name].unit, np.exp if name != "bits_per_byte" else lambda rate: rate / np.log(2)
    columns = [
        np.array([score.values[key] for score in scores.values()])
        for scores in (first, second)
        for key in ("loglikelihood", unit)
    ]

    def statistic(x1: Any, w1: Any, x2: Any, w2: Any, axis: int) -> Any:
        return of_rate(-x2.sum(axis) / w2.sum(axis)) - of_rate(-x1.sum(axis) / w1.sum(axis))

    found = stats.bootstrap(
        columns, statistic, paired=True, vectorized=True, n_resamples=4000, method="percentile", random_state=1
    )
    assert difference.stderr == pytest.approx(found.standard_error, rel=0.1)
    interval = found.confidence_interval
    assert difference.ci_low == pytest.approx(interval.low, abs=0.3 * found.standard_error)
    assert difference.ci_high == pytest.approx(interval.high, abs=0.3 * found.standard_error)
    if name == "bits_per_byte":
        x, w = (columns[0] - columns[2]) / math.log(2), columns[1]
        fit: Any = WLS(x, w, weights=1 / w).fit(cov_type="HC1", use_t=True)
        assert difference.stderr == pytest.approx(float(fit.bse[0]), rel=1e-9)
        # The texts' own differences, as the metric has them: their pseudo-values.
        own = len(x) * (x - fit.params[0] * w) / w.sum() + fit.params[0]
        assert (difference.ci_low, difference.ci_high) == pytest.approx(of_mean(own.tolist()), rel=1e-6)


def test_a_difference_is_over_the_texts_that_both_scored() -> None:
    first, second = two_models()
    unscored = Score(status="unscored", reason="too long", values=dict(first["t0"].values))
    partial = {**dict(list(second.items())[1:]), "t1": unscored}
    both = [sample_id for sample_id in partial if sample_id != "t1"]
    expected = compare({key: first[key] for key in both}, {key: second[key] for key in both}, NAMES)
    assert compare(first, partial, NAMES) == expected
    assert expected["bits_per_byte"].n == 148


def test_no_difference_where_there_is_nothing_to_pool() -> None:
    huge = {"a": scored(-60_000, 1, 30_000, 9_000)}
    assert list(compare(huge, huge, NAMES)) == ["byte_perplexity", "bits_per_byte", "token_perplexity"]
    assert compare(huge, {}, NAMES) == {}
    one, other = ({"a": Score(status="scored", values={"word_perplexity": value})} for value in (10.0, 30.0))
    assert compare(one, other, ["word_perplexity"])["word_perplexity"].kind == "mean"


def test_a_users_own_perplexities_are_averaged() -> None:
    """Where a hand-written test records the number alone there are no sums to pool."""
    scores = [Score(status="scored", values={"word_perplexity": value}) for value in (10.0, 30.0)]
    metric = summarize(scores, names_in(scores))["word_perplexity"]
    assert (metric.value, metric.kind) == (20.0, "mean")
