"""ROUGE: the scorer against rouge_score, and rouge_score's numbers against the formulas of C.-Y. Lin (2004)."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer
from rouge_score.rouge_scorer import RougeScorer

from pytest_llmeval.evaluation.pipeline import make_scorer
from pytest_llmeval.scorers.rouge import RougeSettings
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.summary import summarize
from tests.scoring.helpers import judge_reply

WORDS = st.sampled_from(["the", "The", "cat", "cats", "running", "runs", "on-top", "mat.", "Ünï", "3.5"])
TEXTS = st.lists(WORDS, max_size=8).map(" ".join)
ALL = RougeSettings(types=("1", "2", "L", "Lsum"))


def f1(matches: int, num_reply: int, num_reference: int) -> float:
    if matches == 0:
        return 0.0
    precision, recall = matches / num_reply, matches / num_reference
    return 2 * precision * recall / (precision + recall)


def words_of(text: str, stemmer: bool) -> list[str]:
    found = re.findall(r"[a-z0-9]+", text.lower())
    return [PorterStemmer().stem(word) if stemmer and len(word) > 3 else word for word in found]


def rouge_n(reply: list[str], reference: list[str], n: int) -> float:
    ours, theirs = (Counter(zip(*(words[start:] for start in range(n)), strict=False)) for words in (reply, reference))
    return f1((ours & theirs).total(), ours.total(), theirs.total())


def rouge_l(reply: list[str], reference: list[str]) -> float:
    longest = [[0] * (len(reference) + 1) for _ in range(len(reply) + 1)]
    for i, ours in enumerate(reply):
        for j, theirs in enumerate(reference):
            longest[i + 1][j + 1] = longest[i][j] + 1 if ours == theirs else max(longest[i][j + 1], longest[i + 1][j])
    return f1(longest[-1][-1], len(reply), len(reference))


@pytest.mark.parametrize(
    ("reference", "reply", "value"),
    [
        ("#", "#", 1.0),
        ("#", "!", 0.0),
        ("#", "", 0.0),
        ("オスロ", " オスロ\n", 1.0),
        ("Осло", "осло", 1.0),
        (["#", "the cat"], "#", 1.0),
        ("", "", 0.0),
    ],
)
def test_a_reference_without_words_is_compared_as_it_is_written(
    reference: str | list[str], reply: str, value: float
) -> None:
    score = judge_reply(RougeSettings(types=("1", "L", "S")), reference, reply)
    assert score.values == {"rouge_1": value, "rouge_l": value, "rouge_s": value}


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3), st.booleans())
def test_values_are_those_of_the_formulas_of_the_best_reference(
    reply: str, references: list[str], stemmer: bool
) -> None:
    score = judge_reply(RougeSettings(stemmer=stemmer), references, reply)
    words, expected = words_of(reply, stemmer), [words_of(reference, stemmer) for reference in references]
    assert score.values == {
        "rouge_1": pytest.approx(max(rouge_n(words, each, 1) for each in expected)),
        "rouge_2": pytest.approx(max(rouge_n(words, each, 2) for each in expected)),
        "rouge_l": pytest.approx(max(rouge_l(words, each) for each in expected)),
    }
    assert score.status == "scored"


@given(st.lists(TEXTS, max_size=3).map("\n".join), st.lists(TEXTS, max_size=3).map("\n".join), st.booleans())
def test_values_are_those_of_rouge_score(reply: str, reference: str, stemmer: bool) -> None:
    types = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    found = RougeScorer(types, use_stemmer=stemmer).score(reference, reply)
    settings = RougeSettings(types=("1", "2", "L", "Lsum"), stemmer=stemmer)
    values = judge_reply(settings, reference, reply).values
    assert list(values.values()) == [found[type].fmeasure for type in types]


def test_lsum_reads_lines() -> None:
    values = judge_reply(ALL, "one two three\nfour five", "four five\none two three").values
    assert values["rouge_lsum"] == 1
    assert values["rouge_l"] == pytest.approx(3 / 5)


@pytest.mark.parametrize(
    ("reply", "value"),
    [("police kill the gunman", 0.5), ("the gunman kill police", 1 / 6), ("the gunman police killed", 1 / 3)],
)
def test_skip_bigrams_of_lins_examples(reply: str, value: float) -> None:
    """C.-Y. Lin, ROUGE: A Package for Automatic Evaluation of Summaries (2004), section 5: each has six of them."""
    assert judge_reply(RougeSettings(types=("S",)), "police killed the gunman", reply).values == {
        "rouge_s": pytest.approx(value)
    }


def test_skip_bigrams_of_the_examples_with_gaps() -> None:
    """By hand: of "a b c d" the pairs with at most one word between are ab, ac, bc, bd, cd; of "a x b d" ab, bd, ..."""
    values = judge_reply(RougeSettings(types=("S1", "S2", "S")), "a b c d", "a x b d").values
    assert values == {
        "rouge_s1": pytest.approx(f1(2, 5, 5)),  # ab, bd of ax, ab, xb, xd, bd
        "rouge_s2": pytest.approx(f1(3, 6, 6)),  # and ad
        "rouge_s": pytest.approx(f1(3, 6, 6)),
    }


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3), st.booleans())
def test_skip_bigrams_are_those_of_the_formula(reply: str, references: list[str], stemmer: bool) -> None:
    def value(reference: str, max_gap: int) -> float:
        counts = [
            Counter(
                (words[i], words[j]) for i, j in itertools.combinations(range(len(words)), 2) if j - i - 1 <= max_gap
            )
            for words in (words_of(reply, stemmer), words_of(reference, stemmer))
        ]
        return f1((counts[0] & counts[1]).total(), counts[0].total(), counts[1].total())

    found = judge_reply(RougeSettings(types=("S", "S1", "S4"), stemmer=stemmer), references, reply).values
    expected = [max(value(each, max_gap) for each in references) for max_gap in (1_000, 1, 4)]
    assert list(found.values()) == pytest.approx(expected)


def test_skip_bigrams_of_many_words_are_refused() -> None:
    score = judge_reply(RougeSettings(types=("S", "1")), "a b", "a b " * 2_000)
    assert (score.status, score.reason) == (
        "unscored",
        "a text has 4,000 words: ROUGE-S is computed for at most 2,000",
    )
    assert judge_reply(RougeSettings(types=("S4", "1")), "a b", "a b " * 2_000).status == "scored"


def test_skip_bigrams_as_a_metric() -> None:
    scorer = make_scorer(RougeSettings(types=("S", "S4", "L")))
    assert scorer.metrics == ("rouge_s", "rouge_s4", "rouge_l", "no_answer")
    assert definition("rouge_s4").description.startswith("Mean of the samples' ROUGE-S (pairs of words with at most 4 ")


def test_the_metrics() -> None:
    scorer = make_scorer(ALL)
    assert scorer.metrics == ("rouge_1", "rouge_2", "rouge_l", "rouge_lsum", "no_answer")
    scores = [judge_reply(ALL, "the cat", reply) for reply in ("the cat", "", "a dog")]
    found = summarize(scores, scorer.metrics)
    assert found["rouge_1"].value == pytest.approx(1 / 3)
    assert found["rouge_1"].kind == "mean"
    assert found["no_answer"].value == 1
    assert definition("rouge_2").description.startswith("Mean of the samples' ROUGE-2")


@pytest.mark.parametrize("types", [[1, 2, "L"], ["1", "2", "l"]])
def test_types_as_yaml_gives_them(types: list[Any]) -> None:
    assert RougeSettings.model_validate({"kind": "rouge", "types": types}) == RougeSettings()


@pytest.mark.parametrize("types", [[], [0], ["W"], [True], [1, 1]])
def test_other_types_are_refused(types: list[Any]) -> None:
    with pytest.raises(ValueError, match="types"):
        RougeSettings.model_validate({"kind": "rouge", "types": types})
