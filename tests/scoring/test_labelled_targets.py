"""Published rows whose answer is the label of an option: ARC, CommonsenseQA, MMLU; letters A to J."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.scoring.base import PreparedSample
from pytest_llmeval.types import GenerateResponse, LoglikelihoodRequest
from tests.scoring.lm_eval_task import evaluation

HUB_ARC: list[dict[str, Any]] = [
    {"id": "a", "question": "Q1", "choices": {"text": ["w", "x", "y", "z"], "label": list("ABCD")}, "answerKey": "C"},
    {"id": "b", "question": "Q2", "choices": {"text": ["w", "x", "y", "z"], "label": list("1234")}, "answerKey": "3"},
    {"id": "c", "question": "Q3", "choices": {"text": ["w", "x", "y"], "label": list("ABC")}, "answerKey": "A"},
    {"id": "d", "question": "Q4", "choices": {"text": list("vwxyz"), "label": list("ABCDE")}, "answerKey": "E"},
]
NESTED = [  # the published JSONL of ARC and CommonsenseQA
    {
        "id": row["id"],
        "answerKey": row["answerKey"],
        "question": {
            "stem": row["question"],
            "choices": [
                {"label": label, "text": text}
                for label, text in zip(row["choices"]["label"], row["choices"]["text"], strict=True)
            ],
        },
    }
    for row in HUB_ARC
]
EXPECTED = {"a": ("y",), "b": ("y",), "c": ("w",), "d": ("z",)}


def suite(folder: Path, rows: list[Any], fields: str, score: str = "choice") -> Evaluation:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return evaluation(folder, f"suite: s\nscore: {score}\ndataset:\n  path: rows.jsonl\n  fields:\n{fields}")


def right_texts(found: Evaluation) -> dict[str, tuple[str, ...]]:
    presented = {sample.id: found.question(sample) for sample in found.suite.samples}
    return {key: tuple(shown.choices[index] for index in shown.right) for key, shown in presented.items()}


@pytest.mark.parametrize("score", ["choice", "{letter: {shuffle: false}}", "letter"])
def test_the_label_of_an_option_in_rows_as_the_hub_has_them(tmp_path: Path, score: str) -> None:
    fields = """\
    choices: "{{ row.choices.text }}"
    target: "{{ row.choices.label.index(answerKey) }}"
"""
    found = suite(tmp_path, HUB_ARC, fields, score)
    assert right_texts(found) == EXPECTED


@pytest.mark.parametrize("score", ["choice", "letter"])
def test_the_label_of_an_option_in_rows_as_they_were_published(tmp_path: Path, score: str) -> None:
    fields = """\
    choices: "{{ row.question.choices | map(attribute='text') | list }}"
    target: "{{ (row.question.choices | map(attribute='label') | list).index(answerKey) }}"
    question: question.stem
"""
    found = suite(tmp_path, NESTED, fields, score)
    assert right_texts(found) == EXPECTED
    assert found.suite.samples[0].question == "Q1"


def test_a_label_that_is_not_there_is_an_error_at_its_row(tmp_path: Path) -> None:
    rows = [HUB_ARC[0], {**HUB_ARC[1], "answerKey": "B"}]
    fields = '    choices: "{{ row.choices.text }}"\n    target: "{{ row.choices.label.index(answerKey) }}"\n'
    with pytest.raises(SuiteError, match=r"rows\.jsonl:2: found 'B', which is not in the list"):
        right_texts(suite(tmp_path, rows, fields))


LETTERS = """\
suite: s
samples: ROWS
prompt:
  template: |-
    {{ question }}
    {% for option in options %}{{ 'ABCDEFGHIJ'[loop.index0] }}. {{ option }}
    {% endfor %}Answer:
choices: "{{ 'ABCDEFGHIJ'[:options | length] | list }}"
target: "{{ 'ABCDEFGHIJ'.index(answer) }}"
score: choice
"""


@pytest.mark.parametrize("count", range(2, 11))
def test_letters_by_loglikelihood_are_choices(tmp_path: Path, count: int) -> None:
    options = [f"option {number}" for number in range(count)]
    last = "ABCDEFGHIJ"[count - 1]
    rows = json.dumps([{"question": "Q?", "options": options, "answer": last}])
    found = evaluation(tmp_path, LETTERS.replace("ROWS", rows))
    question = found.question(found.suite.samples[0])
    assert question.right == (count - 1,)
    assert [request.continuation for request in question.requests if isinstance(request, LoglikelihoodRequest)] == [
        f" {letter}" for letter in "ABCDEFGHIJ"[:count]
    ]
    assert str(question.prompt).endswith(f"{last}. option {count - 1}\nAnswer:")


@pytest.mark.parametrize("style", ["upper", "lower", "digit"])
@pytest.mark.parametrize("count", range(2, 11))
def test_letters_by_generation_of_two_to_ten_options(tmp_path: Path, count: int, style: str) -> None:
    options = [f"option {number}" for number in range(count)]
    text = f"suite: s\nsamples: {json.dumps([{'question': 'Q?', 'choices': options, 'target': options[-1]}])}\n"
    found = evaluation(tmp_path, text + f"score: {{letter: {{labels: {style}, shuffle: false}}}}\n")
    question = found.question(found.suite.samples[0])
    shown: PreparedSample = question
    for place, label in enumerate(shown.labels):
        score = found.score(question, [GenerateResponse(text=f"{label}.")])
        assert (score.answer, score.status) == (label, "correct" if place == count - 1 else "wrong")
        assert score.chance == pytest.approx(1 / count)
