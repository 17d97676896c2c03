"""What llama.cpp's quantisations cost and save: one model in float32 in this process, and as GGUF files by llama.cpp.

    python -m benchmarks.gguf --python PYTHON                # the demo model; PYTHON has llama-cpp-python[server]
    python -m benchmarks.gguf --python PYTHON --model FOLDER --gguf FILE.gguf SUITE …

``FILE.gguf`` is the model of ``FOLDER`` in float32; it is quantised here, by llama-cpp-python. Without it, that of the
demo model is made as the tests make it. Each row is a session of its own, whose server the session starts. Keys and
values are in float32, so that the files alone make the difference. ``difference`` is the largest one of an option's
log-likelihood from the first row's, in nats; ``questions/s`` are those of the session's model time, without the start
of the server; ``peak MiB`` is the largest resident memory of the process that has the model: its server, or pytest.
Linux only.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measured_process import environment, run_measured

__all__ = ["main"]

_FTYPES = {"F32": 0, "F16": 1, "Q8_0": 7, "Q4_0": 2}
_QUANTISE = """
import sys
import llama_cpp
settings = llama_cpp.llama_model_quantize_default_params()
settings.ftype = int(sys.argv[3])
sys.exit(llama_cpp.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), settings))
"""
_SUITES = ("example_suites/boolq", "example_suites/csqa")


class _ServerMemory:
    """The largest resident memory of processes that were given a file, in MiB, as long as the context is open."""

    def __init__(self, file: Path) -> None:
        self._file, self.peak_mib = os.fsencode(file), 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> _ServerMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    words = (process / "cmdline").read_bytes().split(b"\0")
                    if b"--model" in words and self._file in words:
                        status = (process / "status").read_text().partition("VmHWM:")[2].split()
                        self.peak_mib = max(self.peak_mib, int(status[0]) / 1024)
                except (OSError, IndexError):  # it has ended
                    continue


def _session(model: str, options: Sequence[str], suites: Sequence[str], folder: Path) -> tuple[Any, float]:
    """Return the report of a session, and the largest resident memory of pytest, in MiB."""
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *suites, f"--llm-model={model}"]
    variables = environment(folder, num_threads=os.cpu_count() or 1)
    measured = run_measured(
        [*command, f"--llm-report={report}", *options], folder=Path.cwd(), variables=variables, log=folder / "log"
    )
    return json.loads(report.read_text(encoding="utf-8")), measured.peak_mib


def _logprobs(report: Any) -> dict[tuple[str, str], list[float]]:
    return {
        (record["suite"], record["id"]): record["details"]["loglikelihoods"]
        for record in report["records"]
        if record["details"].get("loglikelihoods")
    }


def _difference(report: Any, first: Any) -> float:
    ours, expected = _logprobs(report), _logprobs(first)
    if ours.keys() != expected.keys():
        raise SystemExit("the two runs did not score the same samples by log-likelihoods")
    pairs = [pair for key in ours for pair in zip(ours[key], expected[key], strict=True)]
    return max((abs(one - other) for one, other in pairs if math.isfinite(one) and math.isfinite(other)), default=0.0)


def _row(name: str, report: Any, first: Any, size: int, peak_mib: float) -> dict[str, Any]:
    answers = {(record["suite"], record["id"]): record["answer"] for record in first["records"]}
    others = sum(answers[record["suite"], record["id"]] != record["answer"] for record in report["records"])
    return {
        "weights": name,
        "file MiB": round(size / 2**20, 1) if size else "",
        "difference": f"{_difference(report, first):.2g}",
        **{suite["name"]: f"{suite['metrics']['accuracy']['value']:.3f}" for suite in report["suites"]},
        "other answers": others,
        "questions/s": round(len(report["records"]) / sum(suite["seconds"] for suite in report["suites"])),
        "peak MiB": round(peak_mib),
        "self-test": report["models"][0]["details"].get("self_test", {}).get("log-likelihoods", ""),
    }


def _print(rows: Sequence[dict[str, Any]]) -> None:
    print("|", " | ".join(rows[0]), "|")
    print("|", " | ".join("---" for _ in rows[0]), "|")
    for row in rows:
        print("|", " | ".join(str(value) for value in row.values()), "|")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sessions one after the other, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", default=_SUITES, metavar="SUITE")
    parser.add_argument("--python", type=Path, required=True, help="a Python that has llama-cpp-python[server]")
    parser.add_argument("--model", default="demo", help="the model of the first row (default: demo)")
    parser.add_argument("--gguf", type=Path, metavar="FILE", help="the same model in float32 (default: the demo's)")
    parser.add_argument("--max-length", type=int, default=2048, metavar="TOKENS", help="context of all rows")
    options = parser.parse_args(arguments)
    if options.gguf is None:
        from tests.servers.real import gguf

        options.gguf = gguf()
    python = options.python.absolute()
    length = f"--llm-model-arg=max_length={options.max_length}"
    given = [length, *(f"--llm-model-arg=launch.{part}" for part in (f"command={python}", "type_k=0", "type_v=0"))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first, peak_mib = _session(options.model, [], options.suites, folder)
        rows = [_row("float32, this process", first, first, 0, peak_mib)]
        for quantisation, ftype in _FTYPES.items():
            file = folder / f"{quantisation}.gguf"
            command = [str(python), "-c", _QUANTISE, str(options.gguf), str(file), str(ftype)]
            subprocess.run(command, check=True, capture_output=True)
            with _ServerMemory(file) as memory:
                report, _ = _session(f"llama-cpp:{file}", given, options.suites, folder)
            rows.append(_row(quantisation, report, first, file.stat().st_size, memory.peak_mib))
    _print(rows)


if __name__ == "__main__":
    main()
