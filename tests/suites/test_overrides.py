"""Overrides: how they are written, what they change, and errors that name them."""

from __future__ import annotations

import pytest

from pytest_llmeval.errors import OptionError, SuiteError
from pytest_llmeval.suites.overrides import Override, parse_override
from pytest_llmeval.suites.schema import LetterSettings
from tests.suites.conftest import Load

SUITE = "suite: mmlu\nscore: letter\nsamples: [{question: a, target: 1}]\nprompt: {fewshot: {count: 0}}\n"


@pytest.mark.parametrize(
    ("text", "suite", "keys", "value"),
    [
        ("mmlu: prompt.fewshot.count=5", "mmlu", ("prompt", "fewshot", "count"), 5),
        ("  *:tags = [a, b] ", "*", ("tags",), ["a", "b"]),
        ("a: b: samples.0.target='x = y'", "a: b", ("samples", 0, "target"), "x = y"),
        ("s: prompt.system=''", "s", ("prompt", "system"), ""),
        ("s: prompt.template='{{ question }}'", "s", ("prompt", "template"), "{{ question }}"),
        ("s: prompt.fewshot=null", "s", ("prompt", "fewshot"), None),
        ("s: score={letter: {labels: lower}}", "s", ("score",), {"letter": {"labels": "lower"}}),
    ],
)
def test_parse(text: str, suite: str, keys: tuple[str | int, ...], value: object) -> None:
    override = parse_override(text)
    assert (override.suite, override.keys, override.value, override.text) == (suite, keys, value, text)


FORM = "expected 'SUITE: KEY=VALUE', such as 'mmlu: prompt.fewshot.count=5' or '*: generate.max_tokens=64'"
UNREADABLE = {
    "mmlu": FORM,
    "": FORM,
    "mmlu: prompt.fewshot.count": FORM,
    "prompt.fewshot.count=5": FORM,
    "mmlu: a..b=5": f"found an empty key in 'a..b'; {FORM}",
    "mmlu: prompt.system=": "the value is missing; write '' for an empty text, null for nothing",
    "mmlu: suite=other": "the name of a suite cannot be set",
    "mmlu: tags=[a": "the value is not YAML: expected ',' or ']' (column 1); put a text with ':', '{' or '#' in quotes",
    "mmlu: prompt.template={{ question }}": (
        "the value found a mapping as a key, expected text; put a template such as '{{ x }}' in quotes; "
        "put a text with ':', '{' or '#' in quotes"
    ),
}


@pytest.mark.parametrize(("text", "message"), UNREADABLE.items(), ids=UNREADABLE.keys())
def test_unreadable(text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_override(text)
    assert str(caught.value) == f"--llm-set {text!r}: {message}"


def test_matching() -> None:
    assert Override("*", ("a",), 1, "").matches("mmlu")
    assert Override("mmlu", ("a",), 1, "").matches("mmlu")
    assert not Override("mml", ("a",), 1, "").matches("mmlu")


def test_values_are_changed_and_named(load: Load) -> None:
    suite = load(
        SUITE,
        {},
        "mmlu: generate.max_tokens=5",
        "other: generate.max_tokens=6",
        "*: samples.0.target=[0, 1]",
        "mmlu: prompt.fewshot=null",
    )
    assert suite.spec.generate.max_tokens == 5
    assert suite.samples[0].target == [0, 1]
    assert suite.spec.prompt.fewshot is None
    assert suite.overridden == (
        "mmlu: generate.max_tokens=5",
        "*: samples.0.target=[0, 1]",
        "mmlu: prompt.fewshot=null",
    )


def test_the_last_override_of_a_key_wins(load: Load) -> None:
    suite = load(SUITE, {}, "mmlu: generate={max_tokens: 5, seed: 1}", "*: generate.max_tokens=7")
    assert (suite.spec.generate.max_tokens, suite.spec.generate.seed) == (7, 1)


@pytest.mark.parametrize(
    "score",
    ["letter", "{letter: {exclude_types: [negation]}}", "{letter: null}", "\n  letter:\n    exclude_types: [x]"],
)
def test_settings_of_a_scorer_in_each_of_its_forms(load: Load, score: str) -> None:
    suite = load(SUITE.replace("score: letter", f"score: {score}"), {}, "mmlu: score.letter.exclude_types=[]")
    assert suite.spec.score == LetterSettings(exclude_types=())


def test_an_anchor_is_changed_in_one_place_only(load: Load) -> None:
    text = "suite: s\nscore: exact\nsamples: [&a {question: q, target: b}, *a]\n"
    suite = load(text, {}, "s: samples.0.question=z")
    assert [sample.question for sample in suite.samples] == ["z", "q"]


MISFITS = {
    "mmlu: prompt.fewshot.cuont=5": "unknown key 'cuont' in prompt.fewshot; did you mean 'count'?",
    "mmlu: prompt.fewshot.count=x": "prompt.fewshot.count: found 'x' (text), expected a whole number",
    "mmlu: promt.fewshot.count=1": "unknown key 'promt'; did you mean 'prompt'?",
    "mmlu: prompt.template.x=3": "prompt.template: found a mapping with the keys 'x', expected text",
    "mmlu: description=[1]": "description: found a list of 1, expected text",
    "mmlu: score=leter": "score: there is no scorer 'leter'; did you mean 'letter'?",
    "mmlu: score.leter.labels=lower": "the suite's scorer is letter; did you mean 'letter'?",
    "mmlu: score.letter.lables=lower": "unknown key 'lables' in score.letter; did you mean 'labels'?",
    "mmlu: samples.3.target=1": "samples is a list of 1, expected the number of an entry, counted from 0, found 3",
    "mmlu: samples.x=1": "samples is a list of 1, expected the number of an entry, counted from 0, found x",
    "mmlu: samples.0.question.x=1": "samples.0.question is 'a' (text), which has no key 'x'",
    "mmlu: samples=[]": "samples: found an empty list, expected samples",
    "mmlu: dataset.path=x.jsonl": "found both samples and dataset, expected one of them",
    "mmlu: prompt.template='{{ x'": (
        "prompt.template: line 1 of the template: unexpected end of template, expected 'end of print statement'"
    ),
    "mmlu: target='{{ x }}'": "target: s.yaml:3: 'x' is undefined; expected one of question, row, target",
    "mmlu: prompt.fewshot.count=1": (
        "prompt.fewshot.count: the data set itself, from which a sample is never shown to itself, "
        "holds 1 examples, expected at least 2"
    ),
}


@pytest.mark.parametrize(("text", "message"), MISFITS.items(), ids=MISFITS.keys())
def test_an_override_that_does_not_fit_is_named(load: Load, text: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(SUITE, {}, text)
    quote = '"' if "'" in text else "'"
    assert str(caught.value) == f"s.yaml: --llm-set {quote}{text}{quote}: {message}"


def test_a_mistake_in_the_file_is_not_blamed_on_an_override(load: Load) -> None:
    with pytest.raises(SuiteError) as caught:
        load(SUITE + "tags: x\n", {}, "mmlu: generate.max_tokens=5")
    assert str(caught.value) == "s.yaml:5: tags: found 'x' (text), expected a list"
