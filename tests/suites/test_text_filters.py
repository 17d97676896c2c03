"""Filters that read values out of texts, bounded in time and memory, and templates that write them as Python does."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.templates.templates import TemplateError, Templates


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{{ x | literal }}", ["a", "b"]),
        ("{{ [1, 'a'] | literal }}", [1, "a"]),
        ("{% set made %}['{{ y }}', 'z']{% endset %}{{ made | literal }}", ["12", "z"]),
        ("{% set made = 'a' %}{{ made ~ y }}", "a12"),
        ("{{ y | index_or_text }}", 12),
        ("{{ '0' | index_or_text }}", 0),
        ("{{ '007' | index_or_text }}", "007"),
        ("{{ '²' | index_or_text }}", "²"),
        ("{{ 3 | index_or_text }}", 3),
        ("{{ -1 | index_or_text }}", "-1"),
        ("{{ true | index_or_text }}", "True"),
        ("{{ x | index_or_text }}", ["a", "b"]),
        ("{{ y | list_or_text }}", "12"),
        ("{{ 12 | list_or_text }}", "12"),
        ("{{ '[not a list' | list_or_text }}", "[not a list"),
        ("{{ '[nor this]' | list_or_text }}", "[nor this]"),
        ("{{ none | list_or_text }}", "None"),
    ],
)
def test_values_of_texts(source: str, value: object) -> None:
    made = Templates().value(source, {"x": "['a', 'b']", "y": "12"})
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "{{ 'os.remove(1)' | literal }}",
            "the filter 'literal' found 'os.remove(1)', expected a list such as ['a', 'b']",
        ),
        ("{{ ('[' * 5000) | literal }}", "the filter 'literal' found "),
        ("{{ ('-' * 90000 ~ '1') | literal }}", "the filter 'literal' found "),
        ("{{ '9**9**9**9' | literal }}", "the filter 'literal' found '9**9**9**9', expected a list such as ['a', 'b']"),
        ("{{ ('a' * 60 ~ '!') | regex_replace('(a|aa)+$', '') }}", "the filter 'regex_replace' takes longer than 1 s"),
        ("{{ 'aaa' | regex_replace('(', '') }}", "the filter 'regex_replace': missing ) at position 1"),
    ],
)
def test_refused(source: str, message: str) -> None:
    with pytest.raises(TemplateError) as refused:
        Templates().value(source, {})
    assert str(refused.value).startswith(message)


TEXTS = st.text(alphabet="ab1 .\n", max_size=12)


@given(
    TEXTS,
    st.sampled_from(["a", "[0-9]+", "a|b", "b*", r"(a)(b)?", r"\s"]),
    st.sampled_from(["", "x", r"<\1>", r"\g<0>!"]),
)
def test_regex_replace_is_re_sub(text: str, pattern: str, replacement: str) -> None:
    if "\\1" in replacement and "(" not in pattern:
        replacement = "y"
    made = Templates().text("{{ t | regex_replace(p, r, 2) }}", {"t": text, "p": pattern, "r": replacement})
    assert made == re.sub(pattern, replacement, text, count=2)


def test_python_values_are_written_as_python_writes_them() -> None:
    row = {"xs": [1, "a"], "q": {"k": None}, "n": None}
    source = "{{ xs }} {{ q }} {{ n }} {{ q.k }}"
    assert Templates(python_values=True).text(source, row) == "[1, 'a'] {'k': None} None None"
    for part in source.split(" {{"):
        with pytest.raises(TemplateError):
            Templates().text(part if part.startswith("{{") else "{{" + part, row)
    with pytest.raises(TemplateError, match="'missing' is undefined"):
        Templates(python_values=True).text("{{ missing }}", row)
