"""Runs the program of a reply, and calls its functions as it is told: the main program of one sandbox.

A line of standard input is a request, a line of what was standard output its answer. Nothing here is trusted by the
other side: whatever the program does to this process, all that it can change is what its own functions return.
"""

from __future__ import annotations

import errno
import json
import operator
import os
import resource
import sys
import types
from collections.abc import Callable
from itertools import islice
from typing import Any

from pytest_llmeval.scoring.sandbox.values import MAX_VALUES, dump, load

_FORBIDDEN: tuple[int, ...] = (
    errno.EPERM,
    errno.EACCES,
    errno.EFBIG,
    errno.ENOSPC,
    errno.EROFS,
    errno.EAFNOSUPPORT,
    errno.EAGAIN,
)
_FORBIDDEN += (errno.ENETUNREACH, errno.EHOSTUNREACH)
"""Errors of the system that a sandbox answers with."""
_OPERATIONS: dict[str, Callable[..., object]] = {
    "len": len,
    "next": next,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
}


def main() -> None:
    """Answer requests until the input ends."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # what the program prints goes nowhere, and it has nothing to read
        os.dup2(nothing, stream)
    first = json.loads(requests.readline())
    _limit(first["timeout_s"], first["memory_mb"])
    objects: list[object] = []
    module = types.ModuleType("reply")
    sys.modules["reply"] = module

    def keep(value: object) -> int:
        for number, known in enumerate(objects):
            if known is value:
                return number
        objects.append(value)
        return len(objects) - 1

    def answer(work: Callable[[], object]) -> None:
        try:
            text = f'{{"value": {dump(work(), keep)}}}'
        except BaseException as error:
            text = json.dumps({"error": _described(error, first["program"])})
        answers.write(text.encode("ascii") + b"\n")
        answers.flush()

    def work_of(request: dict[str, Any]) -> object:
        target: Any = getattr(module, request["name"]) if "name" in request else objects[request["object"]]
        if "get" in request:
            return target
        if "attribute" in request:
            return getattr(target, request["attribute"])
        if "set" in request:
            (value,) = load(request["value"], objects.__getitem__)
            setattr(target, request["set"], value)
            return None
        if "items" in request:
            return list(islice(target, MAX_VALUES))
        arguments, named = load(request["arguments"], objects.__getitem__)
        if "operation" in request:
            return _OPERATIONS[request["operation"]](target, *arguments)
        return target(*arguments, **named)

    answer(lambda: exec(compile(first["program"], "reply.py", "exec"), module.__dict__))
    for line in requests:
        answer(lambda: work_of(json.loads(line)))  # noqa: B023


def _limit(timeout_s: float, memory_mb: int) -> None:
    """Bound time, memory and the size of files; the sandbox bounds the rest."""
    seconds = max(1, int(timeout_s + 0.999))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    memory = memory_mb * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 1024 * 1024, 16 * 1024 * 1024))
    if "LLMEVAL_MAX_PROCESSES" in os.environ:  # in a namespace of users of its own, where no others count
        most = int(os.environ["LLMEVAL_MAX_PROCESSES"])
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _described(error: BaseException, program: str) -> dict[str, str]:
    """Return the kind of an error, its class, its message, and the last line of the program that it went through."""
    kind = "exception"
    if isinstance(error, SyntaxError):
        kind = "syntax"
    elif isinstance(error, MemoryError):
        kind = "memory"
    elif isinstance(error, OSError) and error.errno in _FORBIDDEN:
        kind = "forbidden"
    try:
        text = str(error)[:500]
    except BaseException:
        text = ""
    lineno = error.lineno if isinstance(error, SyntaxError) else None
    number, frame = lineno if type(lineno) is int else 0, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "reply.py":
            number = frame.tb_lineno
        frame = frame.tb_next
    lines = program.splitlines()[number - 1 : number] if number else []
    where = f"line {number} of the program: {lines[0].strip()[:200]}" if lines else ""
    return {"kind": kind, "class": type(error).__name__[:100], "text": text, "where": where}


if __name__ == "__main__":
    main()
