"""Opens the files of a suite, compressed or not, and makes temporary ones that do not outlive a killed process.

Errors say what is wrong with a file that cannot be read. A process holds a lock on each temporary file that it uses,
which the system gives up with the process, however that ends; the next process removes those that are not locked. A
system without such locks (Windows) does not tell which are abandoned, and they stay.
"""

from __future__ import annotations

import gzip
import importlib
import io
import os
import platform
import re
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.text.wording import expected_one_of, nearest

if sys.platform != "win32":
    import fcntl

__all__ = [
    "COMPRESSIONS",
    "Source",
    "check_characters",
    "check_ratio",
    "compression_of",
    "decode",
    "import_arrow",
    "open_bytes",
    "read_text",
    "temporary_file",
    "temporary_folder",
]

COMPRESSIONS = (".gz", ".zst")
DISTRIBUTION = "pytest-llmeval-suites"
_BUFFER_BYTES = 1 << 18
_MAX_RATIO = 200
_ANY_RATIO_BYTES = 1_000_000
"""The bytes that may come out of any compressed file; past that, no more than so many times what was read of it. Text
is 3 to 30 times as long as compressed, and what was made to fill the memory a thousand times.
"""
_NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Source:
    """A file: where it is opened, and how it is named to the user."""

    path: Path
    shown: str

    def beside(self, relative: str) -> Source:
        """Return the file that ``relative`` names in this file's folder; an absolute path stays as it is."""
        if os.path.isabs(relative):
            return Source(Path(relative), relative)
        shown = os.path.normpath(os.path.join(os.path.dirname(self.shown), relative))
        return Source(self.path.parent / relative, shown)

    def error(self, message: str, line: int | None = None) -> SuiteError:
        """Return a ``SuiteError`` that names this file."""
        return SuiteError(message, path=self.shown, line=line)


def compression_of(path: Path) -> str | None:
    """Return the compression that the file's last suffix stands for: ``.gz`` or ``.zst``."""
    suffix = path.suffix.lower()
    return suffix if suffix in COMPRESSIONS else None


def read_text(source: Source, *, max_bytes: int, too_large: str) -> str:
    """Return the whole file as text, decompressed if its suffix says so, without a byte order mark.

    Raises ``SuiteError`` for a file that is missing, not a regular file (a pipe would block), unreadable, larger than
    ``max_bytes`` (``too_large`` says what to do then) or not UTF-8.
    """
    with open_bytes(source, max_bytes=max_bytes, too_large=too_large) as file:
        data = file.read()
    return decode(source, data)


def decode(source: Source, data: bytes, first_line: int = 1) -> str:
    """Return ``data`` as text, without a byte order mark. Raises ``SuiteError`` at the line that is not UTF-8."""
    try:
        return data.decode("utf-8-sig" if first_line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        if first_line == 1 and data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise source.error("is not UTF-8: found UTF-16, expected UTF-8; save the file as UTF-8", 1) from None
        raise source.error(
            f"is not UTF-8: found the byte 0x{data[error.start]:02X}, expected UTF-8; save the file as UTF-8",
            data.count(b"\n", 0, error.start) + first_line,
        ) from None


def open_bytes(source: Source, *, max_bytes: int, too_large: str) -> BinaryIO:
    """Return the bytes of a file, decompressed if its suffix says so, to be read in pieces and closed.

    Raises ``SuiteError`` as ``read_text`` does, also while the file is read: what comes out of a compressed file is
    bounded by ``max_bytes`` as well.
    """
    try:
        status = source.path.stat()
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise source.error(f"cannot be read: found {what}, expected a file")
        if status.st_size > max_bytes:
            raise _too_large_error(source, _megabytes(status.st_size), max_bytes, too_large)
        raw = source.path.open("rb")
        try:
            bounded = _Bounded(_opened(source, raw), raw, source, max_bytes, too_large)
        except BaseException:
            raw.close()
            raise
    except FileNotFoundError:
        raise source.error(f"there is no such file{_similar_file(source.path)}") from None
    except (OSError, ValueError) as error:
        raise source.error(f"cannot be read: {_reason(error)}") from None
    return io.BufferedReader(bounded, _BUFFER_BYTES)


def _opened(source: Source, raw: BinaryIO) -> BinaryIO:
    match compression_of(source.path):
        case ".gz":
            return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
        case ".zst":
            arrow = import_arrow(source, "a file compressed with zstd")
            return cast(BinaryIO, arrow.CompressedInputStream(arrow.PythonFile(raw, mode="r"), "zstd"))
        case _:
            return raw


def check_ratio(source: Source, num_bytes: int, num_compressed: int, free: int = _ANY_RATIO_BYTES) -> None:
    """Raise ``SuiteError`` where far more than any data has come out of so many compressed bytes, and not ``free``."""
    if num_bytes > max(free, _MAX_RATIO * num_compressed):
        raise source.error(
            f"is too large: more than {_MAX_RATIO} times as large as compressed, as of a file that is made to fill the "
            "memory; where it is none, decompress it"
        )


class _Bounded(io.RawIOBase):
    """The bytes of a file, counted, with errors that name the file."""

    def __init__(self, inner: BinaryIO, raw: BinaryIO, source: Source, max_bytes: int, too_large: str) -> None:
        self._inner = inner
        self._raw = raw
        self._source = source
        self._num_left = max_bytes
        self._max_bytes = max_bytes
        self._too_large = too_large

    def readable(self) -> bool:
        """Return True, which ``io.BufferedReader`` asks for."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer``; 0 at the end."""
        data = self._next(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        """Return all that is left, in large bits."""
        return b"".join(iter(lambda: self._next(_BUFFER_BYTES), b""))

    def close(self) -> None:
        """Close the file itself too."""
        self._inner.close()
        self._raw.close()
        super().close()

    def _next(self, size: int) -> bytes:
        try:
            data = self._inner.read(size)
        except (OSError, EOFError, zlib.error) as error:  # pyarrow's errors are OSErrors
            compression = compression_of(self._source.path)
            what = "cannot be read" if compression is None else f"cannot be decompressed ({compression})"
            raise self._source.error(f"{what}: {_reason(error)}") from None
        self._num_left -= len(data)
        if self._num_left < 0:
            raise _too_large_error(self._source, "more", self._max_bytes, self._too_large)
        if self._inner is not self._raw:
            check_ratio(self._source, self._max_bytes - self._num_left, self._raw.tell())
        return data


def _reason(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return text.partition("\n")[0].rstrip(".") or type(error).__name__


def _too_large_error(source: Source, found: str, max_bytes: int, too_large: str) -> SuiteError:
    return source.error(f"is too large: found {found}, expected at most {_megabytes(max_bytes)}; {too_large}")


def import_arrow(source: Source, what: str) -> Any:
    """Return the module ``pyarrow``. Raises ``SuiteError`` with how to install it; ``what`` needs it."""
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        raise source.error(f"{what} needs the package pyarrow: pip install '{DISTRIBUTION}[datasets]'") from None


def check_characters(source: Source, text: str) -> None:
    """Raise ``SuiteError`` for a character that YAML refuses: NUL and the other control characters."""
    found = _NOT_TEXT.search(text)
    if found is not None:
        code = ord(found.group())
        name = "NUL, U+0000" if code == 0 else f"U+{code:04X}"
        raise source.error(
            f"is not YAML: found a control character ({name}), expected text", text.count("\n", 0, found.start()) + 1
        )


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB"


def _similar_file(path: Path) -> str:
    try:
        names = sorted(entry.name for entry in os.scandir(path.parent))
    except (OSError, ValueError):
        return f": there is no folder {path.parent.name!r} either"
    return expected_one_of(path.name, names) if nearest(path.name, names) else ""


_LOCK = ".lock"


@contextmanager
def temporary_file(folder: Path, *, prefix: str, suffix: str) -> Iterator[Path]:
    """Make a new empty file for this user alone, which is removed at the end unless it was renamed. Raises ``OSError``.

    Files of the same prefix that killed processes of this machine have left in the folder are removed first.
    """
    own = f"{prefix}{_machine()}-"
    _remove_abandoned(folder, own)
    descriptor, path = _new_file(folder, own, suffix)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def temporary_folder(*, prefix: str) -> Iterator[Path]:
    """Make a new folder for this user alone, which is removed at the end with all that is in it."""
    with temporary_file(Path(tempfile.gettempdir()), prefix=prefix, suffix=_LOCK) as lock:
        folder = lock.with_suffix("")
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _machine() -> str:
    """Return a name of this machine: on a network disk, machines need not see each other's locks."""
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _new_file(folder: Path, prefix: str, suffix: str) -> tuple[int | None, Path]:
    """Return a file that this process has locked by the descriptor; None where there are no locks."""
    while True:
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=prefix, suffix=suffix)
        if sys.platform == "win32":  # a file that is open could not be renamed there
            os.close(descriptor)
            return None, Path(name)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, Path(name)
        os.close(descriptor)  # another process took it for abandoned before it was locked


def _remove_abandoned(folder: Path, prefix: str) -> None:
    if sys.platform == "win32":
        return
    names: list[str] = []
    with suppress(OSError):  # a folder may be there to be written to, and not to be read
        names = os.listdir(folder)
    for name in names:
        if name.startswith(prefix):
            with suppress(OSError), _abandoned(folder / name):
                if name.endswith(_LOCK):
                    shutil.rmtree(folder / name.removesuffix(_LOCK), ignore_errors=True)
                (folder / name).unlink()


@contextmanager
def _abandoned(path: Path) -> Iterator[None]:
    """Lock a file that no process uses. Raises ``OSError`` for another one, and for one of another user."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
