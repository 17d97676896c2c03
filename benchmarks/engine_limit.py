"""How near the engine comes to its limit: one dense forward pass over as many positions as are distinct.

    python -m benchmarks.engine_limit --work DIR                     # from the repository; prints JSON lines
    python -m benchmarks.engine_limit --model llama --only letters_one_header --engine plain

The requests of a work (``benchmarks/works_for_bench.py``) are scored by one call of
``HuggingFaceModel.loglikelihood``: tokenizer, planning, model, vocabulary projection of what is scored, everything but
loading. The dense pass is the model without its vocabulary projection, on full rows of the work's median length, with a
causal mask and no cache, in batches of the best of a few sizes. Distinct positions are those of a trie over the rows'
tokens. ``ratio`` is dense by engine: 1 would be the limit.

Both are warm, and take turns ``--repeat`` times; medians are compared. Each run's prompts begin with the run's number,
so that nothing kept of an earlier one (a header's cache) serves. Time on a machine that does nothing else.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.in_process import loaded_models, parser_of
from benchmarks.models_for_bench import token_counter
from benchmarks.works_for_bench import CHOICE_WORKS, Sizes, Work, make_work

if TYPE_CHECKING:
    from pytest_llmeval.models.huggingface.model import HuggingFaceModel
    from pytest_llmeval.types import LoglikelihoodRequest

__all__ = ["count_distinct_positions", "main"]

TOKENS_PER_BATCH = (256, 512, 1024, 2048, 4096)
NUM_WARM_UP = 8
_TOKENS_OF_A_RUN = 8
"""Room for the run's number before a prompt."""


def count_distinct_positions(rows: Iterable[Sequence[int]]) -> int:
    """Nodes of the trie over ``rows``: positions that differ in their token or in any token before it."""
    trie: dict[int, Any] = {}
    nodes = 0
    for row in rows:
        inside = trie
        for token in row:
            if token not in inside:
                inside[token] = {}
                nodes += 1
            inside = inside[token]
    return nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class DensePass:
    """Batches of full rows that hold ``num_positions`` positions together, up to the last row's end."""

    model: Any
    row_length: int
    num_positions: int

    def seconds(self, rows_per_batch: int, *, at_most_s: float = math.inf) -> float:
        """Seconds of the pass; extrapolated by positions once ``at_most_s`` have passed, and to parts of a row."""
        import torch

        num_rows = math.ceil(self.num_positions / self.row_length)
        vocabulary = self.model.config.vocab_size
        tokens = torch.randint(vocabulary, (num_rows, self.row_length), generator=torch.Generator().manual_seed(0))
        done = 0
        started = time.perf_counter()
        with torch.inference_mode():
            for first in range(0, num_rows, rows_per_batch):
                batch = tokens[first : first + rows_per_batch]
                self.model(input_ids=batch, use_cache=False)
                done += batch.numel()
                if time.perf_counter() - started > at_most_s:
                    break
        return (time.perf_counter() - started) * self.num_positions / done

    def best_rows_per_batch(self, seconds_each: float) -> int:
        """Which of a few batch sizes is fastest, each tried for about ``seconds_each``, after one unmeasured batch."""
        num_rows = math.ceil(self.num_positions / self.row_length)
        sizes = sorted({min(num_rows, max(1, tokens // self.row_length)) for tokens in TOKENS_PER_BATCH})
        self.seconds(sizes[0], at_most_s=0)
        return min(sizes, key=lambda size: self.seconds(size, at_most_s=seconds_each))


def requests_of(work: Work, run: int) -> list[LoglikelihoodRequest]:
    """What a suite of score ``choice`` asks, in prompts that no other run has."""
    from pytest_llmeval.types import LoglikelihoodRequest

    return [LoglikelihoodRequest(f"{run}. {p.context}", f" {choice}") for p in work.prompts for choice in p.choices]


def measure(model: HuggingFaceModel, work: Work, *, repeat: int, seconds_each: float) -> dict[str, object]:
    """The line of one work."""
    from pytest_llmeval.errors import RequestError

    requests = requests_of(work, 0)
    rows = []
    for request in requests:
        pair = model._encoder.pair(request.context, request.continuation)
        rows.append((pair.context + pair.continuation)[:-1])
    distinct = count_distinct_positions(rows)
    dense = DensePass(
        model=model.model.base_model,
        row_length=round(statistics.median(map(len, rows))),
        num_positions=distinct,
    )
    rows_per_batch = dense.best_rows_per_batch(seconds_each)
    model.loglikelihood(requests_of(work.first(NUM_WARM_UP), 0))

    def engine(run: int) -> float:
        asked = requests_of(work, run)
        started = time.perf_counter()
        responses = model.loglikelihood(asked)
        seconds = time.perf_counter() - started
        for response in responses:
            if isinstance(response, RequestError):
                raise SystemExit(f"{work.name}: a request failed: {response}")
        return seconds

    engine_times, dense_times = _in_turns((engine, lambda run: dense.seconds(rows_per_batch)), repeat)
    return {
        "questions": len(work.prompts),
        "requests": len(requests),
        "positions": sum(map(len, rows)),
        "distinct_positions": distinct,
        "row_length": dense.row_length,
        "dense_rows_per_batch": rows_per_batch,
        "runs": repeat,
        "engine_s": round(statistics.median(engine_times), 3),
        "dense_s": round(statistics.median(dense_times), 3),
        "ratio": round(statistics.median(dense_times) / statistics.median(engine_times), 3),
        "engine_positions_per_s": round(distinct / statistics.median(engine_times)),
    }


def _in_turns(measured: Sequence[Callable[[int], float]], repeat: int) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in measured]
    for run in range(1, repeat + 1):
        for own, seconds in zip(times, measured, strict=True):
            own.append(seconds(run))
    return times


def main(given: Sequence[str] | None = None) -> int:
    """Measure each work on each model."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", action="append", choices=CHOICE_WORKS, help="this work; can be given several times")
    parser.add_argument("--questions", type=int, metavar="N", help="default: 200")
    parser.add_argument("--engine", choices=("auto", "tree", "plain"), help="as --llm-engine takes it")
    parser.add_argument(
        "--trial-s", type=float, default=3.0, metavar="S", help="seconds for each size of a dense batch"
    )
    arguments = parser.parse_args(given)
    settings = {} if arguments.engine is None else {"engine": arguments.engine}
    for loaded in loaded_models(arguments, device="cpu", dtype="float32", **settings):
        sizes = Sizes(max_length=loaded.shape.max_length - _TOKENS_OF_A_RUN, num_questions=arguments.questions)
        for work_name in arguments.only or CHOICE_WORKS:
            work = make_work(work_name, sizes, token_counter(loaded.folder))
            line = measure(loaded.model, work, repeat=arguments.repeat, seconds_each=arguments.trial_s)
            head = {"measured": "engine_limit", "work": work.name, "model": loaded.shape.name}
            print(json.dumps(head | {"threads": arguments.threads} | line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
