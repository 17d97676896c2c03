"""The registry of comparisons of presets with lm-eval's own tasks, for the tests and for docs/benchmarks.md.

A preset that follows a task of lm-eval needs

1. rows in the form in which the benchmark is published, about a dozen, written for these tests (``rows.py``, or a
   module beside it), and replies if the task generates;
2. a ``Case`` in ``CASES``: the preset, lm-eval's task file, the rows, and which of our metrics is which of theirs
   (``{"acc": "accuracy"}``; with several filters ``{"exact_match,strict-match": "accuracy"}``); a second one with
   ``shots`` if the preset shows examples only on request;
3. a ``Case`` in ``CHATS`` if it can be asked in a chat;
4. a ``Published`` in ``PUBLISHED`` if ``DATA`` has the published file. What it finds is recorded at the end of the
   preset's ``checked``, since others do not have the file: ``…; recorded 2026-11-26 on …: …``, in the command's words.

``test_parity.py`` and ``test_published_parity.py`` then demand that all is equal, and ``python -m
tests.tools.benchmarks`` writes the results into the page. Nothing else is needed. A preset that is compared with
something else, or with nothing, has an entry in ``other_checks.py`` instead.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.scoring.metrics.corpus import POOLED
from pytest_llmeval.scoring.metrics.summary import summarize
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.suites.presets import all_presets, load_preset
from pytest_llmeval.types import Score
from tests.presets import likelihood_rows, reply_rows, rows
from tests.support import REPOSITORY

__all__ = [
    "CASES",
    "CHATS",
    "DATA",
    "PUBLISHED",
    "Case",
    "Comparison",
    "Published",
    "Tally",
    "compare",
    "compared_together",
]

Row = dict[str, Any]
DATA = REPOSITORY.parent / "shared" / "data"
"""Published files, which are not part of the repository."""
NUM_PUBLISHED = 150
"""Rows of a published file that are compared."""
TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class Case:
    """A preset, lm-eval's task file, the rows of both, and which of our metrics is which of theirs.

    ``shots`` are the rows that examples come from, ``replies`` what a model is made to write, in turn. ``more`` are
    further keys of the suite. With ``chat`` the requests alone are compared, under a chat template, with examples as
    turns of their own if it is "turns".
    """

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
    chat: str = ""

    def __str__(self) -> str:
        return "-".join((self.preset, Path(self.file).stem, *filter(None, [self.chat])))


@dataclass(frozen=True, eq=False)
class Published:
    """A preset on a published file in ``DATA``: what the file holds, and what lm-eval would be given of it.

    ``as_hub`` makes a row of the hub from one of the file, ``where`` keeps some rows, and ``reply`` is what the model
    is made to write.
    """

    preset: str
    path: str
    file: str
    numbers: dict[str, str]
    split: str = "test"
    as_hub: Callable[[Row], Row] = dict
    shots: str | None = None
    num_fewshot: int = 0
    where: str | None = None
    reply: Callable[[Row], str] | None = None

    def __str__(self) -> str:
        return self.preset


# What is compared

CHOICE = {"acc": "accuracy_sum_first", "acc_norm": "accuracy_char_first"}
PERPLEXITIES = {name: name for name in ("word_perplexity", "byte_perplexity", "bits_per_byte")}
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
    Case("math-minerva", "minerva_math/minerva_math_algebra.yaml", rows.MATH, {}),
    Case("humaneval", "humaneval/humaneval.yaml", rows.HUMANEVAL, {}),
    Case("mbpp", "mbpp/mbpp.yaml", rows.MBPP, {}),
    *(
        Case(preset.name, f"bbh/{'cot_fewshot' if preset.family == 'bbh-cot' else 'fewshot'}/{task}.yaml",
             rows.BBH, {"exact_match": "accuracy"},
             replies=rows.BBH_COT_REPLIES if preset.family == "bbh-cot" else rows.BBH_DIRECT_REPLIES)
        for preset in all_presets()
        if preset.family in ("bbh-cot", "bbh-direct")
        for task in [preset.name.removeprefix(f"{preset.family}-").replace("-", "_")]
    ),
    Case("piqa", "piqa/piqa.yaml", likelihood_rows.PIQA, CHOICE, split="validation"),
    Case("openbookqa", "openbookqa/openbookqa.yaml", likelihood_rows.OPENBOOKQA, CHOICE),
    Case("social-iqa", "siqa/siqa.yaml", likelihood_rows.SIQA, {"acc": "accuracy_sum_first"}, split="validation"),
    *(
        Case(preset, file, some, numbers, split=split, shots=shots, num_fewshot=3,
             more={"prompt": {"fewshot": {"count": 3}}})
        for preset, file, some, shots, split, numbers in (
            ("piqa", "piqa/piqa.yaml", likelihood_rows.PIQA, likelihood_rows.PIQA_TRAIN, "validation", CHOICE),
            ("openbookqa", "openbookqa/openbookqa.yaml", likelihood_rows.OPENBOOKQA, likelihood_rows.OPENBOOKQA_TRAIN,
             "test", CHOICE),
            ("social-iqa", "siqa/siqa.yaml", likelihood_rows.SIQA, likelihood_rows.SIQA_TRAIN, "validation",
             {"acc": "accuracy"}),
        )
    ),
    *(
        Case(f"lambada-{form}", f"lambada/lambada_{form}.yaml", some,
             {"acc": "accuracy", "perplexity": "perplexity"})
        for form, some in (
            ("openai", likelihood_rows.LAMBADA_OPENAI), ("standard", likelihood_rows.LAMBADA_STANDARD),
        )
    ),
    Case("wikitext", "wikitext/wikitext.yaml", likelihood_rows.WIKITEXT, PERPLEXITIES),
    Case("perplexity", "pile/pile_arxiv.yaml", likelihood_rows.TEXTS, PERPLEXITIES),
    Case("math-500-minerva", "minerva_math/minerva_math500.yaml", reply_rows.MATH_500, {}),
    *(Case(**case) for case in reply_rows.CASES),
]  # fmt: skip
"""On rows written for the tests."""

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
    Case("piqa", "piqa/piqa.yaml", likelihood_rows.PIQA, {}, split="validation", shots=likelihood_rows.PIQA_TRAIN,
         num_fewshot=2),
    Case("openbookqa", "openbookqa/openbookqa.yaml", likelihood_rows.OPENBOOKQA, {},
         shots=likelihood_rows.OPENBOOKQA_TRAIN, num_fewshot=2),
    Case("social-iqa", "siqa/siqa.yaml", likelihood_rows.SIQA, {}, split="validation",
         shots=likelihood_rows.SIQA_TRAIN, num_fewshot=2),
    Case("lambada-openai", "lambada/lambada_openai.yaml", likelihood_rows.LAMBADA_OPENAI, {}),
    Case("lambada-standard", "lambada/lambada_standard.yaml", likelihood_rows.LAMBADA_STANDARD, {}),
    *(Case(**case) for case in reply_rows.CHATS),
]  # fmt: skip
CHATS = [replace(case, chat=chat) for case in CHATS for chat in ("question", "turns")]
"""Under a chat template, with examples in the question and as turns of their own."""


def is_known_to_differ(case: Case) -> bool:
    """Tell whether the requests cannot be equal: lm-eval has TruthfulQA's examples in the question in any case."""
    return case.chat == "turns" and case.preset.startswith("truthfulqa")


def _csqa(row: Row) -> Row:
    choices = row["question"]["choices"]
    return {
        "question": row["question"]["stem"],
        "choices": {name: [choice[name] for choice in choices] for name in ("label", "text")},
        "answerKey": row["answerKey"],
    }


def _last_line(row: Row) -> str:
    """Return a reply that is right for some rows and not for others: what a careless reader would copy."""
    answer = str(row["answer"])
    number = answer.rpartition("#### ")[2]
    return (answer, f"{number} is it", f"#### {number}, no, #### 7")[len(answer) % 3]


def _so_or_plain(row: Row) -> str:
    return f"So the answer is {row['target']}." if len(row["input"]) % 2 else str(row["target"])


PUBLISHED = [
    Published("csqa", "commonsense_qa/validation.jsonl", "commonsense_qa/default.yaml", {"acc": "accuracy"},
              split="validation", as_hub=_csqa, shots="commonsense_qa/train.jsonl", num_fewshot=4),
    Published("gsm8k", "gsm8k/test.jsonl", "gsm8k/gsm8k.yaml",
              {"exact_match,strict-match": "accuracy", "exact_match,flexible-extract": "flexible.accuracy"},
              shots="gsm8k/train.jsonl", num_fewshot=5, reply=_last_line),
    Published("mmlu", "mmlu_stem/test.jsonl", "mmlu/default/mmlu_college_biology.yaml", {"acc": "accuracy"},
              where="{{ type == 'college_biology' }}"),
    *(
        Published(f"bbh-{form}-{name.replace('_', '-')}", f"bbh/{name}.json", f"bbh/{folder}/{name}.yaml",
                  {"exact_match": "accuracy"}, num_fewshot=3, reply=_so_or_plain)
        for form, folder in (("cot", "cot_fewshot"), ("direct", "fewshot"))
        for name in ("navigate", "causal_judgement", "boolean_expressions", "date_understanding")
    ),
]  # fmt: skip
"""On published files."""

# How it is compared


@dataclass
class Tally:
    """How many of several things are equal."""

    equal: int = 0
    total: int = 0

    def __str__(self) -> str:
        return f"{self.equal} of {self.total}"

    def count(self, is_equal: bool) -> bool:
        self.total += 1
        self.equal += is_equal
        return is_equal

    def add(self, other: Tally) -> None:
        self.equal += other.equal
        self.total += other.total


@dataclass
class Comparison:
    """What a comparison has found: how many requests, numbers of samples, and numbers of the whole suite are equal.

    ``task`` is lm-eval's name of the task, and ``differences`` describe what is not equal.
    """

    task: str
    requests: Tally = field(default_factory=Tally)
    scores: Tally = field(default_factory=Tally)
    totals: Tally = field(default_factory=Tally)
    differences: list[str] = field(default_factory=list)
    values: dict[str, list[Any]] = field(default_factory=dict)
    """The numbers of the samples, by our names of metrics."""

    def add(self, other: Comparison) -> None:
        for mine, others in zip(self._tallies, other._tallies, strict=True):
            mine.add(others)
        self.differences += other.differences

    def __str__(self) -> str:
        names = ("requests", "numbers of samples", "numbers of suites")
        return ", ".join(f"{name} {tally}" for name, tally in zip(names, self._tallies, strict=True) if tally.total)

    @property
    def _tallies(self) -> tuple[Tally, Tally, Tally]:
        return self.requests, self.scores, self.totals


@cache
def compare(case: Case | Published) -> Comparison:
    """Compare each request, and the numbers for made-up responses, with those of lm-eval's task."""
    from tests.presets.lm_eval_side import Peer, arguments_of, comparable, scores_of

    suite, splits, replies = _published(case) if isinstance(case, Published) else _written(case)
    with tempfile.TemporaryDirectory() as folder:
        evaluation = Evaluation(load_suite(write_suite(Path(folder), suite)))
    peer = Peer(case.file, splits, replies, case.num_fewshot)
    found = Comparison(str(peer.task.config.task))
    chat = case.chat if isinstance(case, Case) else ""
    theirs = peer.chat_arguments(multi_turn=chat == "turns") if chat else [
        [comparable(arguments) for arguments in own] for own in peer.arguments()
    ]  # fmt: skip
    for sample, expected in zip(evaluation.suite.samples, theirs, strict=True):
        ours = [arguments_of(request) for request in evaluation.question(sample).requests]
        if not found.requests.count(ours == expected):
            found.differences.append(f"requests of {sample.id}: found {ours}, expected {expected}")
    if case.numbers and not found.differences:
        scores, numbers = scores_of(evaluation, replies), peer.numbers()
        for name, metric in case.numbers.items():
            compare_numbers(found, scores, metric, numbers[name], peer.total(name, numbers[name]))
    return found


def compare_numbers(
    found: Comparison, scores: Sequence[Score], metric: str, theirs: Sequence[Any], their_total: float
) -> None:
    """Compare the numbers of all samples, and that of the suite."""
    found.values[metric] = [_value(score, metric) for score in scores]
    for place, (value, own) in enumerate(zip(found.values[metric], theirs, strict=True), start=1):
        if not found.scores.count(_is_close(value, own)):
            found.differences.append(f"{metric} of {place}: found {value}, expected {own}")
    total = summarize(scores, [metric])[metric].value
    if not found.totals.count(total is not None and math.isclose(total, their_total, rel_tol=1e-12)):
        found.differences.append(f"{metric}: found {total}, expected {their_total}")


def _value(score: Score, metric: str) -> Any:
    """Return a sample's number; of a metric that is pooled over the samples, what it is made of, as lm-eval has it."""
    if metric not in POOLED:
        return score.values.get(metric)
    unit = POOLED[metric].unit
    value = score.values["loglikelihood"]
    return value if unit == "samples" else (value, score.values[unit])


def _is_close(value: Any, other: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_close(one, another) for one, another in zip(value, other, strict=True))
    return value is not None and abs(value - other) <= TOLERANCE


Input = tuple[dict[str, Any], dict[str, list[Row]], tuple[str, ...]]
"""A suite, lm-eval's splits, and replies. Rows in the suite are written to a file of their own."""


def _written(case: Case) -> Input:
    suite: dict[str, Any] = {"suite": "s", "preset": case.preset, "dataset": {"path": case.rows}, **case.more}
    fewshot = dict(case.more.get("prompt", {}).get("fewshot", {}))
    if case.shots:
        fewshot["path"] = case.shots
    if case.chat and case.shots:
        fewshot["count"] = case.num_fewshot
    if case.chat and "fewshot" in load_preset(case.preset).defaults["prompt"]:
        fewshot["multi_turn"] = case.chat == "turns"
    prompt = {**case.more.get("prompt", {}), **({"chat": True} if case.chat else {})}
    if fewshot:
        prompt["fewshot"] = fewshot
    if prompt:
        suite["prompt"] = prompt
    splits = {case.split: case.rows, **({case.shots_split: case.shots} if case.shots else {})}
    return suite, splits, case.replies


def _published(case: Published) -> Input:
    some = [row for row in _read(case.path) if case.where is None or row["type"] in case.where][:NUM_PUBLISHED]
    dataset = {"path": str(DATA / case.path), "limit": NUM_PUBLISHED, **({"where": case.where} if case.where else {})}
    fewshot = {"count": case.num_fewshot, **({"path": str(DATA / case.shots)} if case.shots else {})}
    splits = {case.split: [case.as_hub(row) for row in some]}
    if case.shots is not None:
        splits["train"] = [case.as_hub(row) for row in _read(case.shots)]
    replies = () if case.reply is None else tuple(case.reply(row) for row in some)
    suite = {"suite": "s", "preset": case.preset, "dataset": dataset, "prompt": {"fewshot": fewshot}}
    return suite, splits, replies


def _read(name: str) -> list[Row]:
    text = (DATA / name).read_text(encoding="utf-8")
    if name.endswith(".json"):
        return list(json.loads(text)["examples"])
    return [json.loads(line) for line in text.splitlines()]


def write_suite(folder: Path, suite: dict[str, Any]) -> Path:
    """Write a suite, and lists of rows that stand for paths in it to files beside it; return its path."""
    for name, part in (("rows", suite["dataset"]), ("shots", suite.get("prompt", {}).get("fewshot", {}))):
        if isinstance(part.get("path"), list):
            lines = "".join(json.dumps(row) + "\n" for row in part["path"])
            (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
            part["path"] = f"{name}.jsonl"
    path = folder / "s.yaml"
    path.write_text(yaml.safe_dump(suite, sort_keys=False), encoding="utf-8")
    return path


def compared_together(cases: Iterable[Case | Published]) -> tuple[Comparison, list[str]]:
    """Return the sums of several comparisons, and the names of lm-eval's tasks."""
    together, tasks = Comparison(""), []
    for found in map(compare, cases):
        together.add(found)
        if found.task not in tasks:
            tasks.append(found.task)
    return together, tasks
