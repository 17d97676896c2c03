"""Each preset beside lm-eval's task: the same requests and the same numbers, sample by sample."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.suites.presets import all_presets, load_preset
from tests.presets import rows
from tests.presets.lm_eval_side import Peer, Row, arguments_of, comparable, values_of

pytestmark = [
    pytest.mark.slow,  # lm-eval takes seconds to import
    # Python warns when it first compiles a module of lm-eval 0.4.13, which then fails where warnings are errors.
    pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning"),
]


@dataclass
class Case:
    """A preset, lm-eval's task file, the rows of both, and which of our metrics is which of theirs."""

    preset: str
    file: str
    rows: list[Row]
    numbers: dict[str, str]
    split: str = "test"
    shots: list[Row] = field(default_factory=list)
    shots_split: str = "train"
    replies: tuple[str, ...] = ()
    num_fewshot: int | None = None
    more: dict[str, Any] = field(default_factory=dict)
    format: str = "jsonl"


CHOICE = {"acc": "accuracy_sum_first", "acc_norm": "accuracy_char_first"}
CASES = [
    Case("mmlu", "mmlu/default/mmlu_anatomy.yaml", rows.MMLU, {"acc": "accuracy"}, shots=rows.MMLU_DEV,
         shots_split="dev", num_fewshot=5),
    Case("mmlu", "mmlu/default/mmlu_high_school_us_history.yaml", rows.MMLU_HISTORY, {"acc": "accuracy_sum_first"},
         shots=rows.MMLU_HISTORY_DEV, shots_split="dev", num_fewshot=3, more={"prompt": {"fewshot": {"count": 3}}}),
    Case("arc-easy", "arc/arc_easy.yaml", rows.ARC, CHOICE),
    Case("arc-challenge", "arc/arc_challenge.yaml", rows.ARC, CHOICE),
    Case("hellaswag", "hellaswag/hellaswag.yaml", rows.HELLASWAG, CHOICE, split="validation"),
    *(
        Case(preset, file, some, {name: CHOICE[name]}, split=split, shots=shots, num_fewshot=2,
             more={"prompt": {"fewshot": {"count": 2}}})
        for preset, file, some, shots, split, name in (
            ("arc-easy", "arc/arc_easy.yaml", rows.ARC, rows.ARC[::-1], "test", "acc"),
            ("hellaswag", "hellaswag/hellaswag.yaml", rows.HELLASWAG, rows.HELLASWAG[::-1], "validation", "acc_norm"),
            ("winogrande", "winogrande/default.yaml", rows.WINOGRANDE, rows.WINOGRANDE_TRAIN, "validation", "acc"),
            ("csqa", "commonsense_qa/default.yaml", rows.CSQA, rows.CSQA_TRAIN, "validation", "acc"),
            ("boolq-lm-eval", "super_glue/boolq/default.yaml", rows.BOOLQ, rows.BOOLQ_TRAIN, "validation", "acc"),
        )
    ),
    Case("winogrande", "winogrande/default.yaml", rows.WINOGRANDE, {"acc": "accuracy"}, split="validation"),
    Case("truthfulqa-mc1", "truthfulqa/truthfulqa_mc1.yaml", rows.TRUTHFULQA, {"acc": "accuracy"}, split="validation"),
    Case("truthfulqa-mc2", "truthfulqa/truthfulqa_mc2.yaml", rows.TRUTHFULQA, {"acc": "probability_mass"},
         split="validation"),
    Case("gsm8k", "gsm8k/gsm8k.yaml", rows.GSM8K,
         {"exact_match,strict-match": "accuracy", "exact_match,flexible-extract": "flexible.accuracy"},
         shots=rows.GSM8K_TRAIN, replies=rows.GSM8K_REPLIES),
    Case("csqa", "commonsense_qa/default.yaml", rows.CSQA, {"acc": "accuracy"}, split="validation"),
    Case("boolq-lm-eval", "super_glue/boolq/default.yaml", rows.BOOLQ, {"acc": "accuracy"}, split="validation"),
    Case("math-hendrycks", "hendrycks_math/hendrycks_math_algebra.yaml", rows.MATH, {"exact_match": "accuracy"},
         replies=rows.MATH_REPLIES),
    *(
        Case(preset.name, f"bbh/{'cot_fewshot' if preset.family == 'bbh-cot' else 'fewshot'}/{task}.yaml",
             rows.BBH, {"exact_match": "accuracy"},
             replies=rows.BBH_COT_REPLIES if preset.family == "bbh-cot" else rows.BBH_DIRECT_REPLIES)
        for preset in all_presets()
        if preset.family in ("bbh-cot", "bbh-direct")
        for task in [preset.name.removeprefix(f"{preset.family}-").replace("-", "_")]
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.preset}-{Path(case.file).stem}")
def test_a_preset_is_lm_evals_task(case: Case, tmp_path: Path) -> None:
    splits = {case.split: case.rows}
    if case.shots:
        splits[case.shots_split] = case.shots
    peer = Peer(case.file, splits, case.replies, case.num_fewshot)
    evaluation = Evaluation(load_suite(write_suite(tmp_path, case)))
    ours = [
        [arguments_of(request) for request in evaluation.question(sample).requests]
        for sample in evaluation.suite.samples
    ]
    theirs = [[comparable(arguments) for arguments in own] for own in peer.arguments()]
    assert ours == theirs
    found, expected = values_of(evaluation, case.replies), peer.numbers()
    for name, metric in case.numbers.items():
        assert found[metric] == pytest.approx(expected[name], abs=1e-12), (name, metric)
    if all(metric.endswith("accuracy") for metric in case.numbers.values()) and len(case.rows) > 3:
        assert 0 < sum(value for value in found["accuracy"] if value) < len(case.rows), "these rows can tell nothing"


CHATS = [
    Case("mmlu", "mmlu/default/mmlu_anatomy.yaml", rows.MMLU, {}, shots=rows.MMLU_DEV, shots_split="dev",
         num_fewshot=5),
    Case("arc-easy", "arc/arc_easy.yaml", rows.ARC, {}, shots=rows.ARC[::-1], num_fewshot=2),
    Case("hellaswag", "hellaswag/hellaswag.yaml", rows.HELLASWAG, {}, split="validation", shots=rows.HELLASWAG[::-1],
         num_fewshot=2),
    Case("winogrande", "winogrande/default.yaml", rows.WINOGRANDE, {}, split="validation", shots=rows.WINOGRANDE_TRAIN,
         num_fewshot=2),
    Case("csqa", "commonsense_qa/default.yaml", rows.CSQA, {}, split="validation", shots=rows.CSQA_TRAIN,
         num_fewshot=2),
    Case("boolq-lm-eval", "super_glue/boolq/default.yaml", rows.BOOLQ, {}, split="validation", shots=rows.BOOLQ_TRAIN,
         num_fewshot=2),
    Case("gsm8k", "gsm8k/gsm8k.yaml", rows.GSM8K, {}, shots=rows.GSM8K_TRAIN, num_fewshot=5),
    Case("math-hendrycks", "hendrycks_math/hendrycks_math_algebra.yaml", rows.MATH, {}),
    Case("bbh-cot-navigate", "bbh/cot_fewshot/navigate.yaml", rows.BBH, {}, num_fewshot=3),
    Case("bbh-direct-navigate", "bbh/fewshot/navigate.yaml", rows.BBH, {}, num_fewshot=3),
    Case("truthfulqa-mc1", "truthfulqa/truthfulqa_mc1.yaml", rows.TRUTHFULQA, {}, split="validation"),
    Case("truthfulqa-mc2", "truthfulqa/truthfulqa_mc2.yaml", rows.TRUTHFULQA, {}, split="validation"),
]  # fmt: skip


@pytest.mark.parametrize("multi_turn", [False, True])
@pytest.mark.parametrize("case", CHATS, ids=lambda case: case.preset)
def test_a_preset_is_lm_evals_task_in_a_chat(case: Case, multi_turn: bool, tmp_path: Path) -> None:
    """But for TruthfulQA's examples as turns of their own: lm-eval's are part of the question, as its formula says."""
    splits = {case.split: case.rows, **({case.shots_split: case.shots} if case.shots else {})}
    fewshot: dict[str, Any] = {"count": case.num_fewshot} if case.shots else {}
    if "fewshot" in load_preset(case.preset).defaults["prompt"]:
        fewshot["multi_turn"] = multi_turn
    case = replace(case, more={"prompt": {"chat": True, **({"fewshot": fewshot} if fewshot else {})}})
    evaluation = Evaluation(load_suite(write_suite(tmp_path, case)))
    ours = [
        [arguments_of(request) for request in evaluation.question(sample).requests]
        for sample in evaluation.suite.samples
    ]
    theirs = Peer(case.file, splits, (), case.num_fewshot).chat_arguments(multi_turn=multi_turn)
    assert (ours == theirs) != (multi_turn and case.preset.startswith("truthfulqa"))


def write_suite(folder: Path, case: Case) -> Path:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in case.rows))
    suite: dict[str, Any] = {"suite": "s", "preset": case.preset, "dataset": {"path": "rows.jsonl"}}
    if case.shots:
        (folder / "shots.jsonl").write_text("".join(json.dumps(row) + "\n" for row in case.shots))
        suite["prompt"] = {"fewshot": {"path": "shots.jsonl"}}
    for key, value in case.more.items():
        suite[key] = {**suite.get(key, {}), **value}
        if "fewshot" in value and case.shots:
            suite[key]["fewshot"] = {"path": "shots.jsonl", **value["fewshot"]}
    path = folder / "s.yaml"
    path.write_text(yaml.safe_dump(suite, sort_keys=False))
    return path


def test_the_minerva_preset_asks_what_lm_eval_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its numbers are compared where the scorer is tested: lm-eval's own need another release of a parser."""
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "4.11" if name.startswith("antlr4") else version(name))
    case = Case("math-minerva", "minerva_math/minerva_math_algebra.yaml", rows.MATH, {})
    peer = Peer(case.file, {"test": case.rows})
    evaluation = Evaluation(load_suite(write_suite(tmp_path, case)))
    for sample, theirs in zip(evaluation.suite.samples, peer.arguments(), strict=True):
        assert [arguments_of(request) for request in evaluation.question(sample).requests] == list(
            map(comparable, theirs)
        )
