"""The ``llmeval store`` command's work on a store: look at it, check it, make it smaller.

A file is never changed in its place: what is to stay is copied into a new one, which is whole before the others go. A
file that grows meanwhile, as another process writes to it, stays.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.inference.store.folder import create_file, data_files, lines_of, new_path, order_of, write_whole
from pytest_llmeval.inference.store.lines import decode_line, read_head

__all__ = ["Cleared", "StoreEntry", "Survey", "clear", "damages", "survey"]

_ABANDONED_AFTER_S = 3600.0
"""A temporary file that was not written for so long was left by a command that was killed."""
_TRIES = 20


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """One reply: where it stands, its bytes, what the user called the model, and when it was asked (Unix, s)."""

    path: Path
    offset: int
    size: int
    name: str
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The newest reply to each request of a store, and what lies there besides.

    ``sizes`` are the bytes of each file, and ``ends`` how many of these are whole lines. ``num_replaced`` replies gave
    way to newer ones, ``num_damaged`` lines cannot be read, and ``num_torn`` files end with what a killed process has
    not finished.
    """

    sizes: dict[Path, int]
    ends: dict[Path, int]
    entries: Sequence[StoreEntry]
    num_replaced: int
    num_damaged: int
    num_torn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """The outcome of ``clear``: what it found, which entries it removed, and how many files stay as they have grown."""

    found: Survey
    gone: set[StoreEntry]
    num_grown: int


def survey(folder: Path) -> Survey:
    """Read a store. Raises ``LLMEvalError`` if it cannot be read."""
    newest: dict[int, StoreEntry] = {}
    sizes: dict[Path, int] = {}
    ends: dict[Path, int] = {}
    num_lines, num_damaged, now = 0, 0, time.time()
    for path, file in _opened(folder):
        sizes[path], ends[path] = os.fstat(file.fileno()).st_size, 0
        for offset, line in lines_of(file):
            ends[path] += len(line)
            num_lines += 1
            if (head := read_head(line)) is None:
                num_damaged += 1
            elif (known := newest.get(head.number)) is None or order_of(head.time, now) >= order_of(known.time, now):
                newest[head.number] = StoreEntry(path, offset, len(line), _model_name(line), head.time)
    return Survey(
        sizes=sizes,
        ends=ends,
        entries=list(newest.values()),
        num_replaced=num_lines - num_damaged - len(newest),
        num_damaged=num_damaged,
        num_torn=sum(ends[path] < size for path, size in sizes.items()),
    )


def _model_name(line: bytes) -> str:
    try:
        return str(json.loads(line)["name"])
    except (ValueError, KeyError, RecursionError):  # another version's
        return "?"


def damages(folder: Path) -> Iterator[str]:
    """Yield ``file:line: why`` for each line that holds no reply. Raises ``LLMEvalError`` as ``survey`` does."""
    for path, file in _opened(folder):
        for number, (_, line) in enumerate(lines_of(file), start=1):
            try:
                decode_line(line)
            except ValueError as error:
                yield f"{path}:{number}: {error}"


def _opened(folder: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Open each file of replies, but for those that another command removes meanwhile. Raises ``LLMEvalError``."""
    with _explained(folder):
        for path in data_files(folder):
            with suppress(FileNotFoundError), path.open("rb") as file:
                yield path, file


def clear(folder: Path, choose: Callable[[Survey], set[StoreEntry]]) -> Cleared:
    """Remove the entries that ``choose`` names, and leave the others in one file.

    Replaced replies and damaged lines go in any case. A file that has grown since it was read stays. Several of these
    may work at once, and sessions may write meanwhile. Raises ``LLMEvalError``; then nothing is lost.
    """
    with _explained(folder):
        for left in data_files(folder, ".tmp"):
            with suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > _ABANDONED_AFTER_S:  # else another command may be writing it
                    left.unlink()
        for _ in range(_TRIES):
            found = survey(folder)
            gone = choose(found)
            kept = sorted(set(found.entries) - gone, key=lambda one: (str(one.path), one.offset))
            try:
                if kept:
                    _write_file(folder, _lines(kept))
            except FileNotFoundError:  # another command was faster: only another look tells where the replies are now
                continue
            num_grown = sum(not _remove(path, end, folder) for path, end in found.ends.items())
            return Cleared(found=found, gone=gone, num_grown=num_grown)
    raise LLMEvalError(f"{folder}: other commands are changing it at the same time: run this again later")


def _lines(entries: Sequence[StoreEntry]) -> Iterator[bytes]:
    for path, members in groupby(entries, key=lambda entry: entry.path):
        with path.open("rb") as source:
            for entry in members:
                source.seek(entry.offset)
                yield source.read(entry.size)


def _write_file(folder: Path, lines: Iterable[bytes]) -> None:
    """Write a new file of these lines. A process that is killed leaves a temporary one at the most."""
    temporary = new_path(folder, ".tmp")
    try:
        with create_file(temporary) as copy:
            for line in lines:
                write_whole(copy, line)
            os.fsync(copy.fileno())
        temporary.rename(new_path(folder))
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _remove(path: Path, end: int, folder: Path) -> bool:
    """Remove a file, unless it has lines behind ``end``, as a session is writing to it. Return whether it is gone.

    A line that was written between the look and the removal is copied. A session sees at its next line that its file
    is gone, and writes that line to another one.
    """
    try:
        with path.open("rb") as file:
            if any(lines_of(file, end)):
                return False
            if os.name != "nt":  # there no open file can be removed, neither ours nor one that a session writes
                path.unlink()
                if late := [line for _, line in lines_of(file, end)]:
                    _write_file(folder, late)
                return True
        path.unlink()
    except FileNotFoundError:
        pass
    return True


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LLMEvalError(f"{error.filename or folder}: {error.strerror or error}") from None
