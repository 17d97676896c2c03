"""Requests per second to one server: ``pytest`` with this plugin against lm-evaluation-harness's local-completions.

    pip install 'lm_eval[api]'
    python -m benchmarks.against_lm_eval_server URL --tokenizer FOLDER         # prints JSON lines
    python -m benchmarks.against_lm_eval_server URL --tokenizer FOLDER --text  # a server that takes no token ids

``URL`` is the API root of a server that runs already, ``http://127.0.0.1:8000/v1``, whose prompt logprobs both sides
ask for; ``FOLDER`` the model's tokenizer, which both sides use. The works are those of ``against_lm_eval``, on the same
rendered prompts. Each side is a process of its own; the two take turns. lm-eval sends as many requests at once as ours
may, and is given the best of the batch sizes 1 and 8 (requests to llama-cpp-python cannot be batched: give
``--batch-size 1``). lm-eval's local-completions leaves out a BOS that the tokenizer adds; with token ids it is made to
add it.

Starting a process takes longer than many requests and varies by seconds, so it is left out: of ours the seconds of
pytest's last line are taken, which have collecting, encoding, scoring and the report in them, of lm-eval its progress
bar's, which have the requests alone. ``ratio`` is ours by lm-eval's. ``largest_difference`` is between log-likelihoods
of single requests, in nats, without those that lm-eval gives as exactly 0 (``lm_eval_zeros``): it drops the last token
of an echo as one that the model wrote, and where llama-cpp-python's model ends its text there, none was written and the
continuation is dropped.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.lm_eval_side import run_lm_eval
from benchmarks.measured_process import CommandFailed, environment
from benchmarks.models_for_bench import token_counter
from benchmarks.our_side import run_pytest
from benchmarks.side_of_bench import Outcome, equal_texts, largest_difference
from benchmarks.works_for_bench import Sizes, Work, data_problem, make_work

__all__ = ["main"]

_WORKS = ("letters_one_header", "letters_several_headers", "commonsense_qa_texts", "gsm8k_generation")


@dataclass(slots=True)
class Bench:
    """One server, and where the runs' files go."""

    url: str
    name: str
    tokenizer: Path
    width: int
    takes_ids: bool
    folder: Path
    _runs: int = field(default=0, init=False)

    def ours(self, work: Work) -> Outcome:
        """Our side's run."""
        folder, variables = self._next()
        model = f"{self.url}#{self.name}?tokenizer={self.tokenizer}&max_connections={self.width}"
        return run_pytest(work, model, folder, variables)

    def theirs(self, work: Work, batch_size: int) -> Outcome:
        """lm-eval's run."""
        folder, variables = self._next()
        settings = {
            "model": self.name,
            "base_url": f"{self.url}/completions",
            "tokenizer": str(self.tokenizer),
            "tokenized_requests": self.takes_ids,
            "add_bos_token": self.takes_ids and _adds_bos(self.tokenizer),
            "num_concurrent": self.width,
            "max_retries": 3,
        }
        arguments = ",".join(f"{key}={value}" for key, value in settings.items())
        model_arguments = ("--model", "local-completions", "--model_args", arguments)
        variables["OPENAI_API_KEY"] = "none"
        return run_lm_eval(
            work, self.tokenizer, folder, variables, batch_size=batch_size, model_arguments=model_arguments
        )

    def _next(self) -> tuple[Path, dict[str, str]]:
        self._runs += 1
        folder = self.folder / f"{self._runs:03d}"
        folder.mkdir(parents=True)
        return folder, environment(self.folder, num_threads=1)


def _adds_bos(tokenizer: Path) -> bool:
    """Whether the tokenizer in this folder puts a special token before a text."""
    from tokenizers import Tokenizer

    loaded: Any = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    return bool(loaded.encode("A").special_tokens_mask[0])


def _our_seconds(side: Outcome) -> float:
    assert side.session_seconds is not None
    return side.session_seconds


def _their_seconds(side: Outcome) -> float:
    if side.engine_seconds is None:
        raise CommandFailed("lm-eval's output has no finished progress bar")
    return side.engine_seconds


def compare(bench: Bench, work: Work, *, repeat: int, batch_sizes: Sequence[int]) -> dict[str, object]:
    """Time both sides."""
    tried = {size: bench.theirs(work, size) for size in batch_sizes}
    best = min(tried, key=lambda size: _their_seconds(tried[size]))
    ours, theirs = [bench.ours(work)], [tried[best]]
    while len(ours) < repeat:
        ours.append(bench.ours(work))
        theirs.append(bench.theirs(work, best))
    our_rate = work.num_requests / statistics.median(map(_our_seconds, ours))
    their_rate = work.num_requests / statistics.median(map(_their_seconds, theirs))
    line: dict[str, object] = {
        "work": work.name,
        "questions": len(work.prompts),
        "requests": work.num_requests,
        "runs": repeat,
        "ours_requests_per_s": round(our_rate, 2),
        "lm_eval_requests_per_s": round(their_rate, 2),
        "ratio": round(our_rate / their_rate, 2),
        "ours_process_s": round(statistics.median(side.process_seconds for side in ours), 2),
        "lm_eval_process_s": round(statistics.median(side.process_seconds for side in theirs), 2),
        "lm_eval_batch_size": best,
    }
    if work.kind == "generation":
        return line | {"equal_generations": equal_texts(ours[0], theirs[0])}
    scored, num_zero = _without_zeros(ours[0], theirs[0])
    line["lm_eval_zeros"] = num_zero
    return line | {"largest_difference": float(f"{largest_difference(scored, theirs[0]):.2g}")}


def _without_zeros(ours: Outcome, theirs: Outcome) -> tuple[Outcome, int]:
    """Ours, with 0 where theirs is exactly 0, and how often that is."""
    responses = dict(ours.responses)
    num_zero = 0
    for key, numbers in theirs.responses.items():
        own = responses.get(key)
        if isinstance(own, tuple) and not isinstance(numbers, str) and len(own) == len(numbers):
            responses[key] = tuple(0.0 if other == 0 else value for value, other in zip(own, numbers, strict=True))
            num_zero += sum(other == 0 for other in numbers)
    return replace(ours, responses=responses), num_zero


def main(given: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--text", action="store_true", help="lm-eval sends prompts as text")
    parser.add_argument("--only", action="append", choices=_WORKS)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--max-length", type=int, default=512, metavar="TOKENS", help="of the server's context")
    parser.add_argument("--width", type=int, default=8, help="requests at once, of both sides")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--batch-size", type=int, action="append", help="lm-eval's; default: 1 and 8")
    options = parser.parse_args(given)
    if problem := data_problem():
        parser.error(problem)
    with urllib.request.urlopen(f"{options.url}/models") as reply:
        name = json.loads(reply.read())["data"][0]["id"]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(
            options.url, name, options.tokenizer.resolve(), options.width, not options.text, Path(folder) / "runs"
        )
        sizes = Sizes(max_length=options.max_length, num_questions=options.questions)
        for work_name in options.only or _WORKS:
            try:
                work = make_work(work_name, sizes, token_counter(options.tokenizer))
                line = compare(bench, work, repeat=options.repeat, batch_sizes=options.batch_size or [1, 8])
            except CommandFailed as failure:
                failed += 1
                line = {"work": work_name, "failed": str(failure)[-1000:]}
            print(json.dumps({"measured": "against_lm_eval_server", "url": options.url} | line), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
