from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.scoring.references import quote, right_choices, target_texts
from tests.scoring.helpers import a_sample

CITIES = ("Rome", "Paris", "Berlin")


@pytest.mark.parametrize(
    ("target", "right"),
    [(0, (0,)), (2, (2,)), ("Paris", (1,)), ("  Paris\n", (1,)), ([2, 0], (0, 2)), (["Berlin", 1, "Paris"], (1, 2))],
)
def test_a_target_is_an_index_a_text_or_a_list_of_them(target: Any, right: tuple[int, ...]) -> None:
    assert right_choices(a_sample(target, CITIES)) == right


def test_choices_are_stripped_for_the_comparison() -> None:
    assert right_choices(a_sample("Paris", [" Rome", " Paris"])) == (1,)


def test_text_of_a_choice_goes_before_its_reading_as_a_number() -> None:
    assert right_choices(a_sample("1", ["1", "2"])) == (0,)
    assert right_choices(a_sample(1, ["1", "2"])) == (1,)


def test_letters_and_digits_of_other_forms_name_a_choice_too() -> None:
    assert right_choices(a_sample("Ｂ", ["A", "B"])) == (1,)
    assert right_choices(a_sample("٢", ["1", "2"])) == (1,)
    assert right_choices(a_sample("Ｂ", ["B", "Ｂ"])) == (1,)


def test_equal_choices_are_fine_for_an_index() -> None:
    assert right_choices(a_sample(2, ["a", "b", "a"])) == (2,)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("Pariss", "target 'Pariss' is not among the choices; did you mean 'Paris'?"),
        ("London", "target 'London' is not among the choices ('Rome', 'Paris', 'Berlin')"),
        (
            "1",
            "target '1' is not among the choices; if it is an index, write `target: \"{{ answer | int }}\"` "
            "with your column's name",
        ),
        (3, "target 3 is out of range: the 3 choices are 0 to 2"),
        (-1, "target -1 is out of range: the 3 choices are 0 to 2"),
        (True, "target True is neither the index nor the text of a choice"),
        (1.0, "target 1.0 is neither the index nor the text of a choice"),
        ({"a": 1}, "target {'a': 1} is neither the index nor the text of a choice"),
        (None, "the sample has no target; expected the index or the text of a choice"),
        ([], "the target is an empty list; expected one or more right choices"),
        ([0, None], "the sample has no target; expected the index or the text of a choice"),
        ([0, 1, "Berlin"], "all 3 choices are right: there is nothing to choose"),
    ],
)
def test_a_target_that_does_not_fit_is_one_clear_line(target: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        right_choices(a_sample(target, CITIES))


@pytest.mark.parametrize(("choices", "found"), [((), "none"), (("Rome",), "only 'Rome'")])
def test_one_choice_is_no_choice(choices: tuple[str, ...], found: str) -> None:
    with pytest.raises(ValueError, match=f"^a sample needs two choices or more, found {found}$"):
        right_choices(a_sample(0, choices))


def test_the_text_of_equal_choices_is_ambiguous() -> None:
    with pytest.raises(ValueError, match=r"target 'a' is ambiguous: 2 choices have this text; give an index"):
        right_choices(a_sample("a", ["a", "b", "a "]))


@pytest.mark.parametrize(
    ("target", "texts"), [("Paris", ("Paris",)), (["a", "b"], ("a", "b")), (42, ("42",)), (0.1, ("0.1",)), ("", ("",))]
)
def test_texts_that_count_as_right(target: Any, texts: tuple[str, ...]) -> None:
    assert target_texts(a_sample(target)) == texts


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (None, "no target"),
        ([], "empty list"),
        (True, r"the target is true, which is not text; put it in quotes"),
        (["a", {"b": 1}], r"the target is \{'b': 1\}; expected a text"),
    ],
)
def test_what_is_no_text_is_refused(target: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        target_texts(a_sample(target))


def test_a_truth_value_of_json_is_said_to_need_a_text() -> None:
    """Quotes are YAML's remedy; a template is one for a column of any other format."""
    with pytest.raises(ValueError, match=r"is not text; say what .* target: \"{{ 'yes' if target else 'no' }}\"$"):
        target_texts(a_sample(True, path="rows.jsonl"))


def complaint(target: str, choices: list[str]) -> str:
    try:
        right_choices(a_sample(target, choices))
    except ValueError as error:
        return str(error)
    return ""


@given(st.text(st.characters()), st.lists(st.text(st.characters()), min_size=2, max_size=5))
def test_errors_stay_on_one_line_whatever_the_data(target: str, choices: list[str]) -> None:
    assert complaint(target, choices).isprintable()


def test_long_values_are_cut() -> None:
    assert len(quote("x" * 10_000_000)) == 60
    assert quote("x\x00\n") == r"'x\x00\n'"
