"""Lists and mappings that a CSV has as text: in JSON, as Python shows them, and what is neither."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.text.documents import context_texts, found_documents, written_value


@given(st.lists(st.one_of(st.text(), st.integers(), st.none(), st.dictionaries(st.text(), st.text()))))
def test_what_python_or_json_writes_is_read(value: list[object]) -> None:
    assert written_value(json.dumps(value)) == value
    if not value or isinstance(value[0], str | dict):
        assert written_value(repr(value)) == value


@given(st.text())
def test_any_other_text_is_a_text_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(written_value(text), list | dict | None)


@pytest.mark.parametrize("text", ["", "It hangs by the door.", "[1] A citation", "[sic]", "5", '"a"', "['a', 'b'"])
def test_texts_that_are_none(text: str) -> None:
    assert written_value(text) is None
    assert context_texts(text) == (text,)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("['a' 'b']", "a list without commas between its texts, as numpy shows arrays; write it as JSON"),
        ("['a'\n 'b']", "a list without commas between its texts"),
        ("['a', nan]", "which is written as a list and is none in JSON or in Python; write it as JSON"),
        ("['a', array(['b'])]", "which is written as a list and is none"),
        ("{'a': b}", "which is written as a mapping and is none"),
        ("['" + "[" * 5000 + "']" + "]" * 5000 + "]", "which is written as a list and is none"),
    ],
)
def test_what_is_written_as_a_list_and_is_none_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match="found ") as caught:
        written_value(text)
    assert problem in str(caught.value)


def test_contexts_in_every_form() -> None:
    ragas = """['It hangs by the door.', "Bob's shelf is blue."]"""
    assert context_texts(ragas) == ("It hangs by the door.", "Bob's shelf is blue.")
    assert context_texts('["a"]') == ("a",)
    assert context_texts("[{'text': 'a'}, 'b']") == ("a", "b")
    assert context_texts("[]") == ()
    assert context_texts("[1]") == ("[1]",), "the number of a source"
    assert context_texts("{'a': b}") == ("{'a': b}",), "a mapping is no list of contexts"
    with pytest.raises(ValueError, match="without commas"):
        context_texts("['a' 'b']")
    with pytest.raises(ValueError, match="entry 2 is nothing"):
        context_texts("['a', None]")


def test_documents_as_python_shows_them() -> None:
    assert found_documents("['d3', 'd1']") == (("d3", None), ("d1", None))
    assert found_documents("{'d1': 0.5, 'd3': 0.9}") == (("d3", 0.9), ("d1", 0.5))
