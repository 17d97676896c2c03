"""``regex`` with a time limit finds what ``re`` finds."""

from __future__ import annotations

import pickle
import re
import sys
import unicodedata
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.scoring.regular_expressions import PythonRegex, found_text

PATTERNS = [
    # of lm-eval's own task files
    r"#### (\-?[0-9\.\,]+)",
    r"(-?[$0-9.,]{2,})|(-?[0-9]+)",
    r"(?<=The answer is )(.*)(?=.)",
    r"The answer is (\-?[0-9\.\,]*[0-9]+)",
    r"answer is \(?([ABCDEFGHIJ])\)?",
    r"^(.*?)(?=\n|$)",
    r"^(.*?)\s*$",
    r"\b(True|False)\b",
    r"[Aa]nswer\s*:[^A-D]*([A-D])|\\boxed\{([A-D])\}",
    r"(?<= )([\" \[\(<{}>\)\]]+)|([\" \[\(<{}>\)\]]+)",
    # where the two packages are known to differ, or the translation has something to do
    r"\w+",
    r"[\W]+",
    r"[^\W\d]+",
    r"[^\w\W]",
    r"[\s\S]*?x",
    r"[^\S\n]+",
    r"\bword\b",
    r"\B",
    r"a{e}",
    r"(?:a{i<=1})",
    r"x{,2}y",
    r"x{,}",
    r"[[:alpha:]]+",
    r"[a[b]+",
    r"[]a]+",
    r"[^]a]+",
    r"[\]a-]+",
    r"[\b]",
    r"\d+(?#\w[)x",
    r"(?x) a \s # [ comment",
    r"(?a:\w+)",
    r"(?i)[a-z]+k",
    r"(?m)^.*$",
    r"(a)?(b)?c",
    r"(?P<x>\d+)(?P=x)",
    r"(a)|(b)|",
    r"\Z|\A",
    r"a++b|(?>a+)c",
]
PIECES = st.sampled_from(
    [
        *'abcABCDEx k0129.,$:-()[]{}\n\r\t "\\#_<>ßſKİकि한٣²Ⅷ\x00\x1c\x1f\xa0\u200d\u2028\ud800',
        *(
            "The answer is ",
            "answer is ",
            "Answer: ",
            "#### ",
            "word",
            "[:alpha:]",
            "{e}",
            "{i<=1}",
            "\\boxed{A}",
            "True",
        ),
    ]
)
TEXTS = st.lists(PIECES, max_size=20).map("".join)


@pytest.mark.parametrize("pattern", PATTERNS)
@given(text=TEXTS)
def test_as_re_finds_it(pattern: str, text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # re warns of what looks like a nested set
        expected = re.compile(pattern)
    ours = PythonRegex.of(pattern)
    assert ours.compiled.findall(text) == expected.findall(text)
    assert ours.removed(text) == expected.sub("", text)


def test_classes_of_characters_are_those_of_re() -> None:
    """Every character that this Python's Unicode knows."""
    known = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) != "Cn"]
    for pattern in (r"\w", r"\s", r"\d", r"[^\W_]"):
        ours, expected = PythonRegex.of(pattern).compiled, re.compile(pattern)
        different = [character for character in known if bool(ours.match(character)) != bool(expected.match(character))]
        assert not different, pattern


@pytest.mark.parametrize(
    ("place", "found"), [("first", "1"), ("last", "3"), (0, "1"), (1, "2"), (-1, "3"), (-3, "1"), (3, None), (-4, None)]
)
def test_a_match_by_its_place(place: int | str, found: str | None) -> None:
    match = PythonRegex.of(r"\d").find("a1b2c3", place)  # type: ignore[arg-type]
    assert (match and match[0]) == found


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [("a.", "xab", "ab"), ("a(.)?", "xa", ""), ("(a)|(b)", "b", "b"), ("(a)?(b)?c", "c", None)],
)
def test_the_text_that_lm_eval_takes_of_a_match(pattern: str, text: str, found: str | None) -> None:
    match = PythonRegex.of(pattern).find(text)
    assert match is not None
    assert found_text(match) == found


def test_a_search_without_end_is_stopped() -> None:
    ours = PythonRegex.of(r"(?:a|aa)+[bc]$", timeout_s=0.05)
    for search in (ours.find, ours.removed):
        with pytest.raises(TimeoutError):
            search("a" * 200)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("([", "pattern '([' is not a regular expression: unterminated character set at position 1"),
        (r"\p{L}", "pattern '\\\\p{L}' is not a regular expression: bad escape \\p at position 0"),
        ("((a{999}){999}){999}", "pattern '((a{999}){999}){999}' repeats more than 100000 things by its counts"),
        ("(" * 5_000, "(((… is too large to compile (RecursionError)"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_named(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        PythonRegex.of(pattern)


def test_it_travels_to_workers() -> None:
    ours = PythonRegex.of(r"\w+", ignore_case=True)
    copy = pickle.loads(pickle.dumps(ours))
    assert copy == ours
    match = copy.find("a b", "last")
    assert match is not None
    assert match[0] == "b"
