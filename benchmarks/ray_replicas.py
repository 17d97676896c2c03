"""How well replicas on Ray are kept at work, and what two of one thread do beside one of two.

    python -m benchmarks.ray_replicas sleeping                 # 16 replicas of a model that sleeps
    python -m benchmarks.ray_replicas sleeping --replicas 8 --samples 4000 --pause 0.05
    python -m benchmarks.ray_replicas compute                  # 1 replica of 1 thread, 1 of 2, 2 of 1
    python -m benchmarks.ray_replicas compute --shape tiny --samples 64

``sleeping`` runs a whole pytest session on this machine. Its model sleeps for each sample and logs when each call began
and ended. Start-up is left out: the time counts from the moment at which the last replica has begun its first call to
the end of the last call of all, the end's unevenness included. Printed is the part of this time that a replica was in a
call, on average.

``compute`` gives the replicas, once all are ready and have answered a chunk, the same 5-shot questions with lettered
options. The three take turns; printed are medians of questions per second, and their ratios to one replica of one
thread. Each prints a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import Any

from benchmarks.models_for_bench import SHAPES, make_model, texts_of
from pytest_llmeval.models.ray.model import load_replicas
from pytest_llmeval.models.registry import parse_model_spec
from pytest_llmeval.models.settings import ModelSettings, ReplicaSettings
from pytest_llmeval.types import LoglikelihoodRequest
from tests.support import REPOSITORY, clean_environment

TEXTS = REPOSITORY / "example_suites"
WAYS = ((1, 1), (1, 2), (2, 1))
"""Replicas, and threads of each."""

SLEEPER = """
import json
import os
import time

from pytest_llmeval.types import GenerateResponse, ModelIdentity


class Sleeper:
    identity = ModelIdentity(name="sleeper", backend="test", fingerprint="s" * 64)

    def __init__(self, pause):
        self.pause = pause

    def generate(self, requests):
        began = time.time()
        time.sleep(self.pause * len(requests))
        with open("calls.jsonl", "a") as file:
            file.write(json.dumps([os.getpid(), began, time.time(), len(requests)]) + "\\n")
        return [GenerateResponse(text="a") for request in requests]
"""


def sleeping(folder: Path, *, num_replicas: int, num_samples: int, pause_s: float) -> dict[str, Any]:
    """Run a session of sleeping replicas, and say how busy they were."""
    rows = [json.dumps({"question": f"q{number}", "target": "a"}) for number in range(num_samples)]
    folder.joinpath("rows.jsonl").write_text("\n".join(rows))
    suite = 'suite: sleep\ndataset: {path: rows.jsonl}\nprompt: {template: "{{ question }}"}\nscore: exact\n'
    folder.joinpath("sleep.yaml").write_text(suite)
    folder.joinpath("sleeper.py").write_text(SLEEPER)
    options = [
        "--llm-ray=local",
        f"--llm-replicas={num_replicas}",
        f"--llm-model=python:sleeper:Sleeper?pause={pause_s}",
    ]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, *options, "sleep.yaml"],
        cwd=folder,
        env=clean_environment() | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    calls = [json.loads(line) for line in folder.joinpath("calls.jsonl").read_text().splitlines()]
    return {
        "work": "sleeping",
        "replicas": num_replicas,
        "samples": num_samples,
        "pause_s": pause_s,
        "session_s": round(time.monotonic() - began, 1),
        **busy(calls),
    }


def busy(calls: Sequence[tuple[int, float, float, int]]) -> dict[str, Any]:
    """Of calls, each its process, begin, end (s) and number of samples: the part of the time that was spent in them."""
    firsts: dict[int, float] = {}
    for process, began, _, _ in sorted(calls, key=lambda call: call[1]):
        firsts.setdefault(process, began)
    start, end = max(firsts.values()), max(call[2] for call in calls)
    inside = [(max(began, start), ended, count) for _, began, ended, count in calls if ended > start]
    spent = sum(ended - began for began, ended, _ in inside)
    return {
        "processes": len(firsts),
        "all_at_work_after_s": round(start - min(firsts.values()), 1),
        "measured_s": round(end - start, 1),
        "calls": len(inside),
        "busy": round(spent / (len(firsts) * (end - start)), 4),
    }


def questions(num_samples: int) -> list[list[LoglikelihoodRequest]]:
    """Questions of four lettered options after one header of five examples, from the texts of the example suites."""
    texts = [text for text in texts_of(TEXTS) if 40 < len(text) < 300]
    block = "Question: {}\nA. {}\nB. {}\nC. {}\nD. {}\nAnswer:"

    def asked(place: int) -> str:
        return block.format(texts[place % len(texts)], *(texts[(place + n) % len(texts)][:30] for n in range(1, 5)))

    header = "\n\n".join(f"{asked(7 * place)} {'ABCDA'[place]}" for place in range(5))
    return [
        [LoglikelihoodRequest(f"{header}\n\n{asked(100 + place)}", f" {letter}") for letter in "ABCD"]
        for place in range(num_samples)
    ]


def rate(model: Path, num_replicas: int, num_threads: int, num_samples: int) -> float:
    """Questions per second of replicas that have started."""
    os.environ.pop("OMP_NUM_THREADS", None)
    replicas = ReplicaSettings(address="local", count=num_replicas, cpus=num_threads)
    settings = ModelSettings(device="cpu")
    asked = questions(num_samples)
    loaded = load_replicas(parse_model_spec(str(model)), settings, replicas, chunk_size=16)
    try:
        while len(loaded.server_use.replicas) < num_replicas:
            wait([future for sample in asked[: 16 * num_replicas] for future in loaded.submit(sample)])
        began = time.monotonic()
        wait([future for sample in asked for future in loaded.submit(sample)])
        return num_samples / (time.monotonic() - began)
    finally:
        loaded.close()


def compute(folder: Path, *, shape: str, num_samples: int, runs: int) -> dict[str, Any]:
    """Compare the three ways."""
    model = make_model(SHAPES[shape], folder, TEXTS)
    rates: dict[tuple[int, int], list[float]] = {way: [] for way in WAYS}
    for _ in range(runs):
        for way in WAYS:
            rates[way].append(rate(model, *way, num_samples))
            print(f"{way[0]} of {way[1]}: {rates[way][-1]:.2f} questions/s", file=sys.stderr, flush=True)
    medians = {way: statistics.median(found) for way, found in rates.items()}
    names = {way: f"{way[0]} of {way[1]} thread{'' if way[1] == 1 else 's'}" for way in WAYS}
    return {
        "work": "compute",
        "shape": shape,
        "samples": num_samples,
        "runs": runs,
        "per_second": {names[way]: round(found, 2) for way, found in medians.items()},
        "to_one_of_one": {names[way]: round(found / medians[1, 1], 2) for way, found in medians.items()},
        "load_before": os.getloadavg()[0],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=("sleeping", "compute"))
    parser.add_argument("--replicas", type=int, default=16)
    parser.add_argument("--samples", type=int, help="default: 12,000 sleeping, 256 computed")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds for each sample")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="gpt2")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if given.work == "sleeping":
            samples = given.samples or 12_000
            found = sleeping(Path(folder), num_replicas=given.replicas, num_samples=samples, pause_s=given.pause)
        else:
            found = compute(Path(folder), shape=given.shape, num_samples=given.samples or 256, runs=given.runs)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
