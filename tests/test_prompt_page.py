"""docs/change_a_prompt.md: its commands run one after another, as a reader runs them, and print what it shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import REPOSITORY, clean_environment

PAGE = (REPOSITORY / "docs" / "change_a_prompt.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(bash|text|diff|yaml)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SUITE = "my_suites/boolq.yaml"


def output_of(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = clean_environment() | {"PATH": path}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert not done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_walk(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "example_suites" / "boolq", tmp_path / "example_suites" / "boolq")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    assert {kind for kind, _ in BLOCKS} == {"bash", "text", "diff", "yaml"}
    output, suite = "", tmp_path / SUITE
    for kind, block in BLOCKS:
        match kind:
            case "bash":
                output = output_of(block, tmp_path)
            case "text":
                assert block in output
            case "diff":
                old, new = ("".join(re.findall(rf"^{sign}(.*\n)", block, re.MULTILINE)) for sign in ("-", r"\+"))
                assert old in suite.read_text("utf-8")
                suite.write_text(suite.read_text("utf-8").replace(old, new))
            case "yaml":
                suite.write_text(suite.read_text("utf-8") + block)
