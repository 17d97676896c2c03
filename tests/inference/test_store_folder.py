"""The folder of kept replies: what one process has written, any other finds, whatever happened to the first."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.errors import OptionError
from pytest_llmeval.inference import store as folders
from pytest_llmeval.inference.store import Store, clear, data_files, prepare_folder, rights_of_others
from pytest_llmeval.inference.stored_lines import Line, StoredRequest, encode_line
from pytest_llmeval.types import GenerateRequest, GenerateResponse, StoreFlaws
from tests.properties import examples


def question(text: str) -> StoredRequest:
    return StoredRequest("m" * 64, GenerateRequest(text))


def keep(store: Store, *pairs: tuple[str, str]) -> None:
    store.keep("gpt", [(question(asked), GenerateResponse(text=text)) for asked, text in pairs])


def found(store: Store, text: str) -> str | None:
    line = store.find(question(text))
    return None if line is None else getattr(line.reply, "text")  # noqa: B009


def write_file(folder: Path, number: int, lines: Iterable[bytes]) -> Path:
    path = folder / f"replies-{number:016x}.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def line(asked: str, text: str, time: float) -> bytes:
    return encode_line(
        Line(request=question(asked), name="gpt", time=time, session="0" * 16, reply=GenerateResponse(text=text))
    )


def test_what_one_store_keeps_the_next_finds(tmp_path: Path) -> None:
    first = Store(tmp_path / "s")
    keep(first, ("a", "1"), ("b", "2"))
    assert found(first, "a") == "1"
    first.close()
    second = Store(tmp_path / "s")
    assert [found(second, text) for text in "abc"] == ["1", "2", None]
    assert len(second) == 2


def test_another_process_is_seen_while_it_writes(tmp_path: Path) -> None:
    one, other = Store(tmp_path / "s"), Store(tmp_path / "s")
    keep(one, ("a", "1"))
    assert found(other, "a") is None
    other.read_new()
    assert found(other, "a") == "1"
    keep(one, ("b", "2"))
    other.read_new()
    assert found(other, "b") == "2"
    assert len(data_files(tmp_path / "s")) == 1


@settings(max_examples=examples(100))
@given(st.lists(st.text(max_size=5), min_size=1, max_size=4), st.data())
def test_of_a_torn_file_all_that_was_whole_is_found(
    tmp_path_factory: pytest.TempPathFactory, replies: list[str], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    lines = [line(str(number), text, 1.7e9 + number) for number, text in enumerate(replies)]
    whole = b"".join(lines)
    cut = data.draw(st.integers(0, len(whole)))
    path = write_file(folder, 1, [whole[:cut]])
    ends = [sum(map(len, lines[: number + 1])) for number in range(len(lines))]
    store = Store(folder)
    assert [found(store, str(n)) for n in range(len(lines))] == [
        text if end <= cut else None for text, end in zip(replies, ends, strict=True)
    ]
    keep(store, ("more", "3"))
    assert path.stat().st_size == cut, "nothing is written behind the end of another process"
    again = Store(folder)
    assert found(again, "more") == "3"
    path.write_bytes(whole)  # it was not torn, but being written
    again.read_new()
    assert [found(again, str(n)) for n in range(len(lines))] == replies


def test_a_damaged_line_hides_neither_its_neighbours_nor_an_older_reply(tmp_path: Path) -> None:
    newer = bytearray(line("b", "new", 1.7e9 + 5))
    newer[-20] ^= 1
    write_file(tmp_path, 1, [line("a", "1", 1.7e9), bytes(newer), b"\xff not ours\n", line("c", "3", 1.7e9)])
    write_file(tmp_path, 2, [line("b", "old", 1.7e9)])
    store = Store(tmp_path)
    assert [found(store, text) for text in "abc"] == ["1", "old", "3"]
    assert store.flaws == StoreFlaws(damaged={f"replies-{1:016x}.jsonl": 2})
    store.read_new()
    assert sum(store.flaws.damaged.values()) == 2, "no line is counted twice"


def test_a_file_that_cannot_be_read_is_noted_until_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container that ran as root leaves them; the tests may run as root too, so it is made up."""
    write_file(tmp_path, 1, [line("a", "1", 1.7e9)])
    denied = write_file(tmp_path, 2, [line("b", "2", 1.7e9)])
    opened = Path.open

    def refuse(path: Path, *arguments: Any, **options: Any) -> Any:
        if path == denied:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        store = Store(tmp_path)
        assert [found(store, text) for text in "ab"] == ["1", None]
        assert store.flaws == StoreFlaws(unreadable={denied.name: "Permission denied"})
    store.read_new()
    assert found(store, "b") == "2"
    assert store.flaws == StoreFlaws()


def test_a_file_that_goes_while_it_is_read_is_no_flaw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / f"replies-{1:016x}.jsonl"
    monkeypatch.setattr(folders, "data_files", lambda folder: [gone])
    assert Store(tmp_path).flaws == StoreFlaws()


@pytest.mark.parametrize("numbers", [(1, 2), (2, 1)])
def test_the_newest_reply_wins_whatever_the_files_are_called(tmp_path: Path, numbers: tuple[int, int]) -> None:
    write_file(tmp_path, numbers[0], [line("a", "old", 1.7e9)])
    write_file(tmp_path, numbers[1], [line("a", "new", 1.7e9 + 1)])
    assert found(Store(tmp_path), "a") == "new"


@pytest.mark.parametrize("seconds", [30, 1e8])
def test_a_clock_that_was_set_back_brings_no_old_reply_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    first = Store(tmp_path / "s")
    keep(first, ("a", "old"))
    now = time.time() - seconds
    monkeypatch.setattr("time.time", lambda: now)
    keep(Store(tmp_path / "s", refresh=True), ("a", "new"))
    assert found(Store(tmp_path / "s"), "a") == "new"
    times = [float(text[25:42]) for path in data_files(tmp_path / "s") for text in path.read_text().splitlines()]
    assert len(set(times)) == 2, "else the names of the files would decide"


def test_refresh_finds_only_what_was_asked_since(tmp_path: Path) -> None:
    keep(Store(tmp_path / "s"), ("a", "old"), ("b", "old"))
    store = Store(tmp_path / "s", refresh=True)
    assert found(store, "a") is None
    keep(store, ("a", "new"))
    assert found(store, "a") == "new"
    assert [found(Store(tmp_path / "s"), text) for text in "ab"] == ["new", "old"]


@pytest.mark.parametrize(("age_s", "is_found"), [(3599, True), (3601, False), (-3599, True), (-3601, False)])
def test_a_limit_of_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_s: int, is_found: bool) -> None:
    """Ahead of the clock is the same as behind it: how old such a reply is, is not known."""
    now = 1.7e9
    write_file(tmp_path, 1, [line("a", "1", now - age_s)])
    monkeypatch.setattr("time.time", lambda: now)
    assert (found(Store(tmp_path, max_age_s=3600), "a") is not None) == is_found
    assert found(Store(tmp_path), "a") == "1"


def test_the_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        keep(Store(tmp_path / "new" / "s"), ("a", "1"))
    finally:
        os.umask(before)
    (file,) = data_files(tmp_path / "new" / "s")
    assert stat.S_IMODE((tmp_path / "new" / "s").stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (tmp_path / "new" / "s" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("own", [None, "", "*.jsonl\n"])
def test_a_folder_that_was_there_has_a_gitignore(tmp_path: Path, own: str | None) -> None:
    """What a user has written stays."""
    if own is not None:
        (tmp_path / ".gitignore").write_text(own)
    Store(tmp_path).close()
    assert (tmp_path / ".gitignore").read_text() == ("*\n" if own is None else own)


def test_a_gitignore_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", stopped)
        with pytest.raises(KeyboardInterrupt):
            prepare_folder(tmp_path)
    assert os.listdir(tmp_path) == []
    prepare_folder(tmp_path)
    assert os.listdir(tmp_path) == [".gitignore"]


@pytest.mark.parametrize(
    ("mode", "rights"),
    [
        (0o700, None),
        (0o750, "others can read it: chmod 700 'a b'"),
        (0o702, "others can write to it: chmod 700 'a b'"),
        (0o777, "others can read and write to it: chmod 700 'a b'"),
    ],
)
def test_rights_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, rights: str | None) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("a b")
    assert rights_of_others(folder) is None, "there is none yet"
    folder.mkdir()
    folder.chmod(mode)
    assert rights_of_others(folder) == rights


def test_a_session_that_keeps_nothing_leaves_no_file(tmp_path: Path) -> None:
    Store(tmp_path / "s").close()
    assert data_files(tmp_path / "s") == []
    assert os.listdir(tmp_path / "s") == [".gitignore"]


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    suites = tmp_path / "suites"
    suites.mkdir()
    suites.joinpath("boolq.yaml").touch()
    for folder in (suites, suites / "boolq.yaml", tmp_path / "other.yaml"):
        with pytest.raises(OptionError, match="--llm-store=FOLDER"):
            prepare_folder(folder)
    assert os.listdir(tmp_path) == ["suites"]


def test_no_link_is_followed(tmp_path: Path) -> None:
    outside = write_file(tmp_path, 1, [line("a", "1", 1.7e9)])
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / outside.name).symlink_to(outside)
    assert found(Store(tmp_path / "s"), "a") is None


def test_a_full_disk_costs_replies_and_not_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "s")
    keep(store, ("a", "1"))

    def fail(file: Any, data: bytes) -> None:
        os.write(file.fileno(), data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(folders, "write_whole", fail)
        keep(store, ("b", "2"), ("c", "3"))
    assert store.problem is not None
    assert "No space left" in store.problem
    (file,) = data_files(tmp_path / "s")
    assert file.read_bytes().endswith(b"\n")
    assert file.read_bytes().count(b"\n") == 1
    assert [found(Store(tmp_path / "s"), text) for text in "ab"] == ["1", None]


def test_a_file_that_was_cleared_away_is_begun_anew(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    keep(store, ("a", "1"))
    (file,) = data_files(tmp_path / "s")
    file.unlink()
    keep(store, ("b", "2"))
    assert [found(Store(tmp_path / "s"), text) for text in "ab"] == [None, "2"]


def test_a_folder_that_was_removed_costs_replies_and_not_the_session(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    keep(store, ("q", "a"))
    shutil.rmtree(tmp_path / "store")
    keep(store, *((f"q{number}", "b") for number in range(100)))
    assert store.problem == "No such file or directory"
    store.close()


def test_a_line_that_comes_just_after_its_file_was_removed_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "s")
    keep(store, ("a", "1"))
    (file,) = data_files(tmp_path / "s")
    write = folders.write_whole

    def remove_and_write(own: Any, data: bytes) -> None:
        file.unlink(missing_ok=True)
        write(own, data)

    monkeypatch.setattr(folders, "write_whole", remove_and_write)
    keep(store, ("b", "2"))
    assert [found(one, "b") for one in (store, Store(tmp_path / "s"))] == ["2", "2"]


def test_a_forked_process_has_a_file_of_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    keep(store, ("a", "1"))
    child = os.fork()
    if not child:
        keep(store, ("b", "2"))
        os._exit(0 if found(store, "a") == "1" else 1)
    assert os.waitpid(child, 0)[1] == 0
    keep(store, ("c", "3"))
    assert len(data_files(tmp_path / "s")) == 2
    assert [found(Store(tmp_path / "s"), text) for text in "abc"] == ["1", "2", "3"]


def test_a_reply_to_another_request_is_not_found(tmp_path: Path) -> None:
    """Also where an index takes the two for one: the request itself is compared."""
    store = Store(tmp_path)
    keep(store, ("a", "1"))
    other = question("b")
    other.number = question("a").number
    assert store.find(other) is None


def test_another_models_clock_does_not_date_our_replies(tmp_path: Path) -> None:
    write_file(tmp_path, 1, [line("other", "1", time.time() + 365 * 86400)])
    keep(Store(tmp_path), ("a", "1"))
    assert found(Store(tmp_path, max_age_s=60), "a") == "1"


def test_a_reply_from_a_time_to_come_gives_way(tmp_path: Path) -> None:
    """It was written by a clock that was wrong: asked anew, it is the old one whatever its date."""
    write_file(tmp_path, 9, [line("a", "old", time.time() + 365 * 86400)])
    assert found(Store(tmp_path), "a") == "old"
    assert found(Store(tmp_path, max_age_s=60), "a") is None
    keep(Store(tmp_path, max_age_s=60), ("a", "new"))
    assert [found(Store(tmp_path, max_age_s=age), "a") for age in (None, 60)] == ["new", "new"]
    clear(tmp_path, lambda found: set())
    assert found(Store(tmp_path), "a") == "new"


def test_what_another_session_asked_is_dated_before_this_one(tmp_path: Path) -> None:
    """Whatever its clock said: that is how a session knows what it has reused."""
    keep(Store(tmp_path), ("a", "1"))
    store = Store(tmp_path, started=1.7e9)
    keep(store, ("b", "2"))
    old, own = store.find(question("a")), store.find(question("b"))
    assert old is not None
    assert own is not None
    assert store.asked_at(old) < 1.7e9 < store.asked_at(own)
    assert (store.asked_at(own), old.time > 1.7e9) == (own.time, True), "by which a reply is known wherever it is read"


def test_a_process_that_starts_late_in_a_refresh_finds_what_the_session_has_asked(tmp_path: Path) -> None:
    keep(Store(tmp_path), ("a", "old"), ("b", "old"))
    keep(Store(tmp_path, refresh=True, session="5" * 16), ("a", "new"))
    late = Store(tmp_path, refresh=True, session="5" * 16)
    assert [found(late, text) for text in "ab"] == ["new", None]


def test_in_a_refresh_the_reply_of_a_session_beside_it_does_not_count(tmp_path: Path) -> None:
    store = Store(tmp_path, refresh=True)
    keep(store, ("a", "own"))
    keep(Store(tmp_path), ("a", "another's"))
    store.read_new()
    assert [found(one, "a") for one in (store, Store(tmp_path))] == ["own", "another's"]


def test_a_write_that_fails_once_is_made_in_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, write = Store(tmp_path / "s"), folders.write_whole
    keep(store, ("a", "1"))

    def fail(file: Any, data: bytes) -> None:
        monkeypatch.setattr(folders, "write_whole", write)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(folders, "write_whole", fail)
    keep(store, ("b", "2"), ("c", "3"))
    assert store.problem is None
    assert [found(Store(tmp_path / "s"), text) for text in "abc"] == ["1", "2", "3"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_does_not_wait_for_a_thread_that_it_has_not(tmp_path: Path) -> None:
    store = Store(tmp_path)
    keep(store, ("a", "1"))
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with store._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        signal.alarm(60)
        keep(store, ("b", "2"))
        os._exit(0 if found(store, "a") == "1" else 1)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert [found(Store(tmp_path), text) for text in "ab"] == ["1", "2"]


def test_a_power_failure_costs_at_most_some_replies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However they come: one by one, as a server's do, or many at once."""
    synced: list[int] = []
    store = Store(tmp_path)
    monkeypatch.setattr("os.fsync", lambda file: synced.append(len(store)))
    for number in range(130):
        keep(store, (f"{number}", "a"))
    keep(store, *((f"{number}", "a") for number in range(130, 400)))
    assert synced == [64, 128, 400]


def test_a_slow_disk_is_not_looked_at_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looks = [0.0], []

    def look(store: Store) -> None:
        looks.append(clock[0])
        clock[0] += 1  # it takes a second

    store = Store(tmp_path)
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr(Store, "read_new", look)
    for time_s in (100.0, 110.0, 120.0, 130.0):
        clock[0] = time_s
        store.look_again()
    assert looks == [100.0, 130.0]
