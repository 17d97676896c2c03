"""What a comparison of two reports costs beside parsing their JSON: seconds of whole processes.

    python -m benchmarks.compare_reports                          # 10,000 and 100,000 samples
    python -m benchmarks.compare_reports --samples 100000 --runs 3 --budget-cpu-s 5

Both reports are of one suite of lettered choices: four options, 57 categories, 16 metrics, prompts of some 500
characters; the second model's likelihoods differ on one sample in ten. Two commands are timed: ``compare`` is
``llmeval compare`` of the two, ``json`` is a process that only calls ``json.load`` on both files, one after the other.
``cpu_s`` are user and system time, ``wall_s`` the clock's, each the median of ``--runs`` processes that alternate;
``compare_json`` is the ratio of the two CPU times. ``file_mb`` is the size of both files together, ``peak_mib`` the
largest resident set of ``compare``. Another load on the machine shows in all of it: compare ratios, and times of one
run. A budget that is exceeded: exit 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.measured_process import Measured, environment, run_measured
from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import Report, definitions_of
from pytest_llmeval.reporting.report.summaries import summarize_suite
from pytest_llmeval.reporting.storage.report_file import write_report
from pytest_llmeval.scorers.choice import ChoiceScorer, ChoiceSettings
from pytest_llmeval.types import LoglikelihoodResponse, Sample
from tests.support import REPOSITORY

NUM_CATEGORIES = 57
_LETTERS = ("A", "B", "C", "D")
_CHANGED = 0.1
"""Share of the samples whose likelihoods the second model changes."""

_LOAD = "import json, sys\nfor path in sys.argv[1:]:\n    with open(path, encoding='utf-8') as file: json.load(file)\n"


def records(num_samples: int, model: str, *, is_changed: bool) -> Iterator[Record]:
    """What a session records of these samples; where ``is_changed``, with some likelihoods drawn anew."""
    draw, drawn_anew = random.Random(0), random.Random(1)
    words = ["".join(draw.choices("abcdefghij", k=5)) for _ in range(1000)]
    scorer = ChoiceScorer(ChoiceSettings(kind="choice"))
    for number in range(num_samples):
        question = " ".join(draw.choices(words, k=40))
        options = [" ".join(draw.choices(words, k=5)) for _ in _LETTERS]
        target = draw.randrange(4)
        logprobs = [-5 * draw.random() for _ in _LETTERS]
        if drawn_anew.random() < _CHANGED and is_changed:
            logprobs = [-5 * drawn_anew.random() for _ in _LETTERS]
        asked = Sample(id=f"q{number}", path="suite.yaml", line=1, target=target, choices=_LETTERS)
        responses = [LoglikelihoodResponse(loglikelihood=logprob, num_tokens=1) for logprob in logprobs]
        score = scorer.score(scorer.present(asked), responses)
        shown = "\n".join(f"{letter}. {option}" for letter, option in zip(_LETTERS, options, strict=True))
        yield Record(
            suite="mmlu",
            id=asked.id,
            nodeid=f"mmlu.yaml::{asked.id}",
            status=score.status,
            model=model,
            category=f"subject_{number % NUM_CATEGORIES}",
            question=question,
            prompt=f"{question}\n{shown}\nAnswer:",
            choices=_LETTERS,
            target=_LETTERS[target],
            answer=score.answer,
            values=score.values,
            chance=score.chance,
            details=score.details,
            num_prompt_tokens=120,
            num_tokens=4,
            seconds=0.001,
            fingerprint=f"{number:064x}",
        )


def report_of(num_samples: int, model: str, *, is_changed: bool) -> Report:
    """The report of a session of one model."""
    own = list(records(num_samples, model, is_changed=is_changed))
    metrics = ChoiceScorer(ChoiceSettings(kind="choice")).metrics
    info = SuiteInfo(
        name="mmlu", path="mmlu.yaml", scorer="choice", fingerprint="mmlu", num_samples=num_samples, metrics=metrics
    )
    suite = summarize_suite(info, own, num_expected=num_samples, model=model)
    return Report(
        created="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        exit_code=0,
        environment={},
        models=({"name": model},),
        options={"model": [model]},
        definitions=definitions_of([suite]),
        suites=(suite,),
        records=own,
    )


def measure(num_samples: int, runs: int) -> dict[str, float]:
    """All figures for one number of samples."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        paths = [str(folder / f"{name}.json") for name in ("before", "now")]
        for place, path in enumerate(paths):
            write_report(report_of(num_samples, f"model-{place}", is_changed=bool(place)), Path(path))
        file_mb = sum(Path(path).stat().st_size for path in paths) / 1e6
        # A drop passes here: what is measured is the time of a comparison that succeeds.
        compare = [sys.executable, "-m", "pytest_llmeval.cli", "compare", *paths, "--max-drop", "accuracy=0.5"]
        commands = {"compare": compare, "json": [sys.executable, "-c", _LOAD, *paths]}
        found: dict[str, list[Measured]] = {name: [] for name in commands}
        for _ in range(runs):
            for name, command in commands.items():
                variables = environment(folder, num_threads=1)
                log = folder / f"{name}.log"
                found[name].append(run_measured(command, folder=REPOSITORY, variables=variables, log=log))
    figures: dict[str, float] = {"samples": num_samples, "file_mb": file_mb}
    for name, measured in found.items():
        figures[f"{name}_cpu_s"] = median(one.cpu_seconds for one in measured)
        figures[f"{name}_wall_s"] = median(one.seconds for one in measured)
    figures["compare_json"] = figures["compare_cpu_s"] / figures["json_cpu_s"]
    figures["peak_mib"] = median(one.peak_mib for one in found["compare"])
    return {name: round(value, 3) for name, value in figures.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--runs", type=int, default=3, help="processes of each kind")
    parser.add_argument("--budget-cpu-s", type=float, help="CPU seconds that a comparison may take")
    options = parser.parse_args(arguments)
    is_over = False
    for num_samples in options.samples:
        found = measure(num_samples, options.runs)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
        is_over |= options.budget_cpu_s is not None and found["compare_cpu_s"] > options.budget_cpu_s
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main())
