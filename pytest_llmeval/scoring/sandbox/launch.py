"""Starts Python, or another command, in a sandbox: bubblewrap, a container of Docker or Podman, or none.

bubblewrap and containers give no network, a read-only system, an empty folder, bounds on processes and memory, and an
end to all processes with the first. Without one, time, memory and the size of files are bounded, and no more.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

__all__ = ["SANDBOXES", "CodeSandbox", "SandboxError", "allow_code", "allowed_sandbox", "find_sandbox", "parse_sandbox"]

SANDBOXES = ("auto", "bubblewrap", "docker", "none")
_CONTAINERS: tuple[Literal["docker", "podman"], ...] = ("docker", "podman")
_MAX_PROCESSES = 64
_FOLDER_BYTES = 64 * 1024 * 1024
_IMAGE = "python:3.11-slim"
_PROBE_S = 60.0
_END_S = 10.0
_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_NOBODY = 65534
_EXTRA_MB = 64
"""The interpreters around a program need this much memory, which a container has beside the bound of the program."""
_session = uuid.uuid4().hex[:12]
_numbers = itertools.count(1)


class SandboxError(Exception):
    """A sandbox that cannot be used here, with the reason in one line."""


@dataclass(frozen=True, slots=True)
class CodeSandbox:
    """A way to start processes apart: ``command`` stands before the command that is to run, and ``python`` is Python
    there. Containers are of ``image``. ``weakness`` is what the sandbox does not bound on this machine.
    """

    kind: Literal["bubblewrap", "docker", "podman", "none"]
    command: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    image: str = ""
    weakness: str | None = None

    @contextmanager
    def started(self, code: str, *, memory_mb: int, seconds: float = math.inf) -> Iterator[subprocess.Popen[bytes]]:
        """Start Python with this code; afterwards nothing of it is left, and after ``seconds`` not in any case.

        The memory is that of a whole container; elsewhere each process has its own bound, which it sets itself.
        """
        command, container = [*self.command], None
        if self.kind != "bubblewrap":  # which ends with pytest by itself
            parent = os.getpid() if self.kind == "none" else 0
            code = f"SECONDS, PARENT = float({str(seconds)!r}), {parent}\n{_guard()}\n{code}"
        if self.image:
            container = f"llmeval-{_session}-{os.getpid()}-{next(_numbers)}"
            memory = f"{memory_mb + _EXTRA_MB}m"
            command += [f"--name={container}", f"--memory={memory}", f"--memory-swap={memory}", self.image]
        with (
            self._folder() as folder,
            self._running([*command, *self.python, "-c", code], folder, container) as process,
        ):
            yield process

    @contextmanager
    def _folder(self) -> Iterator[str | None]:
        """Make an empty folder; bubblewrap and containers have their own."""
        if self.kind != "none":
            yield None
            return
        with tempfile.TemporaryDirectory(prefix="llmeval-code-", ignore_cleanup_errors=True) as folder:
            yield folder

    @contextmanager
    def _running(
        self, command: Sequence[str], folder: str | None, container: str | None
    ) -> Iterator[subprocess.Popen[bytes]]:
        environment = {"PATH": f"/usr/local/bin:{os.defpath}", "LANG": "C.UTF-8", "HOME": folder or "/"}
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=environment if container is None else None,  # the client of a container needs what the user has
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if container is not None:
                self._end_container(container, process)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):
                    if stream is not None:
                        stream.close()
            process.wait()

    def _end_container(self, container: str, process: subprocess.Popen[bytes]) -> None:
        """End a container, which does not end with its client."""
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [self.command[0], "kill", container],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_END_S,
            )
            process.wait(_END_S)  # the client removes it


@cache
def _guard() -> str:
    return (
        Path(__file__)
        .with_name("guard_side.py")
        .read_text(encoding="utf-8")
        .replace("from __future__ import annotations\n", "")
    )


def parse_sandbox(value: str) -> str:
    """Return a value of ``--llm-sandbox``. Raises ``ValueError`` for another."""
    kind, colon, image = value.partition(":")
    if kind not in SANDBOXES or (colon and (kind != "docker" or not image or image != image.strip())):
        raise ValueError("expected auto, bubblewrap, docker, docker:IMAGE or none")
    return value


@cache
def find_sandbox(value: str) -> CodeSandbox:
    """Return the sandbox of this kind, or of this image (``docker:IMAGE``), having seen that it starts. Raises
    ``SandboxError``.

    ``auto`` is bubblewrap, else Docker or Podman; never none.
    """
    kind, _, image = value.partition(":")
    if kind == "none":
        return CodeSandbox("none", python=_python(sys.executable))
    makers: dict[str, Callable[[], CodeSandbox]] = {
        "bubblewrap": _bubblewrap,
        "docker": lambda: _container(image or _IMAGE),
    }
    reasons = []
    for name in makers if kind == "auto" else (kind,):
        try:
            return makers[name]()
        except SandboxError as error:
            reasons.append(str(error))
    raise SandboxError("; ".join(reasons))


_allowed: list[CodeSandbox] = []


def allow_code(value: str = "auto") -> CodeSandbox:
    """Let code of replies run in this process's sessions, in this sandbox. Raises ``SandboxError``."""
    _allowed[:] = [find_sandbox(value)]
    return _allowed[0]


def allowed_sandbox() -> CodeSandbox | None:
    """Return the sandbox in which code may run; None where nobody has allowed that."""
    return _allowed[0] if _allowed else None


def _python(path: str) -> tuple[str, ...]:
    """Return the command of a Python that reads no settings of the user's, and no packages."""
    return (path, "-I", "-S")


def _bubblewrap() -> CodeSandbox:
    path = shutil.which("bwrap")
    if path is None:
        raise SandboxError(
            "bubblewrap is not installed (the command bwrap, version 0.8 or newer; Debian's package bubblewrap)"
        )
    prefix = os.path.realpath(sys.base_prefix)
    python = _python(os.path.join(prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"))
    if os.geteuid() != 0:
        return _probed(CodeSandbox("bubblewrap", _bubblewrap_command(path, prefix, prefix), python))
    # The kernel bounds no processes of root's, in whatever namespace: bubblewrap has to be another user's.
    as_nobody = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--"]
    with suppress(SandboxError):
        return _probed(CodeSandbox("bubblewrap", (*as_nobody, *_bubblewrap_command(path, prefix, prefix)), python))
    # Python may lie below root's home, which nobody else can enter: they find it at another place. No process stays
    # between pytest and bubblewrap, which would not end with one that may not send a signal to another user's.
    place = "/tmp"
    shown = ["unshare", "--mount", "--", "sh", "-c", 'mount --bind "$0" /tmp && exec "$@"', prefix, *as_nobody]
    with suppress(SandboxError):
        return _probed(CodeSandbox("bubblewrap", (*shown, *_bubblewrap_command(path, place, prefix)), python))
    weakness = (
        "the number of processes is not bounded, since pytest runs as root, and no other user can start bubblewrap"
    )
    return _probed(CodeSandbox("bubblewrap", _bubblewrap_command(path, prefix, prefix), python, weakness=weakness))


def _bubblewrap_command(path: str, place: str, prefix: str) -> tuple[str, ...]:
    """Return the command that a command in bubblewrap follows. Python lies at ``place``, and there at ``prefix``."""
    command = [path, "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"]
    command += ["--cap-drop", "ALL"]
    for folder in _FOLDERS:
        if os.path.islink(folder):
            command += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            command += ["--ro-bind", folder, folder]
    if not prefix.startswith("/usr/"):
        command += ["--ro-bind", place, prefix]
    command += [
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--size",
        str(_FOLDER_BYTES),
        "--tmpfs",
        "/work",
        "--chdir",
        "/work",
    ]
    command += ["--remount-ro", "/dev", "--remount-ro", "/"]
    command += ["--setenv", "HOME", "/work", "--setenv", "LLMEVAL_MAX_PROCESSES", str(_MAX_PROCESSES), "--"]
    return tuple(command)


def _container(image: str) -> CodeSandbox:
    reasons = []
    for kind in _CONTAINERS:
        if shutil.which(kind) is None:
            continue
        command = [kind, "run", "--rm", "--init", "--interactive", "--log-driver=none", "--network=none", "--read-only"]
        command += ["--cap-drop=ALL", "--security-opt=no-new-privileges", f"--user={_NOBODY}:{_NOBODY}"]
        command += [f"--pids-limit={_MAX_PROCESSES}", f"--tmpfs=/work:rw,size={_FOLDER_BYTES},mode=1777"]
        command += ["--workdir=/work", "--env=HOME=/work"]
        try:
            return _probed(CodeSandbox(kind, tuple(command), _python("python3"), image))
        except SandboxError as error:
            reasons.append(str(error))
    raise SandboxError("; ".join(reasons) or "neither docker nor podman is installed")


def _probed(sandbox: CodeSandbox) -> CodeSandbox:
    """Return the sandbox. Raises ``SandboxError`` if it does not start Python."""
    command = [*sandbox.command, *filter(None, [sandbox.image]), *sandbox.python, "-c", "print('it runs')"]
    done: subprocess.CompletedProcess[str] | None = None
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROBE_S)
        said = [line for line in done.stderr.strip().splitlines() if line.strip() and "--help" not in line]
        why = (said or [f"exit code {done.returncode}"])[-1].strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    if done is None or done.stdout != "it runs\n":
        raise SandboxError(f"{sandbox.kind} does not start: {why}")
    return sandbox
