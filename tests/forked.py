"""Processes by fork for the sessions that tests start: ``tests/fork_server.py`` as an object."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import ForkedProcess, fork, forked_workers, is_possible
from tests.support import clean_environment

__all__ = ["ForkServer"]

_SERVER = Path(__file__).with_name("fork_server.py")

_RUN_PYTEST = "import runpy; runpy.run_module('pytest', run_name='__main__', alter_sys=True)"
_RUN_LLMEVAL = "import sys; from pytest_llmeval.cli import main; sys.argv[0] = 'llmeval'; sys.exit(main())"


class ForkServer:
    """A server for as long as this object lives; ``torch``: with torch and transformers loaded. ``modules`` are loaded
    as well.
    """

    def __init__(self, *, torch: bool = False, modules: Sequence[str] = ()) -> None:
        self.environment = clean_environment()
        self._requests, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(_SERVER), str(theirs.fileno()), "torch" if torch else "-", *modules],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=self.environment,
            )

    def start(self, code: str, arguments: Sequence[str], *, stdin: int, stdout: int, stderr: int) -> ForkedProcess:
        """Run ``code`` as ``python -c`` does, in this process's folder and environment, with these files."""
        return fork(self._requests, code, arguments, (stdin, stdout, stderr))

    def start_pytest(
        self, arguments: Sequence[str], *, folder: Path, environment: dict[str, str], output: int, before: str = ""
    ) -> ForkedProcess:
        """Run ``python -m pytest`` in this folder and environment, its workers forked too; ``before`` is run first."""
        code = f"{before}\n{_RUN_PYTEST}"
        with open(os.devnull, "rb") as nothing:
            files = (nothing.fileno(), output, output)
            return fork(
                self._requests,
                code,
                arguments,
                files,
                environment=environment,
                folder=str(folder),
                forks_workers=True,
            )

    def workers(self) -> type[Any]:
        """What ``execnet.gateway_io.Popen2IOMaster`` is to be, so that sessions in this process fork their workers."""
        return forked_workers(self._requests, self.environment)

    def popen_of(self, pytester: pytest.Pytester) -> Any:
        """Return a ``pytester.popen`` that forks ``python -m pytest``, its workers and ``llmeval`` where it can."""
        fresh = pytester.popen

        def popen(
            arguments: Sequence[str], stdout: Any, stderr: Any, stdin: Any = pytester.CLOSE_STDIN, **more: Any
        ) -> Any:
            is_pytest, is_llmeval = list(arguments[:2]) == [sys.executable, "-mpytest"], arguments[0] == "llmeval"
            is_forked = (is_pytest or is_llmeval) and stdin is pytester.CLOSE_STDIN and not more
            if not is_forked or not is_possible(dict(os.environ), self.environment):
                return fresh(arguments, stdout=stdout, stderr=stderr, stdin=stdin, **more)
            folders = [os.getcwd(), os.environ.get("PYTHONPATH", "")]
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, folders))}
            files = [file if isinstance(file, int) else file.fileno() for file in (stdout, stderr)]
            with open(os.devnull, "rb") as nothing:
                return fork(
                    self._requests,
                    _RUN_PYTEST if is_pytest else _RUN_LLMEVAL,
                    [str(one) for one in arguments[2 if is_pytest else 1 :]],
                    (nothing.fileno(), files[0], files[1]),
                    environment=environment,
                    forks_workers=is_pytest,
                )

        return popen

    def close(self) -> None:
        """End the server, once the children that it is asked for are started."""
        self._requests.close()
        self._process.wait()
