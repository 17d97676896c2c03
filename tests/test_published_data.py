"""The main job on published benchmark files, each by a suite that only points at the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import REPOSITORY

DATA = REPOSITORY.parent / "shared" / "data"

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the published data sets are not here: no folder {DATA}"),
]

SUITES = {
    "gsm8k": (
        1319,
        """
        suite: gsm8k
        dataset: {path: DATA/gsm8k/test.jsonl}
        prompt:
          template: "Question: {{ question }}\\nAnswer:"
          fewshot: {count: 2, path: DATA/gsm8k/train.jsonl, answer: "{{ answer }}"}
        target: answer
        score: number
        generate: {max_tokens: 24, stop: ["\\n\\n", "Question:"]}
        """,
    ),
    "csqa": (
        1221,
        """
        suite: csqa
        dataset:
          path: DATA/commonsense_qa/validation.jsonl
          fields:
            question: question.stem
            choices: "{{ question.choices | map(attribute='text') | list }}"
            target: "{{ question.choices | map(attribute='label') | list | indices(answerKey) }}"
        prompt: {template: "Question: {{ question }}\\nAnswer:"}
        score: choice
        """,
    ),
    "mmlu_stem": (
        3018,
        """
        suite: mmlu_stem
        dataset: {path: DATA/mmlu_stem/test.jsonl}
        prompt:
          template: |-
            {{ question }}
            {% for text in row.choices %}{{ 'ABCD'[loop.index0] }}. {{ text }}
            {% endfor %}Answer:
        choices: [A, B, C, D]
        target: answer
        score: choice
        category: type
        """,
    ),
    "navigate": (
        250,
        """
        suite: navigate
        dataset: {path: DATA/bbh/navigate.json, key: examples}
        prompt: {template: "Q: {{ input }}\\nA:"}
        score: yes_no
        generate: {max_tokens: 5}
        """,
    ),
}


def write(folder: Path, name: str) -> None:
    text = SUITES[name][1].replace("DATA", str(DATA))
    lines = text.strip("\n").split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    (folder / f"{name}.yaml").write_text("\n".join(line[indent:] for line in lines) + "\n")


@pytest.mark.parametrize("name", SUITES)
def test_every_row_is_a_sample(llm_pytester: pytest.Pytester, name: str) -> None:
    write(llm_pytester.path, name)
    result = llm_pytester.runpytest_subprocess("--collect-only", "-q", f"{name}.yaml")
    result.stdout.fnmatch_lines([f"{SUITES[name][0]} tests collected in *"])


def test_the_demo_model_answers_all_of_them(llm_pytester: pytest.Pytester) -> None:
    for name in SUITES:
        write(llm_pytester.path, name)
    reports = []
    for workers in (["-p", "no:xdist"], ["-n2"]):
        options = ["--llm-model=demo", "--llm-limit=6", "--llm-report=out.json"]
        assert llm_pytester.runpytest_subprocess(*workers, *options, ".").ret == 0
        reports.append(json.loads((llm_pytester.path / "out.json").read_text()))
    for report in reports:
        assert {suite["name"]: suite["num_scored"] for suite in report["suites"]} == dict.fromkeys(SUITES, 6)
    alone, shared = ({suite["name"]: suite["metrics"] for suite in report["suites"]} for report in reports)
    for name in SUITES:
        for metric, found in alone[name].items():
            assert found["value"] == pytest.approx(shared[name][metric]["value"], abs=1e-5)
