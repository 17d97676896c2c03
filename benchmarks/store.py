"""What a store of many replies costs: time to fill it, to open it and for a hit, and the memory of its index.

    python -m benchmarks.store                                           # 10,000 and 100,000 replies
    python -m benchmarks.store --replies 100000 --budget-open-s 2 --budget-hit-ms 0.2

Prompts have 1,200 characters, and come in chunks of 64 as a session's do. Times are of the CPU, but for filling, which
waits for the disk. A hit is all that a request takes: its key, its line, the comparison with what was asked, and the
reply. The index is measured by tracemalloc when the store is opened once more. A budget that is exceeded: exit 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

from pytest_llmeval.inference.dispatch import ask
from pytest_llmeval.inference.store import Store
from pytest_llmeval.inference.stored_lines import StoredRequest, fingerprint_of
from pytest_llmeval.inference.stored_model import StoredModel
from pytest_llmeval.types import GenerateRequest, GenerateResponse, ModelIdentity

IDENTITY = ModelIdentity(name="none", backend="bench", fingerprint="weights")
CHUNK = 64
NUM_HITS = 5000
_HEADER = "Question: what was asked before\nAnswer: what was answered\n\n" * 20


class Unasked:
    """A model that nothing may reach."""

    identity = IDENTITY

    def generate(self, requests: Sequence[GenerateRequest]) -> Sequence[GenerateResponse]:
        raise AssertionError("a request was not in the store")


def request(number: int) -> GenerateRequest:
    return GenerateRequest(f"{_HEADER}Question: {number}\nAnswer:")


def fill(store: Store, num_replies: int) -> None:
    """Keep the replies, chunk by chunk."""
    model = fingerprint_of(IDENTITY)
    for first in range(0, num_replies, CHUNK):
        numbers = range(first, min(first + CHUNK, num_replies))
        replies = [GenerateResponse(text=f"It is {number}.", num_tokens=5) for number in numbers]
        questions = [StoredRequest(model, request(number)) for number in numbers]
        store.keep("none", list(zip(questions, replies, strict=True)))


def measure(num_replies: int, num_hits: int = NUM_HITS) -> dict[str, float]:
    """All figures for one size of store."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "store"
        started = time.perf_counter()
        store = Store(folder)
        fill(store, num_replies)
        store.close()
        fill_s = time.perf_counter() - started
        started = time.process_time()
        store = Store(folder)
        open_s = time.process_time() - started
        model, draw = StoredModel(Unasked(), store), random.Random(0)
        numbers = [draw.randrange(num_replies) for _ in range(num_hits)]
        started = time.process_time()
        for number in numbers:
            ask(model, [request(number)])
        hit_ms = (time.process_time() - started) / num_hits * 1000
        store.close()
        tracemalloc.start()
        store = Store(folder)
        index_mib = tracemalloc.get_traced_memory()[0] / 2**20
        tracemalloc.stop()
        store.close()
        disk_mib = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
    found = {"fill_s": fill_s, "open_s": open_s, "hit_ms": hit_ms, "index_mib": index_mib, "disk_mib": disk_mib}
    return {"replies": num_replies, **{name: round(value, 3) for name, value in found.items()}}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replies", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--budget-open-s", type=float)
    parser.add_argument("--budget-hit-ms", type=float)
    options = parser.parse_args(arguments)
    is_over = False
    for num_replies in options.replies:
        found = measure(num_replies)
        sys.stdout.write(json.dumps(found) + "\n")
        for name, budget in (("open_s", options.budget_open_s), ("hit_ms", options.budget_hit_ms)):
            is_over |= budget is not None and found[name] > budget
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main())
