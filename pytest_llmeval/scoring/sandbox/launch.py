"""Starts Python, or another command, in a sandbox: bubblewrap, a container of Docker or Podman, or none.

bubblewrap and containers give no network, a read-only system, an empty folder, bounds on processes and memory, and an
end to all processes with the first. Without one, time, memory and the size of files are bounded, and no more.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, TypeAlias

__all__ = ["SANDBOXES", "CodeSandbox", "SandboxError", "SandboxKind", "allow_code", "allowed_sandbox", "find_sandbox"]

SandboxKind: TypeAlias = Literal["auto", "bubblewrap", "docker", "none"]
SANDBOXES: tuple[SandboxKind, ...] = ("auto", "bubblewrap", "docker", "none")
_MAX_PROCESSES = 64
_FOLDER_BYTES = 64 * 1024 * 1024
_IMAGE = "python:3.11-slim"
_PROBE_S = 60.0
_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")


class SandboxError(Exception):
    """A sandbox that cannot be used here, with the reason in one line."""


@dataclass(frozen=True, slots=True)
class CodeSandbox:
    """A way to start processes apart: ``command`` stands before the command that is to run, and ``python`` is Python
    there.
    """

    kind: Literal["bubblewrap", "docker", "podman", "none"]
    command: Sequence[str] = ()
    python: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def started(self, code: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start Python with this code; afterwards nothing of it is left."""
        with self._folder() as folder, self._running([*self.command, *self.python, "-c", code], folder) as process:
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
    def _running(self, command: Sequence[str], folder: str | None) -> Iterator[subprocess.Popen[bytes]]:
        environment = {"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": folder or "/", **self.environment}
        if self.kind in ("docker", "podman"):  # its client needs what the user has
            environment = dict(os.environ)
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):
                    if stream is not None:
                        stream.close()
            process.wait()


@cache
def find_sandbox(kind: SandboxKind) -> CodeSandbox:
    """Return the sandbox of this kind, having seen that it starts. Raises ``SandboxError``.

    ``auto`` is bubblewrap, else Docker or Podman; never none.
    """
    if kind == "none":
        return CodeSandbox("none", python=_python(sys.executable))
    makers = {"bubblewrap": _bubblewrap, "docker": _docker}
    reasons = []
    for name in makers if kind == "auto" else (kind,):
        try:
            return makers[name]()
        except SandboxError as error:
            reasons.append(str(error))
    raise SandboxError("; ".join(reasons))


_allowed: list[CodeSandbox] = []


def allow_code(kind: SandboxKind = "auto") -> CodeSandbox:
    """Let code of replies run in this process's sessions, in a sandbox of this kind. Raises ``SandboxError``."""
    _allowed[:] = [find_sandbox(kind)]
    return _allowed[0]


def allowed_sandbox() -> CodeSandbox | None:
    """Return the sandbox in which code may run; None where nobody has allowed that."""
    return _allowed[0] if _allowed else None


def _python(path: str) -> list[str]:
    """Return the command of a Python that reads no settings of the user's, and no packages."""
    return [path, "-I", "-S"]


def _bubblewrap() -> CodeSandbox:
    path = shutil.which("bwrap")
    if path is None:
        raise SandboxError(
            "bubblewrap is not installed (the command bwrap, version 0.8 or newer; Debian's package bubblewrap)"
        )
    command = [path, "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"]
    command += ["--cap-drop", "ALL"]
    for folder in _FOLDERS:
        if os.path.islink(folder):
            command += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            command += ["--ro-bind", folder, folder]
    prefix = os.path.realpath(sys.base_prefix)
    if not prefix.startswith("/usr/"):
        command += ["--ro-bind", prefix, prefix]
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
    python = os.path.join(prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    sandbox = CodeSandbox("bubblewrap", command, _python(python))
    _probe(sandbox)
    return sandbox


def _docker() -> CodeSandbox:
    name = next((name for name in ("docker", "podman") if shutil.which(name)), None)
    if name is None:
        raise SandboxError("neither docker nor podman is installed")
    kind: Literal["docker", "podman"] = "podman" if name == "podman" else "docker"
    image = os.environ.get("LLMEVAL_SANDBOX_IMAGE", _IMAGE)
    command = [name, "run", "--rm", "--interactive", "--network=none", "--read-only", "--cap-drop=ALL"]
    command += ["--security-opt=no-new-privileges", "--user=65534:65534", f"--pids-limit={_MAX_PROCESSES}"]
    command += [f"--tmpfs=/work:rw,size={_FOLDER_BYTES},mode=1777", "--workdir=/work", "--env=HOME=/work", image]
    sandbox = CodeSandbox(kind, command, _python("python3"))
    _probe(sandbox)
    return sandbox


def _probe(sandbox: CodeSandbox) -> None:
    """Raise ``SandboxError`` if the sandbox does not start Python."""
    done: subprocess.CompletedProcess[str] | None = None
    try:
        done = subprocess.run(
            [*sandbox.command, *sandbox.python, "-c", "print('it runs')"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
        )
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    if done is None or done.stdout != "it runs\n":
        raise SandboxError(f"{sandbox.kind} does not start: {why}")
