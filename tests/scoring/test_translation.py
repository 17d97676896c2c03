"""BLEU, chrF and TER: samples' numbers and corpus metrics against sacrebleu's own functions, and lm-eval's."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import sacrebleu
from hypothesis import assume, given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from pytest_llmeval.evaluation.pipeline import make_scorer
from pytest_llmeval.reporting.storage.json_form import part_from_json
from pytest_llmeval.scorers.bleu import BleuSettings
from pytest_llmeval.scorers.chrf import ChrfSettings
from pytest_llmeval.scorers.ter import TerSettings
from pytest_llmeval.scoring.metrics.corpus import corpus_formula, corpus_value
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.sample_values import ingredients
from pytest_llmeval.scoring.metrics.summary import Metric, by_category, summarize
from pytest_llmeval.scoring.model_differences import compare
from pytest_llmeval.types import Score
from tests.scoring.helpers import judge_reply

Settings = BleuSettings | ChrfSettings | TerSettings

WORDS = st.sampled_from(
    ["the", "The", "cat", "cats", "sat", "on", "a", "mat", ",", ".", "don't", "Ünïcode", "猫", "3.5"]
)
TEXTS = st.lists(WORDS, max_size=9).map(" ".join)
REFERENCES = st.lists(st.lists(WORDS, min_size=1, max_size=9).map(" ".join), min_size=1, max_size=3)
PAIRS = st.lists(st.tuples(TEXTS, REFERENCES), min_size=1, max_size=8)
"""Replies with their references, of which samples have different numbers."""

Pairs = Sequence[tuple[str, Sequence[str]]]

FEW: Pairs = (
    ("the cat sat on the mat", ["the cat sat on the mat", "a cat was on the mat"]),
    ("there is a dog in the garden", ["a dog is in the garden"]),
    ("", ["nobody said a word"]),
    ("it rained all day long in the hills", ["it rained the whole day", "all day long it rained", "rain, all day"]),
)


def judged(settings: Settings, pairs: Pairs) -> list[Score]:
    return [judge_reply(settings, list(references), reply) for reply, references in pairs]


def streams(pairs: Pairs) -> tuple[list[str], list[list[str | None]]]:
    """As sacrebleu takes a corpus: replies, and streams of references with None where a sample has fewer."""
    longest = max(len(references) for _, references in pairs)
    padded = [[*references, *[None] * (longest - len(references))] for _, references in pairs]
    return [reply for reply, _ in pairs], [list(stream) for stream in zip(*padded, strict=True)]


def corpus(metric: Any, pairs: Pairs) -> float:
    replies, references = streams(pairs)
    return float(metric.corpus_score(replies, references).score)


def value(settings: Settings, pairs: Pairs, name: str) -> float | None:
    """The corpus metric without its interval, which takes the time."""
    formula = corpus_formula(name)
    assert formula is not None
    return formula.compute(ingredients(judged(settings, pairs), name))


# BLEU


@given(PAIRS, st.integers(1, 5), st.sampled_from(["exp", "floor", "add-k", "none"]), st.booleans())
def test_corpus_bleu_is_sacrebleus(pairs: Pairs, k: int, smoothing: Any, lowercase: bool) -> None:
    settings = BleuSettings(k=(k,), smoothing=smoothing, lowercase=lowercase)
    reference = BLEU(max_ngram_order=k, smooth_method=smoothing, lowercase=lowercase)
    assert value(settings, pairs, f"bleu_{k}") == pytest.approx(min(100, corpus(reference, pairs)), rel=1e-12)


@given(TEXTS, REFERENCES, st.integers(1, 4), st.sampled_from(["exp", "floor", "add-k", "none"]))
def test_sentence_bleu_is_sacrebleus(reply: str, references: list[str], k: int, smoothing: Any) -> None:
    score = judge_reply(BleuSettings(smoothing=smoothing), references, reply)
    reference = BLEU(max_ngram_order=k, smooth_method=smoothing, effective_order=True)
    expected = reference.sentence_score(reply, references).score
    assert score.values[f"sentence_bleu_{k}"] == pytest.approx(min(100, expected), rel=1e-12)
    if k == 4 and smoothing == "exp":
        assert expected == sacrebleu.sentence_bleu(reply, references).score, "sacrebleu's own defaults are ours"


def test_by_default_bleu_is_sacrebleus_default() -> None:
    scores = judged(BleuSettings(), FEW)
    names = make_scorer(BleuSettings()).metrics
    assert names == (*(f"bleu_{k}" for k in (4, 3, 2, 1)), *(f"sentence_bleu_{k}" for k in (4, 3, 2, 1)), "no_answer")
    found = summarize(scores, names)
    replies, references = streams(FEW)
    assert found["bleu_4"].value == sacrebleu.corpus_bleu(replies, references).score  # type: ignore[arg-type]
    assert (found["bleu_4"].n, found["bleu_4"].kind) == (4, "corpus")
    assert found["sentence_bleu_4"].kind == "mean"
    assert found["bleu_4"].value is not None
    assert found["bleu_1"].value is not None
    assert 10 < found["bleu_4"].value < found["bleu_1"].value < 100
    assert found["no_answer"].value == 1


@pytest.mark.parametrize("smoothing", ["floor", "add-k"])
def test_a_smoothing_value(smoothing: Any) -> None:
    settings = BleuSettings(k=(4,), smoothing=smoothing, smooth_value=0.3)
    expected = corpus(BLEU(smooth_method=smoothing, smooth_value=0.3), FEW[1:])
    assert value(settings, FEW[1:], "bleu_4") == pytest.approx(expected)
    assert expected != pytest.approx(corpus(BLEU(smooth_method=smoothing), FEW[1:]))


@pytest.mark.parametrize("tokenize", ["13a", "none", "zh", "intl", "char"])
def test_tokenizers_are_sacrebleus(tokenize: Any) -> None:
    pairs = [("猫在垫子上。 Yes, it's 3.5!", ["猫坐在垫子上。 Yes, it is 3,5!"]), *FEW]
    expected = corpus(BLEU(tokenize=tokenize), pairs)
    assert value(BleuSettings(tokenize=tokenize), pairs, "bleu_4") == pytest.approx(expected, rel=1e-12)


def test_a_tokenizer_whose_library_is_missing_says_so() -> None:
    if importlib.util.find_spec("mecab_ko") is not None:
        pytest.skip("the library is installed")
    with pytest.raises(ValueError, match=r"score\.bleu\.tokenize: ko-mecab cannot be used: .*pip install") as raised:
        make_scorer(BleuSettings(tokenize="ko-mecab"))
    assert "\n" not in str(raised.value)


# chrF


@given(PAIRS, st.sampled_from([0, 1, 2]), st.integers(1, 3), st.booleans(), st.booleans())
def test_chrf_is_sacrebleus(pairs: Pairs, order: Any, beta: int, lowercase: bool, whitespace: bool) -> None:
    settings = ChrfSettings(word_order=(order,), beta=beta, lowercase=lowercase, whitespace=whitespace)
    reference = CHRF(word_order=order, beta=beta, lowercase=lowercase, whitespace=whitespace)
    name = ("chrf", "chrf_p", "chrf_pp")[order]
    assert value(settings, pairs, name) == pytest.approx(corpus(reference, pairs), rel=1e-12)
    for score, (reply, references) in zip(judged(settings, pairs), pairs, strict=True):
        expected = reference.sentence_score(reply, references).score
        assert score.values[f"sentence_{name}"] == pytest.approx(expected, rel=1e-12)


def test_by_default_chrf_and_chrf_plus_plus() -> None:
    names = make_scorer(ChrfSettings()).metrics
    assert names == ("chrf", "chrf_pp", "sentence_chrf", "sentence_chrf_pp", "no_answer")
    found = summarize(judged(ChrfSettings(), FEW), names)
    replies, references = streams(FEW)
    assert found["chrf"].value == sacrebleu.corpus_chrf(replies, references).score  # type: ignore[arg-type]
    plus = sacrebleu.corpus_chrf(replies, references, word_order=2)  # type: ignore[arg-type]
    assert found["chrf_pp"].value == plus.score
    assert found["chrf"].value != found["chrf_pp"].value


# TER


@given(PAIRS, st.booleans(), st.booleans(), st.booleans())
def test_ter_is_sacrebleus(pairs: Pairs, normalized: bool, no_punct: bool, case_sensitive: bool) -> None:
    settings = TerSettings(normalized=normalized, no_punct=no_punct, case_sensitive=case_sensitive)
    reference = TER(normalized=normalized, no_punct=no_punct, case_sensitive=case_sensitive)
    # A reference of nothing but punctuation keeps it here: for sacrebleu an empty reply would be equal to it.
    assume(not no_punct or all(set(text) - set(",. ") for _, references in pairs for text in references))
    assert value(settings, pairs, "ter") == pytest.approx(corpus(reference, pairs), rel=1e-12)
    for score, (reply, references) in zip(judged(settings, pairs), pairs, strict=True):
        assert score.values["sentence_ter"] == reference.sentence_score(reply, references).score


def test_ter_is_better_when_lower_and_knows_no_upper_end() -> None:
    assert definition("ter").higher_is_better is False
    (score,) = judged(TerSettings(), [("one two three four five six", ["seven"])])
    assert score.values["sentence_ter"] == 600


# All of them


ALL: list[tuple[Settings, tuple[str, ...]]] = [
    (BleuSettings(), ("bleu_4", "bleu_1")),
    (ChrfSettings(), ("chrf", "chrf_pp")),
    (TerSettings(), ("ter",)),
]


@pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="lm_eval is not installed")
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@given(st.lists(st.tuples(st.lists(WORDS, min_size=1, max_size=9).map(" ".join), TEXTS), min_size=1, max_size=8))
def test_values_are_those_of_lm_evals_aggregations(items: list[tuple[str, str]]) -> None:
    from lm_eval.api import metrics

    pairs = [(reply, [reference]) for reference, reply in items]
    aggregations: dict[str, tuple[Settings, Any]] = {
        "bleu_4": (BleuSettings(), metrics.bleu),
        "chrf": (ChrfSettings(), metrics.chrf),
        "chrf_pp": (ChrfSettings(), metrics.chrfpp),
        "ter": (TerSettings(), metrics.ter),
    }
    for name, (settings, aggregate) in aggregations.items():
        assert value(settings, pairs, name) == pytest.approx(min(aggregate(items), 100 if name != "ter" else 1e9)), name
    several = [([reference, f"{reference} ."], reply) for reference, reply in items]
    pairs = [(reply, references) for references, reply in several]
    for name, (settings, aggregate) in aggregations.items():
        expected = min(aggregate(several), 100 if name != "ter" else 1e9)
        assert value(settings, pairs, name) == pytest.approx(expected), name


@pytest.mark.parametrize(("settings", "names"), ALL, ids=["bleu", "chrf", "ter"])
def test_a_category_has_the_value_of_its_own_texts(settings: Settings, names: tuple[str, ...]) -> None:
    scores = judged(settings, FEW)
    parts = by_category(scores, ["a", "a", "b", None], names)
    assert parts["a"] == summarize(scores[:2], names)
    assert parts["b"] == summarize(scores[2:3], names)
    assert all(metric.ci_low is None and metric.stderr is None for metric in parts["b"].values()), "one sample"


@pytest.mark.parametrize(("settings", "names"), ALL, ids=["bleu", "chrf", "ter"])
@given(st.randoms(use_true_random=False))
def test_order_makes_no_difference_and_metrics_survive_json(
    settings: Settings, names: tuple[str, ...], random: Any
) -> None:
    scores = judged(settings, FEW)
    metrics = summarize(scores, names)
    random.shuffle(scores)
    assert summarize(scores, names) == metrics
    for metric in metrics.values():
        assert part_from_json(Metric, json.loads(json.dumps(asdict(metric), allow_nan=False))) == metric


@pytest.mark.parametrize(("settings", "names"), ALL, ids=["bleu", "chrf", "ter"])
def test_an_empty_reply_is_counted_and_is_no_error(settings: Settings, names: tuple[str, ...]) -> None:
    score = judge_reply(settings, "a reference", " ")
    assert (score.status, score.answer, score.no_answer) == ("scored", None, True)
    assert summarize([score], [names[0]])[names[0]].value == (100 if names[0] == "ter" else 0)


@pytest.mark.parametrize(("reply", "ter"), [("!", 0), ("", 100), ("?", 100)])
def test_a_reference_of_punctuation_alone_keeps_it(reply: str, ter: float) -> None:
    score = judge_reply(TerSettings(no_punct=True), "!", reply)
    assert score.values["sentence_ter"] == ter


def corpora() -> tuple[list[tuple[str, list[str]]], list[tuple[str, list[str]]]]:
    """Two models on the same 120 samples: the second drops fewer words."""
    rng = np.random.default_rng(7)
    words = [f"w{number}" for number in range(30)]
    both: tuple[list[tuple[str, list[str]]], list[tuple[str, list[str]]]] = ([], [])
    for _ in range(120):
        reference = list(rng.choice(words, size=int(rng.integers(5, 25))))
        for kept, pairs in zip((0.8, 0.88), both, strict=True):
            reply = [word for word in reference if rng.random() < kept]
            pairs.append((" ".join(reply), [" ".join(reference)]))
    return both


@pytest.mark.parametrize(
    ("settings", "name", "metric"),
    [(BleuSettings(), "bleu_4", BLEU()), (ChrfSettings(), "chrf", CHRF()), (TerSettings(), "ter", TER())],
    ids=["bleu", "chrf", "ter"],
)
def test_an_interval_is_near_sacrebleus_bootstrap(settings: Settings, name: str, metric: Any) -> None:
    pairs, _ = corpora()
    replies, references = streams(pairs)
    expected = metric.corpus_score(replies, references, n_bootstrap=1000)
    found = summarize(judged(settings, pairs), [name])[name]
    assert found.value == pytest.approx(expected.score)
    assert found.ci_low is not None
    assert found.ci_high is not None
    assert found.stderr is not None
    # Sacrebleu gives the mean of the resamples and half the width of their 95% interval.
    assert (found.ci_high - found.ci_low) / 2 == pytest.approx(expected._ci, rel=0.15)
    assert (found.ci_high + found.ci_low) / 2 == pytest.approx(expected._mean, abs=0.4 * found.stderr)
    assert found.stderr == pytest.approx(expected._ci / 1.96, rel=0.15)


@pytest.mark.parametrize(("settings", "names"), ALL, ids=["bleu", "chrf", "ter"])
def test_a_difference_of_two_models_is_paired(settings: Settings, names: tuple[str, ...]) -> None:
    first, second = corpora()
    scores = [{f"t{number}": score for number, score in enumerate(judged(settings, own))} for own in (first, second)]
    found = compare(scores[0], scores[1], names)
    for name in names:
        difference = found[name]
        before, after = (value(settings, own, name) for own in (first, second))
        assert before is not None
        assert after is not None
        assert (difference.first, difference.second) == (before, after)
        assert difference.difference == after - before
        assert (difference.n, difference.kind, difference.num_gained) == (120, "corpus", None)
        assert difference.ci_low is not None
        assert difference.ci_high is not None
        assert difference.ci_low < difference.difference < difference.ci_high
        same = compare(scores[0], scores[0], names)[name]
        assert same.difference == 0
        if name == "ter":
            assert (same.ci_low, same.ci_high) == (None, None), "without limits, no width is not what is known"
        elif same.ci_low is not None and same.ci_high is not None:
            assert -same.ci_low == same.ci_high > 0
        errors = [summarize(list(own.values()), [name])[name].stderr for own in scores]
        assert difference.stderr is not None
        assert None not in errors
        assert difference.stderr < sum(error for error in errors if error is not None), "pairs know more"


def test_only_samples_that_both_scored_are_compared() -> None:
    first, second = judged(BleuSettings(), FEW), judged(BleuSettings(), FEW[::-1])
    unscored = Score(status="unscored", reason="the model raised")
    before = {"a": first[0], "b": first[1], "c": first[3], "d": unscored}
    after = {"a": second[3], "b": unscored, "c": second[0], "e": second[1]}
    difference = compare(before, after, ["bleu_4"])["bleu_4"]
    assert (difference.n, difference.difference) == (2, 0)
    assert compare(before, {"b": unscored}, ["bleu_4"]) == {}


def test_smoothing_travels_with_the_samples() -> None:
    """A report's values alone give the corpus's number again, whatever the suite's settings were."""
    settings = BleuSettings(k=(4,), smoothing="floor", smooth_value=0.5)
    score = judge_reply(settings, "one two three four five", "one two three nine")
    restored = json.loads(json.dumps(dict(score.values)))
    assert corpus_value("bleu_4", [restored]).value == pytest.approx(
        BLEU(smooth_method="floor", smooth_value=0.5)
        .corpus_score(["one two three nine"], [["one two three four five"]])
        .score
    )


@pytest.mark.parametrize(("settings", "names"), ALL, ids=["bleu", "chrf", "ter"])
def test_means_over_replies_of_a_sample_lie_between_theirs(settings: Settings, names: tuple[str, ...]) -> None:
    """Samples that were asked several times carry means, which need not be whole."""
    reference = "it rained all day long in the hills"
    scores = [judge_reply(settings, reference, reply) for reply in (reference, "it rained all day", "no")]
    means = {name: sum(score.values[name] for score in scores) / 3 for name in scores[0].values}
    for name in names:
        ends = [summarize([score], [name])[name].value for score in (scores[0], scores[2])]
        found = corpus_value(name, [means, means]).value
        assert None not in (*ends, found)
        low, high = sorted(end for end in ends if end is not None)
        assert found is not None
        assert low < found < high


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="smoothing 'exp' takes no value"):
        BleuSettings(smooth_value=0.1)
    with pytest.raises(ValueError, match="found 2 twice"):
        BleuSettings(k=(2, 2))


@pytest.mark.parametrize("order", [1, 2, 3, 9])
def test_max_order_is_all_orders_up_to_it(order: int) -> None:
    short, long = BleuSettings(max_order=order), BleuSettings(k=tuple(range(1, order + 1)))
    assert short.model_dump() == long.model_dump(), "one fingerprint, however it is written"
    reply, references = FEW[1]
    values = judged(short, [(reply, references)])[0].values
    for k in range(1, order + 1):
        expected = BLEU(max_ngram_order=k, effective_order=True).sentence_score(reply, references)
        assert values[f"sentence_bleu_{k}"] == pytest.approx(expected.score)
    with pytest.raises(ValueError, match="remove max_order, or k"):
        BleuSettings(max_order=order, k=(4, 5))


@given(reply=st.text(alphabet="abc猫犬在了 ", max_size=20), reference=st.text(alphabet="abc猫犬在了 ", min_size=1))
def test_zh_cuts_words_and_chinese_characters(reply: str, reference: str) -> None:
    """As a package does whose tokens are each Chinese character, else words by white space; punctuation aside."""
    cut = [" ".join(re.findall("[猫犬在了]|[abc]+", text)) for text in (reply, reference)]
    (by_zh,) = judged(BleuSettings(max_order=2, tokenize="zh"), [(reply, [reference])])
    (by_hand,) = judged(BleuSettings(max_order=2, tokenize="none"), [(cut[0], [cut[1]])])
    for k in (1, 2):
        assert by_zh.values[f"sentence_bleu_{k}"] == by_hand.values[f"sentence_bleu_{k}"]
