"""The work of the ``llmeval store`` command on a store: look at it, check it, make it smaller.

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

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.inference.store.folder import (
    create_file,
    data_files,
    lines_of,
    new_name,
    order_of,
    temporary_files,
    write_whole,
)
from pytest_llmeval.inference.store.lines import decode_line, read_head

__all__ = ["Cleared", "Entry", "Survey", "clear", "damages", "survey"]

_ABANDONED_AFTER_S = 3600.0
"""A temporary file that was not written for so long was left by a command that was killed."""
_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One reply: where it stands, its bytes, what the user called the model, and when it was asked (Unix, s)."""

    path: Path
    offset: int
    size: int
    name: str
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The contents of a store: its files with their bytes, the newest reply to each question, and what lies there
    besides.

    ``ends`` is how many bytes of each file are whole lines: what was read of it.
    ``num_replaced`` replies gave way to newer ones. ``num_damaged`` lines cannot be read, and ``num_torn`` files end
    with what a killed process has not finished.
    """

    sizes: dict[Path, int]
    ends: dict[Path, int]
    entries: Sequence[Entry]
    num_replaced: int = 0
    num_damaged: int = 0
    num_torn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """The outcome of ``clear``: what it found, which of that it removed, and how many files stay as they have grown."""

    found: Survey
    gone: set[Entry]
    num_grown: int


def survey(folder: Path) -> Survey:
    """Read a store. Raises ``LLMEvalError`` where that is not possible."""
    newest: dict[int, Entry] = {}
    sizes: dict[Path, int] = {}
    ends: dict[Path, int] = {}
    num_whole = num_damaged = num_torn = 0
    now = time.time()
    with _explained(folder):
        for path in data_files(folder):
            with suppress(FileNotFoundError), path.open("rb") as file:  # another command may have removed it
                sizes[path] = os.fstat(file.fileno()).st_size
                ends[path] = 0
                for offset, line in lines_of(file):
                    ends[path] = file.tell()
                    head = None if line is None else read_head(line)
                    if line is None or head is None:
                        num_damaged += 1
                        continue
                    num_whole += 1
                    known = newest.get(head.key)
                    if known is None or order_of(head.time, now) >= order_of(known.time, now):
                        name = _name(line)
                        newest[head.key] = Entry(path=path, offset=offset, size=len(line), name=name, time=head.time)
                num_torn += ends[path] < sizes[path]
    return Survey(
        sizes=sizes,
        ends=ends,
        entries=list(newest.values()),
        num_replaced=num_whole - len(newest),
        num_damaged=num_damaged,
        num_torn=num_torn,
    )


def _name(line: bytes) -> str:
    try:
        return str(json.loads(line)["name"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return "?"


def damages(folder: Path) -> Iterator[str]:
    """Return each line that holds no reply, as ``file:line: why``. Raises ``LLMEvalError`` where the store cannot be
    read.
    """
    with _explained(folder):
        for path in data_files(folder):
            with suppress(FileNotFoundError), path.open("rb") as file:
                for number, (_, line) in enumerate(lines_of(file), start=1):
                    try:
                        if line is None:
                            raise ValueError("it is too long")
                        decode_line(line)
                    except ValueError as error:
                        yield f"{path}:{number}: {error}"


def clear(folder: Path, choose: Callable[[Survey], set[Entry]]) -> Cleared:
    """Remove the entries that ``choose`` says, and leave the others in one file.

    Replaced replies and damaged lines go in any case. A file that has grown since it was read stays. Several of these
    may work at once, and sessions may write meanwhile. Raises ``LLMEvalError``; then nothing is lost.
    """
    with _explained(folder):
        for left in temporary_files(folder):
            with suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > _ABANDONED_AFTER_S:  # else another command may be writing it
                    left.unlink()
        for _ in range(_TRIES):
            found = survey(folder)
            gone = choose(found)
            kept = sorted(set(found.entries) - gone, key=lambda one: (str(one.path), one.offset))
            try:
                if kept:
                    _copy(kept, folder)
            except _SourceGoneError:  # where its replies are now, only another look tells
                continue
            num_grown = sum(not _removed(path, end, folder) for path, end in found.ends.items())
            return Cleared(found=found, gone=gone, num_grown=num_grown)
    raise LLMEvalError(f"{folder}: other commands are changing it at the same time: run this again later")


class _SourceGoneError(Exception):
    """A file that was to be copied has been removed."""


def _copy(entries: Sequence[Entry], folder: Path) -> None:
    """Write a new file of these entries. Raises ``_SourceGoneError``, ``OSError``."""
    _write_file(folder, _lines(entries))


def _lines(entries: Sequence[Entry]) -> Iterator[bytes]:
    for path, members in groupby(entries, key=lambda entry: entry.path):
        try:
            source = path.open("rb")
        except FileNotFoundError:
            raise _SourceGoneError from None
        with source:
            for entry in members:
                source.seek(entry.offset)
                yield source.read(entry.size)


def _write_file(folder: Path, lines: Iterable[bytes]) -> None:
    """Write a new file of these lines. A process that is killed leaves a temporary one at the most."""
    temporary = folder / new_name(".tmp")
    try:
        with create_file(temporary) as copy:
            for line in lines:
                write_whole(copy, line)
            os.fsync(copy.fileno())
        temporary.rename(folder / new_name())
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _removed(path: Path, end: int, folder: Path) -> bool:
    """Return whether the file is gone, now or before; not where it has lines behind ``end``, as a session is writing to
    it.

    A line that was written between the look and the removal is copied. A session sees at its next line that its file
    is gone, and writes that line to another one.
    """
    try:
        with path.open("rb") as file:
            if any(True for _ in lines_of(file, end)):
                return False
            if os.name != "nt":  # where no open file can be removed, neither ours nor one that a session writes
                path.unlink()
                if late := [line for _, line in lines_of(file, end) if line is not None]:
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
