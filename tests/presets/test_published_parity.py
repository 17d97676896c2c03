"""The presets beside lm-eval's tasks on published files: what the file holds, and what lm-eval would be given of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.suites.loading.loader import load_suite
from tests.presets.lm_eval_side import Peer, Row, arguments_of, comparable, values_of
from tests.support import REPOSITORY

DATA = REPOSITORY.parent / "shared" / "data"
NUM_ROWS = 150

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the published data sets are not here: no folder {DATA}"),
]


def read(name: str) -> list[Row]:
    text = (DATA / name).read_text()
    if name.endswith(".json"):
        return list(json.loads(text)["examples"])
    return [json.loads(line) for line in text.splitlines()]


def csqa(row: Row) -> Row:
    choices = row["question"]["choices"]
    return {
        "question": row["question"]["stem"],
        "choices": {name: [choice[name] for choice in choices] for name in ("label", "text")},
        "answerKey": row["answerKey"],
    }


def same(row: Row) -> Row:
    return row


@dataclass
class Published:
    preset: str
    file: str
    task: str
    numbers: dict[str, str]
    split: str = "test"
    as_hub: Callable[[Row], Row] = same
    shots: str | None = None
    num_fewshot: int = 0
    where: str | None = None
    reply: Callable[[Row], str] | None = None


def last_line(row: Row) -> str:
    """A reply that is right for some rows and not for others: what a careless reader would copy."""
    answer = str(row["answer"])
    number = answer.rpartition("#### ")[2]
    return (answer, f"{number} is it", f"#### {number}, no, #### 7")[len(answer) % 3]


CASES = [
    Published("csqa", "commonsense_qa/validation.jsonl", "commonsense_qa/default.yaml", {"acc": "accuracy"},
              split="validation", as_hub=csqa, shots="commonsense_qa/train.jsonl", num_fewshot=4),
    Published("gsm8k", "gsm8k/test.jsonl", "gsm8k/gsm8k.yaml",
              {"exact_match,strict-match": "accuracy", "exact_match,flexible-extract": "flexible.accuracy"},
              shots="gsm8k/train.jsonl", num_fewshot=5, reply=last_line),
    Published("mmlu", "mmlu_stem/test.jsonl", "mmlu/default/mmlu_college_biology.yaml", {"acc": "accuracy"},
              where="{{ type == 'college_biology' }}"),
    *(
        Published(f"bbh-{form}-{name.replace('_', '-')}", f"bbh/{name}.json", f"bbh/{folder}/{name}.yaml",
                  {"exact_match": "accuracy"}, num_fewshot=3,
                  reply=lambda row: f"So the answer is {row['target']}." if len(row["input"]) % 2 else row["target"])
        for form, folder in (("cot", "cot_fewshot"), ("direct", "fewshot"))
        for name in ("navigate", "causal_judgement", "boolean_expressions", "date_understanding")
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.preset)
def test_published_rows(case: Published, tmp_path: Path) -> None:
    suite: dict[str, Any] = {
        "suite": "s",
        "preset": case.preset,
        "dataset": {"path": str(DATA / case.file), "limit": NUM_ROWS, **({"where": case.where} if case.where else {})},
        "prompt": {"fewshot": {"count": case.num_fewshot, **({"path": str(DATA / case.shots)} if case.shots else {})}},
    }
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(suite, sort_keys=False))
    evaluation = Evaluation(load_suite(tmp_path / "s.yaml"))
    rows = [row for row in read(case.file) if case.where is None or row["type"] in case.where][:NUM_ROWS]
    splits = {case.split: [case.as_hub(row) for row in rows]}
    if case.shots is not None:
        splits["train"] = [case.as_hub(row) for row in read(case.shots)]
    replies = () if case.reply is None else tuple(case.reply(row) for row in rows)
    peer = Peer(case.task, splits, replies, case.num_fewshot)
    assert len(rows) == len(evaluation.suite.samples) > 100
    ours = [
        [arguments_of(request) for request in evaluation.question(sample).requests]
        for sample in evaluation.suite.samples
    ]
    assert ours == [[comparable(arguments) for arguments in own] for own in peer.arguments()]
    found, expected = values_of(evaluation, replies), peer.numbers()
    for name, metric in case.numbers.items():
        assert found[metric] == pytest.approx(expected[name], abs=1e-12)
        assert 0 < sum(expected[name]) < len(rows)
