"""CONTRIBUTING.md's recipe for a scorer, followed literally: a package of its own, with an entry point."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.plugin.test_recipe_report import install
from tests.support import REPOSITORY, fake_model_conftest

RECIPE = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8").partition("\n## Add a scorer\n")[2].partition("\n## ")[0]
SUITE = """
suite: sky
samples: [{id: a, question: The sky is, target: blue}, {id: b, question: The sea is, target: deep blue}]
score: surprise
"""


@pytest.fixture
def project(llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.Pytester:
    """A project where the recipe's package is installed, for this process and those that it starts."""
    site = tmp_path / "site"
    site.mkdir()
    llm_pytester.syspathinsert(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    (code,) = re.findall(r"```python\n(.*?)```", RECIPE, re.DOTALL)
    entry, group = re.findall(r"entry point `(.*?)` of the group `(.*?)`", RECIPE)[0]
    install(site, package="surprises", source=code, project=f'[project.entry-points."{group}"]\n{entry}')
    (score,) = re.findall(r"`(score: \w+)`", RECIPE)
    assert score in SUITE
    llm_pytester.makefile(".yaml", sky=SUITE)
    return llm_pytester


def run(project: pytest.Pytester, workers: list[str], likely: dict[str, str], *arguments: str) -> pytest.RunResult:
    project.makeconftest(fake_model_conftest(likely=likely))
    return project.runpytest_subprocess(*workers, *arguments, "sky.yaml")


def test_the_recipe_is_short() -> None:
    assert len([line for line in RECIPE.splitlines() if line.strip()]) <= 15


def test_the_recipe(project: pytest.Pytester, workers: list[str]) -> None:
    likely = {"sky": "blue", "sea": "deep blue"}  # -0.5 for each word
    result = run(project, workers, likely, "--llm-report=good.json", "--llm-gate=surprise <= 0.75")
    assert result.ret == 0
    report = json.loads(Path("good.json").read_text())
    (metric,) = (suite["metrics"]["surprise"] for suite in report["suites"])
    assert (metric["value"], metric["n"]) == (0.75, 2)
    assert {record["id"]: record["values"] for record in report["records"]} == {
        "a": {"surprise": 0.5},
        "b": {"surprise": 1.0},
    }
    assert report["definitions"]["surprise"]["higher_is_better"] is False
    # Every other continuation is less likely: what `better` says makes that a drop, and the suite need not say it.
    worse = run(project, workers, {}, "--llm-baseline=good.json", "--llm-gate-mode=margin")
    assert worse.ret == 1
    worse.stdout.fnmatch_lines(["failed: sky, surprise vs baseline: surprise 0.750 -> 7.848*"])
    worse.stdout.no_fnmatch_line("*which direction of surprise is better is not known*")
