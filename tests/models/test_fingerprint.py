"""The fingerprint follows content: not the folder, and not a byte less."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmeval.models import findings
from pytest_llmeval.models.findings import Digests, Findings, fingerprint_files


def write(folder: Path, content: bytes) -> Path:
    """One file."""
    folder.mkdir(exist_ok=True)
    (folder / "x").write_bytes(content)
    return folder / "x"


def test_content_label_and_settings_count_and_the_folder_does_not(tmp_path: Path) -> None:
    a, b, c = (write(tmp_path / name, data) for name, data in (("a", b"one"), ("b", b"one"), ("c", b"two")))
    first = fingerprint_files([("w", a)], {"dtype": "float32"})
    assert len(first) == 64
    assert fingerprint_files([("w", b)], {"dtype": "float32"}) == first
    others = {
        fingerprint_files([("w", c)], {"dtype": "float32"}),
        fingerprint_files([("v", a)], {"dtype": "float32"}),
        fingerprint_files([("w", a)], {"dtype": "float16"}),
        fingerprint_files([("w", a), ("v", b)], {"dtype": "float32"}),
    }
    assert len(others | {first}) == 5


def test_order_of_files_does_not_count(tmp_path: Path) -> None:
    files = [("a", write(tmp_path / "a", b"one")), ("b", write(tmp_path / "b", b"two"))]
    assert fingerprint_files(files) == fingerprint_files(files[::-1])


def test_large_files_are_sampled(tmp_path: Path) -> None:
    """Size, first and last bytes of a file past the limit count."""
    mib = 1 << 20
    content = bytes(5 * mib)
    digests = Digests(full_read_bytes=3 * mib)
    found = set()
    for change in (None, 0, len(content) - 1):
        changed = bytearray(content)
        if change is not None:
            changed[change] = 1
        found.add(fingerprint_files([("w", write(tmp_path / str(change), bytes(changed)))], digests=digests))
    found.add(fingerprint_files([("w", write(tmp_path / "longer", content + b"\0"))], digests=digests))
    assert len(found) == 4


def test_a_file_hashed_whole_is_not_taken_for_a_sampled_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that share hashes may sample from different sizes on."""
    mib = 1 << 20
    monkeypatch.setattr(findings, "_LARGE", mib)
    path = write(tmp_path / "file", bytes(5 * mib))
    sizes = (3 * mib, 4 * mib, 6 * mib)
    found = {Digests(Findings(folder=tmp_path), full_read_bytes=size).of(path) for size in sizes}
    assert len(found) == 3
