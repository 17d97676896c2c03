"""Names that are too long for a file system (255 bytes on most) get one line, wherever a user can write one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmeval.cli import main
from pytest_llmeval.errors import ReportError, SuiteError
from pytest_llmeval.reporting.writers.formats import check_target, parse_target
from pytest_llmeval.suites.loading.loader import load_suite

LONG = 251 * "a" + ".json"
"""256 bytes."""


@pytest.mark.parametrize("name", [LONG, f"{LONG[:-5]}bbbbb/", f"{LONG[:-5]}bbbbb/out.md"])
def test_of_a_report(name: str, tmp_path: Path) -> None:
    target = parse_target(f"{tmp_path}/{name}")
    with pytest.raises(ReportError, match=r"cannot write the report .*: File name too long"):
        check_target(target)


@pytest.mark.parametrize(
    "arguments",
    [
        ["merge", "one.json", "--output", LONG],
        ["export", "one.json", "--to", "csv", "--output", LONG],
        ["show", LONG],
        ["init", LONG],
    ],
)
def test_of_a_command(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"llmeval {arguments[0]}: ")
    assert message.count("\n") == 1


def test_of_a_suites_data(tmp_path: Path) -> None:
    suite = tmp_path / "sums.yaml"
    suite.write_text(f"suite: sums\ndataset: {{path: {LONG}}}\nscore: number\n", encoding="utf-8")
    with pytest.raises(SuiteError, match=r"sums.yaml:2: dataset.path: .*File name too long"):
        load_suite(suite)
