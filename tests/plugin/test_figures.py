"""Figures of a session: in a folder beside its Markdown report, and nowhere else."""

from __future__ import annotations

import sys

import pytest

from pytest_llmeval.cli import main
from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY
from tests.support import fake_model_conftest


@pytest.fixture
def capitals(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY))
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    return llm_pytester


def test_beside_the_markdown_report(capitals: pytest.Pytester, workers: list[str]) -> None:
    result = capitals.runpytest(*workers, "--llm-report=out.md", "--llm-report=out.json", "capitals.yaml")
    assert result.ret == 0, result.stdout.str()
    names = {path.name for path in (capitals.path / "out_figures").iterdir()}
    assert {"forest-accuracy.svg", "reliability-capitals.svg", "risk-coverage-capitals.svg"} <= names
    shown = (capitals.path / "out.md").read_text(encoding="utf-8")
    assert "![accuracy by suite](out_figures/forest-accuracy.svg)" in shown
    again = capitals.path / "again"
    assert main(["plot", str(capitals.path / "out.json"), "-o", f"{again}/"]) == 0
    assert {path.name for path in again.iterdir()} == names


@pytest.mark.fresh_interpreters
def test_a_session_without_markdown_loads_no_matplotlib(capitals: pytest.Pytester) -> None:
    last_words = "print('loaded', 'matplotlib' in sys.modules, file=sys.stderr)"
    told = f"\nimport atexit, sys\natexit.register(lambda: {last_words})\n"
    capitals.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY) + told)
    reports = ("--llm-report=out.json", "--llm-report=out.csv")
    result = capitals.run(sys.executable, "-m", "pytest", "-p", "no:xdist", *reports, "capitals.yaml")
    assert result.ret == 0
    result.stderr.fnmatch_lines(["loaded False"])
    assert not list(capitals.path.glob("*_figures"))
