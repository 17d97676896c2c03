"""Temporary files and folders: of a killed process, the next one removes them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pytest_llmeval.data.files import temporary_file, temporary_folder
from tests.support import REPOSITORY, clean_environment

_USES_A_FOLDER = """\
import sys
from pytest_llmeval.data.files import temporary_folder

with temporary_folder(prefix="llmeval-") as folder:
    folder.joinpath("slot").touch()
    print("there", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="nothing says there whether a process still uses a file")
def test_a_folder_is_removed_when_its_process_was_killed_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = clean_environment() | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", _USES_A_FOLDER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with temporary_folder(prefix="llmeval-"):
            assert len(os.listdir(tmp_path)) == 4
        assert len(list(tmp_path.glob("*/slot"))) == 1
        process.kill()
    assert len(os.listdir(tmp_path)) == 2
    with temporary_folder(prefix="llmeval-") as folder:
        assert sorted(os.listdir(tmp_path)) == [folder.name, f"{folder.name}.lock"]
    assert os.listdir(tmp_path) == []


def test_files_of_other_names_and_links_stay(tmp_path: Path) -> None:
    with temporary_file(tmp_path, prefix=".llmeval-", suffix=".tmp") as own:
        pass
    other, link = tmp_path / ".llmeval-notes.tmp", own
    other.touch()
    link.symlink_to(other)
    with temporary_file(tmp_path, prefix=".llmeval-", suffix=".tmp"):
        assert other.exists()
        assert link.is_symlink()


def test_a_file_that_was_renamed_stays(tmp_path: Path) -> None:
    with temporary_file(tmp_path, prefix=".llmeval-", suffix=".tmp") as path:
        path.rename(tmp_path / "out.json")
    with temporary_file(tmp_path, prefix=".llmeval-", suffix=".tmp"):
        pass
    assert os.listdir(tmp_path) == ["out.json"]
