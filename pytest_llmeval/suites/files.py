"""Reads the files of a suite as text, and says what is wrong with those that cannot be read."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.wording import expected_one_of, nearest

__all__ = ["Source", "check_characters", "read_text"]

_NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Source:
    """A file: where it is opened, and how it is named to the user."""

    path: Path
    shown: str

    def beside(self, relative: str) -> Source:
        """The file that ``relative`` names in this file's folder; an absolute path stays as it is."""
        if os.path.isabs(relative):
            return Source(Path(relative), relative)
        shown = os.path.normpath(os.path.join(os.path.dirname(self.shown), relative))
        return Source(self.path.parent / relative, shown)

    def error(self, message: str, line: int | None = None) -> SuiteError:
        """A ``SuiteError`` that names this file."""
        return SuiteError(message, path=self.shown, line=line)


def read_text(source: Source, *, max_bytes: int, too_large: str) -> str:
    """The whole file as text, without a byte order mark.

    Raises ``SuiteError`` for a file that is missing, not a regular file (a pipe would block), unreadable, larger than
    ``max_bytes`` (``too_large`` says what to do then) or not UTF-8.
    """
    try:
        status = source.path.stat()
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise source.error(f"cannot be read: found {what}, expected a file")
        if status.st_size > max_bytes:
            found, expected = _megabytes(status.st_size), _megabytes(max_bytes)
            raise source.error(f"is too large: found {found}, expected at most {expected}; {too_large}")
        data = source.path.read_bytes()
    except FileNotFoundError:
        raise source.error(f"there is no such file{_similar_file(source.path)}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise source.error(f"cannot be read: {reason}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise source.error("is not UTF-8: found UTF-16, expected UTF-8; save the file as UTF-8", 1) from None
        raise source.error(
            f"is not UTF-8: found the byte 0x{data[error.start]:02X}, expected UTF-8; save the file as UTF-8", line
        ) from None


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
