"""Facts about a model's files that take long to find out: their hash, which identifies the weights wherever they are
stored, and whether the tree of tokens is right for them.

An earlier session may have found out the second, and another process of this session either.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from pytest_llmeval.types import JSON

__all__ = ["FULL_READ_BYTES", "Digests", "Findings", "fingerprint_files"]


class Findings:
    """Facts that one process of a session has found out.

    :param right: the keys of earlier verdicts that the tree is right.
    :param keep: gets the key of each new one.
    :param folder: what the session's other processes on this machine find is there; None if there are no others.
    """

    def __init__(
        self, right: Collection[str] = (), *, keep: Callable[[str], None] | None = None, folder: Path | None = None
    ) -> None:
        self._right = set(right)
        self._keep = keep
        self._folder = folder

    def problem_of_tree(self, key: str, check: Callable[[], str | None]) -> str | None:
        """Return the result of ``check``, kept by ``key``: None if the tree is right, else what is wrong.

        Only that it is right outlasts the session. A problem may be one of the hour, as too little memory is: then the
        next session would be slow for no reason, and it would never be looked at again.
        """
        if key in self._right:
            return None
        problem = self.once(f"tree {key}", lambda: check() or "")
        if not problem:
            self._right.add(key)
            if self._keep is not None:
                self._keep(key)
        return problem or None

    def once(self, name: str, find: Callable[[], str]) -> str:
        """Return what ``find`` returns; one process of the session on this machine calls it, and the others wait."""
        if self._folder is None:
            return find()
        from filelock import FileLock

        path = self._folder / f"finding-{hashlib.sha256(name.encode()).hexdigest()}"
        try:
            lock = FileLock(path.with_suffix(".lock"), thread_local=False)
            lock.acquire()
        except (OSError, NotImplementedError):  # the folder has gone, or its file system has no locks
            return find()
        try:
            try:
                return path.read_text(encoding="utf-8")
            except (OSError, ValueError):
                found = find()
            _write(path, found)
            return found
        finally:
            lock.release()


def _write(path: Path, text: str) -> None:
    """Write a small file as a whole. Where that fails, the next process finds out for itself."""
    unfinished = path.with_suffix(f".{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)
    except (OSError, ValueError):  # or the text holds half of a surrogate pair
        return


FULL_READ_BYTES = 1 << 30
"""Files of up to 1 GiB are hashed whole; a larger one by its size, its first and last MiB, and 1,022 MiB evenly
between."""

_BLOCK = 1 << 20
_BUFFER = 16 << 20
"""Bytes that are read at once: while another thread runs Python, each read and each hash may wait 5 ms for its turn."""
_LARGE = 32 << 20
"""The size from which one process of a session hashes a file for all: smaller ones are hashed faster than shared."""


def fingerprint_files(
    files: Iterable[tuple[str, Path]],
    settings: JSON = None,
    *,
    digests: Digests | None = None,
) -> str:
    """Return SHA-256 (hex) over labelled files' content and ``settings`` (anything that JSON can hold).

    A label takes the place of the path, so that a copy in another folder has the same fingerprint. Large files are
    sampled at blocks that depend on the size alone: a change that misses every block is not seen. ``digests`` has what
    was hashed already. Raises ``OSError``.
    """
    digests = digests or Digests()
    total = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for label, path in sorted(files):
        total.update(f"\n{label}\n{path.stat().st_size}\n{digests.of(path)}".encode())
    return total.hexdigest()


class Digests:
    """The hashes of files, which ``begin`` starts to find in a thread of its own.

    A file that has changed since (by its size, its times or its inode) is hashed again. Files beyond
    ``full_read_bytes`` are sampled.
    """

    def __init__(self, findings: Findings | None = None, *, full_read_bytes: int = FULL_READ_BYTES) -> None:
        self._findings = findings or Findings()
        self._full_read_bytes = full_read_bytes
        self._known: dict[str, str] = {}
        self._thread: threading.Thread | None = None

    def begin(self, paths: Iterable[Path]) -> None:
        """Hash these files while the caller does other work; called once."""
        self._thread = threading.Thread(target=self._hash, args=(list(paths),), name="llmeval-digests", daemon=True)
        self._thread.start()

    def _hash(self, paths: Iterable[Path]) -> None:
        for path in paths:
            try:
                self._find(path)
            except OSError:  # whoever asks for it meets the same error
                return

    def of(self, path: Path) -> str:
        """Return the hash of one file (hex). Raises ``OSError``."""
        if self._thread is not None:
            self._thread.join()
        return self._find(path)

    def _find(self, path: Path) -> str:
        state = _state(path)
        if state not in self._known:
            self._known[state] = self._hash_once(path, state)
        return self._known[state]

    def _hash_once(self, path: Path, state: str) -> str:
        if path.stat().st_size < _LARGE:
            return _hash_file(path, self._full_read_bytes)
        name = f"sha256 {self._full_read_bytes} {state}"
        return self._findings.once(name, lambda: _hash_file(path, self._full_read_bytes))


def _state(path: Path) -> str:
    """Return values that change when the file does."""
    found = path.stat()
    return json.dumps([os.path.realpath(path), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns])


def _hash_file(path: Path, full_read_bytes: int) -> str:
    size = path.stat().st_size
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if size <= full_read_bytes:
            buffer = memoryview(bytearray(max(1, min(size, _BUFFER))))
            while num_read := file.readinto(buffer):
                digest.update(buffer[:num_read])
            return digest.hexdigest()
        num_blocks = max(2, full_read_bytes // _BLOCK)
        for i in range(num_blocks):
            file.seek(i * (size - _BLOCK) // (num_blocks - 1))
            digest.update(file.read(_BLOCK))
        return digest.hexdigest()
