"""Is this YAML file a suite? Decided by its text alone, so that a file of somebody else's is never parsed."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["is_suite_file"]

_FIRST_READ = 4_096
_MAX_PREAMBLE = 65_536
_MAX_READ = 1_048_576
_BREAK = re.compile(rb"\r\n|\r|\n")
_SUITE_KEY = re.compile(rb"""(["']?)suite\1[ \t]*:(?=\s|\Z)""")
_OTHER_KEY = re.compile(rb"""(?:\r|\n)(["']?)(?:samples|dataset|preset|score)\1[ \t]*:(?=\s|\Z)""")


def is_suite_file(path: Path) -> bool:
    """True when the first key is ``suite`` and ``samples``, ``dataset``, ``preset`` or ``score`` stands at column 0.

    Comments, blank lines, directives, ``---`` and a byte order mark may stand before the first key. At most 1 MiB is
    read, 4 KiB of a file whose first key is another. A file that is broken further down is a suite, so that its error
    is shown; one that cannot be read is not.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open("rb") as file:
            data = _decoded(file.read(_FIRST_READ))
            start = _first_key(data)
            if start is None and len(data) >= _FIRST_READ // 2:
                data = _decoded(_reread(file, _MAX_PREAMBLE))
                start = _first_key(data)
            if start is None or _SUITE_KEY.match(data, start) is None:
                return False
            return bool(_OTHER_KEY.search(data, start) or _OTHER_KEY.search(_decoded(_reread(file, _MAX_READ)), start))
    except (OSError, ValueError):
        return False


def _reread(file: BinaryIO, size: int) -> bytes:
    file.seek(0)
    return file.read(size)


def _decoded(data: bytes) -> bytes:
    """UTF-16 with a byte order mark as UTF-8, so that the error on its encoding can be shown."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="ignore").encode("utf-8", errors="ignore")
    return data


def _first_key(data: bytes) -> int | None:
    """Where the first line stands that is not blank, a comment, a directive or ``---``; None where there is none."""
    start = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    while start < len(data):
        found = _BREAK.search(data, start)
        if found is None:
            return start
        line = data[start : found.start()]
        if not (_is_blank(line) or line.startswith(b"%") or (line.startswith(b"---") and _is_blank(line[3:]))):
            return start
        start = found.end()
    return None


def _is_blank(line: bytes) -> bool:
    text = line.strip(b" \t")
    return not text or text.startswith(b"#")
