"""A Python that has the crew of example_suites/agents, from the package index alone: installed into the cache folder.

``python -m tests.servers.crew`` installs it, which takes two minutes and 1.8 GB.
"""

from __future__ import annotations

import shutil
import venv
from pathlib import Path

from tests.servers.real import folder, pip
from tests.support import REPOSITORY

__all__ = ["AGENTS", "install"]

AGENTS = REPOSITORY / "example_suites" / "agents"
_TORCH = "torch==2.13.0"


def install() -> Path:
    """The Python; what is there already is kept as long as the requirements are the same.

    This package is in it as it is here, with the extra for mathematics, and beside CrewAI's own pins.
    """
    home = folder() / "crewai"
    python = home / "bin" / "python"
    requirements = AGENTS / "requirements.txt"
    done = home / "installed.txt"
    wanted = requirements.read_text(encoding="utf-8") + (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        pip(python, "install", "--no-compile", "-r", str(requirements), "-e", f"{REPOSITORY}[math]", _TORCH)
        pip(python, "check")
        done.write_text(wanted, encoding="utf-8")
    return python


if __name__ == "__main__":
    print(install())  # noqa: T201
