"""The output of commands, which GitHub Actions takes for no command of its own, whatever models have written."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from pytest_llmeval.cli import main
from tests.commands.saved_reports import report_of, sample, saved

# As the runner reads a line (actions/runner, ActionCommand.cs): the new form at its beginning, the old one anywhere.
COMMAND = re.compile(r"^\s*::|##\[", re.MULTILINE)
HOSTILE = "fine\n::error::x\n \t::add-mask::x\n##[error]x\r\n::stop-commands::x and ##[add-mask]y"


@pytest.fixture
def reports(tmp_path: Path) -> tuple[str, str]:
    def one(status: str) -> list[object]:
        return [
            sample(
                "a", f"q{n}", status, output=HOSTILE, answer=HOSTILE, prompt=HOSTILE, question=HOSTILE, reason=HOSTILE
            )
            for n in range(3)
        ]

    first, second = one("correct"), one("wrong")
    return saved(tmp_path, "first.json", report_of(first)), saved(tmp_path, "second.json", report_of(second))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [
        "show SECOND",
        "show SECOND --samples all --prompts",
        "show SECOND --id q1",
        "show SECOND --id q1 --format markdown",
        "show SECOND --id q1 --format json",
        "show SECOND --format json",
        "compare FIRST SECOND",
        "compare FIRST SECOND --format markdown",
        "compare FIRST SECOND --format json",
        "gate SECOND --gate accuracy>=0.5",
        *(f"export SECOND --to {name}" for name in ("csv", "jsonl", "md", "questions", "html")),
        "show ::error::x",
        "show ##[error]x",
        "export ##[error]x --to csv",
    ],
)
def test_nothing_printed_is_a_command(
    reports: tuple[str, str], capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    first, second = reports
    words = [{"FIRST": first, "SECOND": second}.get(word, word) for word in arguments.split()]
    main(words)
    printed = capsys.readouterr()
    assert COMMAND.search(printed.out) is None, printed.out
    assert COMMAND.search(printed.err) is None, printed.err
    assert printed.out or printed.err


def test_what_programs_read_is_as_it_was(reports: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*arguments: str) -> str:
        assert main(list(arguments)) == 0
        return capsys.readouterr().out

    (record,) = json.loads(printed("show", reports[1], "--id", "q1", "--format", "json"))
    assert record["output"] == HOSTILE
    assert json.loads(printed("export", reports[1], "--to", "jsonl").splitlines()[0])["output"] == HOSTILE
    assert json.loads(printed("export", reports[1], "--to", "questions"))["questions"][0]["pred"] == HOSTILE
    row = next(csv.DictReader(io.StringIO(printed("export", reports[1], "--to", "csv"))))
    assert row["answer"].replace(": :", "::").replace("# #[", "##[").split() == HOSTILE.split()


def test_a_file_has_every_character(reports: tuple[str, str], tmp_path: Path) -> None:
    assert main(["export", reports[1], "--to", "csv", "-o", str(tmp_path / "out.csv")]) == 0
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        assert HOSTILE in next(csv.DictReader(file)).values()
