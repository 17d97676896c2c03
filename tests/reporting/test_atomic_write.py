"""Files that take the place of others whole, whatever their names and whatever lies there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.storage.atomic_write import atomic_write, check_writable

posix = pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")


def write(path: Path, text: str = "new") -> None:
    with atomic_write(path) as file:
        file.write(text)


def test_a_name_as_long_as_the_file_system_takes(tmp_path: Path) -> None:
    path = tmp_path / ("r" * 250 + ".json")
    check_writable(path)
    write(path)
    assert path.read_text() == "new"
    with pytest.raises(ReportError, match=r"cannot write the report .*: File name too long"):
        check_writable(tmp_path / ("r" * 251 + ".json"))


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_is_followed(tmp_path: Path, is_there: bool) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "out.json", tmp_path / "link.json"
    if is_there:
        real.write_text("old")
        real.chmod(0o640)
    link.symlink_to(real)
    check_writable(link)
    write(link)
    assert (link.is_symlink(), real.read_text()) == (True, "new")
    assert [entry.name for entry in real.parent.iterdir()] == ["out.json"]
    if is_there:
        assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_link_into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    real = tmp_path / "no" / "none" / "out.json"
    (tmp_path / "link.json").symlink_to(real)
    check_writable(tmp_path / "link.json")
    write(tmp_path / "link.json")
    assert real.read_text() == "new"


def test_folders_are_made(tmp_path: Path) -> None:
    write(tmp_path / "no" / "none" / "out.json")
    assert (tmp_path / "no" / "none" / "out.json").read_text() == "new"
    with pytest.raises(ReportError, match=r"cannot write the report .*out.json/a/b.json: "):
        write(tmp_path / "no" / "none" / "out.json" / "a" / "b.json")


def test_a_device_stays_one() -> None:
    check_writable(Path(os.devnull))
    write(Path(os.devnull))
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@posix
def test_a_pipe_is_written_to_where_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    os.mkfifo(path)
    check_writable(path)
    with pytest.raises(ReportError, match=r"cannot write the report .*out.json: no process reads from this pipe"):
        write(path)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(path.read_text)
        while True:
            try:
                write(path)
                break
            except ReportError:  # it is not opened yet
                continue
        assert read.result() == "new"
    assert path.is_fifo()


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    with pytest.raises(KeyError), atomic_write(path):
        raise KeyError
    assert (path.read_text(), [entry.name for entry in tmp_path.iterdir()]) == ("old", ["out.json"])


KILLED = """\
import sys
from pathlib import Path

from pytest_llmeval.reporting.storage.atomic_write import atomic_write

with atomic_write(Path("out.json")) as file:
    file.write("half")
    file.flush()
    print("there", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="nothing says there whether a process still writes a file")
def test_what_a_killed_process_has_left_is_removed_and_what_another_writes_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", KILLED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        write(tmp_path / "out.json", "ours")
        assert len(os.listdir()) == 2
        process.kill()
    write(tmp_path / "out.json", "again")
    assert os.listdir() == ["out.json"]
