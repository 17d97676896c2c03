"""Is this YAML file one of lm-eval's? Decided by its text alone."""

from __future__ import annotations

import re
import stat
from pathlib import Path

__all__ = ["is_group_file", "is_group_text", "is_task_file", "scalar_at"]

_MAX_READ = 1_048_576
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
    """Return the plain or quoted text at a key at column 0, None where there is none, or where it is a list."""
    found = re.search(
        (_KEY.format(key) + r"""[ \t]+(?:"([^"\r\n]*)"|'([^'\r\n]*)'|([^\s#\[\]{}|>!&*][^\r\n#]*))""").encode(), text
    )
    if found is None:
        return None
    value = next(part for part in found.groups()[1:] if part is not None)
    return value.decode("utf-8", "replace").strip()
