"""The program that computes for a scorer, run as a process of its own by ``bounded_process.py``.

It is a file to run, with the file of a module that says what can be computed, and needs the standard library alone. It
reads one JSON document per line from its standard input (first the caller's ``sys.path``, then requests) and writes one
per line to its standard output.

It ends when its input does, in the middle of a computation too, so that it does not outlive the process that started
it: a thread reads the input, and ends the process where that ends. The thread cannot run while one call of a C function
computes. On Linux the system then ends the process, by the signal that a second pipe, into which nothing is written,
makes when its other end is closed; elsewhere such a call is left its bound on time.

The module has ``services()``, which loads its libraries and gives functions by name, of which each returns a JSON
object (with ``problem`` where it cannot do its work). It may have ``prepare(service, arguments)``, which does what is
to be done once, outside the bounds. The processor time and the memory of each request are bounded by the system, which
ends this process, and not by a timer inside it, which would wait for the one long computation.
"""

from __future__ import annotations

import json
import os
import queue
import runpy
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

_MAX_SHOWN = 200
_MIB = 2**20


def main() -> None:
    """Serve requests until standard input ends. The second argument is the descriptor of the second pipe, if any."""
    if len(sys.argv) > 2:
        _end_with_the_writer_of(int(sys.argv[2]))
    if hasattr(signal, "SIGINT"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest, which then closes our input
    channel = os.fdopen(os.dup(1), "w", encoding="ascii", buffering=1)
    os.dup2(2, 1)  # what a library prints must not be taken for a reply
    known = set(sys.path)
    sys.path += [path for path in json.loads(sys.stdin.readline()) if path not in known]
    try:
        module = runpy.run_path(sys.argv[1])
        services: dict[str, Callable[..., dict[str, Any]]] = module["services"]()
    except Exception as error:
        print(json.dumps({"problem": f"{type(error).__name__}: {error}"}), file=channel)
        return
    print(json.dumps({}), file=channel)
    prepare = module.get("prepare", lambda service, arguments: None)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    while True:
        print(json.dumps(_answer(services, prepare, json.loads(lines.get()))), file=channel)


def _read(lines: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def _end_with_the_writer_of(pipe: int) -> None:
    """Let the system end this process once no process can write into the pipe any more (Linux)."""
    import fcntl
    import select

    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(pipe)
    if poll.poll(0):  # its writer ended before the signal was asked for
        os._exit(0)


def _answer(
    services: dict[str, Callable[..., dict[str, Any]]], prepare: Callable[..., object], request: dict[str, Any]
) -> dict[str, Any]:
    try:
        prepare(request["service"], request["arguments"])
        _bound_memory(request["memory_mb"])
        _bound_processor_time(request["timeout_s"])
        return services[request["service"]](**request["arguments"])
    except MemoryError:
        return {"problem": "memory"}
    except Exception as error:
        return {"problem": f"{type(error).__name__}: {error}"[:_MAX_SHOWN]}
    finally:
        _bound_processor_time(0.0)


def _bound_processor_time(seconds: float) -> None:
    """Let the system end this process once it has used so much more processor time; 0 is no bound."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _bound_memory(megabytes: int | None) -> None:
    """Let the process grow by so many MiB, where the system says how large it is and keeps to such a bound (Linux)."""
    if megabytes is None:
        return
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (size + megabytes * _MIB, most))
    except (ImportError, OSError, ValueError):
        return  # the bound on time is left


if __name__ == "__main__":
    main()
