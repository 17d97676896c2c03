"""example_suites/conftest.py: what needs more than the plugin stays out of ``pytest example_suites/``."""

from __future__ import annotations

import shutil

import pytest

from tests.plugin.suites_for_tests import CAPITALS, SUMS
from tests.support import REPOSITORY


@pytest.fixture
def examples(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    """A suite, and beside it a folder with requirements of its own, whose suite has a gate that nothing passes."""
    folder = llm_pytester.mkdir("examples")
    shutil.copy(REPOSITORY / "example_suites" / "conftest.py", folder)
    (folder / "sums.yaml").write_text(SUMS, encoding="utf-8")
    (folder / "more").mkdir()
    (folder / "more" / "requirements.txt").touch()
    (folder / "more" / "capitals.yaml").write_text(f"{CAPITALS}gates: [accuracy > 1]\n", encoding="utf-8")
    return llm_pytester


def test_left_out_where_not_named(examples: pytest.Pytester, workers: list[str]) -> None:
    """Its gates too."""
    result = examples.runpytest(*workers, "-rA", "--llm-model=random", "examples")
    assert "capitals" not in result.stdout.str()
    result.stdout.fnmatch_lines(["*sums*"])


@pytest.mark.parametrize("named", ["examples/more", "examples/more/capitals.yaml", "examples/../examples/more/"])
def test_collected_where_named(examples: pytest.Pytester, workers: list[str], named: str) -> None:
    result = examples.runpytest(*workers, "-rA", "--llm-model=random", named, "examples/sums.yaml")
    result.stdout.fnmatch_lines(["*FAILED*capitals.yaml::gate*"])
