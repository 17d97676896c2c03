"""``score: retrieval``: the conventions, and what a reply and judgements may look like."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.evaluation.pipeline import suite_scorer
from pytest_llmeval.scorers.retrieval import RetrievalSettings
from pytest_llmeval.types import GenerateResponse, Sample, Score

ALL = ["ndcg", "ndcg_exp", "recall", "precision", "f1", "hit_rate", "ap", "rr", "r_precision", "bpref", "judged"]


def judge(qrels: Any, found: Any, **settings: Any) -> Score:
    scorer = suite_scorer(RetrievalSettings.model_validate(settings))
    presented = scorer.present(Sample(id="q", path="x.jsonl", line=1, variables={"qrels": qrels}))
    if isinstance(found, str):
        response = GenerateResponse(text=found)
    else:
        response = GenerateResponse(text="", documents=tuple((name, None) for name in found))
    return scorer.score(presented, (response,))


def test_by_hand() -> None:
    score = judge({"a": 3, "b": 1, "c": 0}, ["c", "b", "x", "a"], at=[2], metrics=[*ALL, "ap@1", "ndcg@9"])
    log3, log5 = 1.584962500721156, 2.321928094887362
    assert score.values == pytest.approx(
        {
            "ndcg@2": (1 / log3) / (3 + 1 / log3),
            "ndcg_exp@2": (1 / log3) / (7 + 1 / log3),
            "recall@2": 0.5,
            "precision@2": 0.5,
            "f1@2": 0.5,
            "hit_rate@2": 1.0,
            "ap": (1 / 2 + 2 / 4) / 2,
            "rr": 0.5,
            "r_precision": 0.5,
            "bpref": 0.0,
            "judged@2": 1.0,
            "ap@1": 0.0,
            "ndcg@9": (1 / log3 + 3 / log5) / (3 + 1 / log3),
        },
        abs=1e-12,
    )


def test_metrics_by_default_begin_with_ndcg_at_the_largest_cutoff() -> None:
    assert RetrievalSettings(at=(1, 10, 5)).names[:3] == ("ndcg@10", "ndcg@5", "ndcg@1")
    assert RetrievalSettings(gain="exponential").names[0] == "ndcg_exp@10"
    assert RetrievalSettings(at=(1, 10), metrics=("precision", "ap")).names == ("precision@10", "precision@1", "ap")


def test_a_query_without_relevant_documents() -> None:
    score = judge({"a": 0}, ["a", "b"], metrics=ALL)
    assert score.values == {"judged@10": 0.5}
    assert set(score.not_measurable) == {
        name if name in ("ap", "rr", "r_precision", "bpref") else f"{name}@10" for name in ALL
    } - set(score.values)
    one = judge({"a": 0}, ["a", "b"], metrics=ALL, no_relevant="one")
    assert not one.not_measurable
    assert one.values["precision@10"] == one.values["f1@10"] == 0.0
    assert one.values["recall@10"] == one.values["ndcg@10"] == one.values["ap"] == 1.0


@pytest.mark.parametrize(
    "text",
    [
        '["a", "b"]',
        '```json\n["a", "b"]\n```',
        'Sure.\n```\n["a", "b"]\n```\nDone.',
        '{"a": 0.9, "b": 0.1}',
        '[["a", 2], ["b", 1]]',
    ],
)
def test_a_text_that_lists_documents(text: str) -> None:
    score = judge({"b": 1}, text)
    assert (score.answer, score.no_answer, score.values["rr"]) == ("a, b", False, 0.5)


@pytest.mark.parametrize(
    "text", ["", "a, b", "[1", '["a", "a"]', '{"ranking": ["a"]}', "3", "null?", "[" * 5000, '[["a"]]', "[NaN]"]
)
def test_a_text_that_lists_none_is_no_answer(text: str) -> None:
    score = judge({"a": 1}, text)
    assert (score.status, score.no_answer, score.values["ndcg@10"]) == ("scored", True, 0.0)
    assert isinstance(score.details["problem"], str)


@pytest.mark.parametrize(
    ("qrels", "words"),
    [
        ({"a": "x"}, "the grade of 'a': found 'x' (text), expected a whole number"),
        ({"a": 1.5}, "found 1.5"),
        ({"a": float("nan")}, "found nan"),
        ({"a": True}, "found true"),
        ({"a": 5000}, "from -1000 to 1000"),
        (["a", "a"], "'a' stands twice"),
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        (3, "found 3"),
        ("a", "found 'a'"),
        ([["a", 1]], "a document's id: found a list of 2"),
    ],
)
def test_judgements_that_are_none(qrels: Any, words: str) -> None:
    with pytest.raises(ValueError, match="the column 'qrels'") as error:
        judge(qrels, ["a"])
    assert words in str(error.value)


@pytest.mark.parametrize(
    "qrels", [{"a": 1, "b": 1}, ["a", "b"], '{"a": 1, "b": "1"}', '["a", "b"]', {"a": 1.0, "b": 1}]
)
def test_forms_of_a_column(qrels: Any) -> None:
    assert judge(qrels, ["a"]).values["recall@10"] == 0.5


def test_the_highest_grades_have_a_gain() -> None:
    score = judge({"a": 1000, "b": 999}, ["b", "a"], metrics=["ndcg_exp"])
    assert 0 < score.values["ndcg_exp@10"] < 1


grades = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(-1, 4))
rankings = st.lists(st.sampled_from("abcdefghijkl"), unique=True)


@given(qrels=grades, found=rankings)
def test_each_value_lies_within_0_and_1_and_a_perfect_ranking_has_1(qrels: dict[str, int], found: list[str]) -> None:
    score = judge(qrels, found, metrics=ALL, at=[1, 3, 10])
    assert all(0 <= value <= 1 for value in score.values.values())
    best = sorted(qrels, key=lambda name: -qrels[name])
    perfect = judge(qrels, best, metrics=["ndcg", "ndcg_exp", "ap", "rr", "r_precision", "bpref", "recall"], at=[10])
    assert all(value == pytest.approx(1.0) for value in perfect.values.values())


@given(qrels=grades, found=rankings, other=st.sampled_from("xyz"))
def test_what_comes_behind_the_cutoff_changes_nothing(qrels: dict[str, int], found: list[str], other: str) -> None:
    names = [name for name in ALL if name not in ("ap", "rr", "r_precision", "bpref")]
    first = judge(qrels, found[:3], metrics=names, at=[3])
    if len(found) >= 3:
        assert judge(qrels, [*found, other], metrics=names, at=[3]).values == first.values
