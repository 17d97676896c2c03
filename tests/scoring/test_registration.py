"""A scorer of the suite format is found by its settings, and costs nothing before a suite uses it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pytest_llmeval.scoring.base import SettingsScorer
from pytest_llmeval.scoring.make import scorer_class
from pytest_llmeval.suites.format.score_settings import ONE_SCORER
from pytest_llmeval.suites.format.score_settings.scorer_settings import ScorerSettings

ASK_FOR_ONE = """
import sys
from pytest_llmeval.scoring.make import make_scorer
from pytest_llmeval.suites.format.score_settings.replies import NumberSettings
assert make_scorer(NumberSettings()).name == "number"
others = ("jsonschema", "sacrebleu", "rouge_score", "nltk", "sympy", "math_verify")
print([name for name in sys.modules if name.startswith(others) or "scoring.scorers.choices" in name])
"""


@pytest.mark.parametrize("name", ONE_SCORER)
def test_the_settings_name_their_scorer(name: str) -> None:
    settings = ONE_SCORER[name]
    assert issubclass(settings, ScorerSettings)
    found = scorer_class(settings)
    assert issubclass(found, SettingsScorer)
    assert found.__doc__ != SettingsScorer.__doc__


def test_one_scorer_imports_no_other() -> None:
    found = subprocess.run([sys.executable, "-c", ASK_FOR_ONE], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
