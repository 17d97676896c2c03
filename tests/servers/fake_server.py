"""A server executable for ``launch.command``, with faults: it takes vLLM's or llama-server's arguments.

``executable(folder)`` writes a script that runs it. ``FAKE_SERVER`` in the environment holds faults, with commas
between them: ``slow:SECONDS`` before it listens; ``dies`` at its start; ``dies-at-restart``; ``dies-once-after:N``
questions; ``dies-after:N`` in each of its lives; ``hangs`` (listens, and never answers); ``taken`` (another server
has its first port); ``another`` (it serves another model); ``ignores-sigterm``; ``grandchild`` (starts a process of
its own session); ``stubborn`` (starts one of its own group that ignores SIGTERM). ``FAKE_SERVER_LOG`` names a file to
which each start adds a line.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

__all__ = ["executable", "lives", "main", "starts"]

_CODE = (
    f"import sys; sys.path.insert(0, '{Path(__file__).resolve().parents[2]}'); "
    "from tests.servers.fake_server import main; main()"
)
_KNOWN = frozenset(
    {
        *("serve", "host", "port", "served-model-name", "model", "alias", "dtype", "max-model-len", "ctx-size"),
        *("tensor-parallel-size", "revision", "trust-remote-code", "n-gpu-layers", "no-enable-prefix-caching"),
        "chat-template",
    }
)


def executable(folder: Path, name: str = "vllm") -> Path:
    """Return a script in the folder that is such a server."""
    path = folder / name
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{_CODE}" "$0" "$@"\n')
    path.chmod(0o755)
    return path


def starts(log: Path) -> list[dict[str, str]]:
    """Return what each start had: its process, arguments, the cards that it was shown, and how many others lived."""
    if not log.exists():
        return []
    lines = (line.split("\t") for line in log.read_text().splitlines())
    return [dict(zip(("pid", "arguments", "cards", "lived"), line, strict=True)) for line in lines]


def lives(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _note(pid: int, arguments: list[str]) -> int:
    """Note the start of a process, and return how many there were before."""
    path = os.environ.get("FAKE_SERVER_LOG")
    if path is None:
        return 0
    before = starts(Path(path))
    num_living = sum(lives(int(start["pid"])) for start in before)
    with open(path, "a") as log:
        log.write(f"{pid}\t{' '.join(arguments)}\t{os.environ.get('CUDA_VISIBLE_DEVICES', '-')}\t{num_living}\n")
    return len(before)


def main() -> None:
    """Serve until a signal comes."""
    kind, arguments = Path(sys.argv[1]).name, sys.argv[2:]
    if arguments == ["--version"]:
        print("1.2.3")  # noqa: T201
        return
    names = [part.removeprefix("--") for part in arguments if part.startswith("--")]
    if unknown := next((name for name in names if name not in _KNOWN), None):
        sys.exit(f"{kind}: error: unrecognized arguments: --{unknown}")
    faults = dict(fault.partition(":")[::2] for fault in filter(None, os.environ.get("FAKE_SERVER", "").split(",")))
    number = _note(os.getpid(), arguments)
    given = {part: arguments[place + 1] for place, part in enumerate(arguments[:-1]) if part.startswith("--")}
    port, name = int(given["--port"]), given.get("--served-model-name") or given["--alias"]
    print(f"INFO loading {name}", flush=True)  # noqa: T201
    if "ignores-sigterm" in faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "grandchild" in faults:
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        _note(sleeper.pid, ["grandchild"])
    if "stubborn" in faults:
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); time.sleep(600)"
        deaf = subprocess.Popen([sys.executable, "-uc", code], stdout=subprocess.PIPE)
        assert deaf.stdout is not None
        deaf.stdout.readline()
        _note(deaf.pid, ["stubborn"])
    time.sleep(float(faults.get("slow", 0)))
    if "dies" in faults or ("dies-at-restart" in faults and number):
        print("INFO reading weights", flush=True)  # noqa: T201
        sys.exit(f"ValueError: no room for {name}, key {_key(kind)}")
    if "hangs" in faults:
        with socket.create_server(("127.0.0.1", port)):
            time.sleep(600)
    if "taken" in faults and not number:
        environment = {**os.environ, "FAKE_SERVER": "another"}
        subprocess.Popen([sys.executable, "-c", _CODE, *sys.argv[1:]], env=environment, start_new_session=True)
        while not _is_open(port):
            time.sleep(0.02)
        sys.exit(f"OSError: [Errno 98] Address already in use: {port}")
    dies_after = faults.get("dies-after", None if number else faults.get("dies-once-after"))
    _serve("another" if "another" in faults else name, kind, port, dies_after)


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _key(kind: str) -> str:
    return os.environ["LLAMA_API_KEY" if kind == "llama-server" else "VLLM_API_KEY"]


def _serve(name: str, kind: str, port: int, dies_after: str | None) -> None:
    from tests.servers.stub import StubServer

    stub = StubServer(
        "llama-server" if kind == "llama-server" else "vllm",
        faults=[] if dies_after is None else [f"dies-after:{dies_after}"],
        instant=True,
        key=_key(kind),
        name=name,
        port=port,
        keep=False,
        on_death=lambda: os._exit(1),
    )
    with stub:
        print("INFO ready", flush=True)  # noqa: T201
        threading.Event().wait()
