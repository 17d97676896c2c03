"""What the ``llmeval store`` command does with a store: look at it, check it, make it smaller.

A file is never changed in its place: what is to stay is copied into a new one, which is whole before the others go. A
file that grows meanwhile, as another process writes to it, stays.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
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

__all__ = ["Entry", "Survey", "clear", "damages", "survey"]


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
    """What a store holds: its files with their bytes, the newest reply to each question, and what lies there besides.

    ``num_replaced`` replies gave way to newer ones. ``num_damaged`` lines cannot be read, and ``num_torn`` files end
    with what a killed process has not finished.
    """

    sizes: dict[Path, int]
    entries: Sequence[Entry]
    num_replaced: int = 0
    num_damaged: int = 0
    num_torn: int = 0


def survey(folder: Path) -> Survey:
    """Read a store. Raises ``LLMEvalError`` where that is not possible."""
    newest: dict[int, Entry] = {}
    sizes: dict[Path, int] = {}
    num_whole = num_damaged = num_torn = 0
    now = time.time()
    with _explained(folder):
        for path in data_files(folder):
            with path.open("rb") as file:
                sizes[path] = os.fstat(file.fileno()).st_size
                end = 0
                for offset, line in lines_of(file):
                    end = file.tell()
                    head = None if line is None else read_head(line)
                    if line is None or head is None:
                        num_damaged += 1
                        continue
                    num_whole += 1
                    known = newest.get(head.key)
                    if known is None or order_of(head.time, now) >= order_of(known.time, now):
                        name = _name(line)
                        newest[head.key] = Entry(path=path, offset=offset, size=len(line), name=name, time=head.time)
                num_torn += end < sizes[path]
    return Survey(
        sizes=sizes,
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
    """Each line that holds no reply, as ``file:line: why``. Raises ``LLMEvalError`` where the store cannot be read."""
    with _explained(folder):
        for path in data_files(folder):
            with path.open("rb") as file:
                for number, (_, line) in enumerate(lines_of(file), start=1):
                    try:
                        if line is None:
                            raise ValueError("it is too long")
                        decode_line(line)
                    except ValueError as error:
                        yield f"{path}:{number}: {error}"


def clear(folder: Path, found: Survey, keeps: Callable[[Entry], bool]) -> int:
    """Leave the entries that ``keeps`` says, in one file; how many files stay because they have grown.

    Replaced replies and damaged lines go in any case. Raises ``LLMEvalError``; then nothing is lost.
    """
    kept = sorted((entry for entry in found.entries if keeps(entry)), key=lambda one: (str(one.path), one.offset))
    with _explained(folder):
        for left in temporary_files(folder):  # of a command that was killed
            left.unlink(missing_ok=True)
        if kept:
            _copy(kept, folder)
        num_grown = 0
        for path, size in found.sizes.items():
            if path.stat().st_size > size:
                num_grown += 1
            else:
                path.unlink()
    return num_grown


def _copy(entries: Sequence[Entry], folder: Path) -> None:
    """A new file of these entries. A process that is killed leaves a temporary one at the most."""
    temporary = folder / new_name(".tmp")
    try:
        with create_file(temporary) as copy:
            for path, members in groupby(entries, key=lambda entry: entry.path):
                with path.open("rb") as source:
                    for entry in members:
                        source.seek(entry.offset)
                        write_whole(copy, source.read(entry.size))
            os.fsync(copy.fileno())
        temporary.rename(folder / new_name())
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LLMEvalError(f"{error.filename or folder}: {error.strerror or error}") from None
