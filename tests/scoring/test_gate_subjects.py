"""What a gate is about is found among what the suite has, or the nearest is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.gates.subjects import (
    BoundError,
    GateSubject,
    SubjectError,
    check_bound,
    find_metric,
    find_subject,
)
from pytest_llmeval.suites.format.gates_spec import GateRule

METRICS = ("accuracy", "skill", "flexible.accuracy", "pass@4", "correct")
CATEGORIES = ("law", "law.civil", "two  words", "1.5")


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("accuracy", GateSubject(metric="accuracy")),
        ("flexible.accuracy", GateSubject(metric="flexible.accuracy")),
        ("pass@4", GateSubject(metric="pass@4")),
        ("macro.skill", GateSubject(metric="skill", is_macro=True)),
        ("macro.flexible.accuracy", GateSubject(metric="flexible.accuracy", is_macro=True)),
        ("category.law.skill", GateSubject(metric="skill", category="law")),
        ("category.law.civil.skill", GateSubject(metric="skill", category="law.civil")),
        ("category.law.flexible.accuracy", GateSubject(metric="flexible.accuracy", category="law")),
        ("category.law.civil.flexible.accuracy", GateSubject(metric="flexible.accuracy", category="law.civil")),
        ("category.two words.accuracy", GateSubject(metric="accuracy", category="two  words")),
        ("category.1.5.correct", GateSubject(metric="correct", category="1.5")),
    ],
)
def test_what_is_found(text: str, subject: GateSubject) -> None:
    assert find_subject(text, METRICS, CATEGORIES) == subject
    assert " ".join(str(subject).split()) == text


OWN = "Expected one of accuracy, skill, flexible.accuracy, pass@4, correct"
HAS = f"{OWN}, cost, seconds, num_tokens, num_prompt_tokens"


@pytest.mark.parametrize(
    ("text", "categories", "message"),
    [
        ("acuracy", CATEGORIES, f"there is no metric 'acuracy'; did you mean 'accuracy'? {HAS}"),
        (
            "accuracy_pct",
            CATEGORIES,
            "there is no metric 'accuracy_pct': it is 100 times accuracy, which is a share of 1; write accuracy, and "
            "0.7 for 70 percent",
        ),
        ("f1", CATEGORIES, f"there is no metric 'f1'; {HAS.lower()}"),
        ("", CATEGORIES, f"there is no metric ''; {HAS.lower()}"),
        ("macro.skil", CATEGORIES, f"there is no metric 'skil'; did you mean 'skill'? {OWN}"),
        (
            "macro.skill",
            (),
            "'macro.skill' is a mean over the categories of the samples, and none of them is in a category",
        ),
        ("macro.skill", ("law",), "'macro.skill' is a mean over the categories of the samples, and all are in 'law'"),
        (
            "macro.correct",
            CATEGORIES,
            "correct is a count of samples, which has no mean over categories",
        ),
        (
            "category.law.civil.acuracy",
            CATEGORIES,
            f"there is no metric 'acuracy' of the category 'law.civil'; did you mean 'accuracy'? {HAS}",
        ),
        ("category.law.", CATEGORIES, f"there is no metric '' of the category 'law'; {HAS.lower()}"),
        (
            "category.lav.civil.flexible.accuracy",
            CATEGORIES,
            "there is no category 'lav.civil'; did you mean 'law.civil'? Expected one of law, "
            "law.civil, two  words, 1.5",
        ),
        ("category.art.x", ("law",), "there is no category 'art'; expected law"),
        ("category.art", ("law",), "there is no category 'art'; expected law"),
        (
            "category.law.accuracy",
            (),
            "the samples have no categories; add the key category to the suite",
        ),
    ],
)
def test_what_is_not_there(text: str, categories: tuple[str, ...], message: str) -> None:
    with pytest.raises(SubjectError) as caught:
        find_subject(text, METRICS, categories)
    assert str(caught.value) == message


@pytest.mark.parametrize("metrics", [(), ("*",), ("accuracy", "*", "b.*")])
def test_a_scorer_that_does_not_name_its_metrics_may_have_any(metrics: tuple[str, ...]) -> None:
    assert find_subject("wit", metrics, ()) == GateSubject(metric="wit")
    assert find_subject("category.law.wit", metrics, CATEGORIES) == GateSubject(metric="wit", category="law")
    assert find_subject("macro.wit", metrics, CATEGORIES) == GateSubject(metric="wit", is_macro=True)
    with pytest.raises(SubjectError):
        find_subject("category.art.wit", metrics, CATEGORIES)


def test_the_open_names_of_one_scorer_of_several_begin_with_its_name() -> None:
    assert find_metric("b.wit", ("accuracy", "b.*")) == "b.wit"
    with pytest.raises(SubjectError) as caught:
        find_metric("wit", ("accuracy", "b.*"))
    assert str(caught.value) == "there is no metric 'wit'; expected accuracy"


def test_a_metric_that_a_user_named_like_a_category() -> None:
    metrics = ("category.law.skill", "macro.skill", "skill")
    assert find_subject("category.law.skill", metrics, ("law",)) == GateSubject(metric="category.law.skill")
    assert find_subject("macro.skill", metrics, ("law", "art")) == GateSubject(metric="macro.skill")


def test_a_listed_metric_of_a_shorter_category_goes_before_an_open_one_of_a_longer() -> None:
    found = find_subject("category.a.b.f1", ("b.f1", "*"), ("a", "a.b"))
    assert found == GateSubject(metric="b.f1", category="a")


names = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(".".join)


@given(st.sets(names, min_size=1), st.sets(names, min_size=1), st.data())
def test_every_metric_of_every_category_is_found_as_a_pair_that_reads_so(
    metrics: set[str], categories: set[str], data: st.DataObject
) -> None:
    metric = data.draw(st.sampled_from(sorted(metrics)))
    category = data.draw(st.sampled_from(sorted(categories)))
    found = find_subject(f"category.{category}.{metric}", sorted(metrics), categories)
    assert found.category in categories
    assert found.metric in metrics
    assert f"{found.category}.{found.metric}" == f"{category}.{metric}"


def test_long_lists_end_somewhere() -> None:
    with pytest.raises(SubjectError) as caught:
        find_metric("zzz", [f"metric_{number}" for number in range(30)])
    assert str(caught.value).endswith("metric_23, …")


@pytest.mark.parametrize("bound", ["ci_low", "ci_high"])
def test_a_count_has_no_interval(bound: str) -> None:
    subject = GateSubject(metric="correct")
    check_bound(GateRule.parse("correct >= 3"), subject)
    with pytest.raises(BoundError) as caught:
        check_bound(GateRule.parse(f"{bound}(correct) >= 3"), subject)
    assert str(caught.value) == f"correct is a count of samples, which has no interval; leave out {bound}"
