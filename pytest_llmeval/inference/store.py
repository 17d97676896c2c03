"""The folder of kept replies: files of JSON Lines, each written by one process, and an index of their lines.

There is no lock and no database. A process appends to a file of its own, each reply with one write, and reads the files
of all others as far as their lines are whole: a killed process leaves its last one without a newline. The index in
memory holds where each reply stands, and never the replies.

``survey``, ``damages`` and ``clear`` are the work of ``llmeval store``. They never change a file in its place: what is
to stay is copied into a new file, which is whole before the others go; a file that grows meanwhile stays.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shlex
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pytest_llmeval.data.files import temporary_file
from pytest_llmeval.errors import LLMEvalError, OptionError
from pytest_llmeval.inference.stored_lines import Head, Line, Reply, StoredRequest, decode_line, encode_line, read_head
from pytest_llmeval.models.base import Failed
from pytest_llmeval.types import Response, StoreFlaws

__all__ = [
    "Store",
    "StoreEntry",
    "Survey",
    "clear",
    "damages",
    "data_files",
    "lines_of",
    "other_file",
    "prepare_folder",
    "rights_of_others",
    "survey",
    "write_whole",
]

_NAME = re.compile(r"replies-[0-9a-f]{16}\.(jsonl|tmp)")
_HINT = "write --llm-store=FOLDER, or put --llm-store behind the tests"
_SYNC_AFTER = 64
"""A power failure costs at most so many replies. The death of a process costs none that was kept."""
_LOOKING = 20
"""A look at the folder may take one part in so many of the time since the last one: slow disks are read less often."""
_BUFFER_BYTES = 1 << 20
_AHEAD_S = 60.0
_TICK_S = 1e-6
"""The last digit of a line's time."""
_BEFORE_S = 2e-6
"""More than one tick: two times have to differ also once they are rounded to microseconds, as in a report."""
_ABANDONED_AFTER_S = 3600.0
"""A temporary file that was not written for so long was left by a command that was killed."""
_TRIES = 20


def data_files(folder: Path, suffix: str = ".jsonl") -> list[Path]:
    """Return the files of replies, by name; with ``.tmp`` those that a command has not finished. Raises ``OSError``.

    Links are not followed.
    """
    with os.scandir(folder) as entries:
        ours = [one for one in entries if one.name.endswith(suffix) and _NAME.fullmatch(one.name)]
        return [folder / name for name in sorted(one.name for one in ours if one.is_file(follow_symlinks=False))]


def other_file(folder: Path) -> str | None:
    """Return the name of a file that no store has, or None if there is none. Raises ``OSError``."""
    names = sorted(os.listdir(folder))
    return next((name for name in names if not name.startswith(".") and not _NAME.fullmatch(name)), None)


def prepare_folder(folder: Path) -> None:
    """Make the folder, for this user alone, or see that it is a store. Raises ``OptionError``.

    A folder of other files is refused: ``--llm-store suites/`` takes the suites for the folder.
    """
    try:
        if not folder.exists():
            if "::" in folder.name or folder.suffix in (".py", ".yaml", ".yml"):
                raise OptionError(f"--llm-store {folder}: looks like a test, not like a folder; {_HINT}")
            folder.mkdir(parents=True, mode=0o700, exist_ok=True)  # another session may make it too
        elif not folder.is_dir():
            raise OptionError(f"--llm-store {folder}: it is a file, expected a folder; {_HINT}")
        if (found := other_file(folder)) is not None:
            raise OptionError(f"--llm-store {folder}: it is not a store of replies (it holds {found}); {_HINT}")
        ignored = folder / ".gitignore"  # it holds prompts
        if not ignored.exists():  # a killed session leaves none that is empty: what a user has written stays
            with temporary_file(folder, prefix=".gitignore-", suffix=".tmp") as file:
                file.write_text("*\n", encoding="ascii")
                file.replace(ignored)
        with tempfile.TemporaryFile(dir=folder, prefix=".probe-"):  # a killed process leaves none
            pass
    except OSError as error:
        raise OptionError(f"--llm-store {folder}: cannot be written: {error.strerror or error}") from None


def rights_of_others(folder: Path, called: Path | None = None) -> str | None:
    """Say that other users may read or write in the folder, with the remedy, or return None if no such right is known.

    ``called`` is what the user calls the folder.
    """
    try:
        mode = folder.stat().st_mode if os.name == "posix" else 0
    except OSError:
        return None
    rights = [name for name, bits in (("read", 0o055), ("write to", 0o022)) if mode & bits]
    return f"others can {' and '.join(rights)} it: chmod 700 {shlex.quote(str(called or folder))}" if rights else None


def lines_of(file: BinaryIO, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the whole lines of a file from ``start`` on, each with its offset.

    A last line without its newline is left for later.
    """
    file.seek(start)
    offset = start
    for line in file:
        if not line.endswith(b"\n"):
            return
        yield offset, line
        offset += len(line)


def _new_path(folder: Path, suffix: str = ".jsonl") -> Path:
    """Return the path of a file that no other process has."""
    return folder / f"replies-{secrets.token_hex(8)}{suffix}"


def _create_file(path: Path) -> FileIO:
    """Create a file for this user alone, without a buffer: what is written survives this process."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)
    return FileIO(os.open(path, flags, 0o600), "ab")


def write_whole(file: FileIO, data: bytes) -> None:
    """Write in one call, unless the system takes only a part. Raises ``OSError``."""
    while data:
        data = data[file.write(data) or 0 :]


def _order_of(time_of_reply: float, now: float) -> float:
    """Return a number that is highest for the one of several replies to a request that counts: the newest.

    A time that is still to come was given by a wrong clock, and such a reply gives way to any other.
    """
    return time_of_reply if time_of_reply <= now + _AHEAD_S else 0.0


class _Place(NamedTuple):
    """The place of a line, when its reply came, and whether this session has asked for it."""

    path: Path
    offset: int
    time: float
    is_own: bool


class Store:
    """The replies in a folder, those of other processes included, and the file that this process adds to.

    :param refresh: replies of other sessions are not found: each is asked for again, and replaced.
    :param max_age_s: older replies are not found, nor those whose time lies as far ahead; None: of any age.
    :param session: the session's own 16 hex digits, the same in all its processes.
    :param started: when it began (Unix, s); now by default.

    Of several replies to one request the newest counts: a reply is never dated before one to the same request, unless
    that one's clock was wrong. ``problem`` says why replies are no longer kept, and is None as long as they are. Calls
    may come from several threads.
    """

    def __init__(
        self,
        folder: Path,
        *,
        refresh: bool = False,
        max_age_s: float | None = None,
        session: str | None = None,
        started: float | None = None,
    ) -> None:
        """Read the folder. Raises ``OptionError``."""
        prepare_folder(folder)
        self.folder = folder
        self.max_age_s = max_age_s
        self.session = session or secrets.token_hex(8)
        self.problem: str | None = None
        self.asked_now: dict[tuple[int, str], Future[Response | Failed]] = {}
        """The requests that models in the background are answering, by process and key: equal ones wait for these."""
        self._refresh = refresh
        self._started = time.time() if started is None else started
        self._index: dict[int, _Place] = {}
        self._ends: dict[Path, int] = {}  # how far each file was read or written
        self._unreadable: dict[str, str] = {}
        self._damaged: dict[str, int] = {}
        self._own: FileIO | None = None
        self._own_path = folder
        self._num_unsynced = 0
        self._next_look = 0.0
        self._process = os.getpid()
        self._lock = threading.RLock()
        self.read_new()

    def __len__(self) -> int:
        return len(self._index)

    @property
    def flaws(self) -> StoreFlaws:
        """Return which files cannot be read now, and how many damaged lines were passed over."""
        with self._locked():
            return StoreFlaws(unreadable={**self._unreadable}, damaged={**self._damaged})

    def _locked(self) -> threading.RLock:
        """Return the lock; after a fork a new one, as no thread is here that could release the old one."""
        if self._process != os.getpid():
            self._process, self._lock = os.getpid(), threading.RLock()
            self._close_own()
        return self._lock

    def look_again(self) -> None:
        """Take in what other processes have added since, unless looking would take much of the time."""
        started = time.monotonic()
        if started >= self._next_look:
            self.read_new()
            ended = time.monotonic()
            self._next_look = ended + _LOOKING * (ended - started)

    def read_new(self) -> None:
        """Take in what other processes have added since."""
        with self._locked(), self._noted(self.folder):
            for path in data_files(self.folder):
                with self._noted(path):
                    if path.stat().st_size > self._ends.get(path, 0):
                        self._read(path)

    @contextmanager
    def _noted(self, path: Path) -> Iterator[None]:
        """Note whether a path cannot be read, and go on. One that was removed just now is no flaw."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                self._unreadable[path.name] = error.strerror or str(error)
                return
        self._unreadable.pop(path.name, None)

    def _read(self, path: Path) -> None:
        with path.open("rb", buffering=_BUFFER_BYTES) as file:
            for offset, line in lines_of(file, self._ends.get(path, 0)):
                if (head := read_head(line)) is not None:
                    self._add(head, path, offset)
                else:
                    self._damaged[path.name] = self._damaged.get(path.name, 0) + 1
                self._ends[path] = offset + len(line)

    def _add(self, head: Head, path: Path, offset: int) -> None:
        is_own = head.session == self.session
        if (known := self._index.get(head.number)) is not None:
            now = time.time()
            is_older = _order_of(known.time, now) > _order_of(head.time, now)
            if is_older or (self._refresh and known.is_own and not is_own):
                return
        self._index[head.number] = _Place(path, offset, head.time, is_own)

    def find(self, request: StoredRequest) -> Line | None:
        """Return the newest reply to a request, which is compared with the one that is kept, or None."""
        with self._locked():
            place = self._index.get(request.number)
        if place is None:
            return None
        is_young = self.max_age_s is None or abs(time.time() - place.time) <= self.max_age_s
        if not place.is_own and (self._refresh or not is_young):
            return None
        try:
            with place.path.open("rb") as file:
                file.seek(place.offset)
                line = decode_line(file.readline())
        except (OSError, ValueError):  # the file is gone, or has been changed
            return None
        return line if (line.request.model, line.request.text) == (request.model, request.text) else None

    def asked_at(self, line: Line) -> float:
        """Return when a reply was asked for: by another session before this one began, whatever its clock said."""
        return line.time if line.session == self.session else min(line.time, self._started - _BEFORE_S)

    def keep(self, name: str, replies: Sequence[tuple[StoredRequest, Reply]]) -> list[float]:
        """Write replies of the model that the user calls ``name``; return when each was asked, as the store has it.

        Once this has returned, the death of this process loses none of them. A disk that fails is a ``problem``.
        """
        with self._locked():
            times = []
            for request, reply in replies:
                now, known = time.time(), self._index.get(request.number)
                newest = 0.0 if known is None else _order_of(known.time, now)
                head = Head(request.number, round(max(now, newest + _TICK_S), 6), self.session)
                times.append(head.time)
                with suppress(ValueError, TypeError):  # a reply that JSON cannot hold is not kept
                    line = Line(request=request, name=name, time=head.time, session=self.session, reply=reply)
                    self._write(head, encode_line(line))
            if self._num_unsynced >= _SYNC_AFTER and self._own is not None:
                self._num_unsynced = 0
                with suppress(OSError):  # not every file system can
                    os.fsync(self._own.fileno())
            return times

    def _write(self, head: Head, data: bytes) -> None:
        """Append a line to this process's file; if that fails or the file was removed, to a new one."""
        problem = self.problem
        for _ in range(2 if problem is None else 0):
            try:
                if self._own is None:
                    self._own_path = _new_path(self.folder)
                    self._own = _create_file(self._own_path)
                self._append(self._own, head, data)
                # `llmeval store clear` copies no line that comes after it has taken the file away.
                if os.fstat(self._own.fileno()).st_nlink:
                    return
            except OSError as error:
                problem = error.strerror or str(error)
            self._close_own()
        self.problem = problem

    def _append(self, file: FileIO, head: Head, data: bytes) -> None:
        """Write a line. If that fails, no part of it stays, nor an empty file. Raises ``OSError``."""
        offset = self._ends.get(self._own_path, 0)
        try:
            write_whole(file, data)
        except OSError:
            with suppress(OSError):
                file.truncate(offset)
                if not offset:
                    self._own_path.unlink()
            raise
        self._ends[self._own_path] = offset + len(data)
        self._num_unsynced += 1
        self._add(head, self._own_path, offset)

    def close(self) -> None:
        """Close this process's file. What was kept stays to be read by others."""
        with self._locked():
            self._close_own()

    def _close_own(self) -> None:
        if self._own is not None:
            with suppress(OSError):
                self._own.close()
        self._own = None


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


class Cleared(NamedTuple):
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
            elif (known := newest.get(head.number)) is None or _order_of(head.time, now) >= _order_of(known.time, now):
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
                _write_file(folder, _lines(kept))
            except FileNotFoundError:  # another command was faster: only another look tells where the replies are now
                continue
            return Cleared(found, gone, sum(not _remove(path, end, folder) for path, end in found.ends.items()))
    raise LLMEvalError(f"{folder}: other commands are changing it at the same time: run this again later")


def _lines(entries: Sequence[StoreEntry]) -> Iterator[bytes]:
    for path, members in groupby(entries, key=lambda entry: entry.path):
        with path.open("rb") as source:
            for entry in members:
                source.seek(entry.offset)
                yield source.read(entry.size)


def _write_file(folder: Path, lines: Iterable[bytes]) -> None:
    """Write a new file of these lines, if there are any. A killed process leaves a temporary one at the most."""
    temporary, num_bytes = _new_path(folder, ".tmp"), 0
    try:
        with _create_file(temporary) as copy:
            for line in lines:
                write_whole(copy, line)
                num_bytes += len(line)
            os.fsync(copy.fileno())
        if num_bytes:
            temporary.rename(_new_path(folder))
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _remove(path: Path, end: int, folder: Path) -> bool:
    """Remove a file, unless it has lines behind ``end``, as a session is writing to it. Return whether it is gone.

    A line that was written between the look and the removal is copied. A session sees at its next line that its file
    is gone, and writes that line to another one.
    """
    with suppress(FileNotFoundError):
        with path.open("rb") as file:
            if any(lines_of(file, end)):
                return False
            if os.name != "nt":  # there no open file can be removed, neither ours nor one that a session writes
                path.unlink()
                _write_file(folder, [line for _, line in lines_of(file, end)])
                return True
        path.unlink()
    return True


def _opened(folder: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Open each file of replies, but for those that another command removes meanwhile. Raises ``LLMEvalError``."""
    with _explained(folder):
        for path in data_files(folder):
            with suppress(FileNotFoundError), path.open("rb") as file:
                yield path, file


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LLMEvalError(f"{error.filename or folder}: {error.strerror or error}") from None
