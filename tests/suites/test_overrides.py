"""Overrides: how they are written, what they change, and errors that name them."""

from __future__ import annotations

import copy
import json

import pytest

from pytest_llmeval.errors import OptionError, SuiteError
from pytest_llmeval.scorers.letter import LetterSettings
from pytest_llmeval.suites.format.overrides import Override, parse_override
from pytest_llmeval.suites.presets import load_preset
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
        "the value found a mapping as a key, expected text; quote the template: '{{ question }}', not {{ question }}; "
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
    assert str(caught.value) == "s.yaml:5: tags: found 'x' (text), expected a list: tags: [x]"


GSM8K = "suite: g\npreset: gsm8k\ndataset: {path: rows.jsonl}\nprompt: {fewshot: {path: shots.jsonl}}\n"
MATH = "suite: g\npreset: math-minerva\ndataset: {path: math.jsonl}\n"
FILES: dict[str, str | bytes] = {
    "rows.jsonl": '{"question": "q", "answer": "#### 1"}',
    "shots.jsonl": "\n".join(json.dumps({"question": f"e{number}", "answer": "#### 2"}) for number in range(8)),
    "math.jsonl": '{"problem": "p", "solution": "\\\\boxed{1}"}',
}


def test_a_part_of_what_a_preset_says_is_changed_there(load: Load) -> None:
    before = copy.deepcopy(load_preset("gsm8k").defaults)
    texts = [
        "g: score.several.scorers.strict.score=number",
        "g: generate.stop.0=X",
        "g: score.several.decides=flexible",
    ]
    suite = load(GSM8K, FILES, *texts)
    score = suite.spec.score.model_dump()
    assert list(score["scorers"]) == ["strict", "flexible"]
    assert score["scorers"]["strict"]["score"] == {"kind": "number"}
    assert score["scorers"]["strict"]["filters"][0]["kind"] == "regex"
    assert score["decides"] == "flexible"
    assert suite.spec.generate.stop == ("X", "</s>", "<|im_end|>")
    assert suite.overridden == tuple(texts)
    assert load_preset("gsm8k").defaults == before, "they are shared by all suites"
    assert load(GSM8K, FILES).spec.generate.stop[0] == "Question:"


def test_an_example_of_a_preset_is_changed(load: Load) -> None:
    before = copy.deepcopy(load_preset("math-minerva").defaults)
    suite = load(MATH, FILES, "g: prompt.fewshot.samples.0.problem=XX")
    shown = [shot.question for shot in suite.shots_for(suite.samples[0])]
    assert (shown[0], len(shown)) == ("XX", 4)
    assert load_preset("math-minerva").defaults == before


def test_parts_and_wholes_of_a_preset_in_order(load: Load) -> None:
    part, whole = "g: generate.stop.0=X", "g: generate.stop=[Y, Z]"
    assert load(GSM8K, FILES, part, whole).spec.generate.stop == ("Y", "Z")
    assert load(GSM8K, FILES, whole, part).spec.generate.stop == ("X", "Z")
    generate = load(GSM8K, FILES, "g: generate.max_tokens=7", "g: generate={seed: 3}").spec.generate
    assert (generate.seed, generate.max_tokens) == (3, 256), "as the suite's own key: the preset's other keys stay"


def test_a_source_of_an_override_replaces_the_presets(load: Load) -> None:
    bare = "suite: g\npreset: gsm8k\n"
    suite = load(bare, FILES, "g: dataset.path=rows.jsonl", "g: prompt.fewshot.path=shots.jsonl")
    assert suite.spec.dataset is not None
    assert (suite.spec.dataset.hub, suite.spec.dataset.split) == (None, None)
    assert len(suite.shots_for(suite.samples[0])) == 5
    samples = "g: prompt.fewshot.samples=[{problem: a, solution: b}]"
    suite = load(MATH, FILES, samples, "g: prompt.fewshot.count=1")
    assert [shot.question for shot in suite.shots_for(suite.samples[0])] == ["a"]
    suite = load("suite: g\nscore: exact\ndataset: {path: rows.jsonl}\n", FILES, "g: preset=gsm8k", NO_SHOTS)
    assert suite.spec.generate.stop[0] == "Question:"
    suite = load(bare, FILES, "g: dataset.path=rows.jsonl", NO_SHOTS)
    assert suite.shots_for(suite.samples[0]) == ()


NO_SHOTS = "g: prompt.fewshot.count=0"
MISFITS_OF_PRESETS = {
    "g: score.several.decides=flexble": (
        "score.several.decides: there is no scorer 'flexble' in scorers; did you mean 'flexible'?"
    ),
    "g: score.several.scorers.strict.filters.0.regex.patern=x": (
        "unknown key 'patern' in score.several.scorers.strict.filters.0.regex; did you mean 'pattern'?"
    ),
    "g: score.exact.allow_empty=true": "the suite's scorer is several; expected one of several",
    "g: generate.stop.9=X": "generate.stop is a list of 3, expected the number of an entry, counted from 0, found 9",
    "g: generate.stop.0=''": ("generate.stop: found an empty text, at which every reply would stop at once; remove it"),
    "g: prompt.fewshot.path=shot.jsonl": (
        "prompt.fewshot.path: shot.jsonl: there is no such file; did you mean 'shots.jsonl'?"
    ),
}


@pytest.mark.parametrize(("text", "message"), MISFITS_OF_PRESETS.items(), ids=MISFITS_OF_PRESETS.keys())
def test_an_override_that_does_not_fit_a_preset_is_named(load: Load, text: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(GSM8K, FILES, text)
    quote = '"' if "'" in text else "'"
    assert str(caught.value) == f"s.yaml: --llm-set {quote}{text}{quote}: {message}"


def test_an_example_of_a_preset_that_an_override_breaks(load: Load) -> None:
    text = "g: prompt.fewshot.samples.0.problem=[1]"
    with pytest.raises(SuiteError) as caught:
        load(MATH, FILES, text)
    assert str(caught.value) == f"s.yaml: --llm-set {text!r}: sample '1': question: found a list of 1, expected text"
