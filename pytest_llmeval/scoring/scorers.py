"""From a suite's ``score`` settings to the scorer that judges by them."""

from __future__ import annotations

from pytest_llmeval.scoring.base import Scorer
from pytest_llmeval.scoring.choice import ChoiceScorer
from pytest_llmeval.scoring.exact import ExactScorer
from pytest_llmeval.scoring.letter import LetterScorer
from pytest_llmeval.scoring.number import NumberScorer
from pytest_llmeval.scoring.pattern import PatternScorer
from pytest_llmeval.scoring.perplexity import PerplexityScorer
from pytest_llmeval.scoring.yes_no import YesNoScorer
from pytest_llmeval.suites.schema import (
    ChoiceSettings,
    ExactSettings,
    LetterSettings,
    NumberSettings,
    PatternSettings,
    PerplexitySettings,
    ScoreSettings,
    YesNoSettings,
)

__all__ = ["make_scorer"]


def make_scorer(settings: ScoreSettings) -> Scorer:
    """The scorer of a suite. ``ValueError`` says in one line why these settings cannot be used."""
    match settings:
        case ChoiceSettings():
            return ChoiceScorer(settings)
        case LetterSettings():
            return LetterScorer(settings)
        case YesNoSettings():
            return YesNoScorer(settings)
        case NumberSettings():
            return NumberScorer(settings)
        case ExactSettings():
            return ExactScorer(settings)
        case PatternSettings():
            return PatternScorer.of(settings)
        case PerplexitySettings():
            return PerplexityScorer(settings)
        case _:
            raise ValueError(f"score: {settings.kind} is not available yet")
