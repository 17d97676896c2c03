"""What threads of a model on the CPU cost and save: on a machine that does nothing else, and on a busy one.

    python -m benchmarks.threads                      # from the repository; half an hour on two cores
    python -m benchmarks.threads --models demo --repeat 1

One process for each measurement loads a model and then times the same requests. The settings take turns ``--repeat``
times, so that what else happens on the machine meets all of them; medians are compared. Background load is made here:
so many processes that only count, each of which ends by itself. ``ratio`` is a setting's time by the least time that
any setting took for that model under that load: 1 is the best, and what ``ours`` has beyond it is what we lose.

``idle`` means nothing if somebody else is at work: the last column is how many cores others kept busy, and a line says
so where that was more than a tenth of a core without any load of ours.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_llmeval.models.hardware import Busy

__all__ = ["SETTINGS", "Measured", "lines", "main"]

_GNU_DEFAULT = "300000"
"""Turns that GNU's OpenMP makes where nothing is set and there are no more threads than cores (libgomp's env.c)."""


def _settings(num_cores: int) -> dict[str, dict[str, str]]:
    every = {"OMP_NUM_THREADS": str(num_cores)}
    return {
        "one thread": {"OMP_NUM_THREADS": "1"},
        "all, as torch waits": every | {"GOMP_SPINCOUNT": _GNU_DEFAULT},
        "all, brief waits": every | {"GOMP_SPINCOUNT": "20000"},
        "all, no waits": every | {"OMP_WAIT_POLICY": "PASSIVE"},
        "ours": {},
    }


SETTINGS = tuple(_settings(1))
"""Names of what is compared; ``ours`` is what a user gets who sets nothing."""

_MODELS: dict[str, tuple[int, int, int]] = {"demo": (0, 0, 20), "256x6": (256, 6, 4), "768x12": (768, 12, 1)}
"""Width, layers, and how often the work is done; the last is GPT-2's shape."""

_WORDS = ["the", "cat", "dog", "sat", "house", "city", "day", "it", "no", "in"]
_OTHERS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Medians of one setting. ``busy_elsewhere``: cores that were kept busy by other processes than the measured."""

    model: str
    num_busy: int
    setting: str
    seconds: float
    busy_elsewhere: float | None


def lines(found: Sequence[Measured]) -> Iterator[str]:
    """A table, and what is to be mistrusted."""
    yield f"{'model':10} {'load':>4} {'setting':22} {'seconds':>8} {'ratio':>6} {'busy elsewhere':>15}"
    for one in found:
        best = min(o.seconds for o in found if (o.model, o.num_busy) == (one.model, one.num_busy))
        busy = "unknown" if one.busy_elsewhere is None else f"{one.busy_elsewhere:.2f}"
        numbers = f"{one.seconds:>8.2f} {one.seconds / best:>6.2f}"
        yield f"{one.model:10} {one.num_busy:>4} {one.setting:22} {numbers} {busy:>15}"
    idle = [one.busy_elsewhere for one in found if not one.num_busy and one.busy_elsewhere is not None]
    if idle and max(idle) > _OTHERS:
        yield f"the machine was not idle: others kept up to {max(idle):.2f} cores busy; load 0 says nothing here"
    if any(one.busy_elsewhere is None for one in found):
        yield "whether the machine was idle is not known: there is no /proc/stat here"


def _measure(folder: Path, name: str, setting: str, num_busy: int) -> tuple[float, float | None]:
    """Seconds of the work, and the cores that others kept busy while its process ran."""
    dropped = ("OMP_", "MKL_", "GOMP_", "KMP_", "PYTEST_", "HF_")
    variables = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    variables |= _settings(os.cpu_count() or 1)[setting] | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

    def own() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    with _load(num_busy):
        busy = Busy(own=own)
        command = [sys.executable, "-m", "benchmarks.threads", "--child", str(folder / name), name]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=600)
        elsewhere = busy.cores()
    if done.returncode:
        raise SystemExit(f"{name}, {setting}: {done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])), elsewhere


@contextlib.contextmanager
def _load(num_processes: int) -> Iterator[None]:
    """Keep so many cores busy; the processes end after ten minutes, and when this one is killed."""
    code = "import os, time\nparent, end = os.getppid(), time.monotonic() + 600\n"
    code += "while os.getppid() == parent and time.monotonic() < end: pass"
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(num_processes)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _child(folder: str, name: str) -> None:
    """Load the model as the plugin does, and print the seconds that the work took."""
    from pytest_llmeval.models.huggingface.model import HuggingFaceModel
    from pytest_llmeval.models.registry import load_model, parse_model_spec
    from pytest_llmeval.plugin.models import model_settings
    from pytest_llmeval.plugin.settings import Settings
    from pytest_llmeval.types import GenerateRequest, LoglikelihoodRequest

    spec = parse_model_spec("demo" if name == "demo" else folder)
    model = load_model(spec, model_settings(Settings(), "cpu"))
    if not isinstance(model, HuggingFaceModel):
        raise TypeError(type(model))
    drawn = random.Random(0)

    def text(num_words: int) -> str:
        return " ".join(drawn.choice(_WORDS) for _ in range(num_words))

    def work() -> None:
        texts = [text(30) for _ in range(16)]
        model.loglikelihood([LoglikelihoodRequest(one, f" {word}") for one in texts for word in _WORDS[:4]])
        model.generate([GenerateRequest(text(20), max_tokens=16) for _ in range(8)])

    work()
    started = time.perf_counter()
    for _ in range(_MODELS[name][2]):
        work()
    print(json.dumps(time.perf_counter() - started))


def _make_models(folder: Path, names: Sequence[str]) -> None:
    from tests.tiny_models import make_checkpoint

    for name in names:
        width, layers, _ = _MODELS[name]
        if width:
            (folder / name).mkdir()
            make_checkpoint(
                folder / name, "gpt2", n_embd=width, n_layer=layers, n_head=max(1, width // 64), max_length=512
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from a shell; see the module's docstring."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=list(_MODELS), choices=list(_MODELS))
    parser.add_argument("--loads", nargs="+", type=int, help="processes in the background; default: 0, and one a core")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        _child(*options.child)
        return 0
    cores = os.cpu_count() or 1
    loads = options.loads or [0, cores]
    print(f"{cores} cores", flush=True)
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make_models(folder, options.models)
        for model in options.models:
            for num_busy in loads:
                runs: dict[str, list[tuple[float, float | None]]] = {setting: [] for setting in SETTINGS}
                for _ in range(options.repeat):
                    for setting, measured in runs.items():
                        measured.append(_measure(folder, model, setting, num_busy))
                for setting, measured in runs.items():
                    others = [busy for _, busy in measured if busy is not None]
                    found.append(
                        Measured(
                            model=model,
                            num_busy=num_busy,
                            setting=setting,
                            seconds=statistics.median(seconds for seconds, _ in measured),
                            busy_elsewhere=statistics.median(others) if others else None,
                        )
                    )
                print("\n".join(lines(found)), flush=True)
                found.clear()
    return 0


if __name__ == "__main__":
    sys.exit(main())
