"""How near to the ideal is a run against a server that takes its time for each request?

    python -m benchmarks.server_load                                   # prints JSON lines
    python -m benchmarks.server_load --samples 10000 --latency 0.05 --width 8 64 --workers 0 2

A server in a process of its own answers every completion after ``--latency`` seconds, as many at once as are asked. The
ideal time is samples x latency / width, the width being ``max_connections``. ``model``: requests are given to the model
alone, without pytest. ``session``: a whole pytest session, from its start to its end, over a suite of as many samples,
with the report written. Peak memory is that of the largest process, and beside it that of a session of a fifth of the
samples.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measured_process import environment, run_measured

SUITE = """\
suite: sums
dataset: {path: rows.jsonl}
prompt: {template: "{{ question }}"}
generate: {max_tokens: 4, stop: ["\\n"]}
score: number
"""


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, latency_s: float) -> None:
    """One connection of HTTP/1.1: as little work for each request as can be."""
    models = json.dumps({"object": "list", "data": [{"id": "slow", "object": "model", "owned_by": "bench"}]}).encode()
    choice = {"index": 0, "text": " 7", "finish_reason": "stop"}
    usage = {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5}
    reply = json.dumps({"id": "x", "object": "text_completion", "choices": [choice], "usage": usage}).encode()
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            length = next((int(line[15:]) for line in lines if line[:15].lower() == b"content-length:"), 0)
            await reader.readexactly(length)
            method, path, _ = lines[0].split(b" ", 2)
            status, body = b"404 Not Found", b'{"error": {"message": "not found"}}'
            if method == b"GET" and path == b"/v1/models":
                status, body = b"200 OK", models
            elif method == b"POST" and path == b"/v1/completions":
                await asyncio.sleep(latency_s)
                status, body = b"200 OK", reply
            writer.write(
                b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                % (status, len(body), body)
            )
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def serve(latency_s: float) -> None:
    """Print the URL and answer until the process is stopped."""
    server = await asyncio.start_server(lambda reader, writer: _answer(reader, writer, latency_s), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}/v1", flush=True)
    await server.serve_forever()


@contextmanager
def running_server(latency_s: float) -> Iterator[str]:
    """Its URL."""
    command = [sys.executable, "-m", "benchmarks.server_load", "--serve", "--latency", str(latency_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def ask_model(url: str, width: int, num_samples: int) -> float:
    """Seconds from the first request to the last reply, through the model alone."""
    from pytest_llmeval.models.registry import load_model, parse_model_spec
    from pytest_llmeval.models.settings import ModelSettings
    from pytest_llmeval.types import GenerateRequest, GenerateResponse

    model = load_model(parse_model_spec(f"{url}?max_connections={width}"), ModelSettings())
    requests = [GenerateRequest(f"{number} + 1 =", max_tokens=4, stop=("\n",)) for number in range(num_samples)]
    started = time.perf_counter()
    responses = model.generate(requests)
    seconds = time.perf_counter() - started
    model.close()  # type: ignore[attr-defined]  # the smallest width of a host's models counts
    if not all(isinstance(response, GenerateResponse) for response in responses):
        raise SystemExit(f"a request failed: {next(one for one in responses if not isinstance(one, GenerateResponse))}")
    return seconds


def ask_session(url: str, width: int, num_samples: int, workers: int, folder: Path) -> tuple[float, float]:
    """Seconds and peak MiB of a whole session."""
    folder.mkdir(parents=True)
    rows = (json.dumps({"id": str(n), "question": f"{n} + 1 =", "target": 7}) for n in range(num_samples))
    (folder / "rows.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / "sums.yaml").write_text(SUITE, encoding="utf-8")
    plugins = ["-n", str(workers)] if workers else ["-p", "no:xdist"]
    model = f"--llm-model={url}?max_connections={width}"
    command = [sys.executable, "-m", "pytest", *plugins, "-q", model, "--llm-report=report.json", "sums.yaml"]
    variables = environment(folder, num_threads=1)
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    done = run_measured(command, folder=folder, variables=variables, log=folder / "log.txt")
    report = json.loads((folder / "report.json").read_text(encoding="ascii"))
    if sum(record["status"] in ("correct", "wrong") for record in report["records"]) != num_samples:
        raise SystemExit(f"not every sample was scored:\n{done.output[-3000:]}")
    return done.seconds, done.peak_mib


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--latency", type=float, default=0.05, metavar="SECONDS")
    parser.add_argument("--width", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2], help="of sessions; 0 is one process")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        asyncio.run(serve(options.latency))
        return 0
    with tempfile.TemporaryDirectory() as folder, running_server(options.latency) as url:
        for width in options.width:
            ideal_s = options.samples * options.latency / width
            seconds = ask_model(url, width, options.samples)
            kind = {"width": width, "samples": options.samples, "ideal_s": round(ideal_s, 2)}
            print(
                json.dumps({"measured": "model", **kind, "s": round(seconds, 2), "ratio": round(seconds / ideal_s, 2)})
            )
            for workers in options.workers:
                part = Path(folder) / f"{width}-{workers}"
                _, few_mib = ask_session(url, width, max(options.samples // 5, 1), workers, part / "few")
                seconds, peak_mib = ask_session(url, width, options.samples, workers, part / "all")
                found = {"s": round(seconds, 2), "ratio": round(seconds / ideal_s, 2)}
                memory = {"peak_mib": round(peak_mib), "peak_mib_of_a_fifth": round(few_mib)}
                print(json.dumps({"measured": "session", "workers": workers, **kind, **found, **memory}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
