"""The folder of kept replies: files of JSON Lines, each written by one process, and an index of their places.

There is no lock and no database. A process appends to a file of its own, each reply with one write, and reads those of
all others as far as they are whole: what a killed process has left without its newline is passed over. In memory are a
number and a place for each reply, and never the replies.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shlex
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from pytest_llmeval.data.temporary_files import temporary_file
from pytest_llmeval.errors import OptionError
from pytest_llmeval.inference.store.lines import (
    MAX_LINE_BYTES,
    Head,
    Line,
    Question,
    Reply,
    encode_line,
    read_head,
    read_reply,
)
from pytest_llmeval.types import StoreFlaws

__all__ = [
    "Store",
    "create_file",
    "data_files",
    "lines_of",
    "new_name",
    "new_session",
    "order_of",
    "other_file",
    "prepare_folder",
    "rights_of_others",
    "temporary_files",
    "write_whole",
]


_NAME = re.compile(r"replies-[0-9a-f]{16}\.jsonl")
_TEMPORARY = re.compile(r"replies-[0-9a-f]{16}\.tmp")
_SYNC_AFTER = 64
"""Replies that come one by one reach the disk together: a power failure costs as many. A killed process loses none."""

_MOST_OPEN = 32
_LOOKING = 20
"""The part of the time since the last look at the folder, one in so many, that may go into the next one."""
_BUFFER_BYTES = 1 << 20
_AHEAD_S = 60.0
_TICK_S = 1e-6
"""The last digit of a line's time."""
_BEFORE_S = 2e-6
"""More than a microsecond: rounded to one, as in a report, two times have to differ all the same."""


def new_name(suffix: str = ".jsonl") -> str:
    """Return a name of a file that no other process has."""
    return f"replies-{secrets.token_hex(8)}{suffix}"


def data_files(folder: Path) -> list[Path]:
    """Return the files of replies, in the order of their names; links are not followed. Raises ``OSError``."""
    return _files(folder, _NAME)


def temporary_files(folder: Path) -> list[Path]:
    """Return what a killed process has left unfinished. Raises ``OSError``."""
    return _files(folder, _TEMPORARY)


def _files(folder: Path, name: re.Pattern[str]) -> list[Path]:
    with os.scandir(folder) as entries:
        found = [entry.name for entry in entries if name.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)]
    return [folder / name for name in sorted(found)]


def other_file(folder: Path) -> str | None:
    """Return the name of a file that no store has; None where there is none. Raises ``OSError``."""
    ours = (_NAME, _TEMPORARY)
    others = (
        name
        for name in sorted(os.listdir(folder))
        if not (name.startswith(".") or any(pattern.fullmatch(name) for pattern in ours))
    )
    return next(others, None)


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


_HINT = "write --llm-store=FOLDER, or put --llm-store behind the tests"


def rights_of_others(folder: Path, called: Path | None = None) -> str | None:
    """Return a text which says that other users may read or write in the folder, and the remedy; None where they may
    not, or none is known.

    ``called`` is what the user calls the folder.
    """
    try:
        mode = folder.stat().st_mode if os.name == "posix" else 0
    except OSError:
        return None
    rights = [name for name, bits in (("read", 0o055), ("write to", 0o022)) if mode & bits]
    return f"others can {' and '.join(rights)} it: chmod 700 {shlex.quote(str(called or folder))}" if rights else None


def create_file(path: Path) -> FileIO:
    """Return a new file for this user alone, unbuffered: what is written is with the kernel, and survives this
    process.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)
    return FileIO(os.open(path, flags, 0o600), "ab")


def write_whole(file: FileIO, data: bytes) -> None:
    """Write in one call, unless the system takes only a part. Raises ``OSError``."""
    written = 0
    while written < len(data):
        written += file.write(memoryview(data)[written:]) or 0


def lines_of(file: BinaryIO, start: int = 0) -> Iterator[tuple[int, bytes | None]]:
    """Return the whole lines of a file from ``start`` on, each with its offset; None for one that is longer than any of
    ours.

    What has no newline yet is left for later.
    """
    file.seek(start)
    offset = start
    while line := file.readline(MAX_LINE_BYTES):
        length = len(line)
        is_long = length == MAX_LINE_BYTES and line[-1:] != b"\n"
        while is_long and line and line[-1:] != b"\n":
            line = file.readline(MAX_LINE_BYTES)
            length += len(line)
        if line[-1:] != b"\n":
            return
        yield offset, None if is_long else line
        offset += length


def order_of(time_of_reply: float, now: float) -> float:
    """Return the number by which replies to one question are ordered: that of the highest counts, which is the newest
    one.

    One from a time to come was written by a clock that was wrong, and gives way to any other.
    """
    return time_of_reply if time_of_reply <= now + _AHEAD_S else 0.0


def new_session() -> str:
    """Return the name of a session, which no other has."""
    return secrets.token_hex(8)


class Store:
    """The replies in a folder, those of other processes included, and the file that this process adds to.

    :param refresh: replies of other sessions are not found: each is asked for again, and replaced.
    :param max_age_s: older replies are not found; None: of any age. Nor are those whose time lies as far ahead.
    :param session: the session's own 16 hex digits, the same in all its processes.
    :param started: when it began (Unix, s); now by default.

    Of several replies to one question the newest counts: a reply is never dated before one to the same question, unless
    that was written by a clock that was wrong. ``problem`` is why replies are no longer kept, None as long as they are.
    Calls may come from several threads.
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
        """Read what is there. Raises ``OptionError``."""
        prepare_folder(folder)
        self.folder = folder
        self.max_age_s = max_age_s
        self.problem: str | None = None
        self._unreadable: dict[str, str] = {}
        self._damaged: dict[str, int] = {}
        self._refresh = refresh
        self.session = new_session() if session is None else session
        self._started = time.time() if started is None else started
        self._lock = threading.RLock()
        self._rows: dict[int, int] = {}
        # What is known of each line, by its row.
        self._files, self._offsets, self._sizes, self._times = array("L"), array("Q"), array("L"), array("d")
        self._is_ours = array("b")  # of this session
        self._paths: list[Path] = []
        self._numbers: dict[str, int] = {}
        self._ends = array("Q")
        self._open: dict[int, BinaryIO] = {}
        self._own: FileIO | None = None
        self._own_number = -1
        self._process = os.getpid()
        self._num_unsynced = 0
        self._next_look = 0.0
        self.read_new()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def flaws(self) -> StoreFlaws:
        """Return which files cannot be read now, and how many damaged lines were passed over."""
        with self._locked():
            return StoreFlaws(unreadable={**self._unreadable}, damaged={**self._damaged})

    def _locked(self) -> threading.RLock:
        """Return the lock; after a fork a new one, since a thread that is not here may hold the old one, and new
        files.
        """
        if self._process != os.getpid():
            self._lock = threading.RLock()
            self._forget_files()
        return self._lock

    def look_again(self) -> None:
        """Do what ``read_new`` does, where it would not take much of the time: of slow disks not each time."""
        started = time.monotonic()
        if started >= self._next_look:
            self.read_new()
            ended = time.monotonic()
            self._next_look = ended + _LOOKING * (ended - started)

    def read_new(self) -> None:
        """Take in what other processes have added since."""
        with self._locked(), self._noted(self.folder):
            for path in data_files(self.folder):
                number = self._number_of(path)
                with self._noted(path):
                    if path.stat().st_size > self._ends[number]:
                        self._read(number)

    @contextmanager
    def _noted(self, path: Path) -> Iterator[None]:
        """Note whether ``path`` cannot be read, and go on. What was removed just now is no flaw."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                self._unreadable[path.name] = error.strerror or str(error)
                return
        self._unreadable.pop(path.name, None)

    def _number_of(self, path: Path) -> int:
        number = self._numbers.setdefault(path.name, len(self._paths))
        if number == len(self._paths):
            self._paths.append(path)
            self._ends.append(0)
        return number

    def _read(self, number: int) -> None:
        with self._paths[number].open("rb", buffering=_BUFFER_BYTES) as file:
            for offset, line in lines_of(file, self._ends[number]):
                head = None if line is None else read_head(line)
                if line is not None and head is not None:
                    self._add(head, number, offset, len(line))
                else:
                    name = self._paths[number].name
                    self._damaged[name] = self._damaged.get(name, 0) + 1
                self._ends[number] = file.tell()

    def _add(self, head: Head, number: int, offset: int, size: int) -> None:
        is_ours = head.session == self.session
        row = self._rows.get(head.key)
        if row is not None:
            now = time.time()
            is_older = order_of(self._times[row], now) > order_of(head.time, now)
            if is_older or (self._refresh and self._is_ours[row] and not is_ours):
                return
        self._files.append(number)
        self._offsets.append(offset)
        self._sizes.append(size)
        self._times.append(head.time)
        self._is_ours.append(is_ours)
        self._rows[head.key] = len(self._times) - 1

    def find(self, question: Question) -> Line | None:
        """Return the newest reply to a question, which is compared with the one that is kept; None where there is
        none.
        """
        with self._locked():
            row = self._rows.get(int(question.key[:16], 16))
            if row is None or not (self._is_ours[row] or self._may_reuse(self._times[row])):
                return None
            try:
                file = self._reader(self._files[row])
                file.seek(self._offsets[row])
                line = read_reply(file.read(self._sizes[row]), question)
            except (OSError, ValueError):  # the file is gone, or has been changed
                return None
            return line

    def asked_at(self, line: Line) -> float:
        """When a reply was asked for: one of another session before this one began, whatever its clock said."""
        return line.time if line.session == self.session else min(line.time, self._started - _BEFORE_S)

    def _may_reuse(self, asked_at: float) -> bool:
        if self._refresh:
            return False
        return self.max_age_s is None or abs(time.time() - asked_at) <= self.max_age_s

    def _reader(self, number: int) -> BinaryIO:
        if number not in self._open:
            if len(self._open) == _MOST_OPEN:
                self._open.pop(next(iter(self._open))).close()
            self._open[number] = self._paths[number].open("rb")
        return self._open[number]

    def keep(self, name: str, replies: Sequence[tuple[Question, Reply]]) -> list[float]:
        """Write replies of the model that the user calls ``name``; when each was asked, as the store has it (Unix, s).

        Once this has returned, the death of this process loses none of them. A disk that fails is a ``problem``.
        """
        with self._locked():
            times = []
            for question, reply in replies:
                head = Head(int(question.key[:16], 16), self._time_for(question), self.session)
                times.append(head.time)
                with suppress(ValueError, TypeError):  # what JSON does not have: the reply is not kept
                    line = Line(question=question, name=name, time=head.time, session=head.session, reply=reply)
                    self._write(head, encode_line(line))
            self._num_unsynced += len(replies)
            if len(replies) > 1 or self._num_unsynced >= _SYNC_AFTER:
                self._sync()
            return times

    def _time_for(self, question: Question) -> float:
        """Return the time of now, or just behind the newest reply to this question."""
        now, row = time.time(), self._rows.get(int(question.key[:16], 16))
        newest = 0.0 if row is None else order_of(self._times[row], now)
        return round(max(now, newest + _TICK_S), 6)

    def _write(self, head: Head, data: bytes) -> None:
        if self.problem is not None or len(data) > MAX_LINE_BYTES:
            return
        if self._own is None or not self._append(head, data) or _is_gone(self._own):
            # The first one, the disk has failed, or `llmeval store clear` took the file away, which copies no line that
            # comes after: once more with a new file.
            try:
                self._begin_file()
            except OSError as error:
                self.problem = error.strerror or str(error)
                return
            if self._append(head, data):
                self.problem = None
            else:
                with suppress(OSError):
                    self._paths[self._own_number].unlink()

    def _append(self, head: Head, data: bytes) -> bool:
        """Return whether the line was written; if not, ``problem`` says why."""
        assert self._own is not None
        offset = self._ends[self._own_number]
        try:
            write_whole(self._own, data)
        except OSError as error:
            with suppress(OSError):
                self._own.truncate(offset)
            self.problem = error.strerror or str(error)
            return False
        self._ends[self._own_number] = offset + len(data)
        self._add(head, self._own_number, offset, len(data))
        return True

    def _begin_file(self) -> None:
        if self._own is not None:
            self._own.close()
            self._own = None  # the folder may have gone with the file: no other can be made then
        path = self.folder / new_name()
        self._own = create_file(path)
        self._own_number = self._number_of(path)

    def _sync(self) -> None:
        self._num_unsynced = 0
        if self._own is not None:
            with suppress(OSError):  # not every file system can
                os.fsync(self._own.fileno())

    def _forget_files(self) -> None:
        """Forget the files of the parent in a process that was forked."""
        for file in (*self._open.values(), *filter(None, [self._own])):
            with suppress(OSError):
                file.close()
        self._open.clear()
        self._own, self._process = None, os.getpid()

    def close(self) -> None:
        """Let go of all files. What was kept stays to be read by others."""
        with self._locked():
            self._sync()
            self._forget_files()


def _is_gone(file: FileIO) -> bool:
    """Return whether the file has no name any more. On a network disk, where another machine has removed it, asking
    fails.
    """
    try:
        return os.fstat(file.fileno()).st_nlink == 0
    except OSError:
        return True
