"""``llmeval init``: a first suite and a workflow; their commands work as they are printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmeval.cli import main
from pytest_llmeval.suites.loading.loader import load_suite

SUITE = "suites/first.yaml"
WORKFLOW = ".github/workflows/llmeval.yml"
JOBS, INCLUDE = ".gitlab/llmeval.yml", ".gitlab-ci.yml"
FILES = [([], [SUITE, WORKFLOW]), (["--ci", "github"], [SUITE, WORKFLOW]), (["--ci", "gitlab"], [SUITE, JOBS, INCLUDE])]


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("arguments", "files"), FILES)
def test_it_writes_files_and_says_what_to_do(
    arguments: list[str],
    files: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", *arguments]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.splitlines() == [
        *(f"wrote {file}" for file in files),
        "",
        "Next:",
        "  pytest suites --llm-model=demo",
        "  pytest suites --llm-model=demo --llm-baseline suites/baseline.json --llm-update-baseline    "
        "# what later runs are compared with; commit it",
    ]
    assert files_of(tmp_path) == set(files)
    suite = load_suite(tmp_path / SUITE)
    assert suite.name == "first"
    assert len(suite.samples) >= 8


def test_another_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my project"
    assert main(["init", str(folder)]) == 0
    assert (folder / SUITE).is_file()
    assert f"  cd '{folder}' && pytest suites --llm-model=demo\n" in capsys.readouterr().out


AGAIN = "to have the new one, rename it and run this command again"


@pytest.mark.parametrize(
    ("arguments", "taken", "advice"),
    [
        ([], SUITE, AGAIN),
        ([], WORKFLOW, AGAIN),
        (["--ci", "gitlab"], JOBS, AGAIN),
        (["--ci", "gitlab"], INCLUDE, "add 'include: [{local: .gitlab/llmeval.yml}]' to it"),
    ],
)
def test_what_exists_is_left_alone(
    arguments: list[str], taken: str, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / taken).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / taken).write_text("mine")
    assert main(["init", str(tmp_path), *arguments]) == 0
    shown = capsys.readouterr()
    assert shown.err == f"llmeval init: {tmp_path / taken} exists already and stays as it is; {advice}\n"
    (files,) = (set(files) for given, files in FILES if given == arguments)
    assert files_of(tmp_path) == files
    assert (tmp_path / taken).read_text() == "mine"
    written = [line.removeprefix(f"wrote {tmp_path}/") for line in shown.out.splitlines() if line.startswith("wrote ")]
    assert set(written) == files - {taken}


@pytest.mark.parametrize(("arguments", "files"), FILES)
def test_a_second_time_nothing_is_written(
    arguments: list[str], files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path), *arguments]) == 0
    capsys.readouterr()
    assert main(["init", str(tmp_path), *arguments]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == len(files)


@pytest.mark.parametrize("blocked", ["suites", ".github"])
def test_all_or_nothing(blocked: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / blocked).write_text("a file where a folder is to be")
    assert main(["init", str(tmp_path)]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"llmeval init: cannot write {tmp_path / blocked}")
    assert shown.count("\n") == 1
    assert files_of(tmp_path) == {blocked}


@pytest.mark.campaign
def test_the_commands_that_it_prints_work(llm_pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(llm_pytester.path)]) == 0
    shown = capsys.readouterr().out
    commands = [line.partition("#")[0].split("&& ")[1].split() for line in shown.splitlines() if " pytest " in line]
    assert len(commands) == 2
    for command in commands:
        done = llm_pytester.run(*command)
        assert done.ret == 0, done.stdout.str()
        done.stdout.fnmatch_lines(["first * 8 *", "gates: *2 passed"])
    again = llm_pytester.run("pytest", "suites", "--llm-model=demo", "--llm-baseline=suites/baseline.json")
    assert again.ret == 0
    again.stdout.fnmatch_lines(["gates: 3 passed"])
    assert llm_pytester.run("llmeval", "compare", "suites/baseline.json", "suites/baseline.json").ret == 0
