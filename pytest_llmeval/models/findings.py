"""What was found out about models before, so that it is not found out again.

By an earlier session: that the tree is right for a model. By another process of this session: that, and the hash of a
large file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection
from pathlib import Path

__all__ = ["Findings"]


class Findings:
    """Facts that one process of a session has found out.

    :param right: the keys of earlier verdicts that the tree is right.
    :param keep: gets the key of each new one.
    :param folder: what the session's other processes on this machine find is there; None where there are no others.
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
