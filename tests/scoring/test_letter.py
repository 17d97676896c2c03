from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.scoring.letter import LabelStyle, LetterScorer, find_label, option_labels
from pytest_llmeval.suites.schema import LetterSettings
from pytest_llmeval.types import GenerateRequest, GenerateResponse, Score
from tests.scoring.helpers import GENERATE, a_sample

CITIES = ["Rome", "Paris", "Berlin", "Madrid"]


def judge(reply: str, *, target: object = 1, settings: LetterSettings | None = None) -> Score:
    scorer = LetterScorer(settings or LetterSettings(shuffle=False))
    return scorer.score(scorer.present(a_sample(target, CITIES)), [GenerateResponse(text=reply)])


def test_the_prompt_ends_as_it_should() -> None:
    assert LetterScorer(LetterSettings()).default_template == (
        "{{ question }}\n\n{{ lettered_choices }}\n\nRespond only with the letter of the correct answer:"
    )


def test_variables_show_the_options_with_their_labels() -> None:
    scorer = LetterScorer(LetterSettings(shuffle=False))
    assert scorer.variables(scorer.present(a_sample(1, ["Rome", "Paris"]))) == {
        "lettered_choices": "A. Rome\nB. Paris",
        "labels": ["A", "B"],
        "choices": ["Rome", "Paris"],
    }


def test_up_to_10_tokens_are_generated_whatever_the_suite_generates() -> None:
    scorer = LetterScorer(LetterSettings())
    presented = scorer.present(a_sample(1, CITIES))
    assert scorer.requests(presented, "Q", delimiter=" ", generate=GENERATE) == (
        GenerateRequest("Q", max_tokens=10, stop=("\n",), temperature=0.5, seed=3),
    )


@pytest.mark.parametrize(
    ("style", "count", "first", "last"),
    [
        ("upper", 4, "A", "D"),
        ("upper", 26, "A", "Z"),
        ("upper", 28, "A", "AB"),
        ("upper", 703, "A", "AAA"),
        ("lower", 27, "a", "aa"),
        ("digit", 12, "1", "12"),
    ],
)
def test_labels_of_any_count(style: LabelStyle, count: int, first: str, last: str) -> None:
    labels = option_labels(count, style)
    assert (labels[0], labels[-1], len(labels)) == (first, last, count)
    assert len(set(labels)) == count


@pytest.mark.parametrize(
    ("reply", "style", "count", "label"),
    [
        ("B", "upper", 4, "B"),
        (" B.", "upper", 4, "B"),
        ("(C) Paris", "upper", 4, "C"),
        ("**D**", "upper", 4, "D"),
        ("answer: B", "upper", 4, "B"),
        ("The answer is B", "upper", 4, None),  # T is the first, and not among the options
        ("E", "upper", 4, None),
        ("b", "upper", 4, None),
        ("Б C", "upper", 4, "C"),  # a Cyrillic letter is no label
        ("", "upper", 4, None),
        ("AB", "upper", 28, "AB"),
        ("(AB)", "upper", 28, "AB"),
        ("ZZ", "upper", 28, None),
        ("b", "lower", 4, "b"),
        ("the answer is b.", "lower", 4, "b"),
        ("(c) paris", "lower", 4, "c"),
        ("'d'", "lower", 4, "d"),
        ("i don't know: c", "lower", 4, None),  # i stands alone
        ("don't: c", "lower", 4, "c"),
        ("B", "lower", 4, None),
        ("bad", "lower", 4, None),
        ("option ab", "lower", 28, "ab"),
        ("2", "digit", 4, "2"),
        ("2) Paris", "digit", 4, "2"),
        ("the answer is 12.", "digit", 12, "12"),
        ("12", "digit", 4, None),
        ("02", "digit", 4, None),
        ("1" * 100_000, "digit", 4, None),
        ("٢", "digit", 4, None),
    ],
)
def test_the_first_label_shaped_piece_is_the_answer(
    reply: str, style: LabelStyle, count: int, label: str | None
) -> None:
    assert find_label(reply, option_labels(count, style), style) == label


def test_right_wrong_and_no_answer() -> None:
    right, wrong, none = judge("B"), judge("A"), judge("Z")
    assert (right.status, right.answer, right.no_answer) == ("correct", "B", False)
    assert (wrong.status, wrong.answer, wrong.no_answer) == ("wrong", "A", False)
    assert (none.status, none.answer, none.no_answer) == ("wrong", None, True)
    assert [score.values["accuracy"] for score in (right, wrong, none)] == [1.0, 0.0, 0.0]


def test_chance_is_right_options_over_options_shown() -> None:
    score = judge("C", target=[0, 1])
    assert score.chance == 0.5
    assert score.values["skill"] == pytest.approx(-1.0)
    assert judge("A", target=0).chance == 0.25
    assert judge("B", target=0).values["skill"] == pytest.approx((0 - 0.25) / 0.75)


def test_any_right_option_counts() -> None:
    assert [judge(reply, target=[0, 2]).status for reply in "ABCD"] == ["correct", "wrong", "correct", "wrong"]


@given(st.lists(st.text(max_size=2), min_size=2, max_size=30), st.text(min_size=1), st.integers(0, 5), st.data())
def test_a_shuffle_is_a_permutation_that_keeps_what_is_right(
    choices: list[str], sample_id: str, seed: int, data: st.DataObject
) -> None:
    right = data.draw(st.integers(0, len(choices) - 1))
    presented = LetterScorer(LetterSettings(shuffle_seed=seed)).present(a_sample(right, choices, id=sample_id))
    assert sorted(presented.order) == list(range(len(choices)))
    assert presented.choices == tuple(choices[index] for index in presented.order)
    assert [presented.order[place] for place in presented.right] == [right]


def test_an_order_depends_on_seed_and_id_alone() -> None:
    choices = [str(number) for number in range(20)]

    def order(sample_id: str, seed: int = 0) -> tuple[int, ...]:
        scorer = LetterScorer(LetterSettings(shuffle_seed=seed))
        # Others that are presented before it, by the same scorer, change nothing.
        scorer.present(a_sample(0, choices, id="before"))
        return scorer.present(a_sample(0, choices, id=sample_id, line=99, question="other")).order

    assert order("q1") == LetterScorer(LetterSettings()).present(a_sample(5, choices, id="q1")).order
    assert len({order("q1"), order("q2"), order("q3"), order("q1", seed=1)}) == 4


def test_an_order_is_the_same_in_another_process() -> None:
    code = (
        "from pytest_llmeval.scoring.letter import LetterScorer\n"
        "from pytest_llmeval.suites.schema import LetterSettings\n"
        "from pytest_llmeval.types import Sample\n"
        "s = Sample(id='q1', path='p', line=1, choices=tuple('abcdefgh'), target=0)\n"
        "print(*LetterScorer(LetterSettings()).present(s).order)"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    here = LetterScorer(LetterSettings()).present(a_sample(0, "abcdefgh")).order
    assert other.stdout.split() == [str(index) for index in here]


def test_details_record_order_and_labels() -> None:
    scorer = LetterScorer(LetterSettings(labels="digit"))
    presented = scorer.present(a_sample(1, CITIES))
    score = scorer.score(presented, [GenerateResponse(text="1")])
    assert score.details == {"order": list(presented.order), "labels": ["1", "2", "3", "4"]}


def test_target_and_few_shot_answer_are_labels() -> None:
    scorer = LetterScorer(LetterSettings(shuffle=False))
    one, two = scorer.present(a_sample("Berlin", CITIES)), scorer.present(a_sample([3, 1], CITIES))
    assert (one.target, scorer.answer_text(one)) == ("C", "C")
    assert (two.target, scorer.answer_text(two)) == (("B", "D"), "B")


def test_options_of_excluded_types_are_left_out() -> None:
    scorer = LetterScorer(LetterSettings(exclude_types=("negation", "joke")))
    sample = a_sample(2, CITIES, choice_types=("place", "negation", "place", "joke"))
    presented = scorer.present(sample)
    assert sorted(presented.order) == [0, 2]
    assert presented.labels == ("A", "B")
    assert scorer.score(presented, [GenerateResponse(text="C")]).no_answer
    assert scorer.score(presented, [GenerateResponse(text="A")]).chance == 0.5


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ((), r"exclude_types \['negation'\] needs one type for each of the 4 choices in choice_types, found 0"),
        (("a", "b"), "found 2"),
        (("negation", "negation", "negation", "a"), "1 of 4 are left and 0 of them are right"),
        (("a", "negation", "a", "a"), "3 of 4 are left and 0 of them are right"),
        (("negation", "a", "negation", "negation"), "1 of 4 are left and 1 of them are right"),
    ],
)
def test_an_exclusion_that_leaves_no_question_is_refused(types: tuple[str, ...], message: str) -> None:
    scorer = LetterScorer(LetterSettings(exclude_types=("negation",)))
    with pytest.raises(ValueError, match=message):
        scorer.present(a_sample(1, CITIES, choice_types=types))


def test_an_exclusion_that_leaves_only_right_options_is_refused() -> None:
    scorer = LetterScorer(LetterSettings(exclude_types=("negation",)))
    with pytest.raises(ValueError, match="2 of 3 are left and 2 of them are right"):
        scorer.present(a_sample([0, 1], CITIES[:3], choice_types=("a", "a", "negation")))


def test_types_without_an_exclusion_are_not_needed() -> None:
    assert LetterScorer(LetterSettings()).present(a_sample(0, CITIES, choice_types=("a",))).labels == tuple("ABCD")
