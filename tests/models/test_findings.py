"""What is found out about models once: by one process of a session, and for later sessions."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import filelock
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.models import findings
from pytest_llmeval.models.findings import Digests, Findings, fingerprint_files


def test_of_several_processes_one_looks(tmp_path: Path) -> None:
    """Threads with ``Findings`` of their own stand for processes: the locks are of files."""
    calls: list[int] = []
    found: list[str] = []

    def find() -> str:
        calls.append(1)
        time.sleep(0.05)
        return "é found"

    threads = [
        threading.Thread(target=lambda: found.append(Findings(folder=tmp_path).once("x", find))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(calls), found) == (1, ["é found"] * 8)
    assert Findings(folder=tmp_path).once("y", lambda: "other") == "other"


def test_who_fails_leaves_it_to_the_next(tmp_path: Path) -> None:
    def fail() -> str:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        Findings(folder=tmp_path).once("x", fail)
    assert Findings(folder=tmp_path).once("x", lambda: "found") == "found"
    assert Findings(folder=tmp_path / "no folder").once("x", lambda: "found") == "found"


@pytest.mark.parametrize("error", [NotImplementedError, OSError])
def test_a_file_system_without_locks(error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def acquire(lock: filelock.FileLock) -> None:
        raise error("FileSystem does not appear to support flock")

    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)
    assert Findings(folder=tmp_path).once("x", lambda: "found") == "found"


def test_what_cannot_be_written_is_found_again(tmp_path: Path) -> None:
    for found in ("\udc80", "other"):
        assert Findings(folder=tmp_path).once("x", lambda it=found: it) == found  # type: ignore[misc]


@pytest.mark.parametrize(("problem", "kept"), [(None, ["key"]), ("it differs", [])])
def test_only_that_the_tree_is_right_is_kept(problem: str | None, kept: list[str], tmp_path: Path) -> None:
    keys: list[str] = []
    for folder in (None, tmp_path):
        keys.clear()
        findings = Findings(keep=keys.append, folder=folder)
        assert findings.problem_of_tree("key", lambda: problem) == problem
        assert keys == kept
    no_check: Callable[[], str] = pytest.fail
    assert Findings(folder=tmp_path).problem_of_tree("key", no_check) == problem
    assert Findings(["key"]).problem_of_tree("key", no_check) is None


@given(content=st.binary(max_size=40), buffer=st.integers(1, 50))
def test_a_file_is_hashed_whole(tmp_path_factory: pytest.TempPathFactory, content: bytes, buffer: int) -> None:
    """Whatever is read at once."""
    path = tmp_path_factory.mktemp("hashed") / "file"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(findings, "_BUFFER", buffer)
        assert Digests().of(path) == hashlib.sha256(content).hexdigest()


def test_what_a_thread_has_hashed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"one")
    expected = fingerprint_files([("w", path)])
    digests = Digests()
    digests.begin([path, tmp_path / "missing"])
    assert fingerprint_files([("w", path)], digests=digests) == expected
    with monkeypatch.context() as patch:
        patch.setattr(findings, "_hash_file", pytest.fail)
        assert fingerprint_files([("w", path)], digests=digests) == expected
    path.write_bytes(b"two")
    os.utime(path, ns=(1, 1))
    assert fingerprint_files([("w", path)], digests=digests) != expected
    with pytest.raises(FileNotFoundError):
        digests.of(tmp_path / "missing")


def test_workers_hash_a_large_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, shared = tmp_path / "weights", tmp_path / "shared"
    path.write_bytes(b"one")
    shared.mkdir()
    monkeypatch.setattr(findings, "_LARGE", 2)
    first = Digests(Findings(folder=shared)).of(path)
    monkeypatch.setattr(findings, "_hash_file", pytest.fail)
    assert Digests(Findings(folder=shared)).of(path) == first == hashlib.sha256(b"one").hexdigest()
