"""Variants as they are written: in a suite, and with ``--llm-variant``."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.errors import OptionError, SuiteError
from pytest_llmeval.suites.format.variants import VariantError, parse_variant, variants_of
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.suites.loading.suite import Suite

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,8}", fullmatch=True)
KEYS = (
    st.lists(st.from_regex(r"[a-z_]{1,6}", fullmatch=True), min_size=1, max_size=3)
    .map(".".join)
    .filter(lambda key: key.partition(".")[0] not in ("suite", "variants"))
)


@given(NAMES, KEYS, st.integers())
def test_an_option_says_what_a_suite_says(name: str, key: str, value: int) -> None:
    found = parse_variant(f"boolq: {name}: {key}={value}")
    (written,) = variants_of("boolq", {name: {key: value}})
    (added,) = variants_of("boolq", {}, [found])
    assert written.name == added.name == name
    assert [(one.keys, one.value) for one in written.overrides] == [(one.keys, one.value) for one in added.overrides]


@pytest.mark.parametrize(
    ("text", "suite", "name", "keys", "value"),
    [
        ("boolq: hot: generate.temperature=1", "boolq", "hot", ("generate", "temperature"), 1),
        ("*: hot: generate.stop=[a, 'b: c']", "*", "hot", ("generate", "stop"), ["a", "b: c"]),
        ("a: b: c-1: prompt.template='x: {{ y }} = z'", "a: b", "c-1", ("prompt", "template"), "x: {{ y }} = z"),
        ("s:v:prompt.fewshot.samples.0.q=x", "s", "v", ("prompt", "fewshot", "samples", 0, "q"), "x"),
    ],
)
def test_options(text: str, suite: str, name: str, keys: tuple[object, ...], value: object) -> None:
    found = parse_variant(text)
    assert (found.name, found.override.suite, found.override.keys, found.override.value) == (name, suite, keys, value)
    assert found.text == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("boolq", "expected 'SUITE: NAME: KEY=VALUE'"),
        ("boolq: generate.temperature=1", "expected 'SUITE: NAME: KEY=VALUE'"),
        ("boolq: hot", "expected 'SUITE: NAME: KEY=VALUE'"),
        ("boolq: so hot: generate.temperature=1", "found the name 'so hot'"),
        ("boolq: : generate.temperature=1", "found the name ''"),
        ("boolq: hot@1: generate.temperature=1", "found the name 'hot@1'"),
        ("boolq: hot: generate..x=1", "found an empty key in 'generate..x'"),
        ("boolq: hot: generate.x=", "the value is missing"),
        ("boolq: hot: suite=x", "the name of a suite cannot be set"),
        ("boolq: hot: variants={}", "variants cannot be set"),
        ("boolq: hot: prompt.template={{ q }}", "the value "),
    ],
)
def test_options_that_cannot_be_read(text: str, problem: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_variant(text)
    assert str(caught.value).startswith(f"--llm-variant '{text}': {problem}")
    assert "\n" not in str(caught.value)


def test_an_option_adds_to_a_variant_or_adds_one() -> None:
    given = [parse_variant("s: a: x=2"), parse_variant("other: a: x=3"), parse_variant("*: b: y=4")]
    found = variants_of("s", {"a": {"x": 1}}, given)
    assert [(one.name, [(override.keys, override.value) for override in one.overrides]) for one in found] == [
        ("a", [(("x",), 1), (("x",), 2)]),
        ("b", [(("y",), 4)]),
    ]


@pytest.mark.parametrize("written", [{"a": {}}, {"a b": {"x": 1}}, {"a": {"suite": "x"}}, {"a": {"x..y": 1}}])
def test_what_a_suite_cannot_say(written: dict[str, dict[str, object]]) -> None:
    with pytest.raises(VariantError):
        variants_of("s", written)  # type: ignore[arg-type]


ROWS = '{"id": "a", "q": "1", "target": "2"}\n{"id": "b", "q": "2", "target": "3"}\n'
SUITE = """\
suite: s
dataset: {path: rows.jsonl, fields: {question: q}}
prompt: {template: "{{ question }}"}
score: exact
variants:
  long: {prompt.template: "Question: {{ question }}"}
  one: {dataset.limit: 1}
  shots: {prompt.fewshot: {count: 1}}
  wrong: {generate.max_tokens: many}
"""


def load(folder: Path) -> Suite:
    (folder / "rows.jsonl").write_text(ROWS, encoding="utf-8")
    (folder / "s.yaml").write_text(SUITE, encoding="utf-8")
    return load_suite(folder / "s.yaml")


def test_samples_are_shared_where_the_rows_are_read_in_the_same_way(tmp_path: Path) -> None:
    suite = load(tmp_path)
    found = {one.name: one for one in variants_of("s", suite.spec.variants)}
    long, one, shots = (suite.varied(found[name]) for name in ("long", "one", "shots"))
    assert long.name == "s@long"
    assert long.samples is suite.samples
    assert long.spec.prompt.template == "Question: {{ question }}"
    assert [sample.id for sample in one.samples] == ["a"]
    assert [[shot.id for shot in shots.shots_for(sample)] for sample in shots.samples] == [["b"], ["a"]]
    assert suite.shots.count == long.shots.count == 0
    assert suite.overridden == long.overridden == ()


def test_an_error_stands_at_the_line_of_the_variant(tmp_path: Path) -> None:
    suite = load(tmp_path)
    wrong = next(one for one in variants_of("s", suite.spec.variants) if one.name == "wrong")
    with pytest.raises(SuiteError) as caught:
        suite.varied(wrong)
    assert caught.value.line == 9
    assert caught.value.message.startswith("variant wrong: generate.max_tokens: found ")
