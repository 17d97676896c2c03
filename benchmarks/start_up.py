"""What a session of four questions costs beside a script that loads the same weights and answers one.

    python -m benchmarks.start_up --work DIR            # from the repository; prints JSON lines
    python -m benchmarks.start_up --model gpt2 --runs 7
    python -m benchmarks.start_up --budget 1.25         # exit 1 if a median ratio of wall times is above it

Ours: ``pytest --llm-model FOLDER`` on a suite of four lettered questions, with the report written. The script imports
torch and transformers, loads tokenizer and weights, and scores the four letters of one of the questions. Both are
processes of their own with as many threads, in float32 on the CPU, and take turns; a ratio is of two runs that followed
each other, and the median of ratios is printed. Both have run once before, so that their files are in the disk's cache
and their bytecode is written; ours has its verdict on the tree from there. ``first`` is the same with
``--cache-clear``: as in the first session with a model. The models (random weights, the shapes of GPT-2 and
SmolLM-135M) are made once under ``--work``. On a machine that does other work too, CPU time says more than wall time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measured_process import Measured, environment, run_measured
from benchmarks.models_for_bench import SHAPES, make_model
from benchmarks.works_for_bench import DATA, data_problem

SUITE = """\
suite: four
samples:
  - {question: "Which word names the capital of France?", target: 0}
  - {question: "Which word names the capital of Spain?", target: 1}
  - {question: "Which word names the capital of Italy?", target: 2}
  - {question: "Which word names the capital of Peru?", target: 3}
prompt:
  template: "Question: {{ question }}\\nA. Paris\\nB. Madrid\\nC. Rome\\nD. Lima\\nAnswer:"
choices: [A, B, C, D]
score: choice
"""

SCRIPT = """\
import sys

import torch
import transformers

folder = sys.argv[1]
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
question = "Question: Which word names the capital of France?\\nA. Paris\\nB. Madrid\\nC. Rome\\nD. Lima\\nAnswer:"
tokens = tokenizer(question, return_tensors="pt").input_ids
with torch.inference_mode():
    logprobs = model(tokens).logits[0, -1].log_softmax(-1)
print(max((float(logprobs[tokenizer(f" {letter}").input_ids[0]]), letter) for letter in "ABCD"))
"""

_NO_PLUGINS_OF_DEVELOPERS = ("-p", "no:hypothesispytest", "-p", "no:anyio")
"""They come with this repository's tests, and take 0.1 s to load."""


def compare(model: Path, folder: Path, *, runs: int, threads: int, options: Sequence[str]) -> dict[str, object]:
    """Median seconds of both sides over ``runs`` pairs, in alternating order, and the median of the pairs' ratios."""
    (folder / "suite.yaml").write_text(SUITE, encoding="utf-8")
    (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # else one of a folder above would rule
    variables = environment(folder, num_threads=threads) | {"PYTHONPYCACHEPREFIX": str(folder.parent / "bytecode")}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    report = folder / "report.json"
    commands = {
        "ours": [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:xdist",
                *_NO_PLUGINS_OF_DEVELOPERS,
                "suite.yaml",
                *options,
            ),
            *("--llm-model", str(model), "--llm-device", "cpu", "--llm-dtype", "float32", "--llm-report", str(report)),
        ],
        "script": [sys.executable, "script.py", str(model)],
    }

    def run(side: str) -> Measured:
        return run_measured(commands[side], folder=folder, variables=variables, log=folder / f"{side}.txt")

    for side in commands:
        run(side)
    taken: dict[str, list[Measured]] = {side: [] for side in commands}
    for number in range(runs):
        for side in commands if number % 2 else reversed(commands):
            taken[side].append(run(side))
    if (found := len(json.loads(report.read_text(encoding="ascii"))["records"])) != 4:
        raise SystemExit(f"{found} records of 4: {(folder / 'ours.txt').read_text(errors='replace')}")
    result: dict[str, object] = {"runs": runs, "threads": threads}
    for kind in ("seconds", "cpu_seconds"):
        ours, script = ([getattr(one, kind) for one in taken[side]] for side in ("ours", "script"))
        result |= {
            f"ours_{kind}": round(statistics.median(ours), 2),
            f"script_{kind}": round(statistics.median(script), 2),
            f"ratio_{kind}": round(statistics.median(a / b for a, b in zip(ours, script, strict=True)), 3),
        }
    return result


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print, and compare with the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, metavar="DIR", help="where models are made and kept")
    parser.add_argument("--model", action="append", choices=list(SHAPES), help="default: gpt2 and llama")
    parser.add_argument("--runs", type=int, default=5, help="pairs of whole runs")
    parser.add_argument("--threads", type=int, default=2, help="of each side's process")
    parser.add_argument("--budget", type=float, help="exit 1 if a median ratio of wall times is above this")
    arguments = parser.parse_args(given)
    if arguments.runs < 1 or arguments.threads < 1:
        parser.error("--runs and --threads: expected a whole number above 0")
    if (problem := data_problem()) is not None:
        raise SystemExit(problem)
    exceeded = False
    with tempfile.TemporaryDirectory() as temporary:
        work = (arguments.work or Path(temporary)).resolve()
        for name in arguments.model or ("gpt2", "llama"):
            model = make_model(SHAPES[name], work / "models", DATA)
            for measured, options in (("later", ()), ("first", ("--cache-clear",))):
                with tempfile.TemporaryDirectory(dir=temporary) as folder:
                    result = compare(
                        model, Path(folder), runs=arguments.runs, threads=arguments.threads, options=options
                    )
                print(json.dumps({"measured": f"start_up_{measured}", "model": name} | result), flush=True)
                ratio = result["ratio_seconds"]
                exceeded |= arguments.budget is not None and isinstance(ratio, float) and ratio > arguments.budget
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main())
