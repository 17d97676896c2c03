"""Pages that are followed from top to bottom: their commands run one after another, and print what the page shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import REPOSITORY, clean_environment


def docs_page(name: str) -> str:
    return (REPOSITORY / "docs" / name).read_text("utf-8")


def parts(page: str) -> Iterator[tuple[str, str]]:
    """Yield the fenced blocks with their languages, and between them what stands in backticks, as ``named``."""
    for language, block, named in re.findall(r"^```(\w+)\n(.*?)^```$|`([^`\n]+)`", page, re.MULTILINE | re.DOTALL):
        yield (language, block) if language else ("named", named)


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = clean_environment() | {"PATH": path, "BROWSER": "true"}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


def without_time(text: str) -> str:
    return re.sub(r"\d+\.\d\ds\b", "0s", re.sub("=+", "=", text))


def follow(page: str, folder: Path) -> list[str]:
    """Do what a page says, as a reader does, and return the commands whose exit code is not 0.

    ``text`` is printed by the command before it (``…`` for any lines), ``diff`` changes the file that was named last,
    and ``yaml`` stands at its end from then on.
    """
    failed: list[str] = []
    output, file = "", folder
    for kind, text in parts(page):
        match kind:
            case "named":
                file = folder / text if (folder / text).is_file() else file
            case "bash":
                done = run(text, folder)
                failed += [text.strip()] if done.returncode else []
                output = done.stdout
            case "text":
                for piece in text.split("…\n"):
                    assert without_time(piece) in without_time(output)
            case "diff":
                old, new = ("".join(re.findall(rf"^{sign}(.*\n)", text, re.MULTILINE)) for sign in ("-", r"\+"))
                content = file.read_text("utf-8")
                assert content.count(old) == 1
                file.write_text(content.replace(old, new), "utf-8")
            case "yaml":
                file.write_text(file.read_text("utf-8") + text, "utf-8")
            case _:
                raise AssertionError(kind)
    return failed


@pytest.mark.slow
def test_a_changed_prompt(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "example_suites" / "boolq", tmp_path / "example_suites" / "boolq")
    failed = follow(docs_page("change_a_prompt.md"), tmp_path)
    assert len(failed) == 3
    assert all("--llm-baseline main.json" in command for command in failed)


@pytest.mark.slow
def test_the_tutorial(tmp_path: Path) -> None:
    assert follow(docs_page("tutorial.md"), tmp_path) == [
        "pytest --llm-model demo suites/",
        "pytest --llm-model random suites/ --llm-baseline main.json",
    ]


@pytest.mark.slow
def test_judged_answers(tmp_path: Path) -> None:
    (failed,) = follow(docs_page("judge_answers.md"), tmp_path)
    assert failed.endswith("--llm-gate 'support: ci_low(judge.kappa) >= 0.6'")


@pytest.mark.slow
def test_the_beginning_of_retrieval(tmp_path: Path) -> None:
    assert follow(docs_page("retrieval.md").partition("\nThe rankings can also come")[0], tmp_path) == []


@pytest.mark.slow
def test_the_beginning_of_ci(tmp_path: Path) -> None:
    page = docs_page("ci.md")
    (failed,) = follow(page.partition("\nCommit all three files")[0], tmp_path)
    assert "--llm-model=random" in failed
    # the comment that the page shows is on this run
    (table,) = re.findall(r"^```\n(\| outcome .*?)^```$", page, re.MULTILINE | re.DOTALL)
    shown = run(f"{failed} --llm-report r.json; llmeval show r.json --format markdown", tmp_path)
    assert table in shown.stdout
