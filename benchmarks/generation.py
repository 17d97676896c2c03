"""Writing texts with rows that are refilled against batches that end with their longest text, in one process.

    python -m benchmarks.generation --work DIR                # from the repository; prints JSON lines
    python -m benchmarks.generation --model llama --repeat 3 --before

GSM8K's questions with five examples, which all of them share (``gsm8k_ended`` of ``benchmarks/works_for_bench.py``);
each reply is as long as the published solution, which neither way knows beforehand (``benchmarks/ended_texts.py``).
Both ways are ``TextEngine``, with ``refill`` and without. They take turns ``--repeat`` times, each after a run of a few
questions, and the header is computed anew each time; medians are compared. ``ratio`` is the seconds without by those
with; ``ratio_cpu`` the same of the processor's seconds, for machines that do other things too. ``passes`` counts
forward passes, ``tokens`` what they read, padding included. The texts must be the same. With ``--before`` the way
without refill also has the calls of 64 requests and half of the memory for keys and values that it had before there
were refilled rows: the ratio is then that of both versions. With ``--only`` one way runs alone, and ``peak_mib`` is the
largest resident set of its process, ``loaded_mib`` what it was before the first text; the shape should have been made
before (``--work``), which takes memory too.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.ended_texts import end_ours
from benchmarks.in_process import loaded_models, parser_of
from benchmarks.measured_process import KIB_PER_UNIT
from benchmarks.models_for_bench import token_counter
from benchmarks.works_for_bench import STOP, Sizes, Work, make_work

if TYPE_CHECKING:
    from pytest_llmeval.models.huggingface.model import HuggingFaceModel

__all__ = ["main"]

NUM_WARM_UP = 4


@dataclass(slots=True)
class Way:
    """One way of writing, and what its runs took."""

    refill: bool
    num_together: int | None = None
    """Requests of a call; None: all in one."""
    memory_share: float = 1.0
    """Of the memory for keys and values."""
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    num_passes: int = 0
    num_tokens: int = 0
    texts: tuple[str, ...] = ()

    def run(self, model: HuggingFaceModel, work: Work) -> None:
        """Write the texts of ``work`` once more."""
        from pytest_llmeval.models.huggingface.generation import TextEngine
        from pytest_llmeval.types import GenerateRequest, GenerateResponse

        requests = [GenerateRequest(p.context, max_tokens=work.max_new_tokens, stop=(STOP,)) for p in work.prompts]
        model.text_engine = TextEngine(model._runner, model.engine.attention, refill=self.refill)
        model.text_engine.max_tokens = int(model.text_engine.max_tokens * self.memory_share)
        model.generate(requests[:NUM_WARM_UP])
        writer = model.text_engine.rows_writer
        if writer is None:
            raise SystemExit("the model is not written with by a loop of ours")
        writer.forget()
        self.num_passes = self.num_tokens = 0

        def count(module: Any, arguments: Any, named: dict[str, Any]) -> None:
            self.num_passes += 1
            self.num_tokens += named["input_ids"].numel()

        hook = model.model.register_forward_pre_hook(count, with_kwargs=True)
        started, started_cpu = time.perf_counter(), time.process_time()
        size = self.num_together or len(requests)
        calls = [model.generate(requests[first : first + size]) for first in range(0, len(requests), size)]
        self.seconds.append(time.perf_counter() - started)
        self.cpu_seconds.append(time.process_time() - started_cpu)
        hook.remove()
        responses = [response for call in calls for response in call]
        for response in responses:
            if not isinstance(response, GenerateResponse):
                raise SystemExit(f"a request failed: {response}")
        self.texts = tuple(response.text for response in responses if isinstance(response, GenerateResponse))

    @property
    def line(self) -> dict[str, object]:
        """What is said of it."""
        return {
            "s": round(statistics.median(self.seconds), 3),
            "cpu_s": round(statistics.median(self.cpu_seconds), 3),
            "passes": self.num_passes,
            "tokens": self.num_tokens,
        }


def measure(
    model: HuggingFaceModel, work: Work, *, repeat: int, before: bool, only: str | None = None
) -> dict[str, object]:
    """The line of one model."""
    with_refill = Way(refill=True)
    without = Way(refill=False, num_together=64, memory_share=0.5) if before else Way(refill=False)
    ways = {"batches": without, "refilled": with_refill}
    chosen = {name: way for name, way in ways.items() if only in (None, name)}
    loaded_mib = _peak_mib()
    for _ in range(repeat):
        for way in chosen.values():
            way.run(model, work)
    line: dict[str, object] = {"questions": len(work.prompts), "runs": repeat}
    line |= {f"{name}_{key}": value for name, way in chosen.items() for key, value in way.line.items()}
    if only is not None:
        return line | {"loaded_mib": loaded_mib, "peak_mib": _peak_mib()}
    return line | {
        "ratio": round(statistics.median(without.seconds) / statistics.median(with_refill.seconds), 3),
        "ratio_cpu": round(statistics.median(without.cpu_seconds) / statistics.median(with_refill.cpu_seconds), 3),
        "equal_texts": sum(a == b for a, b in zip(with_refill.texts, without.texts, strict=True)),
    }


def _peak_mib() -> int:
    """The largest resident set of this process so far."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB_PER_UNIT / 1024)


def main(given: Sequence[str] | None = None) -> int:
    """Measure each model."""
    parser = parser_of(__doc__)
    parser.add_argument("--questions", type=int, metavar="N", default=128)
    parser.add_argument("--before", action="store_true", help="calls and memory without refill as they were before")
    parser.add_argument("--only", choices=("refilled", "batches"), help="one way, without comparison")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    arguments = parser.parse_args(given)
    for loaded in loaded_models(arguments, device=arguments.device, dtype=arguments.dtype):
        sizes = Sizes(max_length=loaded.shape.max_length, num_questions=arguments.questions)
        work = make_work("gsm8k_ended", sizes, token_counter(loaded.folder))
        end_ours({prompt.context: prompt.ends_after or work.max_new_tokens for prompt in work.prompts})
        line = measure(loaded.model, work, repeat=arguments.repeat, before=arguments.before, only=arguments.only)
        head = {"measured": "generation", "model": loaded.shape.name, "device": arguments.device}
        print(json.dumps(head | {"threads": arguments.threads} | line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
