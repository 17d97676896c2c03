"""METEOR: against the formula of A. Lavie and A. Agarwal (2007) with the alignment that nltk documents."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import nltk.data
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer

from pytest_llmeval.evaluation.pipeline import make_scorer
from pytest_llmeval.scorers.meteor import MeteorSettings
from pytest_llmeval.scorers.reading import reference_texts as reference_scorer
from pytest_llmeval.scoring.metrics.summary import summarize
from tests.scoring.helpers import judge_reply

PLAIN = MeteorSettings(synonyms=False, tokenize="whitespace")
WORDS = st.sampled_from(["the", "The", "cat", "cats", "sat", "sits", "running", "runs", "on", "mat", "猫"])
TEXTS = st.lists(WORDS, max_size=8)


def has_wordnet() -> bool:
    try:
        nltk.data.find("corpora/wordnet.zip")
    except LookupError:
        return False
    return True


def aligned(reply: list[str], reference: list[str]) -> list[tuple[int, int]]:
    """Exact matches first, then stems; the last free word of each side first, as nltk does it."""
    stem = PorterStemmer().stem
    pairs: list[tuple[int, int]] = []
    for form in (str, stem):
        for i in reversed(range(len(reply))):
            for j in reversed(range(len(reference))):
                taken = any(i == one or j == other for one, other in pairs)
                if not taken and form(reply[i]) == form(reference[j]):
                    pairs.append((i, j))
                    break
    return sorted(pairs)


def meteor(reply: list[str], reference: list[str], alpha: float, beta: float, gamma: float) -> float:
    ours, theirs = [word.lower() for word in reply], [word.lower() for word in reference]
    pairs = aligned(ours, theirs)
    if not pairs:
        return 0.0
    precision, recall = len(pairs) / len(ours), len(pairs) / len(theirs)
    mean: float = precision * recall / (alpha * precision + (1 - alpha) * recall)
    num_chunks = 1 + sum(after != (before[0] + 1, before[1] + 1) for before, after in pairwise(pairs))
    penalty: float = gamma * (num_chunks / len(pairs)) ** beta
    return (1 - penalty) * mean


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
def test_values_are_those_of_the_formula_of_the_best_reference(reply: list[str], references: list[list[str]]) -> None:
    score = judge_reply(PLAIN, [" ".join(reference) for reference in references], " ".join(reply))
    expected = max(meteor(reply, reference, 0.9, 3, 0.5) for reference in references)
    assert score.values == {"meteor": pytest.approx(expected)}
    assert score.status == "scored"


def test_without_stems_words_match_as_they_are() -> None:
    exact = MeteorSettings(synonyms=False, stem=False, tokenize="whitespace")
    assert judge_reply(PLAIN, "cats run", "cat running").values["meteor"] > 0.9
    assert judge_reply(exact, "cats run", "cat running").values["meteor"] == 0
    assert judge_reply(exact, "The cats run", "the cats run").values["meteor"] > 0.9


def test_the_weights() -> None:
    settings = MeteorSettings(synonyms=False, tokenize="whitespace", alpha=0.5, beta=1.0, gamma=0.2)
    reply, reference = ["the", "cat", "sat"], ["sat", "there", "the", "cat", "on"]
    found = judge_reply(settings, " ".join(reference), " ".join(reply)).values["meteor"]
    assert found == pytest.approx(meteor(reply, reference, 0.5, 1.0, 0.2))
    assert found == pytest.approx((1 - 0.2 * 2 / 3) * 2 * 1 * 0.6 / (1 + 0.6))


def test_nltks_documented_example() -> None:
    """The pair of ``nltk.translate.meteor_score``'s docstring; WordNet adds no match to it."""
    reply = "It is a guide to action which ensures that the military always obeys the commands of the party"
    reference = "It is a guide to action that ensures that the military will forever heed Party commands"
    assert judge_reply(PLAIN, reference, reply).values["meteor"] == pytest.approx(0.6944, abs=5e-5)


def test_words_are_split_from_punctuation() -> None:
    words = MeteorSettings(synonyms=False)
    assert judge_reply(words, "Yes, a cat.", "yes a cat").values["meteor"] > 0.5
    found = judge_reply(PLAIN, "Yes, a cat.", "yes a cat").values["meteor"]
    assert found == pytest.approx(meteor(["yes", "a", "cat"], ["yes,", "a", "cat."], 0.9, 3, 0.5))


def test_an_empty_reply_is_no_answer() -> None:
    score = judge_reply(PLAIN, "a cat", "")
    assert (score.values, score.no_answer, score.answer) == ({"meteor": 0.0}, True, None)
    assert summarize([score], make_scorer(PLAIN).metrics)["no_answer"].value == 1


def test_synonyms_need_wordnets_data() -> None:
    if has_wordnet():
        assert judge_reply(MeteorSettings(), "a big car", "a big automobile").values["meteor"] > 0.9
        return
    with pytest.raises(ValueError, match=r"needs WordNet's data .*nltk\.downloader wordnet.*synonyms: false") as raised:
        make_scorer(MeteorSettings())
    assert not re.search(r"\n", str(raised.value))


def a_wordnet(folder: Path) -> None:
    """Two words of one meaning, in WordNet's files; they are stems, as what nltk looks up there is."""
    folder.mkdir(parents=True)
    for part in ("adj", "adv", "noun", "verb"):
        for name in (f"index.{part}", f"data.{part}", f"{part}.exc"):
            (folder / name).write_text("")
    for name in ("index.sense", "cntlist.rev"):
        (folder / name).write_text("")
    (folder / "lexnames").write_text("00\tnoun.artifact\t1\n")
    (folder / "data.noun").write_text("00000000 00 n 02 car 0 auto 0 000 | a motor vehicle\n")
    (folder / "index.noun").write_text("auto n 1 0 1 0 00000000\ncar n 1 0 1 0 00000000\n")


def test_long_replies_find_wordnet_where_a_conftest_says_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are compared in a process of its own, which starts with another list of folders."""
    a_wordnet(tmp_path / "corpora" / "wordnet")
    shared = reference_scorer._shared_process()
    settings = MeteorSettings(tokenize="whitespace")
    try:
        reference_scorer.values_in_time(PLAIN, "car", ["car"])  # the process is there already
        monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
        started = shared._process
        found = reference_scorer.values_in_time(settings, "a car", ["an auto"])
        assert found["meteor"] == pytest.approx(meteor(["a", "x"], ["b", "x"], 0.9, 3, 0.5))
        assert shared._process is started
    finally:
        shared.close()
