"""Processes by fork for the sessions that tests start: the asking side of ``tests/fork_server.py``."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import execnet.gateway_io

from tests.support import clean_environment

__all__ = ["ForkServer", "ForkedProcess", "forked_workers", "is_possible"]

_SERVER = Path(__file__).with_name("fork_server.py")


class ForkedProcess:
    """A child of the server, as ``subprocess.Popen`` shows its own: ``pid``, ``returncode``, ``wait``, ``kill``."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers
        self._lines = answers.makefile("r", encoding="ascii")
        self.pid = int(self._lines.readline())
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, negative for a signal; raises ``subprocess.TimeoutExpired`` after ``timeout`` seconds."""
        if self.returncode is None:
            if not select.select([self._answers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self.returncode = int(self._lines.readline())
            self._lines.close()
            self._answers.close()
        return self.returncode

    def kill(self) -> None:
        """End it at once, if it runs."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


class ForkServer:
    """A server for as long as this object lives; ``torch``: with torch and transformers loaded."""

    def __init__(self, *, torch: bool = False) -> None:
        self.environment = clean_environment()
        self._requests, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(_SERVER), str(theirs.fileno()), "torch" if torch else "-"],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=self.environment,
            )

    def start(self, code: str, arguments: Sequence[str], *, stdin: int, stdout: int, stderr: int) -> ForkedProcess:
        """Run ``code`` as ``python -c`` does, in this process's folder and environment, with these files."""
        ours, theirs = socket.socketpair()
        call = {
            "code": code,
            "arguments": list(arguments),
            "folder": os.getcwd(),
            "environment": dict(os.environ),
        }
        with theirs:
            socket.send_fds(self._requests, [b"!"], [stdin, stdout, stderr, theirs.fileno()])
        ours.sendall(json.dumps(call).encode("ascii") + b"\n")
        return ForkedProcess(ours)

    def close(self) -> None:
        """End the server, once the children that it is asked for are started."""
        self._requests.close()
        self._process.wait()


def is_possible(environment: dict[str, str]) -> bool:
    """Whether a fork is as good as a fresh interpreter: not where the environment asks for another kind of one."""

    def of_interpreter(variables: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in variables.items() if name.startswith("PYTHON") and name != "PYTHONPATH"}

    return hasattr(os, "fork") and of_interpreter(environment) == of_interpreter(clean_environment())


class _Worker(ForkedProcess):
    """A forked process with the ends of its pipes, as execnet wants it."""

    def __init__(self, server: ForkServer, code: str) -> None:
        their_input, our_output = os.pipe()
        our_input, their_output = os.pipe()
        forked = server.start(code, (), stdin=their_input, stdout=their_output, stderr=2)
        os.close(their_input)
        os.close(their_output)
        self.__dict__.update(forked.__dict__)
        self.stdin, self.stdout = os.fdopen(our_output, "wb"), os.fdopen(our_input, "rb")


_MASTER: Any = execnet.gateway_io.Popen2IOMaster


class _ForkedIO(_MASTER):  # type: ignore[misc]  # execnet has no types for it
    """What execnet makes of ``popen``: a forked process where that is possible."""

    server: ForkServer

    def __init__(self, arguments: list[str], execmodel: Any) -> None:
        if not is_possible(dict(os.environ)):
            super().__init__(arguments, execmodel)
            return
        self.popen = _Worker(self.server, arguments[-1])
        super(_MASTER, self).__init__(self.popen.stdin, self.popen.stdout, execmodel)


def forked_workers(server: ForkServer) -> type[Any]:
    """What ``execnet.gateway_io.Popen2IOMaster`` is to be, so that workers of sessions in this process are forked."""
    return type("ForkedIO", (_ForkedIO,), {"server": server})
