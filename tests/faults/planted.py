"""What the sessions of ``tests.faults.kills`` load: models that log what they are asked, and points to be killed at.

Copied into each session's folder, with a ``conftest.py`` that imports it. ``KILLS_LOGS`` is a folder beside that one:

- ``asked``: a line ``TIME NUMBER …`` for each call of the model, with the numbers of its samples (``<NUMBER>`` in their
  questions), written before they are answered;
- ``operations``: a line for each operation on a file that the first process of the session is about to do;
- ``reached`` and ``go_on``: the process that has come to ``KILLS_POINT`` (``asked 12``: so many samples asked;
  ``operation 30``) makes the one, and waits for the other.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_llmeval.types import (
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    ModelIdentity,
)

_NUMBER = re.compile(r"<(\d+)>")
_SECONDS_PER_SAMPLE = 0.005
_PATIENCE_S = 60.0
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")


class Watch:
    """Logs what a session does in ``logs``, and stops the process that comes to ``point``."""

    def __init__(self, logs: Path, point: str) -> None:
        self._logs = logs
        self._kind, _, number = point.partition(" ")
        self._number = int(number or 0)
        self._num_operations = 0
        self._is_watching = True
        self._process = os.getpid()

    def asked(self, texts: Iterable[object]) -> None:
        """The model is asked for the samples whose numbers stand in these texts."""
        numbers = sorted({int(number) for text in texts for number in _NUMBER.findall(str(text))})
        if not numbers:
            return  # a self-test
        log = self._logs / "asked"
        with self._unwatched():
            with log.open("ab", buffering=0) as file:
                file.write(f"{time.time()!r} {' '.join(map(str, numbers))}\n".encode())
            is_reached = self._kind == "asked" and len(log.read_bytes().split(b" ")) > self._number
        if is_reached:
            self.reached()

    def operation(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook: counts what this process writes in its own folders."""
        if not self._is_watching or os.getpid() != self._process:
            return
        if not (event in _CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES)):
            return
        if not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))
        if not path.startswith(str(self._logs.parent)):
            return
        self._num_operations += 1
        with self._unwatched(), (self._logs / "operations").open("a") as file:
            file.write(f"{event} {os.path.relpath(path, self._logs.parent)}\n")
        if self._kind == "operation" and self._num_operations == self._number:
            self.reached()

    def reached(self) -> None:
        """Wait for the signal, or for its having been sent to another process."""
        with self._unwatched():
            try:
                (self._logs / "reached").touch(exist_ok=False)
            except FileExistsError:
                return
            end = time.monotonic() + _PATIENCE_S
            while not (self._logs / "go_on").exists() and time.monotonic() < end:
                time.sleep(0.001)

    @contextlib.contextmanager
    def _unwatched(self) -> Iterator[None]:
        watched, self._is_watching = self._is_watching, False
        try:
            yield
        finally:
            self._is_watching = watched


def _watch() -> Watch | None:
    logs = os.environ.get("KILLS_LOGS")
    return None if logs is None else Watch(Path(logs), os.environ["KILLS_POINT"])


tempfile.tempdir = None  # what the process that this one was forked of has found
_WATCH = _watch()
if _WATCH is not None and "PYTEST_XDIST_WORKER" not in os.environ:
    sys.addaudithook(_WATCH.operation)


def asked(texts: Iterable[object]) -> None:
    """Log what is asked in this process."""
    if _WATCH is not None:
        _WATCH.asked(texts)


def watch_local_models() -> None:
    """Log what the store asks a model that is none of this module's."""
    from pytest_llmeval.inference import stored_model as model

    ask = vars(model)["ask_for_raw"]

    def logged(answerer: object, requests: Sequence[Any], *more: Any) -> Any:
        asked(requests)
        return ask(answerer, requests, *more)

    vars(model)["ask_for_raw"] = logged


def _written(prompt: object) -> str:
    """Right for two samples of three."""
    number = int(_NUMBER.findall(str(prompt))[-1])
    return str(number + 1 if number % 3 else number)


def function(prompt: str) -> str:
    """A Python function, asked for one sample at a time."""
    asked([prompt])
    time.sleep(_SECONDS_PER_SAMPLE)
    return _written(prompt)


class Listed:
    """A model that returns the replies of a chunk together."""

    identity = ModelIdentity(name="listed", backend="test", fingerprint="1")

    def generate(self, requests: Sequence[GenerateRequest]) -> Iterable[GenerateResponse]:
        asked(request.prompt for request in requests)
        time.sleep(_SECONDS_PER_SAMPLE * len(requests))
        return [GenerateResponse(text=_written(request.prompt), num_tokens=1) for request in requests]

    def loglikelihood(self, requests: Sequence[LoglikelihoodRequest]) -> list[LoglikelihoodResponse]:
        asked(request.context for request in requests)
        time.sleep(_SECONDS_PER_SAMPLE * len(requests) / 3)
        checksums = [zlib.crc32(str(request).encode()) for request in requests]
        return [LoglikelihoodResponse(loglikelihood=-1.0 - number % 89 / 8, num_tokens=1) for number in checksums]


class Yielding(Listed):
    """A model that hands over each reply of a chunk as it is there."""

    identity = ModelIdentity(name="yielding", backend="test", fingerprint="1")

    def generate(self, requests: Sequence[GenerateRequest]) -> Iterator[GenerateResponse]:
        for request in requests:
            yield from super().generate([request])
