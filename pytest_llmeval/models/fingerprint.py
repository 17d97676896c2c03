"""A hash over the content of a checkpoint's files: it identifies the weights, wherever they are stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from pytest_llmeval.types import JSON

__all__ = ["FULL_READ_BYTES", "fingerprint_files"]

FULL_READ_BYTES = 1 << 30
"""Files of up to 1 GiB are hashed whole; a larger one by its size, its first and last MiB, and 1,022 MiB evenly
between."""

_BLOCK = 1 << 20


def fingerprint_files(
    files: Iterable[tuple[str, Path]], settings: JSON = None, *, full_read_bytes: int = FULL_READ_BYTES
) -> str:
    """SHA-256 (hex) over labelled files' content and ``settings`` (anything that JSON can hold).

    A label takes the place of the path, so that a copy in another folder has the same fingerprint. Files beyond
    ``full_read_bytes`` are sampled at blocks that depend on the size alone: a change that misses every block is not
    seen.
    """
    total = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for label, path in sorted(files):
        total.update(f"\n{label}\n{path.stat().st_size}\n{_hash_file(path, full_read_bytes)}".encode())
    return total.hexdigest()


def _hash_file(path: Path, full_read_bytes: int) -> str:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= full_read_bytes:
            return hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256()
        num_blocks = max(2, full_read_bytes // _BLOCK)
        for i in range(num_blocks):
            file.seek(i * (size - _BLOCK) // (num_blocks - 1))
            digest.update(file.read(_BLOCK))
        return digest.hexdigest()
