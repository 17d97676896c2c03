"""``score: retrieval``: its measures against ir-measures and trec_eval, and what a sample's score says."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pytest_llmeval.evaluation.pipeline import make_scorer
from pytest_llmeval.scorers.reading.rankings import MEASURES, JudgedRanking
from pytest_llmeval.scorers.retrieval import RetrievalSettings
from pytest_llmeval.types import GenerateResponse, Score
from tests.scoring.helpers import a_sample

CUTOFFS = (1, 3, 5, 10, 100)
GRADES = {1: 1, 2: 3, 3: 7, 4: 15}
"""2^g - 1, as trec_eval takes gains."""
_NO_NDCG = ("ap", "rr", "r_precision", "bpref", "precision", "recall", "hit_rate")


def judge(documents: Any, qrels: Any, *, text: str = "", **settings: Any) -> Score:
    scorer = make_scorer(RetrievalSettings(**settings))
    presented = scorer.present(a_sample(variables={"qrels": qrels}))
    found = None if documents is None else tuple(one if isinstance(one, tuple) else (one, None) for one in documents)
    return scorer.score(presented, [GenerateResponse(text=text, documents=found)])


def drawn(seed: int) -> tuple[dict[str, int], dict[str, float]]:
    """Judgements of a query and a run with ties, gaps, unjudged documents and some that are missed."""
    chance = random.Random(seed)
    known = [f"d{number}" for number in range(chance.choice((3, 12, 60)))]
    share = chance.random()
    qrels = {name: chance.choice((0, 0, 0, 1, 1, 2, 3, 4)) for name in known if chance.random() < 0.6}
    pool = [*known, *(f"x{number}" for number in range(chance.choice((0, 5, 40))))]
    chance.shuffle(pool)
    run = {
        name: chance.choice((0.1, 0.25, 1.0, 3.0)) * chance.randint(-2, 3) for name in pool if chance.random() < share
    }
    return qrels, run


def measures(relevant_from: int) -> dict[str, Any]:
    """The field's measures under our names."""
    ir, rel = ir_measures, relevant_from
    found = {"ap": ir.AP(rel=rel), "rr": ir.RR(rel=rel), "r_precision": ir.Rprec(rel=rel), "bpref": ir.Bpref(rel=rel)}
    for k in CUTOFFS:
        found |= {
            f"ndcg@{k}": ir.nDCG @ k,
            f"ndcg_exp@{k}": ir.nDCG(gains=GRADES) @ k,
            f"precision@{k}": ir.P(rel=rel) @ k,
            f"recall@{k}": ir.R(rel=rel) @ k,
            f"hit_rate@{k}": ir.Success(rel=rel) @ k,
            f"ap@{k}": ir.AP(rel=rel) @ k,
        }
    return found


@pytest.mark.parametrize("relevant_from", [1, 2])
def test_numbers_are_those_of_trec_eval(relevant_from: int) -> None:
    known = measures(relevant_from)
    names = [*known, *(f"judged@{k}" for k in CUTOFFS), *(f"f1@{k}" for k in CUTOFFS)]
    settings: dict[str, Any] = {"metrics": names, "ties": "trec", "relevant_from": relevant_from}
    num_compared = 0
    for seed in range(500):
        qrels, run = drawn(seed)
        score = judge(list(run.items()), qrels, **settings)
        if not qrels or not run:
            continue
        expected = {}
        for kind in (
            "ndcg@",
            "ndcg_exp@",
            "",
        ):  # one asking for several gains gives some of them as 0, as chance has it
            wanted = [measure for name, measure in known.items() if name.startswith(kind or _NO_NDCG)]
            for found in ir_measures.iter_calc(wanted, {"q": qrels}, {"q": run}):
                expected[found.measure] = found.value
        for name, measure in known.items():
            if name in score.values:
                assert math.isclose(score.values[name], expected[measure], abs_tol=1e-9), (seed, name)
                num_compared += 1
            else:
                assert score.not_measurable[name] == "no document is relevant"
    assert num_compared > 10_000


def test_judged_and_f1_are_the_fields() -> None:
    """ir-measures sorts equal scores by id for ``JudgedRanking``, another way than trec_eval: no ties here."""
    for seed in range(200):
        qrels, run = drawn(seed)
        run = {name: float(place) for place, name in enumerate(run)}
        if not qrels or not run:
            continue
        score = judge(list(run.items()), qrels, ties="trec", at=CUTOFFS)
        wanted = [ir_measures.Judged @ k for k in CUTOFFS] + [ir_measures.RR @ k for k in CUTOFFS]
        own = {found.measure: found.value for found in ir_measures.iter_calc(wanted, {"q": qrels}, {"q": run})}
        for k in CUTOFFS:
            assert math.isclose(score.values[f"judged@{k}"], own[ir_measures.Judged @ k], abs_tol=1e-9)
            if f"f1@{k}" in score.values:
                precision, recall = score.values[f"precision@{k}"], score.values[f"recall@{k}"]
                harmonic = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
                assert math.isclose(score.values[f"f1@{k}"], harmonic, abs_tol=1e-12)
                rr = judge(list(run.items()), qrels, ties="trec", metrics=[f"rr@{k}"]).values[f"rr@{k}"]
                assert math.isclose(rr, own[ir_measures.RR @ k], abs_tol=1e-9)


@given(
    grades=st.lists(st.none() | st.integers(-1, 4), max_size=30),
    missed=st.lists(st.integers(-1, 4), max_size=10),
    relevant_from=st.integers(1, 3),
    k=st.none() | st.integers(1, 40),
)
def test_every_value_lies_between_0_and_1(
    grades: list[int | None], missed: list[int], relevant_from: int, k: int | None
) -> None:
    judged = JudgedRanking(grades, [*(grade for grade in grades if grade is not None), *missed], relevant_from)
    for name, measure in MEASURES.items():
        if measure.lacks(judged) is None:
            assert -1e-12 <= measure.value(judged, k) <= 1 + 1e-12, name


def test_equal_scores_stand_as_given_unless_trec_is_asked_for() -> None:
    documents = [("a", 1.0), ("c", 1.0), ("b", 2.0)]
    assert judge(documents, {"c": 1}, metrics=["rr"]).values == {"rr": 1 / 2}
    assert judge(documents, {"c": 1}, metrics=["rr"], ties="trec").values == {"rr": 1 / 2}
    assert judge(documents, {"b": 1}, metrics=["rr"]).values == {"rr": 1 / 3}
    assert judge(documents, {"b": 1}, metrics=["rr"], ties="trec").values == {"rr": 1.0}
    assert judge(documents, {"a": 1}, metrics=["rr"], ties="trec").values == {"rr": 1 / 3}


def test_scores_that_single_precision_cannot_tell_apart_are_a_tie_of_trec_eval() -> None:
    run = {"b": 0.1, "a": 0.1 + 1e-9}
    (theirs,) = ir_measures.iter_calc([ir_measures.RR], {"q": {"a": 1}}, {"q": run})
    assert judge(list(run.items()), {"a": 1}, metrics=["rr"], ties="trec").values == {"rr": theirs.value} == {"rr": 0.5}


def test_what_a_record_says() -> None:
    score = judge(["x", "b", "c"], {"a": 2, "b": 1, "c": 0, "d": 3, "e": -1}, metrics=["recall@2"])
    assert (score.status, score.answer, score.no_answer) == ("scored", "x, b, c", False)
    assert score.values == {"recall@2": 1 / 3}
    assert score.details == {
        "relevant": [
            {"id": "b", "grade": 1, "rank": 2},
            {"id": "d", "grade": 3, "rank": None},
            {"id": "a", "grade": 2, "rank": None},
        ],
        "num_relevant": 3,
        "num_found": 1,
        "num_judged": 2,
    }


def test_a_grade_below_0_is_no_judgement_of_bpref() -> None:
    """As trec_eval has it, whose runs ir-measures cannot give such grades."""
    qrels = {"a": 1, "b": -1, "c": 0}
    assert judge(["b", "a", "c"], qrels, metrics=["bpref"]).values == {"bpref": 1.0}
    assert judge(["c", "a", "b"], qrels, metrics=["bpref"]).values == {"bpref": 0.0}


def test_all_relevant_documents_are_expected() -> None:
    scorer = make_scorer(RetrievalSettings())
    presented = scorer.present(a_sample(variables={"qrels": {f"d{number}": 1 for number in range(7)}}))
    assert presented.target == tuple(f"d{number}" for number in range(7))


def test_a_record_lists_no_more_than_a_hundred() -> None:
    names = [f"d{number}" for number in range(1000)]
    score = judge(names, dict.fromkeys(names, 1))
    assert score.answer == "d0, d1, d2, d3, d4, d5, d6, d7, d8, d9, … (1000)"
    assert len(score.details["relevant"]) == 100  # type: ignore[arg-type]
    assert score.details["num_relevant"] == 1000


def test_nothing_found_counts_0_and_is_counted() -> None:
    score = judge([], {"a": 1})
    assert score.no_answer
    assert set(score.values.values()) == {0.0}
    assert score.not_measurable == {"judged@10": "nothing was found"}


@pytest.mark.parametrize("qrels", [{}, {"a": 0}, []])
def test_no_relevant_document_is_not_measurable_or_one(qrels: Any) -> None:
    score = judge(["a"], qrels)
    assert "judged@10" in score.values
    assert set(score.not_measurable.values()) == {"no document is relevant"}
    score = judge(["a"], qrels, no_relevant="one")
    assert {name for name, value in score.values.items() if value == 0.0 and name[:6] != "judged"} == {
        "precision@10",
        "f1@10",
    }
    assert not score.not_measurable


@pytest.mark.parametrize("qrels", [None, ""])
def test_a_query_that_nobody_judged_has_no_metric(qrels: Any) -> None:
    score = judge(["a"], qrels, no_relevant="one")
    assert (score.status, score.values, score.not_measurable) == ("scored", {}, {"*": "no judgements"})


def test_a_grade_below_relevant_from_gains_in_ndcg_alone() -> None:
    score = judge(["a"], {"a": 1}, relevant_from=2)
    assert score.values == {"ndcg@10": 1.0, "judged@10": 1.0}
    assert score.not_measurable["recall@10"] == "no document is relevant"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('["b", "a"]', "b, a"),
        ('Here it is:\n```json\n["b"]\n```\n', "b"),
        ('[{"id": "b", "score": 0.5}, {"id": 7}]', "b, 7"),
        ('{"b": 0.1, "c": 0.5}', "c, b"),
        ("b, a", None),
        ("[b]", None),
        ("5", None),
        ("", None),
    ],
)
def test_the_text_of_a_model_that_ranks(text: str, answer: str | None) -> None:
    score = judge(None, {"b": 1}, text=text)
    assert (score.status, score.answer, score.no_answer) == ("scored", answer, answer is None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('["b", "a", "b"]', "the document 'b' stands twice, at 1 and 3, expected it once"),
        ("[null]", "entry 1 is nothing (null), expected ids, best first"),
        ('[["b", "high"]]', "entry 1 is the score 'high' (text), expected a finite number"),
    ],
)
def test_a_text_with_a_list_that_is_wrong_in_itself_is_no_answer(text: str, words: str) -> None:
    score = judge(None, {"b": 1}, text=text)
    assert (score.status, score.no_answer, score.values["ndcg@10"]) == ("scored", True, 0.0)
    assert words in str(score.details["problem"])


def test_ties_by_trec_need_scores() -> None:
    score = judge(["a", "b"], {"b": 1}, ties="trec")
    assert (score.status, score.reason) == ("unscored", "ties: trec sorts by scores, and the document 'a' has none")


@pytest.mark.parametrize(
    ("qrels", "words"),
    [
        (5, "the column 'qrels': found 5 (a whole number), expected a mapping of ids to grades, or a list of ids"),
        ({"a": 1.5}, "the column 'qrels': the grade of 'a': found 1.5 (a number), expected a whole number"),
        ({"a": True}, "the column 'qrels': the grade of 'a': found true (a bool), expected a whole number"),
        (["a", "a"], "the column 'qrels': the document 'a' stands twice, expected it once"),
        ("{broken", "the column 'qrels': found '{broken' (text), expected a mapping of ids to grades"),
    ],
)
def test_judgements_that_are_none(qrels: Any, words: str) -> None:
    scorer = make_scorer(RetrievalSettings())
    with pytest.raises(ValueError, match=r"^the column") as caught:
        scorer.present(a_sample(variables={"qrels": qrels}))
    assert words in str(caught.value)


def test_judgements_as_text_are_what_they_hold() -> None:
    assert judge(["a"], json.dumps({"a": "2"}), metrics=["rr"]).values == {"rr": 1.0}
    assert judge(["a"], ["b", "a"], metrics=["recall@1"]).values == {"recall@1": 1 / 2}


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"metrics": ["ndcg", "ap", "recall"], "at": [5, 1]}, ("ndcg@5", "ndcg@1", "ap", "recall@5", "recall@1")),
        ({"metrics": ["ndcg_exp@3", "rr@10", "bpref"]}, ("ndcg_exp@3", "rr@10", "bpref")),
        (
            {"at": [1, 5], "gain": "exponential"},
            (
                *("ndcg_exp@5", "ndcg_exp@1", "recall@1", "recall@5", "precision@1", "precision@5", "f1@1", "f1@5"),
                *("hit_rate@1", "hit_rate@5", "judged@1", "judged@5", "ap", "rr", "r_precision", "bpref"),
            ),
        ),
    ],
)
def test_names_of_metrics(settings: dict[str, Any], names: tuple[str, ...]) -> None:
    assert RetrievalSettings(**settings).names == names


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"at": [0]}, "greater than or equal to 1"),
        ({"at": []}, "found an empty list"),
        ({"at": [5, 5]}, "found 5 twice"),
        ({"metrics": ["ndgc"]}, "there is no metric 'ndgc'; did you mean 'ndcg'?"),
        ({"metrics": ["map@5"]}, "there is no metric 'map@5'; did you mean 'ap'?"),
        ({"metrics": ["ap@0"]}, "found 'ap@0', expected ap@10, with a number from 1 on"),
        ({"metrics": ["ap@x"]}, "found 'ap@x', expected ap@10, with a number from 1 on"),
        ({"metrics": ["bpref@5"]}, "found 'bpref@5', expected bpref, which has no cut-off"),
        ({"metrics": [5]}, "found 5 (a whole number), expected the name of a metric"),
        ({"qrels": 5}, "found 5 (a whole number), expected the name of a column, or {path: FILE}"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        RetrievalSettings(**settings)
    assert words in str(caught.value)
