"""The main job on published benchmark files, each by a suite that only points at the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import REPOSITORY

DATA = REPOSITORY.parent / "shared" / "data"

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the published data sets are not here: no folder {DATA}"),
]

SUITES = {
    "gsm8k": (
        1319,
        """
        suite: gsm8k
        preset: gsm8k
        dataset: {path: DATA/gsm8k/test.jsonl}
        prompt: {fewshot: {path: DATA/gsm8k/train.jsonl, count: 2}}
        generate: {max_tokens: 24}
        """,
    ),
    "gsm8k_number": (
        1319,
        """
        suite: gsm8k_number
        preset: gsm8k-number
        dataset: {path: DATA/gsm8k/test.jsonl}
        prompt: {fewshot: {count: 0}}
        generate: {max_tokens: 24}
        """,
    ),
    "csqa": (1221, "suite: csqa\npreset: csqa\ndataset: {path: DATA/commonsense_qa/validation.jsonl}"),
    "csqa_text": (1221, "suite: csqa_text\npreset: csqa-text\ndataset: {path: DATA/commonsense_qa/validation.jsonl}"),
    "mmlu_stem": (
        3018,
        """
        suite: mmlu_stem
        preset: mmlu
        dataset: {path: DATA/mmlu_stem/test.jsonl}
        prompt: {fewshot: {count: 0}}
        """,
    ),
    "navigate": (
        250,
        "suite: navigate\npreset: bbh-cot-navigate\ndataset: {path: DATA/bbh/navigate.json}\ngenerate: {max_tokens: 9}",
    ),
    "causal": (
        187,
        "suite: causal\npreset: bbh-direct-causal-judgement\ndataset: {path: DATA/bbh/causal_judgement.json}",
    ),
    "boolean": (
        250,
        "suite: boolean\npreset: bbh-direct-boolean-expressions\ndataset: {path: DATA/bbh/boolean_expressions.json}",
    ),
    "dates": (
        250,
        """
        suite: dates
        preset: bbh-direct-date-understanding
        dataset: {path: DATA/bbh/date_understanding.json}
        generate: {max_tokens: 9}
        """,
    ),
    "strategyqa": (
        2290,
        """
        suite: strategyqa
        dataset: {path: DATA/strategyqa/task.json, key: examples}
        prompt: {template: "Q: {{ input }}\\nA:"}
        target: "{{ target_scores.Yes == 1 }}"
        score: {yes_no: {by: loglikelihood}}
        """,
    ),
    "minerva": (
        272,
        """
        suite: minerva
        preset: math-minerva
        dataset: {path: DATA/minerva_math/test.jsonl}
        category: type
        generate: {max_tokens: 24}
        """,
    ),
    "gaokao": (
        383,  # of 385: two have no answer
        """
        suite: gaokao
        preset: math
        dataset: {path: DATA/gaokao2023en/test.jsonl, first_id: 1, where: "{{ answer != '' }}"}
        generate: {max_tokens: 24}
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


JUDGED = """
suite: NAME
preset: PRESET
dataset:
  path: DATA/minerva_math/test.jsonl
  limit: 80
  fields:
    # The solution itself, and every other time a number that is wrong.
    response: "{{ 'So: ' ~ solution if idx % 2 else 'The answer is ' ~ (9000 + idx) }}"
"""
REFUSES = """
import json
def judge(prompt):
    return json.dumps({"reason": "I say no to all.", "equivalent": False})
"""


def test_a_judge_that_says_no_leaves_the_numbers_of_math(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makepyfile(refuses=REFUSES)
    for preset in ("math", "math-judged"):
        text = JUDGED.replace("DATA", str(DATA)).replace("PRESET", preset).replace("NAME", preset)
        (llm_pytester.path / f"{preset}.yaml").write_text(text)
    result = llm_pytester.runpytest_subprocess(
        "-p", "no:xdist", "--llm-judge=python:refuses:judge", "--llm-report=out.json", "."
    )
    assert result.ret == 0, result.stdout.str()
    report = json.loads((llm_pytester.path / "out.json").read_text())
    numbers = {suite["name"]: suite["metrics"] for suite in report["suites"]}
    plain, judged = numbers["math"], numbers["math-judged"]
    assert 0.4 < plain["accuracy"]["value"] < 0.6
    assert judged["accuracy"] == plain["accuracy"]
    assert judged["decided_by_math"]["value"] == round(80 * plain["accuracy"]["value"])
    assert judged["decided_by_judge"]["value"] == 80 - judged["decided_by_math"]["value"]
    right = {
        name: {record["id"] for record in report["records"] if (record["suite"], record["status"]) == (name, "correct")}
        for name in numbers
    }
    assert right["math"] == right["math-judged"]
