"""A process that has loaded what sessions of pytest need, and forks a child for each one that is to run on its own.

To start an interpreter and to load pytest, the plugin and its libraries takes a second; to fork one that has them, a
hundredth. The child is a process of its own: it may die, be killed, and change what it likes. What a fresh interpreter
alone shows (what is loaded when, what ``PYTHON...`` variables do) is for tests that start one.

Run as a file, so that no module called ``tests`` is loaded in its children: ``fork_server.py SOCKET TORCH MODULE …``,
the number of a socket that it inherits, ``torch`` or ``-``, and what else to load. Each message on it carries stdin,
stdout, stderr, and a socket with the call as JSON, ``{"code", "arguments", "folder", "environment"}``, on which the
child's number and, in the end, its exit status are answered, a line each. A fifth file is the other end of ``SOCKET``:
with it the child has the workers of its pytest-xdist forked too.

The asking side is here as well, for the tests and for such children: ``fork`` and ``forked_workers``.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import gc
import importlib
import importlib.metadata
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import _pytest._code.source
import execnet.gateway_io
import pluggy
import pytest
from _pytest.fixtures import FixtureFunctionDefinition, FixtureManager

__all__ = [
    "NEEDS_TORCH",
    "PRELOADED",
    "ForkedProcess",
    "fork",
    "forked_workers",
    "is_possible",
    "remember",
]

PRELOADED = (
    *("execnet", "execnet.gateway_io", "xdist.dsession", "xdist.looponfail", "xdist.remote", "xdist.workermanage"),
    *("jinja2", "jsonschema", "numpy", "pydantic", "regex", "tabulate", "yaml"),
    *("scipy.optimize", "scipy.special", "scipy.stats"),
)
NEEDS_TORCH = "pytest_llmeval.models.huggingface"
"""Modules of this folder load torch and transformers."""


def remember() -> None:
    """Find only once in this process what is the same for all its sessions: half of a short session's time.

    These are what is installed, which of a module's names are fixtures and hooks, and the syntax trees of files that
    appear in tracebacks.
    """
    for name in ("metadata", "entry_points", "files", "_normalized_name"):
        if hasattr(importlib.metadata.PathDistribution, name):  # the last one is newer than some of Python's versions
            setattr(importlib.metadata.PathDistribution, name, property(_remembered(name)))
    FixtureManager.parsefactories = _fixtures_only(FixtureManager.parsefactories)  # type: ignore[method-assign]
    vars(_pytest._code.source)["ast"] = _RememberingAst()
    with contextlib.suppress(AttributeError):  # older versions of pluggy look at a name only once, and not that closely
        manager: Any = pluggy._manager
        manager._static_hook_attr = _once_for_modules(manager._static_hook_attr)


def _fixtures_only(parse: Callable[..., None]) -> Callable[..., None]:
    """``FixtureManager.parsefactories`` that sees only the fixtures of a plugin: it inspects each name it finds."""
    only_fixtures = weakref.WeakKeyDictionary[Any, types.ModuleType]()

    def parsefactories(manager: FixtureManager, *arguments: Any, **named: Any) -> None:
        holder = named.get("holder")
        is_module = isinstance(holder, types.ModuleType)
        owner: Any = holder if is_module else type(holder)
        if owner not in only_fixtures:
            names = [pair for base in ([owner] if is_module else owner.__mro__) for pair in vars(base).items()]
            only_fixtures[owner] = types.ModuleType(owner.__name__)
            vars(only_fixtures[owner]).update(pair for pair in names if isinstance(pair[1], FixtureFunctionDefinition))
        if is_module:
            named["holder"] = only_fixtures[owner]
        if is_module or arguments or has_fixtures(only_fixtures[owner]):
            parse(manager, *arguments, **named)

    def has_fixtures(module: types.ModuleType) -> bool:
        return any(isinstance(value, FixtureFunctionDefinition) for value in vars(module).values())

    return parsefactories


def _once_for_modules(look: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """``look`` that answers from what it found before, for modules: these are what they were in the last session."""
    found = weakref.WeakKeyDictionary[types.ModuleType, dict[str, Any]]()

    def look_once(plugin: Any, name: str) -> Any:
        if not isinstance(plugin, types.ModuleType):
            return look(plugin, name)
        of_plugin = found.setdefault(plugin, {})
        if name not in of_plugin:
            of_plugin[name] = look(plugin, name)
        return of_plugin[name]

    return look_once


class _RememberingAst(types.ModuleType):
    """The module ``ast`` for pytest's tracebacks, with a ``parse`` that has each text's tree only once."""

    def __init__(self) -> None:
        super().__init__("ast")
        vars(self).update(vars(ast), parse=functools.cache(ast.parse))


def _remembered(name: str) -> Callable[[Any], Any]:
    read = getattr(importlib.metadata.Distribution, name).fget
    known: dict[str, Any] = {}

    def get(distribution: Any) -> Any:
        folder = str(distribution._path)
        if folder not in known:
            known[folder] = read(distribution)
        return known[folder]

    return get


class ForkedProcess:
    """A child of the server, as ``subprocess.Popen`` shows its own: ``pid``, ``returncode``, ``wait``, ``kill``."""

    stdin: Any = None
    stdout: Any = None

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


def fork(
    requests: socket.socket,
    code: str,
    arguments: Sequence[str],
    files: tuple[int, int, int],
    *,
    environment: dict[str, str] | None = None,
    folder: str | None = None,
    forks_workers: bool = False,
) -> ForkedProcess:
    """Run ``code`` as ``python -c`` does, in a child of the server at the other end of ``requests``.

    Folder and environment are this process's unless others are given.

    :param files: stdin, stdout and stderr.
    :param forks_workers: the workers of its pytest-xdist are forked from the same server.
    """
    ours, theirs = socket.socketpair()
    call = {
        "code": code,
        "arguments": list(arguments),
        "folder": os.getcwd() if folder is None else folder,
        "environment": dict(os.environ) if environment is None else environment,
    }
    with theirs:
        passed = [*files, theirs.fileno(), *([requests.fileno()] if forks_workers else [])]
        socket.send_fds(requests, [b"!"], passed)
    ours.sendall(json.dumps(call).encode("ascii") + b"\n")
    return ForkedProcess(ours)


def is_possible(environment: dict[str, str], server: dict[str, str]) -> bool:
    """Whether a fork is as good as a fresh interpreter: not where ``environment`` asks for another kind of interpreter
    than the environment of the server.
    """

    def of_interpreter(variables: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in variables.items() if name.startswith("PYTHON") and name != "PYTHONPATH"}

    return hasattr(os, "fork") and of_interpreter(environment) == of_interpreter(server)


_MASTER: Any = execnet.gateway_io.Popen2IOMaster


class _ForkedIO(_MASTER):  # type: ignore[misc]  # execnet has no types for it
    """What execnet makes of ``popen``: a forked process where that is possible."""

    requests: socket.socket
    server_environment: dict[str, str]

    def __init__(self, arguments: list[str], execmodel: Any) -> None:
        if not is_possible(dict(os.environ), self.server_environment):
            super().__init__(arguments, execmodel)
            return
        their_input, our_output = os.pipe()
        our_input, their_output = os.pipe()
        self.popen = fork(self.requests, arguments[-1], (), (their_input, their_output, 2))
        os.close(their_input)
        os.close(their_output)
        self.popen.stdin, self.popen.stdout = os.fdopen(our_output, "wb"), os.fdopen(our_input, "rb")
        super(_MASTER, self).__init__(self.popen.stdin, self.popen.stdout, execmodel)


def forked_workers(requests: socket.socket, server_environment: dict[str, str]) -> type[Any]:
    """What ``execnet.gateway_io.Popen2IOMaster`` is to be, so that workers of sessions in this process are forked."""
    return type("ForkedIO", (_ForkedIO,), {"requests": requests, "server_environment": server_environment})


class _Preloads:
    """Loads everything in a session of pytest, whose assertion rewriting is what later sessions find."""

    def __init__(self, *, torch: bool, modules: Sequence[str]) -> None:
        self._torch = torch
        self._modules = modules

    def pytest_configure(self) -> None:
        """Load what every session needs."""
        import pytest_llmeval

        for name in (*PRELOADED, *self._modules):
            importlib.import_module(name)
        for info in pkgutil.walk_packages(pytest_llmeval.__path__, "pytest_llmeval."):
            if self._torch or not info.name.startswith(NEEDS_TORCH):
                importlib.import_module(info.name)
        if self._torch:
            for name in ("torch", "transformers", "tokenizers", "safetensors.torch"):
                importlib.import_module(name)


def main() -> None:
    """Serve until the other end of the socket closes."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    environment = dict(os.environ)
    del sys.path[0]  # the folder of this file
    remember()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(folder)
        arguments = ["-qq", "--collect-only", "-p", "no:cacheprovider", "--rootdir", folder, folder]
        pytest.main(arguments, plugins=[_Preloads(torch=sys.argv[2] == "torch", modules=sys.argv[3:])])
        os.chdir("/")
    gc.collect()
    gc.freeze()
    setattr(gc, "get_freeze_count", lambda: sys.maxsize)  # noqa: B010  # each session asks, and counting takes 20 ms
    while True:
        message, files, _, _ = socket.recv_fds(requests, 1, 5)
        if not message:
            return
        if os.fork() == 0:
            requests.close()
            _serve(files, environment)
        for file in files:
            os.close(file)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def _serve(files: list[int], server_environment: dict[str, str]) -> None:
    """Fork the process that was asked for, and answer its number and how it ended; ends in both processes."""
    answers = files.pop(3)
    with open(answers, encoding="ascii", closefd=False) as lines:
        line = lines.readline()
    if not line:  # whoever asked for the process was killed meanwhile
        os._exit(0)
    call = json.loads(line)
    child = os.fork()
    if child == 0:
        os.close(answers)
        if len(files) == 4:
            workers = forked_workers(socket.socket(fileno=files.pop()), server_environment)
            execnet.gateway_io.Popen2IOMaster = workers  # type: ignore[misc]
        _run(call, files)
    for file in files:
        os.close(file)
    with contextlib.suppress(BrokenPipeError, ConnectionError):
        os.write(answers, b"%d\n" % child)
    status = os.waitpid(child, 0)[1]
    with contextlib.suppress(BrokenPipeError, ConnectionError):
        os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _run(call: dict[str, Any], files: list[int]) -> NoReturn:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(call["environment"])
    os.chdir(call["folder"])
    sys.argv = ["-c", *call["arguments"]]
    sys.path[:0] = ["", *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    # What the workers of its pytest-xdist get is what was found when that was loaded, by the session in ``main``.
    sys.modules["xdist.plugin"]._sys_path[:] = sys.path
    sys.stdin, sys.stdout = os.fdopen(0, encoding="utf-8"), os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace")
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    status: object = 0
    try:
        exec(call["code"], module.__dict__)
    except SystemExit as stop:
        status = stop.code
    except BaseException:
        traceback.print_exc()
        status = 1
    # What an interpreter does at its end, without taking all modules apart, which takes longer than all else here.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if isinstance(status, str):
        sys.stderr.write(f"{status}\n")
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


if __name__ == "__main__":
    main()
