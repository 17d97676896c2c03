"""Presets that follow no task of lm-eval: what they are compared with instead, or why with nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.suites.loading.loader import load_suite
from tests.presets import rows
from tests.presets.comparisons import Comparison, compare_numbers, write_suite
from tests.scoring.test_f1 import script_in_lm_eval

__all__ = ["CHECKS", "UNCHECKED", "Check"]


@dataclass(frozen=True)
class Check:
    """A comparison with something else than a task of lm-eval; ``run`` makes it."""

    what: str
    run: Callable[[], Comparison]


def _squad() -> Comparison:
    """Compare with the functions of SQuAD's evaluation script, which lm-eval has in a task, the best reference each."""
    from tests.presets.lm_eval_side import scores_of

    script, found = script_in_lm_eval("afrobench/afriqa/prompt_2"), Comparison("squad")
    asked: list[dict[str, Any]] = [{**row, "id": f"{row['id']}-{number}"} for row in rows.SQUAD for number in range(6)]
    suite = {"suite": "s", "preset": "squad", "dataset": {"path": asked}}
    with tempfile.TemporaryDirectory() as folder:
        evaluation = Evaluation(load_suite(write_suite(Path(folder), suite)))
    scores = scores_of(evaluation, rows.SQUAD_REPLIES)
    pairs = [
        [(reference, reply) for reference in row["answers"]["text"]]
        for row, reply in zip(asked, rows.SQUAD_REPLIES, strict=True)
    ]
    exact = [
        float(any(script.normalize_answer(reference) == script.normalize_answer(reply) for reference, reply in own))
        for own in pairs
    ]
    f1 = [float(max(script.f1([pair]) for pair in own)) for own in pairs]
    compare_numbers(found, scores, "accuracy", exact, fmean(exact))
    compare_numbers(found, scores, "f1", f1, fmean(f1))
    return found


CHECKS: Mapping[str, Check] = {"squad": Check("SQuAD's evaluation script, as lm-eval's task afriqa has it", _squad)}
"""By the name of the preset."""

_OWN = "not checked: the prompt and what counts as right are this project's own"
_MATH = "not checked: the prompt is this project's own; Math-Verify itself compares"
UNCHECKED: Mapping[str, str] = {
    "aime24": _MATH,
    "aime25": _MATH,
    "bfcl-irrelevance": "not checked: bfcl-eval judges in the program that asks its models; no call at all is right",
    "boolq": _OWN,
    "chronologic-brier": "not checked: no program of the benchmark's authors was at hand",
    "chronologic-mcq": "not checked: no program of the benchmark's authors was at hand",
    "csqa-text": "not checked: no task of lm-eval scores the texts of the options",
    "gsm8k-number": "not checked: requests are those of `gsm8k`, and the comparison of numbers is this project's own",
    "gpqa-diamond": _OWN,
    "math": _MATH,
    "math-500": _MATH,
    "math-judged": f"{_MATH}, and a judge",
}
"""Why presets are compared with nothing, by their names."""
