"""One session or command in a fork of ``tests/fork_server.py``, with bounds, and a record of what it reaches for.

Its text is what the fork runs, so that no module called ``tests`` is loaded there. The argument is JSON: ``kind``
(``pytest`` or ``llmeval``), ``arguments``, ``environment``, ``result`` (a file for what is found), ``roots`` (folders
that may be read), ``own`` (the folder of the case, in which it runs) and ``modules`` (Python files of it that are the
user's own, and may be run).

The result has ``status`` (None where it was killed before its end), ``processor_s`` and ``peak_bytes`` (of the process
and its children), ``reached`` (files read outside of the roots, hosts) and ``ran`` (programs started, code of other
files run).
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import tempfile
from typing import Any

MOST_ADDRESS_SPACE = 12 << 30
MOST_PROCESSOR_S = 40
"""Bounds of what a mutant can do to this machine; the campaign counts from lower ones on."""

SYSTEM = ("/dev/", "/proc/", "/sys/", "/usr/", "/lib", "/bin/", "/etc/ssl", "/etc/ld.so", "/etc/localtime")
SYSTEM_FILES = ("/etc/mime.types", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf")
FORKS_OF_OURS = ("bounded_worker.py",)
ORIGIN = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false"]
"""How git is asked for the commit of a report, so that it runs no program that the repository's settings name."""

STARTS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn", "os.forkpty")
READS = ("open", "os.listdir", "os.scandir", "glob.glob")
HEARD = frozenset(
    (*STARTS, *READS, "subprocess.Popen", "exec", "pickle.find_class", "socket.connect", "socket.getaddrinfo")
)


class Watch:
    """What audit events say that is not expected."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.roots = tuple(spec["roots"])
        self.own = spec["own"]
        self.plain = tuple(root for root in self.roots if "site-packages" in root)
        self.modules = tuple(os.path.join(self.own, name) for name in spec["modules"])
        self.reached: list[str] = []
        self.ran: list[str] = []
        self.is_on = True
        self.is_busy = False

    def event(self, name: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook."""
        if name not in HEARD or not self.is_on or self.is_busy:
            return
        self.is_busy = True
        try:
            self._event(name, arguments)
        except Exception as error:  # a hook must not raise: the event would not happen
            self.ran.append(f"{name}: {error!r}")
        finally:
            self.is_busy = False

    def _event(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name in READS:
            self._opened(arguments[0])
        elif name in STARTS:
            self.ran.append(f"{name} {arguments[:1]!r}")
        elif name == "subprocess.Popen":
            command = [os.fspath(part) for part in arguments[1]]
            is_known = command == ["uname", "-p"] or command[: len(ORIGIN)] == ORIGIN
            if not is_known and not any(str(part).endswith(FORKS_OF_OURS) for part in command):
                self.ran.append(f"{name} {command!r}")
        elif name == "exec":
            file = getattr(arguments[0], "co_filename", "")
            is_own = file.startswith(self.own + os.sep)
            is_known = file in self.modules if is_own else file.startswith((*self.roots, *SYSTEM))
            if os.path.isabs(file) and not is_known:
                self.ran.append(f"code of {file}")
        elif name == "pickle.find_class":
            self.ran.append(f"pickle of {arguments!r}")
        elif name == "socket.connect":
            address = arguments[1]
            if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
                self.reached.append(f"host {address!r}")
        elif name == "socket.getaddrinfo" and arguments[0] not in (None, "127.0.0.1", "::1", "localhost", b"127.0.0.1"):
            self.reached.append(f"host {arguments[0]!r}")

    def _opened(self, path: object) -> None:
        if not isinstance(path, str | bytes) or not path:
            return
        text = os.fsdecode(path)
        if text.startswith(self.plain) and ".." not in text:
            return  # most are libraries'
        real = os.path.realpath(text)
        if not real.startswith((*self.roots, *SYSTEM)) and real not in SYSTEM_FILES and real + os.sep not in self.roots:
            self.reached.append(real)


def soon_again() -> None:
    """Waits between tries of a server are what docs/servers.md says; here they take no time."""
    import asyncio

    from pytest_llmeval.models.servers.client import Client

    async def sleep(delay_s: float) -> None:
        await asyncio.sleep(min(delay_s, 0.01))

    defaults: dict[str, Any] = Client.__init__.__kwdefaults__ or {}
    defaults.update(sleep=sleep, jitter=lambda: 0.0)


def main() -> object:
    """Run it; the exit status."""
    spec = json.loads(sys.argv[1])
    os.setsid()
    os.chdir(spec["own"])
    os.environ.clear()
    os.environ.update(spec["environment"])
    tempfile.tempdir = None  # that of the environment
    for kind, bound in ((resource.RLIMIT_AS, MOST_ADDRESS_SPACE), (resource.RLIMIT_CPU, MOST_PROCESSOR_S)):
        resource.setrlimit(kind, (bound, bound))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    soon_again()
    watch = Watch(spec)
    status: object = None
    sys.addaudithook(watch.event)
    try:
        if spec["kind"] == "pytest":
            import pytest

            status = int(pytest.main(spec["arguments"]))
        else:
            from pytest_llmeval.cli import main as command

            sys.argv = ["llmeval", *spec["arguments"]]
            status = command(spec["arguments"])
    except SystemExit as stop:
        status = stop.code
        raise
    finally:
        watch.is_on = False
        with contextlib.suppress(ValueError, OSError):
            sys.stdout.flush()
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        found = {
            "status": status,
            "processor_s": sum(one.ru_utime + one.ru_stime for one in used),
            "peak_bytes": max(one.ru_maxrss for one in used) * 1024,
            "reached": watch.reached,
            "ran": watch.ran,
        }
        with open(spec["result"], "w", encoding="utf-8") as file:
            json.dump(found, file)
    return status


if __name__ == "__main__":
    sys.exit(main())  # type: ignore[arg-type]
