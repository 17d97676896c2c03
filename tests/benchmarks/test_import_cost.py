"""The measuring script measures what it says: no test here reads a clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.import_cost import BY_STATEMENT, install, read_import_times, run

LOG = """\
import time: self [us] | cumulative | imported package
import time:       100 |        100 |   os
import time:        10 |        110 | site
import time:        20 |         20 |   pytest_llmeval.errors
import time:         5 |          5 |     shlex
import time:        30 |         35 |   pytest_llmeval.plugin.settings
import time:        40 |         95 | pytest_llmeval.plugin
import time:         7 |          7 | json
import time:        50 |         50 | pytest_llmeval
"""


def test_outermost_imports_are_added_up() -> None:
    total_us, modules = read_import_times(LOG)
    assert total_us == 95 + 50
    assert modules == [
        "pytest_llmeval",
        "pytest_llmeval.errors",
        "pytest_llmeval.plugin",
        "pytest_llmeval.plugin.settings",
        "shlex",
    ]


@pytest.mark.slow
def test_the_copy_is_what_pytest_loads(tmp_path: Path) -> None:
    site, project = tmp_path / "site", tmp_path / "project"
    install(site)
    project.mkdir()
    (project / "test_one.py").write_text("def test_one(): pass\n")
    _, log = run(project, site, *BY_STATEMENT, cold=True, python=["-X", "importtime"])
    assert "pytest_llmeval.plugin" in read_import_times(log)[1]
    assert not list(site.rglob("*.pyc"))
    run(project, site, cold=False)
    rewritten = [path.name for path in site.glob("**/plugin/__pycache__/__init__.*.pyc")]
    assert len(rewritten) == 1
    assert "pytest" in rewritten[0]
    _, log = run(project, site, "-p", "no:llmeval_suites", cold=False, python=["-X", "importtime"])
    assert read_import_times(log) == (0, [])
