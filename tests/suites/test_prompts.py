"""Prompts: parts and their order, few-shot examples, chat, and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.suites.prompts import render_prompt
from pytest_llmeval.types import Message, Prompt
from tests.suites.conftest import Load

ROWS = "\n".join(f'{{"question": "q{n}", "target": "t{n}"}}' for n in range(1, 7))
DATA: dict[str, str | bytes] = {"d.jsonl": ROWS}
HEAD = "suite: s\nscore: exact\ndataset: {path: d.jsonl}\n"


def prompts(suite: Suite, default: str = "{{ question }}?") -> list[Prompt]:
    return [
        render_prompt(
            suite,
            sample,
            {**sample.variables, "extra": "added"},
            [(shot.variables, str(shot.target)) for shot in suite.shots_for(sample)],
            default,
        )
        for sample in suite.samples
    ]


def test_the_default_template(load: Load) -> None:
    assert prompts(load(HEAD, DATA))[:2] == ["q1?", "q2?"]


def test_variables_of_the_scorer(load: Load) -> None:
    assert prompts(load(HEAD + "prompt: {template: '{{ extra }} {{ row.target }}'}\n", DATA))[0] == "added t1"


def test_all_parts_of_a_text_prompt(load: Load) -> None:
    suite = load(
        HEAD
        + 'prompt:\n  system: "Answer {{ question }}."\n  template: "Q: {{ question }}\\nA:"\n  delimiter: " = "\n'
        + '  fewshot: {samples: [{question: a, target: "1\\n2"}, {question: b, target: 3}], count: 2,\n'
        + '    sampler: first_n, delimiter: "\\n--\\n"}\n',
        DATA,
    )
    assert prompts(suite)[0] == "Answer q1.\n--\nQ: a\nA: = 1\n2\n--\nQ: b\nA: = 3\n--\nQ: q1\nA:"


def test_chat(load: Load) -> None:
    suite = load(
        HEAD + "prompt: {chat: true, system: Be brief., fewshot: {samples: [{question: a, target: b}], count: 1}}\n",
        DATA,
    )
    assert prompts(suite)[0] == (
        Message(role="system", content="Be brief."),
        Message(role="user", content="a? b\n\nq1?"),
    )


def test_chat_without_system(load: Load) -> None:
    assert prompts(load(HEAD + "prompt: {chat: true}\n", DATA))[0] == (Message(role="user", content="q1?"),)


def test_a_template_for_the_answer_of_an_example(load: Load) -> None:
    suite = load(
        HEAD + "prompt: {fewshot: {samples: [{question: a, target: b}], count: 1, answer: '<{{ target }}>'}}\n", DATA
    )
    assert prompts(suite)[0] == "a? <b>\n\nq1?"


def test_examples_of_a_file_use_the_same_fields(load: Load) -> None:
    suite = load(
        "suite: s\nscore: exact\ndataset: {path: d.jsonl, fields: {question: q}}\n"
        "target: '{{ a | int }}'\ncategory: c\n"
        "prompt: {fewshot: {path: t/train.json, key: rows, count: 1}}\n",
        {"d.jsonl": '{"q": "x", "a": "2", "c": "z"}', "t/train.json": '{"rows": [{"q": "y", "a": "3"}]}'},
    )
    assert prompts(suite) == ["y? 3\n\nx?"]


def test_inline_examples_may_use_the_names_of_fields(load: Load) -> None:
    suite = load(
        "suite: s\nscore: exact\ndataset: {path: d.jsonl, fields: {question: q.stem, target: a}}\n"
        "prompt: {fewshot: {count: 2, sampler: first_n, samples: [{question: y, target: 3}, {q: {stem: z}, a: 4}]}}\n",
        {"d.jsonl": '{"q": {"stem": "x"}, "a": "2"}'},
    )
    assert prompts(suite) == ["y? 3\n\nz? 4\n\nx?"]


def test_examples_from_the_data_set_itself(load: Load) -> None:
    suite = load(HEAD + "prompt: {fewshot: {count: 2, sampler: first_n}}\n", DATA)
    assert [[shot.id for shot in suite.shots_for(sample)] for sample in suite.samples] == [
        ["2", "3"],
        ["1", "3"],
        ["1", "2"],
        ["1", "2"],
        ["1", "2"],
        ["1", "2"],
    ]


def test_a_row_that_stands_twice_is_no_example_of_itself(load: Load) -> None:
    data: dict[str, str | bytes] = {"d.jsonl": ROWS + "\n" + ROWS}
    suite = load(HEAD + "prompt: {fewshot: {count: 3, seed: 1}}\n", data)
    for sample in suite.samples:
        assert sample.question not in [shot.question for shot in suite.shots_for(sample)]


def test_the_examples_do_not_change_with_limit_and_shuffle(load: Load) -> None:
    more = "prompt: {fewshot: {count: 2, seed: 3}}\n"
    shots = {
        sample.id: [shot.id for shot in suite.shots_for(sample)]
        for suite in [load(HEAD + more, DATA)]
        for sample in suite.samples
    }
    limited = load("suite: s\nscore: exact\ndataset: {path: d.jsonl, limit: 3, shuffle_seed: 9}\n" + more, DATA)
    assert len(limited.samples) == 3
    for sample in limited.samples:
        assert [shot.id for shot in limited.shots_for(sample)] == shots[sample.id]


def test_another_seed_draws_other_examples(load: Load) -> None:
    drawn = {
        tuple(
            shot.id for shot in load(HEAD + f"prompt: {{fewshot: {{count: 3, seed: {seed}}}}}\n", DATA).shots.pools[""]
        )
        for seed in range(5)
    }
    assert len(drawn) == 5


def test_no_examples(load: Load) -> None:
    assert prompts(load(HEAD + "prompt: {fewshot: {count: 0}}\n", DATA))[0] == "q1?"


def test_examples_given_anew_are_rendered_anew(load: Load) -> None:
    suite = load(HEAD + "prompt: {fewshot: {count: 1}}\n", DATA)
    sample = suite.samples[0]
    made = [
        render_prompt(suite, sample, sample.variables, [({"question": name}, "x")], "{{ question }}") for name in "ab"
    ]
    assert made == ["a x\n\nq1", "b x\n\nq1"]


ERRORS = {
    "undefined": (
        "prompt: {template: '{{ qestion }}'}\n",
        "4: prompt.template: sample '1' (d.jsonl:1): 'qestion' is undefined; did you mean 'question'?",
    ),
    "default template": (
        "",
        "2: score: sample '1' (d.jsonl:1): the scorer's default template, since there is no prompt.template: "
        "'passage' is undefined; expected one of extra, question, row, target",
    ),
    "system": (
        "prompt: {system: '{{ x }}', template: x}\n",
        "4: prompt.system: sample '1' (d.jsonl:1): 'x' is undefined; expected one of extra, question, row, target",
    ),
    "answer": (
        "prompt: {template: x, fewshot: {count: 1, answer: '{{ anwser }}'}}\n",
        "4: prompt.fewshot.answer: sample '1' (d.jsonl:1): in its example d.jsonl:4: 'anwser' is undefined; "
        "expected one of question, row, target",
    ),
    "NUL": (
        "prompt: {template: \"{{ '\\0' }}\"}\n",
        "4: prompt.template: sample '1' (d.jsonl:1): the rendered text: "
        "found NUL (U+0000) at character 1, expected text",
    ),
}


@pytest.mark.parametrize(("more", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_errors_of_prompts(load: Load, more: str, message: str) -> None:
    suite = load(HEAD + more, DATA)
    with pytest.raises(SuiteError) as caught:
        prompts(suite, "{{ passage }}")
    assert str(caught.value) == f"s.yaml:{message}"


LOADING = {
    "syntax": (
        "prompt:\n  template: |\n    a\n    {{ question\n",
        "5: prompt.template: line 2 of the template: unexpected end of template, expected 'end of print statement'",
    ),
    "too few": (
        "prompt:\n  fewshot:\n    count: 6\n",
        "6: prompt.fewshot.count: the data set itself, from which a sample is never shown to itself, "
        "holds 6 examples, expected at least 7",
    ),
    "too few in the file": (
        "prompt:\n  fewshot: {count: 7, path: d.jsonl}\n",
        "5: prompt.fewshot.count: d.jsonl holds 6 examples, expected at least 7",
    ),
    "too few inline": (
        "prompt:\n  fewshot: {count: 2, samples: [{}]}\n",
        "5: prompt.fewshot.count: prompt.fewshot.samples holds 1 examples, expected at least 2",
    ),
    "count": ("prompt: {fewshot: {path: d.jsonl}}\n", "4: the key 'count' is missing in prompt.fewshot"),
    "both": (
        "prompt: {fewshot: {count: 1, path: d.jsonl, samples: [{}]}}\n",
        "4: prompt.fewshot: found both samples and path, expected one of them",
    ),
    "key": (
        "prompt: {fewshot: {count: 1, key: rows}}\n",
        "4: prompt.fewshot.key: requires prompt.fewshot.path",
    ),
    "file": (
        "prompt: {fewshot: {count: 1, path: e.jsonl}}\n",
        "4: prompt.fewshot.path: e.jsonl: there is no such file; did you mean 'd.jsonl'?",
    ),
    "no samples": (
        "prompt: {fewshot: {count: 1, samples: []}}\n",
        "4: prompt.fewshot.samples: found an empty list, expected samples",
    ),
    "sampler": (
        "prompt: {fewshot: {count: 1, sampler: first}}\n",
        "4: prompt.fewshot.sampler: found 'first' (text), expected one of seeded, first_n, lm_eval; "
        "did you mean 'first_n'?",
    ),
}


@pytest.mark.parametrize(("more", "message"), LOADING.values(), ids=LOADING.keys())
def test_errors_of_loading(load: Load, more: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(HEAD + more, DATA)
    assert str(caught.value) == f"s.yaml:{message}"


def test_too_few_examples_beside_the_sample_itself(load: Load) -> None:
    suite = load(HEAD + "prompt: {fewshot: {count: 6, path: d.jsonl}}\n", DATA)
    with pytest.raises(SuiteError) as caught:
        suite.shots_for(suite.samples[0])
    assert str(caught.value) == (
        "s.yaml:4: prompt.fewshot.count: sample '1' (d.jsonl:1): found 5 examples beside the sample itself, expected 6"
    )


def test_errors_of_the_caller(load: Load) -> None:
    suite = load(HEAD, DATA)
    sample = suite.samples[1]
    assert str(suite.error("m")) == "s.yaml:1: m"
    assert str(suite.error("m", keys=("dataset", "path"))) == "s.yaml:3: dataset.path: m"
    assert str(suite.error("m", sample)) == "d.jsonl:2: sample '2': m"
    assert str(suite.error("m", sample, ("score",))) == "s.yaml:2: score: sample '2' (d.jsonl:2): m"


def test_files_are_shown_as_the_caller_shows_the_suite(tmp_path: Path) -> None:
    (tmp_path / "suites").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "d.jsonl").write_text(ROWS + '\n{"question": 1}')
    path = tmp_path / "suites" / "s.yaml"
    path.write_text("suite: s\nscore: exact\ndataset: {path: ../data/d.jsonl}\n")
    suite = load_suite(path, shown_path="a/suites/s.yaml")
    assert str(suite.error("m", suite.samples[1])) == "a/data/d.jsonl:2: sample '2': m"
    assert Path(suite.samples[1].path).samefile(tmp_path / "data" / "d.jsonl")
    path.write_text("suite: s\nscore: exact\ndataset: {path: ../data/d.jsonl}\ntarget: target\n")
    with pytest.raises(SuiteError) as caught:
        load_suite(path, shown_path="a/suites/s.yaml")
    assert str(caught.value) == (
        "a/suites/s.yaml:4: target: a/data/d.jsonl:7 has no column 'target'; expected one of question; "
        "for the text itself write {{ 'target' }}"
    )
