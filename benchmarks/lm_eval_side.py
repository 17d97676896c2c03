"""A work as lm-evaluation-harness runs it: a task on a local JSON file, its command line, what it logged.

The task's columns hold the rendered prompts, so lm-eval scores the same text as we do. None of its metrics here is
bootstrapped (means have a formula; perplexity of a document gets no standard error). ``--log_samples`` writes each
response to a file, as our report does: measured with a model that takes no time, 0.01 to 0.03 seconds for 200 questions
of four choices, so it is left on.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.measured_process import run_measured
from benchmarks.side_of_bench import Outcome
from benchmarks.works_for_bench import STOP, Work
from tests.support import REPOSITORY

__all__ = ["engine_seconds", "run_lm_eval", "run_lm_eval_vllm"]

# The last state of a progress bar, "Running … requests: 100%|███| 800/800 [01:20<00:00,  9.98it/s]", which alone ends
# in a line break; with a server it is "Requesting API: …". Its rate is that of the whole bar, with more digits than its
# clock; earlier ones are recent rates.
_FINISHED = re.compile(
    r"(?:Running \w+ requests|Requesting API): 100%\|[^|]*\| (?P<done>\d+)/(?P=done) "
    r"\[(?P<clock>[\d:]+)<[^,]*, +(?P<rate>[\d.]+)(?P<unit>it/s|s/it)\] *\r?\n"
)


def run_lm_eval(
    work: Work,
    model: Path,
    folder: Path,
    variables: dict[str, str],
    *,
    batch_size: int,
    log_samples: bool = True,
    model_arguments: Sequence[str] = (),
    python: Path | str = sys.executable,
) -> Outcome:
    """Run ``work`` in a process of its own; ``folder`` is empty and takes all files. Raises ``CommandFailed``.

    ``model_arguments`` stand in the place of those that load ``model`` by transformers. ``python`` has lm-eval.
    """
    data = folder / "prompts.jsonl"
    work.write(data)
    (folder / "task.yaml").write_text(yaml.safe_dump(_task(work, data), sort_keys=False), encoding="utf-8")
    program = ["lm_eval"]
    if work.has_ends:
        program = ["benchmarks.ended_texts", str(data)]
        variables = variables | {"PYTHONPATH": str(REPOSITORY)}
    command = [
        *(str(python), "-m", *program),
        *(model_arguments or ("--model", "hf", "--model_args", f"pretrained={model},dtype=float32", "--device", "cpu")),
        *("--tasks", work.name, "--include_path", str(folder), "--batch_size", str(batch_size)),
        *("--output_path", str(folder / "results")),
        *(["--log_samples"] if log_samples else []),
    ]
    measured = run_measured(command, folder=folder, variables=variables, log=folder / "log.txt")
    return Outcome(
        process_seconds=measured.seconds,
        engine_seconds=engine_seconds(measured.output),
        peak_mib=measured.peak_mib,
        responses=_responses(work, folder / "results") if log_samples else {},
    )


def run_lm_eval_vllm(
    work: Work,
    model: Path,
    folder: Path,
    variables: dict[str, str],
    settings: str,
    *,
    python: Path | str = sys.executable,
) -> Outcome:
    """Run ``work`` by lm-eval's ``vllm``, which has vLLM's engine in its own process. ``python`` has both."""
    size = work.num_requests  # all at once, for vLLM to batch, and without vLLM's bars between those that are read
    arguments = ("--model", "vllm", "--model_args", f"pretrained={model},{settings}")
    return run_lm_eval(work, model, folder, variables, batch_size=size, model_arguments=arguments, python=python)


def _task(work: Work, data: Path) -> dict[str, Any]:
    task: dict[str, Any] = {
        "task": work.name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "num_fewshot": 0,
    }
    if work.kind == "choice":
        return task | {
            "output_type": "multiple_choice",
            "doc_to_text": "context",
            "doc_to_choice": "choices",
            "doc_to_target": "target",
            "target_delimiter": " ",
            "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
        }
    if work.kind == "generation":
        return task | {
            "output_type": "generate_until",
            "doc_to_text": "context",
            "doc_to_target": "target",
            "generation_kwargs": {"until": [STOP], "do_sample": False, "max_gen_toks": work.max_new_tokens},
            "metric_list": [{"metric": "exact_match"}],
        }
    return task | {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "context",
        "metric_list": [{"metric": name} for name in ("word_perplexity", "byte_perplexity", "bits_per_byte")],
    }


def engine_seconds(output: str) -> float | None:
    """Seconds that lm-eval's progress bars ran: the model's work without loading. None where there is no bar.

    A rolling log-likelihood has a bar for each batch, and they are added up.
    """
    found = list(_FINISHED.finditer(output))
    return sum(map(_bar_seconds, found)) if found else None


def _bar_seconds(bar: re.Match[str]) -> float:
    clock = 0.0
    for part in bar["clock"].split(":"):
        clock = 60 * clock + float(part)
    rate = float(bar["rate"])
    if rate == 0:
        return clock
    return float(bar["done"]) / rate if bar["unit"] == "it/s" else float(bar["done"]) * rate


def _responses(work: Work, results: Path) -> dict[str, tuple[float, ...] | str]:
    """By prompt: the log-likelihood of each choice (or of the text), or the text that was written."""
    (path,) = results.rglob(f"samples_{work.name}_*.jsonl")
    responses: dict[str, tuple[float, ...] | str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        found = sample["resps"]
        if work.kind == "choice":
            responses[sample["doc"]["id"]] = tuple(float(loglikelihood) for ((loglikelihood, _),) in found)
        elif work.kind == "generation":
            ((text,),) = found
            responses[sample["doc"]["id"]] = text
        else:
            ((loglikelihood,),) = found
            responses[sample["doc"]["id"]] = (float(loglikelihood),)
    return responses
