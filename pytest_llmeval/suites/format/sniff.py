"""Tells by its text alone whether a YAML file is a suite, or a task of lm-eval: other files are never parsed."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

__all__ = [
    "SuiteKey",
    "find_suite_key",
    "is_group_file",
    "is_group_text",
    "is_task_file",
    "scalar_at",
]


_FIRST_READ = 4_096
_MAX_PREAMBLE = 65_536
_MAX_READ = 1_048_576
_BREAK = re.compile(rb"\r\n|\r|\n")
_SUITE_KEY = re.compile(rb"""(["']?)suite\1[ \t]*:(?=\s|\Z)""")
_OTHER_KEY = re.compile(rb"""(?:\r|\n)(["']?)(?:samples|dataset|preset|score)\1[ \t]*:(?=\s|\Z)""")
_LATE_SUITE_KEY = re.compile(rb"""(?:\r\n|\r|\n)(?=(["']?)suite\1[ \t]*:[ \t]+[^\s#\[{|>])""")
_PRESET = re.compile(rb"""(?:\A|\r|\n)(["']?)preset\1[ \t]*:[ \t]+(["']?)([\w-]+)\2[ \t]*(?:#|\r|\n|\Z)""")
_NUMBER_AS_SCORE = re.compile(rb"""(?:\A|\r|\n)(["']?)score\1[ \t]*:[ \t]+["']?[-+.\d]""")
_KEYS = frozenset(
    b"suite description preset samples dataset prompt choices target category cluster human interval filters score "
    b"generate epochs tags gates min_measurable not_measurable primary_metric variants".split()
)
"""All keys that a suite can have at column 0. The schema has the same ones, and takes long to import."""

_NO_KEY = b" \t#-"
"""First characters of lines that do not begin with a key; an empty line is another."""


@dataclass(frozen=True, slots=True)
class SuiteKey:
    """The place of the key ``suite``: first, as it must be, or on a line further down."""

    line: int | None = None

    @property
    def is_first(self) -> bool:
        """Tell whether the file is a suite."""
        return self.line is None


def find_suite_key(path: Path) -> SuiteKey | None:
    """Return the place of the key ``suite`` in a suite, or in a file that would be one if it came first; else None.

    A file is a suite when the first key is ``suite`` and ``samples``, ``dataset``, ``preset`` or ``score`` stands at
    column 0. Comments, blank lines, directives, ``---`` and a byte order mark may stand before the first key. At most
    1 MiB is read, 4 KiB of a file whose first key is none of a suite's. A file that is broken further down is a suite,
    so that its error is shown; one that cannot be read is not.

    A file that would be a suite has, within 64 KiB, no key at column 0 that a suite cannot have, no number as
    ``score``, ``suite`` with a name on its line, and either ``samples`` or ``dataset`` with ``score`` or ``preset``, or
    a ``preset`` of ours: much that belongs to other programs has a ``suite`` or a ``preset`` somewhere.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            data = _decoded(file.read(_FIRST_READ))
            is_whole = len(data) < _FIRST_READ // 2
            start = _first_key(data)
            if start is None and not is_whole:
                data = _decoded(_reread(file, _MAX_PREAMBLE))
                start = _first_key(data)
            if start is None:
                return None
            if _SUITE_KEY.match(data, start) is not None:
                has_other = _OTHER_KEY.search(data, start)
                if has_other or _OTHER_KEY.search(_decoded(_reread(file, _MAX_READ)), start):
                    return SuiteKey()
                return None
            keys = _keys(data, start)
            if next(keys, None) not in _KEYS or not all(key in _KEYS for key in keys):
                return None  # nearly all files of others end here, at their first key
            if not is_whole:
                data = _decoded(_reread(file, _MAX_PREAMBLE))
            line = _line_of_late_suite(data, start)
            return None if line is None else SuiteKey(line)
    except (OSError, ValueError):
        return None


def _line_of_late_suite(data: bytes, start: int) -> int | None:
    found = _LATE_SUITE_KEY.search(data, start)
    if found is None:
        return None
    keys = {*_keys(data, start)}
    has_both = keys & {b"samples", b"dataset"} and keys & {b"score", b"preset"}
    if not keys <= _KEYS or _NUMBER_AS_SCORE.search(data) or not (has_both or _has_preset_of_ours(data)):
        return None
    return len(_BREAK.findall(data, 0, found.end())) + 1


def _keys(data: bytes, start: int) -> Iterator[bytes]:
    """Yield the keys at column 0."""
    for line in data[start:].splitlines():  # of bytes: at a line feed and a carriage return alone
        if line[:1] not in _NO_KEY:
            key, colon, value = line.partition(b":")
            if colon and (not value or value[:1].isspace()):
                yield key.strip(b" \t\"'")


def _has_preset_of_ours(data: bytes) -> bool:
    found = _PRESET.search(data)
    if found is None:
        return False
    from pytest_llmeval.suites.presets import PresetError, load_preset  # heavy, and hardly ever wanted

    try:
        load_preset(found[3].decode())
    except PresetError:
        return False
    return True


def _reread(file: BinaryIO, size: int) -> bytes:
    file.seek(0)
    return file.read(size)


def _decoded(data: bytes) -> bytes:
    """Return UTF-16 with a byte order mark as UTF-8, so that the error on its encoding can be shown."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="ignore").encode("utf-8", errors="ignore")
    return data


def _first_key(data: bytes) -> int | None:
    """Return the place of the first line that is not blank, a comment, a directive or ``---``; None without one."""
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


_KEY = r"""(?m:^)(["']?){}\1[ \t]*:(?=\s|\Z)"""
_TASK = re.compile(_KEY.format("task").encode())
_TASK_LIST = re.compile((_KEY.format("task") + r"[ \t]*(?:#[^\r\n]*)?[\r\n]+[ \t]*-[ \t]").encode())
_GROUP = re.compile(_KEY.format("group").encode())
_OTHER = re.compile(
    _KEY.format(
        "(?:dataset_path|dataset_name|dataset_kwargs|output_type|doc_to_text|doc_to_target|doc_to_choice|include|class"
        "|test_split|validation_split|metric_list|generation_kwargs|num_fewshot|custom_dataset)"
    ).encode()
)
_SUITE = re.compile(_KEY.format("suite").encode())


def is_task_file(path: Path) -> bool:
    """Tell whether this is a file with ``task`` and another key of lm-eval's tasks at column 0, or with ``group`` and
    ``task``.

    A file that other task files include, which has no ``task`` of its own, is none. At most 1 MiB is read.
    """
    text = _beginning(path)
    if _TASK.search(text) is None or _SUITE.search(text) is not None:
        return False
    return is_group_text(text) or _OTHER.search(text) is not None


def is_group_file(path: Path) -> bool:
    """Tell whether a task file is that of a group of tasks."""
    return is_group_text(_beginning(path))


def _beginning(path: Path) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return b""
        with path.open("rb") as file:
            return file.read(_MAX_READ).removeprefix(b"\xef\xbb\xbf")
    except (OSError, ValueError):
        return b""


def is_group_text(text: bytes) -> bool:
    """Tell whether the text of a task file is that of a group of tasks."""
    return _GROUP.search(text) is not None or _TASK_LIST.search(text) is not None


def scalar_at(text: bytes, key: str) -> str | None:
    """Return the plain or quoted text at a key at column 0, None if there is none, or where it is a list."""
    found = re.search(
        (_KEY.format(key) + r"""[ \t]+(?:"([^"\r\n]*)"|'([^'\r\n]*)'|([^\s#\[\]{}|>!&*][^\r\n#]*))""").encode(), text
    )
    if found is None:
        return None
    value = next(part for part in found.groups()[1:] if part is not None)
    return value.decode("utf-8", "replace").strip()
