"""Every mistake in a suite file is one sentence with the file, the line and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.scorers import SCORERS
from pytest_llmeval.suites.format import pydantic_errors
from pytest_llmeval.suites.format.schema import SuiteSpec
from pytest_llmeval.suites.loading.loader import load_suite
from tests.suites.conftest import Load

HEAD = "suite: s\nscore: exact\n"
ONE = "samples: [{question: a, target: b}]\n"

BOMB = (
    HEAD
    + "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{name}: &{name} [{','.join([f'*{below}'] * 10)}]\n" for below, name in zip("abcdef", "bcdefg", strict=True)
    )
)

NOT_YAML = {
    "tab indents": (
        HEAD + "prompt:\n\ttemplate: x\n",
        "4: is not YAML: found a tab, expected spaces; tabs cannot indent YAML",
    ),
    "tab indents a later key": (
        HEAD + "prompt:\n  template: x\n\tchat: true\n",
        "5: is not YAML: found a tab, expected spaces; tabs cannot indent YAML",
    ),
    "colon in a text": (
        "suite: s: t\n",
        "1: is not YAML: mapping values are not allowed in this context (column 9); quote a text that holds ': '",
    ),
    "indented too far": (
        HEAD + "dataset:\n  path: r.jsonl\n   format: jsonl\n",
        "5: is not YAML: mapping values are not allowed in this context (column 10); the line begins with 3 spaces, "
        "line 4 with 2: check the indentation",
    ),
    "indented at the top": (
        "suite: s\n # a comment\n score: exact\n",
        "3: is not YAML: expected key (column 2); the line begins with 1 space, line 1 with 0: check the indentation",
    ),
    "indented too little": (
        HEAD + "dataset:\n    path: r.jsonl\n  format: jsonl\n",
        "5: is not YAML: expected key (column 3); the line begins with 2 spaces, line 4 with 4: check the indentation",
    ),
    "an entry's keys": (
        HEAD + "samples:\n  - question: a\n   target: b\n",
        "5: is not YAML: expected '-' indicator (column 4); the line begins with 3 spaces, line 4 with 2: check the "
        "indentation",
    ),
    "a template after a text": (
        HEAD + "target: Q: {{ question }}\n",
        "3: is not YAML: mapping values are not allowed in this context (column 10); quote the template that "
        "holds ': '",
    ),
    "a template that begins with a statement": (
        HEAD + "target: {% if a %}b{% endif %}\n",
        "3: is not YAML: found '%' at the start of a value (column 10); quote the template",
    ),
    "open bracket": ("suite: s\nscore: [exact\nsamples: []\n", "3: is not YAML: expected ',' or ']' (column 8)"),
    "open quote": ("suite: s\nscore: 'exact\n", "2: is not YAML: found a quote that is never closed"),
    "at sign": ("suite: @s\n", "1: is not YAML: found '@' at the start of a value (column 8); quote the text"),
    "duplicate key": (HEAD + "score: letter\n", "3: found the key 'score' twice, first in line 2; remove one"),
    "duplicate key deep": (
        HEAD + "samples:\n- target: a\n  target: b\n",
        "5: found the key 'target' twice, first in line 4; remove one",
    ),
    "NUL": (HEAD + "description: a\0b\n", "3: is not YAML: found a control character (NUL, U+0000), expected text"),
    "bell": (HEAD + "description: a\x07b\n", "3: is not YAML: found a control character (U+0007), expected text"),
    "latin-1": (
        (HEAD + "description: café\n").encode("latin-1"),
        "3: is not UTF-8: found the byte 0xE9, expected UTF-8; save the file as UTF-8",
    ),
    "utf-16": (
        HEAD.encode("utf-16"),
        "1: is not UTF-8: found UTF-16, expected UTF-8; save the file as UTF-8",
    ),
    "alias bomb": (BOMB, "7: its aliases expand to more than 100,000 values; put rows in a data set file"),
    "alias of itself": (HEAD + "samples: &a [*a]\n", "3: the alias *a has no anchor &a that ends before it"),
    "Python tag": (
        HEAD + "samples: !!python/object/apply:os.system [ls]\n",
        "3: found the tag '!!python/object/apply:os.system', expected none; a suite is data, no code runs from it",
    ),
    "brackets": (HEAD + "samples: " + "[" * 100_000, "3: is nested more than 100 levels deep; flatten it"),
    "template without quotes": (
        HEAD + "target: {{ x }}\n",
        "3: found a mapping as a key, expected text; quote the template: '{{ question }}', not {{ question }}",
    ),
    "number as a key": (HEAD + "1: x\n", "3: found 1 (a whole number) as a key, expected text; put it in quotes"),
    "merge of text": (
        HEAD + "<<: x\n",
        "3: '<<' merges mappings only; expected an alias of a mapping, or a list of them",
    ),
    "two documents": (
        HEAD + ONE + "---\nsuite: t\n",
        "4: found a second YAML document ('---'), expected one; put it in a file of its own",
    ),
    "empty": ("", "1: found nothing (null), expected a mapping with the keys of a suite"),
    "a list": ("- a\n- b\n", "1: found a list of 2, expected a mapping with the keys of a suite"),
}

NOT_A_SUITE = {
    "unknown key": (HEAD + "smaples: []\n", "3: unknown key 'smaples'; did you mean 'samples'?"),
    "unknown key deep": (
        HEAD + ONE + "prompt:\n  fewshot: {count: 1,\n    sed: 1}\n",
        "6: unknown key 'sed' in prompt.fewshot; did you mean 'seed'?",
    ),
    "unknown key like none": (
        HEAD + ONE + "generate: {zzz: 1}\n",
        "4: unknown key 'zzz' in generate; expected one of max_tokens, stop, temperature, top_p, top_k, "
        "repetition_penalty, seed, reasoning",
    ),
    "unknown key like none at the top": (
        HEAD + ONE + "zzz: 1\n",
        f"4: unknown key 'zzz'; expected one of {', '.join(SuiteSpec.model_fields)}",
    ),
    "two mistakes": (
        HEAD + ONE + "tags: 3\ndescription: 4\n",
        "4: tags: found 3 (a whole number), expected a list\n"
        "s.yaml:5: description: found 4 (a whole number), expected text; put it in quotes",
    ),
    "bool expected": (
        HEAD + ONE + "prompt: {chat: yes}\n",
        "4: prompt.chat: found 'yes' (text), expected true or false",
    ),
    "whole number expected": (
        HEAD + ONE + "generate: {max_tokens: 2.5}\n",
        "4: generate.max_tokens: found 2.5 (a number), expected a whole number",
    ),
    "bool for a whole number": (
        HEAD + ONE + "generate: {max_tokens: true}\n",
        "4: generate.max_tokens: found true (a bool), expected a whole number",
    ),
    "too small": (
        HEAD + ONE + "generate: {max_tokens: 0}\n",
        "4: generate.max_tokens: found 0 (a whole number), expected a number of at least 1",
    ),
    "temperature": (
        HEAD + ONE + "generate: {temperature: -0.5}\n",
        "4: generate.temperature: found -0.5 (a number), expected a number of at least 0",
    ),
    "temperature NaN": (
        HEAD + ONE + "generate: {temperature: .nan}\n",
        "4: generate.temperature: found nan (a number), expected a finite number",
    ),
    "stop": (
        HEAD + ONE + "generate: {stop: 1}\n",
        "4: generate.stop: found 1 (a whole number), expected text or a list of texts",
    ),
    "empty stop": (
        HEAD + ONE + "generate: {stop: ['']}\n",
        "4: generate.stop: found an empty text, at which every reply would stop at once; remove it",
    ),
    "mapping expected": (HEAD + ONE + "prompt: x\n", "4: prompt: found 'x' (text), expected a mapping"),
    "name is a number": (
        "suite: 5\nscore: exact\n" + ONE,
        "1: suite: found 5 (a whole number), expected text; put it in quotes",
    ),
    "name is empty": ("suite: ''\nscore: exact\n" + ONE, "1: suite: found an empty name, expected text"),
    "name of two lines": (
        'suite: "a\\nb"\nscore: exact\n' + ONE,
        r"1: suite: found 'a\nb', expected a name on one line without control characters",
    ),
    "name is a star": (
        "suite: '*'\nscore: exact\n" + ONE,
        "1: suite: found the name '*', which stands for all suites in --llm-set; expected another",
    ),
    "tag": (
        HEAD + ONE + "tags: [smoke, a b]\n",
        "4: tags: found 'a b', expected a word of letters, digits, '_' and '-' that begins with a letter",
    ),
    "no score": ("suite: s\n" + ONE, "1: the key 'score' is missing"),
    "scorer": ("suite: s\nscore: leter\n" + ONE, "2: score: there is no scorer 'leter'; did you mean 'letter'?"),
    "scorer like none": (
        "suite: s\nscore: judge\n" + ONE,
        f"2: score: there is no scorer 'judge'; expected one of {', '.join([*SCORERS][:24])}, …",
    ),
    "stride of nothing": (
        "suite: s\nscore: {perplexity: {stride: 0}}\n" + ONE,
        "2: score.perplexity.stride: found 0 (a whole number), expected a number of at least 1",
    ),
    "stride in text": (
        "suite: s\nscore:\n  perplexity:\n    stride: half\n" + ONE,
        "4: score.perplexity.stride: found 'half' (text), expected a whole number",
    ),
    "stride of disjoint windows": (
        "suite: s\nscore:\n  perplexity: {windows: disjoint, stride: 512}\n" + ONE,
        "3: score.perplexity: found a stride, with which windows are sliding, not disjoint; remove one of the two",
    ),
    "sliding without a stride": (
        "suite: s\nscore:\n  perplexity: {windows: sliding}\n" + ONE,
        "3: score.perplexity: found windows 'sliding' without a stride; add one, such as stride: 512",
    ),
    "windows": (
        "suite: s\nscore: {perplexity: {windows: disjunct}}\n" + ONE,
        "2: score.perplexity.windows: found 'disjunct' (text), expected one of disjoint, sliding; did you mean "
        "'disjoint'?",
    ),
    "two scorers": (
        "suite: s\nscore: {letter: {}, choice: {}}\n" + ONE,
        "2: score: found 2 names (letter, choice), expected the name of one scorer",
    ),
    "score is a list": (
        "suite: s\nscore: [letter]\n" + ONE,
        "2: score: found a list of 1, expected the name of a scorer, or one name with its settings",
    ),
    "setting": (
        "suite: s\nscore:\n  letter:\n    lables: upper\n" + ONE,
        "4: unknown key 'lables' in score.letter; did you mean 'labels'?",
    ),
    "value of a setting": (
        "suite: s\nscore:\n  letter:\n    labels: uper\n" + ONE,
        "4: score.letter.labels: found 'uper' (text), expected one of upper, lower, digit; did you mean 'upper'?",
    ),
    "settings are a number": (
        "suite: s\nscore: {letter: 1}\n" + ONE,
        "2: score.letter: found 1 (a whole number), expected a mapping of its settings",
    ),
    "setting is missing": ("suite: s\nscore: pattern\n" + ONE, "2: the key 'pattern' is missing in score.pattern"),
    "kind is no setting": (
        "suite: s\nscore: {exact: {kind: exact}}\n" + ONE,
        "2: unknown key 'kind' in score.exact",
    ),
    "neither": (HEAD, "1: found neither samples nor dataset, expected one of them"),
    "both": (
        HEAD + ONE + "dataset: {path: x.jsonl}\n",
        "4: found both samples and dataset, expected one of them",
    ),
    "samples is text": (HEAD + "samples: x\n", "3: samples: found 'x' (text), expected a list"),
    "a sample is text": (HEAD + "samples:\n- {}\n- x\n", "5: samples.1: found 'x' (text), expected a mapping"),
    "no samples": (HEAD + "samples: []\n", "3: samples: found an empty list, expected samples"),
}

NOT_A_SAMPLE = {
    "some ids": (
        "- {id: a}\n- {}\n",
        "5: the row has no id, s.yaml:4 has one; give ids to all rows, or to none (the row numbers are used then)",
    ),
    "same id": (
        "- {id: 1}\n- {id: '1'}\n",
        "5: found the id '1' twice, first in s.yaml:4; ids are unique in a suite",
    ),
    "same id after NFC": (
        '- {id: "caf\\u00e9"}\n- {id: "cafe\\u0301"}\n',
        "5: found the id 'café' twice, first in s.yaml:4; ids are unique in a suite",
    ),
    "id is a bool": ("- {id: true}\n", "4: id: found true (a bool), expected text or a whole number"),
    "id is a float": ("- {id: 1.5}\n", "4: id: found 1.5 (a number), expected text or a whole number"),
    "id is a list": ("- {id: [1]}\n", "4: id: found a list of 1, expected text or a whole number"),
    "id is empty": ("- {id: ' '}\n", "4: id: found an empty text, expected an id"),
    "id like a gate": (
        "- {id: 'gate[x'}\n",
        "4: id: found 'gate[x', expected an id that does not begin with 'gate[', which names gates",
    ),
    "id with a line break": (
        '- {id: "a\\nb"}\n',
        r"4: id: found 'a\nb' with the character U+000A, expected an id without control characters",
    ),
    "choices is text": ("- {choices: a}\n", "4: sample '1': choices: found 'a' (text), expected a list of texts"),
    "empty choice": ("- {choices: [a, ' ']}\n", "4: sample '1': choices.1: found an empty option, expected text"),
    "null choice": ("- {choices: [a, null]}\n", "4: sample '1': choices.1: found nothing (null), expected text"),
    "bool choice": ("- {choices: [a, true]}\n", "4: sample '1': choices.1: found true (a bool), expected text"),
    "choice types": (
        "- {choices: [a, b], choice_types: [x]}\n",
        "4: sample '1': choice_types: found 1, expected one for each of 2 choices",
    ),
    "question is a list": ("- {question: [a]}\n", "4: sample '1': question: found a list of 1, expected text"),
    "question is a bool": (
        "- {id: q, question: true}\n",
        "4: sample 'q': question: found true (a bool), expected text",
    ),
    "category is a list": ("- {category: [a]}\n", "4: sample '1': category: found a list of 1, expected text"),
    "NUL in a question": (
        '- {question: "a\\0b"}\n',
        "4: sample '1': question: found NUL (U+0000) at character 2, expected text",
    ),
    "NUL in a choice": (
        '- {choices: [a, "\\0"]}\n',
        "4: sample '1': choices.1: found NUL (U+0000) at character 1, expected text",
    ),
    "NUL in a target": (
        '- {target: [a, "\\0"]}\n',
        "4: sample '1': target.1: found NUL (U+0000) at character 1, expected text",
    ),
    "target is a mapping": (
        "- {target: {a: 1}}\n",
        "4: sample '1': target: found a mapping with the keys 'a', expected text, a number, a bool or a list of those",
    ),
    "target is NaN": ("- {target: .nan}\n", "4: sample '1': target: found nan (a number), expected a finite number"),
}


@pytest.mark.parametrize(("text", "message"), NOT_YAML.values(), ids=NOT_YAML.keys())
def test_not_yaml(load: Load, text: str | bytes, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(text)
    assert str(caught.value) == f"s.yaml:{message}"


@pytest.mark.parametrize(("text", "message"), NOT_A_SUITE.values(), ids=NOT_A_SUITE.keys())
def test_not_a_suite(load: Load, text: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(text)
    assert str(caught.value) == f"s.yaml:{message}"


@pytest.mark.parametrize(("samples", "message"), NOT_A_SAMPLE.values(), ids=NOT_A_SAMPLE.keys())
def test_not_a_sample(load: Load, samples: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(HEAD + "samples:\n" + samples)
    assert str(caught.value) == f"s.yaml:{message}"


def test_a_file_of_100_mb_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    with path.open("wb") as file:
        file.write(HEAD.encode())
        file.truncate(100_000_000)
    with pytest.raises(SuiteError) as caught:
        load_suite(path, shown_path="s.yaml")
    assert str(caught.value) == (
        "s.yaml: is too large: found 100.0 MB, expected at most 10.0 MB; "
        "put the rows in a data set file and name it with dataset.path"
    )


def test_a_missing_suite_names_the_nearest_file(tmp_path: Path) -> None:
    (tmp_path / "mmlu.yaml").write_text(HEAD)
    with pytest.raises(SuiteError) as caught:
        load_suite(tmp_path / "mmul.yaml", shown_path="x/mmul.yaml")
    assert str(caught.value) == "x/mmul.yaml: there is no such file; did you mean 'mmlu.yaml'?"


def test_a_folder_is_no_suite(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"^x: cannot be read: found a folder, expected a file$"):
        load_suite(tmp_path, shown_path="x")


@pytest.mark.parametrize(
    ("score", "more", "name"),
    [("exact", "", "target"), ("choice", "", "choices"), ("choice", "choices: [a, b]\n", "target")],
)
def test_a_field_that_no_column_fills(load: Load, score: str, more: str, name: str) -> None:
    """The data are right: it is the suite that does not say which column is meant."""
    text = f"suite: s\nscore: {score}\ndataset: {{path: r.jsonl}}\n{more}"
    with pytest.raises(SuiteError) as caught:
        Evaluation(load(text, {"r.jsonl": '{"question": "q", "answer": "b"}\n'})).fingerprints()
    assert str(caught.value) == (
        f"s.yaml:3: dataset: no column {name!r} in r.jsonl, and no dataset.fields.{name} to replace it "
        "(a column or a template); found the columns question, answer"
    )


def test_a_column_that_is_there_and_empty_is_the_data_s_mistake(load: Load) -> None:
    text = "suite: s\nscore: exact\ndataset: {path: r.jsonl}\n"
    with pytest.raises(SuiteError, match=r"^r\.jsonl:1: sample '1': the sample has no target"):
        Evaluation(load(text, {"r.jsonl": '{"question": "q", "target": null}\n'})).fingerprints()


def test_of_many_mistakes_the_first_are_explained(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest spelling takes time, and is looked for where it is shown alone."""
    looked_for: list[str] = []

    def expected_one_of(word: str, known: object) -> str:
        looked_for.append(word)
        return "; did you mean x?"

    monkeypatch.setattr(pydantic_errors, "expected_one_of", expected_one_of)
    with pytest.raises(SuiteError) as caught:
        load(HEAD + ONE + "".join(f"key_{number}: 1\n" for number in range(2_000)))
    first, *lines = str(caught.value).splitlines()
    assert first == "s.yaml:4: unknown key 'key_0'; did you mean x?"
    assert lines[-2:] == ["s.yaml:13: unknown key 'key_9'; did you mean x?", "and 1,990 more errors"]
    assert looked_for == [f"key_{number}" for number in range(10)]
