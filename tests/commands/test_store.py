"""``llmeval store``: what a store holds, whether it is whole, and how it gets smaller."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pytest_llmeval.cli import main
from pytest_llmeval.inference import store as upkeep
from pytest_llmeval.inference.store import Store, data_files
from pytest_llmeval.inference.stored_lines import Line, StoredRequest, encode_line
from pytest_llmeval.types import GenerateRequest, GenerateResponse

_DAY_S = 86_400


def line(asked: str, name: str, age_days: float, text: str = "a reply") -> bytes:
    question = StoredRequest("m" * 64, GenerateRequest(asked))
    asked_at = time.time() - age_days * _DAY_S
    return encode_line(
        Line(request=question, name=name, time=asked_at, session="0" * 16, reply=GenerateResponse(text=text))
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files: three replies of ``old``, one of which was replaced, and three of ``new``."""
    made = tmp_path / "store"
    made.mkdir(mode=0o700)
    first = [line("a", "old", 30), line("b", "old", 20), line("c", "old", 10)]
    second = [line("d", "new", 3), line("a", "old", 2, "newer"), line("e", "new", 1), line("f", "new", 0.5)]
    for number, lines in enumerate((first, second)):
        path = made / f"replies-{number:016x}.jsonl"
        path.write_bytes(b"".join(lines))
        path.chmod(0o600)
    return made


def texts(folder: Path) -> dict[str, str]:
    """What a session would find."""
    store = Store(folder)
    found = {}
    for asked in "abcdef":
        kept = store.find(StoredRequest("m" * 64, GenerateRequest(asked)))
        if kept is not None:
            found[asked] = getattr(kept.reply, "text")  # noqa: B009
    store.close()
    return found


ALL = {"a": "newer", **dict.fromkeys("bcdef", "a reply")}


def store(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main(["store", *map(str, arguments)]) == code
    found = capsys.readouterr()
    return found.out + found.err


def test_show(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = store(capsys, "show", folder).splitlines()
    assert lines[0].startswith(f"{folder}: 6 replies, 2.")
    assert lines[0].endswith("KB in 2 files")
    assert [text.split(",")[0] for text in lines[1:3]] == ["  new: 3", "  old: 3"]
    assert lines[3:] == [
        "1 more was replaced by newer ones: llmeval store compact removes them",
        "it holds prompts and replies, whatever --llm-report-prompts says",
    ]


def test_what_others_may_read_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data_files(folder)[0].chmod(0o644)
    assert "others can" not in store(capsys, "show", folder), "they cannot get into the folder"
    folder.chmod(0o755)
    assert f"others can read it: chmod 700 {folder}\n" in store(capsys, "show", folder)


def test_verify_names_damaged_lines_and_allows_torn_ends(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = data_files(folder)
    second.write_bytes(second.read_bytes()[:-10])
    assert store(capsys, "verify", folder) == f"{folder}: 5 replies, 0 damaged lines, 1 unfinished end\n"
    data = bytearray(first.read_bytes())
    data[data.index(b"\n") + 60] ^= 1
    first.write_bytes(data)
    shown = store(capsys, "verify", folder, code=1)
    assert f"{first}:2: its checksum is wrong" in shown
    assert "1 damaged line" in shown


def test_compact_leaves_the_newest_of_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = data_files(folder)[0]
    first.write_bytes(first.read_bytes() + b"damaged\ntorn")
    shown = store(capsys, "compact", folder)
    assert "0 replies cleared, 1 that were replaced by newer ones removed, 1 damaged line removed, 6 left" in shown
    assert texts(folder) == ALL
    (file,) = data_files(folder)
    assert file.read_bytes().count(b"\n") == 6
    assert file.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(folder)) == [".gitignore", file.name]


def test_the_newest_is_left_whatever_the_files_are_called(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data_files(folder)[0].rename(folder / f"replies-{'f' * 16}.jsonl")
    store(capsys, "compact", folder)
    assert texts(folder) == ALL


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--all"], ""),
        (["--model", "new"], "abc"),
        (["--older-than", "15d"], "acdef"),
        (["--older-than", "1d", "--model", "old"], "def"),
        (["--max-size", "1GB"], "abcdef"),
        (["--max-size", "1KB"], "ef"),
        (["--max-size", "1KB", "--model", "new"], "abc"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_clear(folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], left: str) -> None:
    shown = store(capsys, "clear", folder, *options)
    assert f"{6 - len(left)} repl" in shown
    assert texts(folder) == {asked: ALL[asked] for asked in left}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["clear"], "llmeval store clear: give --older-than, --max-size, --model or --all"),
        (["clear", "--all", "--older-than", "3d"], "--all clears everything: it cannot be given with --older-than"),
        (["show", "--all"], "unrecognized arguments: --all"),
    ],
)
def test_usage_errors(folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as exit_of:
        main(["store", arguments[0], str(folder), *arguments[1:]])
    assert exit_of.value.code == 2
    assert message in capsys.readouterr().err
    assert texts(folder) == ALL


def test_a_model_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no replies of 'gpt'; its models: new, old" in store(capsys, "clear", folder, "--model", "gpt", code=1)
    assert texts(folder) == ALL


def test_the_folder_may_stand_behind_the_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store(capsys, "clear", "--model", "new", folder)
    store(capsys, "clear", "--all", folder)
    assert texts(folder) == {}


def test_there_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("none", "n" * 300):
        assert "there is no store" in store(capsys, "show", tmp_path / name, code=1)
    with pytest.raises(SystemExit):
        main(["store", "clear", str(tmp_path), "--older-than", "soon"])
    assert "expected a number with a unit of time" in capsys.readouterr().err


def test_other_files_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is misspelt must not pass for a store that is whole."""
    tmp_path.joinpath("suite.yaml").write_text("suite: a")
    for arguments in (["clear", "--all"], ["verify"], ["show"], ["compact"]):
        shown = store(capsys, arguments[0], tmp_path, *arguments[1:], code=1)
        assert "it is not a store of replies (it holds suite.yaml)" in shown
    assert os.listdir(tmp_path) == ["suite.yaml"]


def test_a_command_that_dies_loses_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the midst of its copy; what it leaves, the next one removes."""

    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    before = {path.name: path.read_bytes() for path in data_files(folder)}
    with monkeypatch.context() as patch:
        patch.setattr(upkeep, "write_whole", die)
        patch.setattr(Path, "unlink", die)  # as SIGKILL: nothing is tidied
        with pytest.raises(Killed):
            main(["store", "compact", str(folder)])
    assert {path.name: path.read_bytes() for path in data_files(folder)} == before
    assert len(os.listdir(folder)) == 3
    store(capsys, "compact", folder)
    (left,) = data_files(folder, ".tmp")  # another command might be writing it
    os.utime(left, (time.time() - 3601,) * 2)
    store(capsys, "compact", folder)
    assert len(os.listdir(folder)) == 1
    assert texts(folder) == ALL


def test_a_file_that_is_being_written_stays(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    last, copy = data_files(folder)[1], upkeep._write_file

    def copy_while_a_session_writes(*arguments: object) -> None:
        copy(*arguments)  # type: ignore[arg-type]
        with last.open("ab") as file:
            file.write(line("b", "old", 0, "just now"))

    monkeypatch.setattr(upkeep, "_write_file", copy_while_a_session_writes)
    assert "1 file stayed" in store(capsys, "compact", folder)
    assert texts(folder) == {**ALL, "b": "just now"}


def test_a_line_that_comes_just_before_the_file_goes_is_copied(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    last, unlink = data_files(folder)[1], Path.unlink

    def write_and_unlink(path: Path, missing_ok: bool = False) -> None:
        if path == last:
            with last.open("ab") as file:
                file.write(line("b", "old", 0, "just now"))
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", write_and_unlink)
        store(capsys, "compact", folder)
    assert not last.exists()
    assert texts(folder) == {**ALL, "b": "just now"}


def test_a_command_looks_again_where_another_was_faster(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are gone between its look and its copy; what the other has left is not lost."""
    copy = upkeep._write_file
    calls = []

    def copy_second(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            store(capsys, "compact", folder)
        copy(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(upkeep, "_write_file", copy_second)
    store(capsys, "clear", folder, "--model", "new")
    assert texts(folder) == {"b": "a reply", "c": "a reply"} | {"a": "newer"}
    assert len(data_files(folder)) == 1

    def take_away(*arguments: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(upkeep, "_write_file", take_away)
    shown = store(capsys, "compact", folder, code=1)
    assert "other commands are changing it at the same time: run this again" in shown
    assert shown.count("\n") == 1
    assert len(texts(folder)) == 3


def test_commands_may_run_at_once(folder: Path) -> None:
    children = []
    for _ in range(4):
        child = os.fork()
        if not child:
            try:
                os._exit(main(["store", "compact", str(folder)]))
            finally:
                os._exit(70)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert texts(folder) == ALL
    assert data_files(folder, ".tmp") == []


def test_a_session_goes_on_in_a_store_that_is_cleared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = Store(folder)
    store(capsys, "clear", folder, "--all")
    question = StoredRequest("m" * 64, GenerateRequest("a"))
    assert session.find(question) is None, "its file is gone: it is asked again"
    session.keep("old", [(question, GenerateResponse(text="again"))])
    session.close()
    assert texts(folder) == {"a": "again"}
    assert data_files(folder)
