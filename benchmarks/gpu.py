"""All that a card decides, in one run on one card, alone: numbers, times, memory, a lost device.

    python -m benchmarks.gpu --out gpu.json                  # from the repository; prints a Markdown table
    python -m benchmarks.gpu --shape 3b --minutes 20
    python -m benchmarks.gpu --device cpu --tiny             # the same code, to see that it runs

The first line of the output and ``ran_on`` in the file say on what it ran.

The model has random weights, drawn with a seed, and a published shape (Llama 3.2 1B or 3B). It and the prompts, whose
words are those of Python's documentation, are made here: nothing is downloaded. Each line of the table has a number
(``here``), another of the same run beside it, what that is, and their ratio: the other by ours for times, ours by the
other for all else.

- *log-likelihoods*: the largest difference (nats) of tree and plain scoring, beside what padding alone makes of plain
  scoring; then that of each path, and of lm-eval's ``hf``, from the same weights in float32. Notes count the questions
  for which another option is the likeliest.
- *self-check*: the check at loading and a suite's audit: the largest difference beside its bound.
- *generation*: greedy texts equal to those of transformers' ``generate`` on a padded batch, beside how many of these
  equal what it writes without a batch.
- *time*, *memory*: the model's work without its start, beside lm-eval's ``hf`` on the same weights at its best batch
  size, and beside ``vllm`` (by lm-eval's progress bars) where that is installed. Memory is
  ``torch.cuda.max_memory_allocated`` with the weights (on the CPU it is not measured).
- *lost device*: an out-of-memory error, then a CUDA error, raised in the middle of the work; last a session whose
  device is lost, by a device-side assertion (on the CPU by its error), and which ends then. ``here`` counts the
  questions that are answered as they were without the error; a note says what became of the others.

A part that fails is a line that says so, and the exit status is 1; a part for which no time is left is named, too.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.metadata
import importlib.util
import itertools
import json
import platform
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tabulate import tabulate

from benchmarks.lm_eval_side import run_lm_eval_vllm
from benchmarks.measured_process import CommandFailed, environment
from benchmarks.models_for_bench import ModelShape, make_model
from benchmarks.our_side import run_pytest
from benchmarks.works_for_bench import Prompt, Work
from tests.support import REPOSITORY

if TYPE_CHECKING:
    from pytest_llmeval.models.huggingface.model import HuggingFaceModel

__all__ = ["lose_device", "main"]

_SETTINGS: dict[str, dict[str, Any]] = {
    "1b": {"num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 32},
    "3b": {"num_hidden_layers": 28, "hidden_size": 3072, "num_attention_heads": 24},
    "tiny": {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8, "intermediate_size": 128},
}
_COMMON = {"num_key_value_heads": 8, "intermediate_size": 8192, "rope_theta": 500000.0, "tie_word_embeddings": True}
SHAPES = {
    name: ModelShape(
        name=f"gpu-{name}",
        architecture="llama",
        vocabulary=2048 if name == "tiny" else 128256,
        max_length=2048,
        spread=2.5,
        settings=_COMMON | settings | {"initializer_range": 0.1 if name == "tiny" else 0.02},
        from_docstrings=name != "tiny",
    )
    for name, settings in _SETTINGS.items()
}
NUM_TEXTS_ALONE = 16
"""Texts that transformers also writes one by one, which is slow."""


class OutOfTime(BaseException):
    """The minutes are over. It is no ``Exception``, so that nothing that is measured takes it for its own."""


Timed: TypeAlias = tuple[list[Any], float, float | None]
"""What a side has answered, in how many seconds, with how much memory of the card at its peak (MiB)."""


@dataclass(slots=True)
class Bench:
    """The model, the works by their names, and what was found so far."""

    arguments: argparse.Namespace
    folder: Path
    checkpoint: Path
    model: HuggingFaceModel
    works: Mapping[str, Work]
    lines: list[dict[str, Any]] = field(default_factory=list)
    timed: dict[str, tuple[Timed, Timed]] = field(default_factory=dict)
    """By work: our side, and lm-eval's."""

    def add(
        self, part: str, what: str, here: float | None, beside: float | None = None, which: str = "", **more: Any
    ) -> None:
        """Add a line; ``which`` says what is beside. ``more``: ``unit``, ``note``, and ``holds`` of what must hold."""
        above, below = (beside, here) if part == "time" else (here, beside)
        ratio = above / below if above is not None and below else None
        line = {"part": part, "what": what, "here": here, "beside": beside, "which": which, "ratio": ratio}
        self.lines.append(line | {"unit": "", "note": "", "holds": None} | more)


def load(checkpoint: Path, device: str, dtype: str, engine: str | None = None) -> HuggingFaceModel:
    """Return the model as the plugin loads it."""
    from pytest_llmeval.models.huggingface.model import HuggingFaceModel
    from pytest_llmeval.models.registry import load_model, parse_model_spec
    from pytest_llmeval.models.settings import ModelSettings

    model = load_model(parse_model_spec(str(checkpoint)), ModelSettings(device=device, dtype=dtype, engine=engine))
    assert isinstance(model, HuggingFaceModel)
    return model


def make_works(seed: int, num_questions: int, num_texts: int, max_new_tokens: int) -> dict[str, Work]:
    """Return lettered choice and texts to write, both behind five shared examples, and choice among option texts."""
    from pydoc_data import topics

    words = " ".join(topics.topics[name] for name in sorted(topics.topics)).split()
    draw = random.Random(seed)

    def span(shortest: int, longest: int) -> str:
        first = draw.randrange(len(words) - longest)
        return " ".join(words[first : first + draw.randint(shortest, longest)])

    def question() -> str:
        options = "".join(f"{letter}. {span(3, 9)}\n" for letter in "ABCD")
        return f"Question: {span(15, 40)}?\n{options}Answer:"

    header = "".join(f"{question()} {draw.choice('ABCD')}\n\n" for _ in range(5))
    letters, texts = [], []
    for i in range(num_questions):
        letters.append(Prompt(id=f"q{i}", context=header + question(), choices=tuple("ABCD"), target=0))
        options = tuple(span(3, 9) for _ in "ABCD")
        texts.append(Prompt(id=f"q{i}", context=span(15, 40), choices=options, target=0))
    to_write = [Prompt(id=f"q{i}", context=header + question(), target="A") for i in range(num_texts)]
    written = Work(name="generation", kind="generation", prompts=tuple(to_write), max_new_tokens=max_new_tokens)
    works = {"letters": letters, "texts": texts}
    found = {name: Work(name=name, kind="choice", prompts=tuple(prompts)) for name, prompts in works.items()}
    return {**found, "generation": written}


def forget(model: HuggingFaceModel) -> None:
    """Let the model forget the headers that it keeps, which would spare it work and take memory from the other side."""
    model.engine._tree.clear()
    if (writer := model.text_engine.rows_writer) is not None:
        writer.forget()


def measure(call: Callable[[], list[Any]], *, is_cuda: bool) -> Timed:
    """Time ``call``, with what it left to the card."""
    import torch

    if is_cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    answers = call()
    if is_cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    return answers, seconds, torch.cuda.max_memory_allocated() / 2**20 if is_cuda else None


def requests_of(work: Work) -> list[Any]:
    """Return what our model is asked: a text for each prompt, or a log-likelihood for each option."""
    from pytest_llmeval.types import GenerateRequest, LoglikelihoodRequest

    if work.kind == "generation":
        return [GenerateRequest(prompt.context, max_tokens=work.max_new_tokens) for prompt in work.prompts]
    return [LoglikelihoodRequest(prompt.context, f" {text}") for prompt in work.prompts for text in prompt.choices]


def ours(model: HuggingFaceModel, work: Work) -> list[Any]:
    """Return the log-likelihoods or texts of our model. Raises the error of a request that has one."""
    answers = model.ask("generate" if work.kind == "generation" else "loglikelihood", requests_of(work))
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return [answer.text if work.kind == "generation" else answer.loglikelihood for answer in answers]


def theirs(peer: Any, work: Work) -> list[Any]:
    """Return the same of lm-eval's ``HFLM``."""
    from lm_eval.api.instance import Instance

    if work.kind == "generation":
        until = {"until": [], "do_sample": False, "max_gen_toks": work.max_new_tokens}
        asked = [Instance("generate_until", {}, (prompt.context, until), 0) for prompt in work.prompts]
        return list(peer.generate_until(asked, disable_tqdm=True))
    asked = [Instance("loglikelihood", {}, (one.context, one.continuation), 0) for one in requests_of(work)]
    return [loglikelihood for loglikelihood, _ in peer.loglikelihood(asked, disable_tqdm=True)]


def difference(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the largest difference."""
    return max((abs(a - b) for a, b in zip(one, other, strict=True)), default=0.0)


def num_equal(one: Sequence[object], other: Sequence[object]) -> int:
    """Return how many are equal."""
    return sum(a == b for a, b in zip(one, other, strict=True))


def alike(one: Sequence[str], other: Sequence[str]) -> float:
    """Return up to which part of a text two sides wrote the same, in the mean."""
    from pytest_llmeval.models.huggingface.prefix_tree import common_length

    shares = [common_length(a.encode(), b.encode()) / max(1, len(a.encode())) for a, b in zip(one, other, strict=True)]
    return sum(shares) / max(1, len(shares))


def num_flips(one: Sequence[float], other: Sequence[float]) -> str:
    """Count the questions, of four options each, for which another option is the likeliest."""

    def choices(values: Sequence[float]) -> list[int]:
        return [max(range(4), key=values[i : i + 4].__getitem__) for i in range(0, len(values), 4)]

    pairs = list(zip(choices(one), choices(other), strict=True))
    return f"{sum(a != b for a, b in pairs)} of {len(pairs)}"


# Parts


def time_and_memory(bench: Bench) -> None:
    """Time both sides on the same weights, lm-eval's at the best of the batch sizes by a pilot."""
    import torch
    from lm_eval.models.huggingface import HFLM

    model, is_cuda = bench.model, bench.model.model.device.type == "cuda"
    peer: Any = HFLM(pretrained=model.model, tokenizer=model.tokenizer, max_length=model.max_length)
    size = sum(one.numel() * one.element_size() for one in model.model.parameters()) / 2**20
    bench.add("memory", "the weights", size, unit="MiB", note="" if is_cuda else "a peak is measured on cards only")
    # As much, with another header: a card takes long over shapes that it meets for the first time.
    num_texts = len(bench.works["generation"].prompts)
    warm_up = make_works(2, len(bench.works["letters"].prompts), num_texts, bench.works["generation"].max_new_tokens)
    for name, work in bench.works.items():
        ours(model, warm_up[name])
        theirs(peer, warm_up[name])
        mine = measure(functools.partial(ours, model, work), is_cuda=is_cuda)
        forget(model)
        tried: dict[int, float] = {}
        for batch_size in bench.arguments.batch_size:
            peer.batch_size_per_gpu = batch_size
            pilot = functools.partial(theirs, peer, work.first(max(1, len(work.prompts) // 4)))
            try:
                tried[batch_size] = measure(pilot, is_cuda=is_cuda)[1]
            except torch.cuda.OutOfMemoryError:
                torch.cuda.empty_cache()
        peer.batch_size_per_gpu = best = min(tried, key=tried.__getitem__)
        other = measure(functools.partial(theirs, peer, work), is_cuda=is_cuda)
        bench.timed[name] = mine, other
        which = f"lm-eval's hf, batch size {best}"
        bench.add("time", name, mine[1], other[1], which, unit="s", note=f"by {model.engine.name}")
        if mine[2] is not None:
            note = f"{mine[2] / size:.2f} times the weights"
            bench.add("memory", name, mine[2], other[2], which, unit="MiB", note=note)


def loglikelihoods(bench: Bench) -> None:
    """Compare the paths with each other and with float32. The tree is looked at even if the self-check refused it."""
    from pytest_llmeval.models.huggingface.loglikelihood import Engine

    engine = Engine(bench.model._runner)
    reference = load(bench.checkpoint, bench.arguments.device, "float32", "plain")
    for name in ("letters", "texts"):
        pairs = {i: bench.model._encode_pair(request) for i, request in enumerate(requests_of(bench.works[name]))}
        found: list[Any] = [engine.score(pairs), engine.score(pairs, plain=True)]
        found.append(engine.score(pairs, plain=True, alone=True))
        tree, plain, alone = ([by_pair[i].loglikelihood for i in pairs] for by_pair in found)
        exact = ours(reference, bench.works[name])
        compared = [
            ("tree from plain", tree, alone, "plain, padded from alone", plain),
            ("tree from float32", tree, exact, "plain from float32", alone),
        ]
        if name in bench.timed:
            mine, other = bench.timed[name]
            compared.append(("here from float32", mine[0], exact, "lm-eval's hf from float32", other[0]))
        for what, one, right, which, beside in compared:
            note = f"another choice: {num_flips(one, right)}, beside it {num_flips(beside, right)}"
            values = difference(one, right), difference(beside, right)
            bench.add("log-likelihoods", f"{name}: {what}", *values, which, unit="nats", note=note)


def self_checks(bench: Bench) -> None:
    """Say what the check at loading found, with its bound, and what an audit of each suite finds."""
    from pytest_llmeval.models.huggingface.loglikelihood import Engine
    from pytest_llmeval.models.huggingface.self_check import _random_pairs, compare

    model = bench.model
    pairs = _random_pairs(model.model.config.vocab_size, 24)
    found = compare(Engine(model._runner), pairs, model.model.dtype)
    note = f"scored by {model.engine.name}: {model.engine.reason}"
    found_at_loading = found.largest_difference, found.tolerance
    bench.add("self-check", "at loading", *found_at_loading, "the bound", unit="nats", note=note)
    for name in ("letters", "texts"):
        _, use = model.audit(requests_of(bench.works[name]))
        note = f"{use.num_audited} requests; scored by {use.engine}"
        values = use.largest_difference, use.tolerance
        bench.add("self-check", f"audit of {name}", *values, "the bound", unit="nats", note=note)


def generation(bench: Bench) -> None:
    """Compare batched greedy texts with those of transformers."""
    import torch

    model, work = bench.model, bench.works["generation"].first(NUM_TEXTS_ALONE)
    pad = model.tokenizer.pad_token_id

    def by_transformers(contexts: list[str]) -> list[str]:
        inputs = model.tokenizer(contexts, padding=True, padding_side="left", return_tensors="pt")
        ids, mask = (inputs[name].to(model.model.device) for name in ("input_ids", "attention_mask"))
        settings = {"do_sample": False, "max_new_tokens": work.max_new_tokens, "pad_token_id": pad}
        with torch.inference_mode():
            written = model.model.generate(input_ids=ids, attention_mask=mask, **settings)
        return list(model.tokenizer.batch_decode(written[:, ids.shape[1] :], skip_special_tokens=True))

    contexts = [prompt.context for prompt in work.prompts]
    mine, batched = ours(model, work), by_transformers(contexts)
    alone = [by_transformers([context])[0] for context in contexts]
    note = (
        f"of {len(contexts)}; alike up to {alike(mine, batched):.0%} of a text, beside it {alike(alone, batched):.0%}"
    )
    equal = num_equal(mine, batched), num_equal(alone, batched)
    bench.add("generation", "equal to generate's", *equal, "generate alone equal to batched", unit="texts", note=note)


def errors(bench: Bench) -> None:
    """Raise an error in the middle of the work: what does not fit is done in parts, what is lost is no number."""
    import torch

    from pytest_llmeval.models.hardware import is_device_lost

    model = bench.model
    for name in ("letters", "generation"):
        work = bench.works[name].first(NUM_TEXTS_ALONE)
        before = ours(model, work)
        with failing_pass(model, torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")):
            after = ours(model, work)
        is_text = name == "generation"
        what = f"{num_equal(before, after)} the same" if is_text else f"{difference(before, after):.2g} nats apart"
        values: dict[str, Any] = {"holds": len(after) == len(before), "note": f"all answered, {what}"}
        bench.add("lost device", f"{name}: out of memory", len(work.prompts), unit="answered", **values)
        is_known = False
        try:
            with failing_pass(model, torch.AcceleratorError("CUDA error: device-side assert triggered")):
                ours(model, work)
        except torch.AcceleratorError as error:
            is_known = is_device_lost(error)
        note = "raised, and known for a lost device" if is_known else "swallowed, or not known for a lost device"
        bench.add("lost device", f"{name}: CUDA error", 0, unit="answered", holds=is_known, note=note)


@contextlib.contextmanager
def failing_pass(model: HuggingFaceModel, error: Exception) -> Iterator[None]:
    """Raise ``error`` in the second forward pass, with no header kept that would spare one."""
    forget(model)
    passes = itertools.count(1)

    def fail(module: Any, arguments: Any) -> None:
        if next(passes) == 2:
            raise error

    hook = model.model.register_forward_pre_hook(fail)
    try:
        yield
    finally:
        hook.remove()
        assert next(passes) > 2, "there was no second forward pass"


_CONFTEST = """\
import pytest

from benchmarks.gpu import lose_device


@pytest.fixture(scope="session")
def llm_model(llm_model):
    lose_device(llm_model)
    return llm_model
"""


def lose_device(model: HuggingFaceModel) -> None:
    """Lose the model's device when the session's first call is answered, for the rest of the process."""
    import torch

    num_calls, take = 0, model.take_listener

    def take_listener() -> Any:  # called by every call, and by no audit
        nonlocal num_calls
        num_calls += 1
        return take()

    def fail(module: Any, arguments: Any) -> None:
        if num_calls > 1:
            if module.device.type == "cuda":
                torch._assert_async(torch.zeros((), device=module.device))
                torch.cuda.synchronize()
            raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    model.take_listener = take_listener  # type: ignore[method-assign]
    model.model.register_forward_pre_hook(fail)


def lost_session(bench: Bench) -> None:
    """Run a session that loses its device: it must end with status 1, and without a number of the lost samples."""
    work, folder = bench.works["letters"], bench.folder / "lost"
    folder.mkdir()
    (folder / "conftest.py").write_text(_CONFTEST, encoding="utf-8")
    variables = environment(folder, num_threads=2) | {"PYTHONPATH": str(REPOSITORY)}
    placement = ("--llm-device", bench.arguments.device, "--llm-dtype", bench.arguments.dtype)
    chunks = ("--llm-batch-size", str(len(work.prompts) // 3))
    status = "0"
    try:
        run_pytest(work, bench.checkpoint, folder, variables, arguments=chunks, placement=placement)
    except CommandFailed as failure:
        status = str(failure).partition("exit status ")[2].partition("\n")[0]
    report = json.loads((folder / "report.json").read_text(encoding="ascii"))
    records = report["records"]
    reasons = [record["reason"] for record in records if record["status"] == "unscored"]
    note = f"{len(reasons)} unscored: {reasons[0] if reasons else ''}; exit status {status}"
    num_answered = len(records) - len(reasons)
    is_whole = len(records) == len(work.prompts) and 0 < num_answered < len(records)
    holds = is_whole and status == "1" and str(report["stopped"]).startswith("the model stopped: ")
    bench.add("lost device", "letters: a session", num_answered, unit="answered", holds=holds, note=note)


def vllm(bench: Bench) -> None:
    """Time lm-eval's ``vllm`` in a process of its own, beside our time of this process. Ours holds no memory by now."""
    if importlib.util.find_spec("vllm") is None or not bench.arguments.device.startswith("cuda"):
        return
    settings = f"dtype={bench.arguments.dtype},max_model_len=2048,gpu_memory_utilization=0.8"
    for name, work in bench.works.items():
        folder = bench.folder / f"vllm-{name}"
        folder.mkdir()
        variables = environment(folder, num_threads=2)
        outcome = run_lm_eval_vllm(work, bench.checkpoint, folder, variables, settings)
        note = f"{outcome.process_seconds:.0f} s with its start"
        bench.add("time", name, bench.timed[name][0][1], outcome.engine_seconds, "lm-eval's vllm", unit="s", note=note)


PARTS: Sequence[Callable[[Bench], None]] = (
    *(time_and_memory, loglikelihoods, self_checks, generation, errors, lost_session, vllm),
)


# The whole


def markdown(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the table."""

    def shown(value: Any, unit: str = "") -> Any:
        if not isinstance(value, int | float):
            return value
        return f"{value:.0f} {unit}".strip() if value >= 100 else f"{value:.3g} {unit}".strip()

    headers = ("part", "what", "here", "beside", "which", "ratio", "note")
    rows = [
        {name: shown(one[name], one["unit"] if name in ("here", "beside") else "") for name in headers}
        | {"note": ("NOT HELD: " if one["holds"] is False else "") + one["note"]}
        for one in lines
    ]
    return tabulate([list(row.values()) for row in rows], headers=headers, tablefmt="github", disable_numparse=True)


def ran_on(device: str) -> str:
    """Say on what the script ran."""
    import torch

    if not device.startswith("cuda"):
        return f"the CPU ({platform.machine()}, {torch.backends.cpu.get_cpu_capability()}), and not on a card"
    properties = torch.cuda.get_device_properties(device)
    return f"the card {properties.name} ({properties.total_memory / 2**30:.0f} GiB), CUDA {torch.version.cuda}"


def parsed(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="default: cuda")
    parser.add_argument("--dtype", default="bfloat16", help="default: bfloat16")
    parser.add_argument("--shape", choices=[name for name in SHAPES if name != "tiny"], default="1b")
    parser.add_argument("--tiny", action="store_true", help="a tiny model and few questions")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where the model is kept; default: a temporary folder")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the JSON file")
    parser.add_argument("--minutes", type=float, default=10, help="what is not done by then is left out")
    parser.add_argument("--batch-size", type=int, nargs="+", metavar="N", help="lm-eval's; default: 16 64")
    arguments = parser.parse_args(given)
    arguments.batch_size = arguments.batch_size or ([4] if arguments.tiny else [16, 64])
    return arguments


def main(given: Sequence[str] | None = None) -> int:
    """Run all parts; return 1 if one of them failed, did not hold, or had no time."""
    arguments = parsed(given)
    import torch

    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        raise SystemExit("torch finds no card here; --device cpu --tiny shows that the script runs")

    def stop(*_: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 60 * arguments.minutes)
    try:
        with tempfile.TemporaryDirectory() as temporary:
            return run(arguments, Path(temporary))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run(arguments: argparse.Namespace, folder: Path) -> int:
    """Run the parts one after another, and write the file after each."""
    from pytest_llmeval.models.huggingface.device import release_memory

    shape = SHAPES["tiny" if arguments.tiny else arguments.shape]
    sizes = (12, 16, 8) if arguments.tiny else (200, 64, 64)
    checkpoint = make_model(shape, arguments.work or folder, REPOSITORY / "example_suites").resolve()
    head: dict[str, Any] = {"ran_on": ran_on(arguments.device), "dtype": arguments.dtype, "model": shape.name}
    for name in ("pytest-llmeval-suites", "torch", "transformers", "lm_eval", "vllm"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            head[name] = importlib.metadata.version(name)
    bench = Bench(
        arguments=arguments,
        folder=folder,
        checkpoint=checkpoint,
        model=load(checkpoint, arguments.device, arguments.dtype),
        works=make_works(1, *sizes),
    )
    head["num_parameters"] = int(bench.model.model.num_parameters())
    print(f"Ran on {head['ran_on']}: " + ", ".join(f"{k} {v}" for k, v in head.items() if k != "ran_on") + "\n")
    left = list(PARTS)
    while left:
        try:
            if left[0] is vllm:
                bench.model = None  # type: ignore[assignment]
            release_memory()
            left[0](bench)
        except OutOfTime:
            names, note = ", ".join(part.__name__ for part in left), f"{arguments.minutes:g} minutes were over"
            bench.add("left out", names, None, holds=False, note=note)
            left.clear()
        except Exception as error:  # on a card that nobody has met, one part shall not cost the others
            note = f"{type(error).__name__}: {error}"[-400:]
            bench.add("failed", left.pop(0).__name__, None, holds=False, note=note)
        else:
            left.pop(0)
        if arguments.out is not None:
            text = json.dumps({**head, "lines": bench.lines}, indent=1)
            arguments.out.write_text(f"{text}\n", encoding="utf-8")
    print(markdown(bench.lines))
    return int(any(line["holds"] is False for line in bench.lines))


if __name__ == "__main__":
    sys.exit(main())
