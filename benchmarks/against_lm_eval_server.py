"""Requests per second to one server: ``pytest`` with this plugin against lm-evaluation-harness's local-completions.

    pip install 'lm_eval[api]'
    python -m benchmarks.against_lm_eval_server --launch vllm:small --command VLLM --in-process PYTHON
    python -m benchmarks.against_lm_eval_server --launch llama-cpp:FILE.gguf --tokenizer FOLDER --command PYTHON
    python -m benchmarks.against_lm_eval_server URL --tokenizer FOLDER         # a server that runs already

``--launch`` starts the server as a session would and ends it: ``vllm:`` and a folder, or the name of one of
``models_for_bench``'s shapes, whose weights are random; ``--command`` names its executable. ``URL`` is the API root of
a server, ``http://127.0.0.1:8000/v1``, whose prompt logprobs both sides ask for; ``FOLDER`` the model's tokenizer,
which both sides use; ``--text`` is for a server that takes no token ids. The works are those of ``against_lm_eval``,
on the same rendered prompts.

Each side is a process of its own; the two take turns. At most ``--width`` prompts are under way at once: ours sends at
most as many requests, lm-eval has the better of one prompt in a request and eight, by a pilot (requests to
llama-cpp-python cannot be batched). A vLLM that was started here, or with ``VLLM_SERVER_DEV_MODE=1``, has its prefix
cache emptied before each run. lm-eval's local-completions leaves out a BOS that the tokenizer adds; with token ids it
is made to add it.

``--in-process`` names a Python that has lm-eval and vLLM: when the server has ended, lm-eval's ``vllm`` does the same
works, with the engine in its own process and all requests at once.

Starting a process takes longer than many requests and varies by seconds, so it is left out: of ours the seconds of
pytest's last line are taken, which have collecting, encoding, scoring and the report in them, of lm-eval its progress
bar's, which have the requests alone. ``ratio`` is our rate by lm-eval's, ``ratio_process`` that of whole processes.
``largest_difference`` is between log-likelihoods of single requests, in nats, without those that lm-eval gives as
exactly 0 (``lm_eval_zeros``): it drops the last token of an echo as one that the model wrote, and where
llama-cpp-python's model ends its text there, none was written and the continuation is dropped. Each line is JSON; the
last ones are a table of the ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.lm_eval_side import run_lm_eval, run_lm_eval_vllm
from benchmarks.measured_process import CommandFailed, environment
from benchmarks.models_for_bench import SHAPES, make_model, token_counter
from benchmarks.our_side import run_pytest
from benchmarks.side_of_bench import Outcome, equal_texts, largest_difference
from benchmarks.works_for_bench import DATA, Sizes, Work, data_problem, make_work

__all__ = ["main"]

_WORKS = ("letters_one_header", "letters_several_headers", "commonsense_qa_texts", "gsm8k_generation")
_KEY_VARIABLE = "BENCH_SERVER_KEY"


@dataclass(slots=True)
class Bench:
    """One server, and where the runs' files go."""

    options: argparse.Namespace
    folder: Path
    url: str = ""
    name: str = ""
    key: str = "none"
    _runs: int = field(default=0, init=False)

    def ask_for_name(self) -> None:
        """Learn the model's name. Raises ``URLError``."""
        headers = {"Authorization": f"Bearer {self.key}"}
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/models", headers=headers)) as reply:
            self.name = json.loads(reply.read())["data"][0]["id"]

    def ours(self, work: Work) -> Outcome:
        """Our side's run."""
        folder, variables = self._next()
        settings = {
            "tokenizer": self.options.tokenizer,
            "max_connections": self.options.width,
            "api_key_env": _KEY_VARIABLE,
        }
        model = f"{self.url}#{self.name}?" + "&".join(f"{key}={value}" for key, value in settings.items())
        return run_pytest(work, model, folder, variables, placement=())

    def theirs(self, work: Work, batch_size: int) -> Outcome:
        """lm-eval's run with local-completions."""
        folder, variables = self._next()
        takes_ids = not self.options.text
        settings = {
            "model": self.name,
            "base_url": f"{self.url}/completions",
            "tokenizer": str(self.options.tokenizer),
            "tokenized_requests": takes_ids,
            "add_bos_token": takes_ids and _adds_bos(self.options.tokenizer),
            "num_concurrent": max(1, self.options.width // batch_size),
            "max_retries": 3,
        }
        arguments = ",".join(f"{key}={value}" for key, value in settings.items())
        model_arguments = ("--model", "local-completions", "--model_args", arguments)
        variables["OPENAI_API_KEY"] = self.key
        return run_lm_eval(
            work, self.options.tokenizer, folder, variables, batch_size=batch_size, model_arguments=model_arguments
        )

    def in_process(self, work: Work) -> Outcome:
        """lm-eval's run with vLLM's engine in its process."""
        folder, variables = self._next()
        settings = f"dtype=float32,max_model_len={self.options.max_length},enforce_eager=True"
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # vLLM chooses, as for the server
            del variables[name]
        return run_lm_eval_vllm(
            work, self.options.tokenizer, folder, variables, settings, python=self.options.in_process
        )

    def _next(self) -> tuple[Path, dict[str, str]]:
        """Return an empty folder and the variables of the next run, with the server's prefix cache emptied."""
        with contextlib.suppress(urllib.error.URLError):  # the server has ended, or has no such path
            urllib.request.urlopen(f"{self.url.removesuffix('/v1')}/reset_prefix_cache", data=b"").close()
        self._runs += 1
        folder = self.folder / f"{self._runs:03d}"
        folder.mkdir(parents=True)
        return folder, {**environment(self.folder, num_threads=1), _KEY_VARIABLE: self.key}


@contextlib.contextmanager
def launched(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Return the URL of the server that ``--launch`` names, and its key; it is ended with the context."""
    from pytest_llmeval.models.endpoints import LAUNCH_KEY
    from pytest_llmeval.models.registry import load_model, parse_model_spec
    from pytest_llmeval.models.settings import ModelSettings

    is_vllm = options.launch.startswith("vllm:")
    given = dict(setting.split("=", 1) for setting in options.setting)
    if is_vllm:  # as a session would have to say it for a vLLM of the CPU
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        os.environ["VLLM_SERVER_DEV_MODE"] = "1"  # for /reset_prefix_cache
        given = {"enforce_eager": "true", **given}
    else:
        given = {"type_k": "0", "type_v": "0", **given}
    if options.command:
        given["command"] = str(options.command)
    settings = ModelSettings(
        device="cpu",
        dtype="float32" if is_vllm else None,
        model_args={"launch": given, "max_length": options.max_length, "tokenizer": str(options.tokenizer)},
    )
    spec = parse_model_spec(options.launch)
    model: Any = load_model(spec, settings)
    try:
        model.start()
        yield model.identity.details["urls"][0], os.environ[LAUNCH_KEY]
    finally:
        model.close()


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


def compare(bench: Bench, work: Work) -> tuple[dict[str, object], Outcome]:
    """Time both sides at the server; return the line, and our side's run."""
    options = bench.options
    best = options.batch_size[0]
    if len(options.batch_size) > 1:
        pilot = work.first(options.pilot)
        best = min(options.batch_size, key=lambda size: _their_seconds(bench.theirs(pilot, size)))
    ours, theirs = [], []
    for _ in range(options.repeat):
        ours.append(bench.ours(work))
        theirs.append(bench.theirs(work, best))
    our_rate = work.num_requests / statistics.median(map(_our_seconds, ours))
    their_rate = work.num_requests / statistics.median(map(_their_seconds, theirs))
    our_process_s, their_process_s = (statistics.median(one.process_seconds for one in side) for side in (ours, theirs))
    line: dict[str, object] = {
        "work": work.name,
        "questions": len(work.prompts),
        "requests": work.num_requests,
        "runs": options.repeat,
        "ours_requests_per_s": round(our_rate, 2),
        "lm_eval_requests_per_s": round(their_rate, 2),
        "ratio": round(our_rate / their_rate, 2),
        "ratio_process": round(their_process_s / our_process_s, 2),
        "ours_process_s": round(our_process_s, 2),
        "lm_eval_process_s": round(their_process_s, 2),
        "lm_eval_batch_size": best,
    }
    return line | _agreement(work, ours[0], theirs[0]), ours[0]


def compare_in_process(bench: Bench, work: Work, ours: Outcome) -> dict[str, object]:
    """Time lm-eval's ``vllm`` beside our run at the server."""
    theirs = bench.in_process(work)
    our_rate, their_rate = work.num_requests / _our_seconds(ours), work.num_requests / _their_seconds(theirs)
    line: dict[str, object] = {
        "work": work.name,
        "lm_eval_vllm_requests_per_s": round(their_rate, 2),
        "ratio": round(our_rate / their_rate, 2),
        "lm_eval_vllm_process_s": round(theirs.process_seconds, 2),
    }
    return line | _agreement(work, ours, theirs)


def _agreement(work: Work, ours: Outcome, theirs: Outcome) -> dict[str, object]:
    if work.kind == "generation":
        return {"equal_generations": equal_texts(ours, theirs)}
    scored, num_zero = _without_zeros(ours, theirs)
    return {"lm_eval_zeros": num_zero, "largest_difference": float(f"{largest_difference(scored, theirs):.2g}")}


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


def markdown(lines: Sequence[dict[str, object]]) -> str:
    """Return the table of the ratios."""
    names = ("work", "requests", "ours_requests_per_s", "ratio", "ratio_process")
    rows = ["| work | requests | ours, per second | local-completions | whole processes | lm-eval's vllm | agreement |"]
    rows.append("|---|---|---|---|---|---|---|")
    beside = {line["work"]: line.get("ratio", "") for line in lines if line["measured"] == "lm_eval_vllm"}
    for line in lines:
        if line["measured"] == "against_lm_eval_server" and "ratio" in line:
            texts = f"{line.get('equal_generations')} texts equal"
            nats = f"{line.get('largest_difference')} nats"
            agreement = nats if "largest_difference" in line else texts
            cells = [*(line[name] for name in names), beside.get(line["work"], ""), agreement]
            rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def parsed(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--launch", metavar="MODEL", help="vllm:FOLDER, vllm:SHAPE or llama-cpp:FILE.gguf")
    parser.add_argument("--command", type=Path, metavar="PATH", help="the server's executable")
    parser.add_argument("--setting", action="append", default=[], metavar="KEY=VALUE", help="of the server")
    parser.add_argument("--in-process", type=Path, metavar="PYTHON", help="has lm-eval and vLLM, for lm-eval's vllm")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where a shape's model is kept; default: nowhere")
    parser.add_argument("--tokenizer", type=Path, metavar="FOLDER", help="default: the folder of --launch vllm:")
    parser.add_argument("--text", action="store_true", help="lm-eval sends prompts as text")
    parser.add_argument("--only", action="append", choices=_WORKS)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--pilot", type=int, default=8, metavar="QUESTIONS", help="to choose lm-eval's batch size")
    parser.add_argument("--max-length", type=int, default=1024, metavar="TOKENS", help="of the server's context")
    parser.add_argument("--width", type=int, default=64, metavar="PROMPTS", help="under way at once, of both sides")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--batch-size", type=int, action="append", help="lm-eval's; default: 1 and 8")
    options = parser.parse_args(given)
    if (options.url is None) == (options.launch is None):
        parser.error("give the URL of a server, or --launch")
    is_llama_cpp = (options.launch or "").startswith("llama-cpp:")
    options.text = options.text or is_llama_cpp
    options.batch_size = options.batch_size or ([1] if is_llama_cpp else [1, 8])
    if options.tokenizer is None and not (options.launch or "").startswith("vllm:"):
        parser.error("--tokenizer is needed")
    if problem := data_problem():
        parser.error(problem)
    return options


def main(given: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = parsed(given)
    with tempfile.TemporaryDirectory() as folder:
        kind, _, place = (options.launch or "").partition(":")
        if place in SHAPES:
            place = str(make_model(SHAPES[place], options.work or Path(folder), DATA))
            options.launch = f"{kind}:{place}"
        options.tokenizer = (options.tokenizer or Path(place)).resolve()
        return run(Bench(options, Path(folder) / "runs"))


def run(bench: Bench) -> int:
    """Do all works at the server, then in lm-eval's process; return 1 if one failed."""
    options = bench.options
    sizes = Sizes(max_length=options.max_length, num_questions=options.questions)
    works = [make_work(name, sizes, token_counter(options.tokenizer)) for name in options.only or _WORKS]
    lines: list[dict[str, object]] = []
    ours: dict[str, Outcome] = {}

    def add(measured: str, work: Work, line: dict[str, object]) -> None:
        lines.append({"measured": measured, "server": options.launch or options.url, "work": work.name} | line)
        print(json.dumps(lines[-1]), flush=True)

    with launched(options) if options.launch else contextlib.nullcontext((options.url, "none")) as (url, key):
        bench.url, bench.key = url, key
        bench.ask_for_name()
        for work in works:
            try:
                line, ours[work.name] = compare(bench, work)
            except CommandFailed as failure:
                line = {"failed": str(failure)[-1000:]}
            add("against_lm_eval_server", work, line)
    for work in works if options.in_process else ():
        if work.name in ours:
            try:
                line = compare_in_process(bench, work, ours[work.name])
            except CommandFailed as failure:
                line = {"failed": str(failure)[-1000:]}
            add("lm_eval_vllm", work, line)
    print(f"\n{markdown(lines)}")
    return int(any("failed" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())
