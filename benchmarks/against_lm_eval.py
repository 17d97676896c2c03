"""Whole runs of ``pytest`` with this plugin against whole runs of lm-evaluation-harness, on the same prompts.

    python -m benchmarks.against_lm_eval --work DIR            # from the repository; prints JSON lines
    python -m benchmarks.against_lm_eval --markdown            # and at the end the table of docs/computation.md
    python -m benchmarks.against_lm_eval --only gsm8k_generation --model llama --repeat 3
    python -m benchmarks.against_lm_eval --only letters_one_header --questions 12 --pilot 6   # a quick look

Each work (``benchmarks/works_for_bench.py``) is a list of rendered prompts that both sides read from files of the same
content. In ``gsm8k_ended`` replies are as long as the published solutions, by the same means on both sides
(``benchmarks/ended_texts.py``). The models have random weights and the shapes of GPT-2 (124M) and SmolLM-135M; they
and their tokenizers are made once under ``--work``, where the files and logs of the runs stay too. Both sides are
processes of their own with as many threads, in float32 on the CPU, one after the other: run this on a machine that does
nothing else.

lm-eval runs at its best of the batch sizes 1, 8 and 16. A pilot on a few questions finds it (a line with
``"measured": "pilot"`` for each size); a work without that many questions, and every work with ``--all-batch-sizes``,
runs in full at each size. Our side is never told a batch size; it has answered one question before anything is timed,
so that it too finds its files in the disk's cache.

In a line with ``"measured": "against_lm_eval"``, ``ratio_process`` is lm-eval's time by ours for the whole processes,
``ratio_engine`` the same for the model's own work as each side reports it (lm-eval by its progress bars, ours by its
report), ``ratio_memory`` our peak memory by lm-eval's. With ``--repeat`` both sides take turns; times are medians,
memory is the largest. ``largest_difference`` is between log-likelihoods of single requests, in nats;
``largest_relative_difference`` is for perplexity, whose one request sums up all tokens (lm-eval adds up in float32).
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path

from tabulate import tabulate

from benchmarks.lm_eval_side import run_lm_eval
from benchmarks.measured_process import CommandFailed, environment
from benchmarks.models_for_bench import SHAPES, make_model, token_counter
from benchmarks.our_side import run_pytest
from benchmarks.side_of_bench import Outcome, equal_texts, largest_difference
from benchmarks.works_for_bench import CHOICE_WORKS, DATA, WORKS, CountTokens, Sizes, Work, data_problem, make_work

__all__ = ["made_works", "main", "markdown", "parsed"]

BATCH_SIZES = (1, 8, 16)
CHOICE_QUESTIONS = (60, 200)
"""Of works whose answers are options: few, of which a start-up is a large part, and many."""


@dataclass(slots=True)
class Bench:
    """One model: where its files are, and how both sides are run on it."""

    model_name: str
    model: Path
    folder: Path
    num_threads: int
    arguments: Sequence[str] = ()
    """More of pytest's options, for our side."""
    _runs: int = field(default=0, init=False)

    def ours(self, work: Work) -> Outcome:
        """Our side's run of ``work``."""
        folder, variables = self._next()
        return run_pytest(work, self.model, folder, variables, arguments=self.arguments)

    def theirs(self, work: Work, batch_size: int) -> Outcome:
        """lm-eval's run of ``work``."""
        folder, variables = self._next()
        return run_lm_eval(work, self.model, folder, variables, batch_size=batch_size)

    def _next(self) -> tuple[Path, dict[str, str]]:
        """An empty folder for a run, and the variables of its process."""
        self._runs += 1
        folder = self.folder / f"{self._runs:03d}"
        folder.mkdir(parents=True)
        return folder, environment(self.folder, num_threads=self.num_threads)


def compare(bench: Bench, work: Work, *, pilot: int, repeat: int, batch_sizes: Sequence[int]) -> dict[str, object]:
    """Find lm-eval's best batch size on the first ``pilot`` prompts (0: on all), then time both sides.

    Prints lines; returns the last one.
    """
    pilot_work = work.first(pilot) if 0 < pilot < len(work.prompts) and len(batch_sizes) > 1 else work
    tried: dict[int, Outcome] = {}
    for batch_size in batch_sizes:
        line: dict[str, object] = {"batch_size": batch_size, "questions": len(pilot_work.prompts)}
        try:
            outcome = tried[batch_size] = bench.theirs(pilot_work, batch_size)
            line |= {
                "lm_eval_engine_s": _rounded(_engine(outcome)),
                "lm_eval_process_s": _rounded(outcome.process_seconds),
            }
        except CommandFailed as failure:  # too little memory for this size, as a rule
            line |= {"failed": str(failure)[-300:]}
        _print("pilot", bench, work, line)
    if not tried:
        raise CommandFailed(f"lm-eval failed at each of the batch sizes {', '.join(map(str, batch_sizes))}")
    best = min(tried, key=lambda batch_size: _engine(tried[batch_size]))
    ours: list[Outcome] = []
    theirs: list[Outcome] = [tried[best]] if pilot_work is work else []
    while len(ours) < repeat:
        ours.append(bench.ours(work))
        if len(theirs) < len(ours):
            theirs.append(bench.theirs(work, best))
    found = _comparison(work, ours, theirs) | {"lm_eval_batch_size": best}
    return _print("against_lm_eval", bench, work, found)


def _comparison(work: Work, ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> dict[str, object]:
    line: dict[str, object] = {
        "questions": len(work.prompts),
        "requests": work.num_requests,
        "runs": len(ours),
    }
    for what, value in (("process", lambda outcome: outcome.process_seconds), ("engine", _engine)):
        mine, peer = _median(ours, value), _median(theirs, value)
        line |= {
            f"ours_{what}_s": _rounded(mine),
            f"lm_eval_{what}_s": _rounded(peer),
            f"ratio_{what}": _rounded(peer / mine),
        }
    mine, peer = (max(outcome.peak_mib for outcome in outcomes) for outcomes in (ours, theirs))
    line |= {
        "ours_peak_mib": round(mine),
        "lm_eval_peak_mib": round(peer),
        "ratio_memory": _rounded(mine / peer),
    }
    if work.kind == "generation":
        return line | {"equal_generations": equal_texts(ours[0], theirs[0])}
    differences = {
        "largest_difference": largest_difference(ours[0], theirs[0]),
        "largest_relative_difference": largest_difference(ours[0], theirs[0], relative=True),
    }
    return line | {name: float(f"{value:.2g}") for name, value in differences.items()}


def _engine(outcome: Outcome) -> float:
    return outcome.process_seconds if outcome.engine_seconds is None else outcome.engine_seconds


def _median(outcomes: Sequence[Outcome], value: Callable[[Outcome], float]) -> float:
    return statistics.median(map(value, outcomes))


def _rounded(number: float) -> float:
    return round(number, 3)


def _print(measured: str, bench: Bench, work: Work, line: dict[str, object]) -> dict[str, object]:
    head: dict[str, object] = {"measured": measured, "work": work.name}
    whole = head | {"model": bench.model_name, "threads": bench.num_threads} | line
    print(json.dumps(whole), flush=True)
    return whole


def markdown(lines: Sequence[dict[str, object]]) -> str:
    """The tables of docs/computation.md: a row for each work and number of questions, whole processes in seconds."""
    headers = ("model", "work", "questions", "lm-eval", "here", "ratio")
    rows = [
        [line[name] for name in headers[:3]]
        + [f"{line['lm_eval_process_s']:.0f} s", f"{line['ours_process_s']:.0f} s", f"{line['ratio_process']:.1f}"]
        for line in lines
    ]
    return tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True)


def parsed(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help="where models are made and kept; default: a temporary folder"
    )
    parser.add_argument("--only", action="append", choices=list(WORKS), help="this work; can be given several times")
    parser.add_argument("--model", action="append", choices=list(SHAPES), help="default: gpt2 and llama")
    parser.add_argument(
        "--questions",
        type=_positive,
        nargs="+",
        metavar="N",
        help="one number or several; default: 60 and 200 of works with options, 32 for generation",
    )
    parser.add_argument("--subjects", type=_positive, metavar="N", default=8, help="of letters_several_headers")
    parser.add_argument("--text-tokens", type=_positive, metavar="N", default=20_000, help="of perplexity's text")
    parser.add_argument("--threads", type=_positive, metavar="N", default=2, help="of each side's process")
    parser.add_argument("--repeat", type=_positive, metavar="N", default=1, help="runs of each side")
    parser.add_argument("--pilot", type=_positive, metavar="N", default=24, help="questions that decide the batch size")
    parser.add_argument(
        "--batch-size", type=_positive, metavar="N", action="append", help="lm-eval's; default: 1, 8, 16"
    )
    parser.add_argument("--all-batch-sizes", action="store_true", help="run lm-eval in full at each batch size")
    parser.add_argument(
        "--pytest-args", metavar="TEXT", default="", help="more options of our side, such as --llm-engine=plain"
    )
    parser.add_argument("--markdown", action="store_true", help="print the results as a table at the end")
    return parser.parse_args(given)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, found {text}")
    return number


def bench_model(name: str, folder: Path, arguments: argparse.Namespace) -> tuple[list[dict[str, object]], int]:
    """All works on the model called ``name``, with its files under ``folder``.

    Returns the lines of those that were compared, and how many works failed.
    """
    shape = SHAPES[name]
    bench = Bench(
        model_name=name,
        model=make_model(shape, folder / "models", DATA),
        folder=Path(tempfile.mkdtemp(prefix=f"runs-{name}-", dir=folder)),
        num_threads=arguments.threads,
        arguments=shlex.split(arguments.pytest_args),
    )
    sizes = Sizes(max_length=shape.max_length, num_subjects=arguments.subjects, num_text_tokens=arguments.text_tokens)
    works = list(made_works(arguments, sizes, token_counter(bench.model)))
    bench.ours(works[0].first(1))
    lines, num_failed = [], 0
    for work in works:
        try:
            line = compare(
                bench,
                work,
                pilot=0 if arguments.all_batch_sizes else arguments.pilot,
                repeat=arguments.repeat,
                batch_sizes=arguments.batch_size or BATCH_SIZES,
            )
            lines.append(line)
        except CommandFailed as failure:
            num_failed += 1
            _print("failed", bench, work, {"reason": str(failure)})
    return lines, num_failed


def made_works(arguments: argparse.Namespace, sizes: Sizes, count_tokens: CountTokens) -> Iterator[Work]:
    """The works in each number of questions; one that has no questions once."""
    for name in arguments.only or WORKS:
        numbers = arguments.questions or (CHOICE_QUESTIONS if name in CHOICE_WORKS else (None,))
        made: list[Work] = []
        for number in numbers:
            work = make_work(name, replace(sizes, num_questions=number), count_tokens)
            if work not in made:
                made.append(work)
        yield from made


def main(given: Sequence[str] | None = None) -> int:
    """Make what is missing under ``--work``, and compare each work on each model; 1 if one of them failed."""
    arguments = parsed(given)
    if (problem := data_problem()) is not None:
        raise SystemExit(problem)
    try:
        versions = {name: metadata.version(name) for name in _COMPARED}
    except metadata.PackageNotFoundError as missing:
        raise SystemExit(f"{missing.name} is not installed here: pip install -e '.[dev]'") from None
    print(json.dumps({"measured": "versions"} | versions), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.work or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        found = [bench_model(name, folder, arguments) for name in arguments.model or ("gpt2", "llama")]
    if arguments.markdown:
        print(markdown([line for lines, _ in found for line in lines]))
    return int(any(num_failed for _, num_failed in found))


_COMPARED = ("pytest-llmeval-suites", "lm_eval", "torch", "transformers")

if __name__ == "__main__":
    sys.exit(main())
