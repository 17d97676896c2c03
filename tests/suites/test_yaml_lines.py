"""YAML as data: scalars, lines, aliases, merges."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmeval.data.files import Source
from pytest_llmeval.data.yaml_reader import Document, parse_yaml
from pytest_llmeval.errors import SuiteError


def parse(text: str) -> Document:
    return parse_yaml(text, Source(Path("x.yaml"), "x.yaml"))


SCALARS: dict[str, object] = {
    "yes": "yes",
    "No": "No",
    "on": "on",
    "true": True,
    "FALSE": False,
    "null": None,
    "~": None,
    "": None,
    "'null'": "null",
    "12:30": "12:30",
    "2020-01-01": "2020-01-01",
    "1_000": "1_000",
    "010": 10,
    "0o10": 8,
    "0x1F": 31,
    "-7": -7,
    "+7": 7,
    "'7'": "7",
    "1.50": 1.5,
    "1e3": 1000.0,
    ".5": 0.5,
    "-.inf": float("-inf"),
    "1.2.3": "1.2.3",
    "!!str 7": "7",
    "! 7": "7",
    "!!int '7'": 7,
    "!!float 7": 7.0,
    "!!bool true": True,
    "!!null ''": None,
    "|\n  a\n  b\n": "a\nb\n",
    "=": "=",
    "1" * 100: int("1" * 100),
}


@pytest.mark.parametrize(("text", "value"), SCALARS.items(), ids=[text[:20] for text in SCALARS])
def test_scalars(text: str, value: object) -> None:
    parsed = parse(f"a: {text}\n").value
    assert isinstance(parsed, dict)
    assert parsed["a"] == value
    assert type(parsed["a"]) is type(value)


def test_every_key_and_entry_has_its_line() -> None:
    document = parse("# c\na: 1\nb:\n  - x\n  - c: |\n      text\n    d: {e: 1,\n      f: 2}\n")
    assert dict(document.lines) == {
        (): 2,
        ("a",): 2,
        ("b",): 3,
        ("b", 0): 4,
        ("b", 1): 5,
        ("b", 1, "c"): 5,
        ("b", 1, "d"): 7,
        ("b", 1, "d", "e"): 7,
        ("b", 1, "d", "f"): 8,
    }
    assert document.line(("b", 1, "d", "zzz", 3)) == 7


def test_aliases_and_merges() -> None:
    document = parse("base: &b {x: 1, y: 2}\nother: &o {y: 3, z: 4}\nall:\n  <<: [*o, *b]\n  x: 5\nagain: *b\n")
    assert document.value == {
        "base": {"x": 1, "y": 2},
        "other": {"y": 3, "z": 4},
        "all": {"x": 5, "y": 3, "z": 4},
        "again": {"x": 1, "y": 2},
    }
    assert document.line(("all", "z")) == 4
    assert document.line(("again", "x")) == 6


def test_many_aliases_of_one_value_are_no_bomb() -> None:
    document = parse("a: &a [1, 2]\nb: [" + ", ".join(["*a"] * 20_000) + "]\n")
    assert isinstance(document.value, dict)
    assert document.value["b"] == [[1, 2]] * 20_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("!!int x", "x.yaml:1: found 'x', expected an int as its tag says"),
        ("!!bool 'yes'", "x.yaml:1: found 'yes', expected a bool as its tag says"),
        ("!!timestamp 2020-01-01", "x.yaml:1: found the tag '!!timestamp', expected none; "
        "a suite is data, no code runs from it"),
        ("!mine {}", "x.yaml:1: found the tag '!mine', expected none; a suite is data, no code runs from it"),
        ("!!set {a}", "x.yaml:1: found the tag '!!set', expected none; a suite is data, no code runs from it"),
        ("1" * 5_000, "x.yaml:1: found '11111111111111111111111111111111111111111111111111111111111…', "
         "expected a number of at most 4,300 digits; put it in quotes"),
    ],
)  # fmt: skip
def test_refused_scalars(text: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        parse(f"a: {text}\n")
    assert str(caught.value) == message


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize("quotes", ["", '"', "'"])
def test_a_line_ends_at_a_line_feed_only(end: str, quotes: str) -> None:
    """As YAML 1.2 says; the stand-ins of such characters are none that the text has."""
    text = f"a: {quotes}x{end}y\ue000{quotes}\nb{end}c: 1\nd: |\n  e{end}f\n"
    document = parse_yaml(text, Source(Path("s.yaml"), "s.yaml"))
    assert document.value == {"a": f"x{end}y\ue000", f"b{end}c": 1, "d": f"e{end}f\n"}
    assert document.line(("d",)) == 3
