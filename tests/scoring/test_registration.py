"""A scorer of the suite format is found by its settings, and costs nothing before a suite uses it."""

from __future__ import annotations

import subprocess
import sys
import typing

import pytest

from pytest_llmeval.scorers import SCORERS
from pytest_llmeval.scoring.base import ScorerSettings, SettingsScorer

ASK_FOR_ONE = """
import sys
from pytest_llmeval.evaluation.pipeline import make_scorer
from pytest_llmeval.scorers.number import NumberSettings
assert make_scorer(NumberSettings()).name == "number"
others = ("jsonschema", "sacrebleu", "rouge_score", "nltk", "sympy", "math_verify")
ours = ("pytest_llmeval.scorers.letter", "pytest_llmeval.scorers.exact", "pytest_llmeval.scorers.math")
print([name for name in sys.modules if name.startswith((*others, *ours))])
"""


@pytest.mark.parametrize("name", SCORERS)
def test_a_module_has_the_name_of_its_scorer(name: str) -> None:
    settings = SCORERS[name]
    assert issubclass(settings, ScorerSettings)
    assert settings.__module__ == f"pytest_llmeval.scorers.{name}"
    if name != "several":
        makers = typing.get_type_hints(settings.make, vars(sys.modules[settings.__module__]))
        assert issubclass(makers["return"], SettingsScorer)


def test_one_scorer_imports_no_other() -> None:
    found = subprocess.run([sys.executable, "-c", ASK_FOR_ONE], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
