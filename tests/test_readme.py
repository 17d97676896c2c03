"""README.md: its length, and that its commands print what it shows.

Digits are not compared: another processor may round so that a sample becomes right or wrong.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.plugin.test_real_regression import damaged_model
from tests.support import REPOSITORY

README = (REPOSITORY / "README.md").read_text("utf-8")
MAX_LINES, MAX_LINES_OF_FIRST_RUN = 180, 40
COLUMNS = 112


def blocks(language: str = "") -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for own, text in found if own == language]


def commands(block: str) -> list[list[str]]:
    """The words of each command of a block, without ``pytest`` and comments."""
    lines = block.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines]


def form(line: str) -> str:
    return " ".join(re.sub(r"[0-9]+", "0", re.sub(r"=+|-{3,}", "=", line)).split())


def not_printed(block: str, printed: Sequence[str]) -> list[str]:
    """The lines of a block that the output does not have, in this order; ``…`` stands for any lines."""
    left = iter([form(line) for line in printed])
    return [line for line in block.splitlines() if not line.startswith("…") and form(line) not in left]


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= MAX_LINES
    (suite,) = blocks("yaml")
    assert len(suite.splitlines()) == 8


@pytest.fixture(scope="session")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Before any pytester is set up: it forgets modules that are imported after that, and torch is imported once."""
    return damaged_model(tmp_path_factory.mktemp("models"), noise=0.5)


@pytest.fixture
def checkout(llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder in which the example suites are where the README has them."""
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    ignored = shutil.ignore_patterns("_make", "__pycache__")
    shutil.copytree(REPOSITORY / "example_suites", llm_pytester.path / "example_suites", ignore=ignored)
    return llm_pytester


@pytest.mark.slow
@pytest.mark.forks_torch
def test_the_first_run(checkout: pytest.Pytester) -> None:
    (command,) = re.findall(r"^    pip install \. && pytest (.*)$", README, re.MULTILINE)
    result = checkout.runpytest_subprocess("-p", "no:cacheprovider", *shlex.split(command))
    assert result.ret == 0
    assert len(result.outlines) <= MAX_LINES_OF_FIRST_RUN
    assert not_printed(blocks("text")[0], result.outlines) == []


@pytest.mark.slow
@pytest.mark.forks_torch
def test_what_got_worse_and_another_prompt(
    damaged: Path, checkout: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout.path / "new").symlink_to(damaged)
    baseline, worse = commands(next(block for block in blocks() if "--llm-baseline" in block))
    (prompt,) = commands(next(block for block in blocks() if "--llm-compare" in block))
    for command, block in ((baseline, None), (worse, 1), (prompt, 2)):
        result = checkout.runpytest_subprocess("-p", "no:cacheprovider", *command)
        assert result.ret == (0 if block is None else 1)
        if block is not None:
            assert not_printed(blocks("text")[block], result.outlines) == []
