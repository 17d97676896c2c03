"""From a suite's ``score`` settings to the scorer that judges by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

from pytest_llmeval.scoring.base import Scorer, SettingsError
from pytest_llmeval.scoring.mathematics.scorer import MathScorer
from pytest_llmeval.scoring.scorers.choices.choice import ChoiceScorer
from pytest_llmeval.scoring.scorers.choices.letter import LetterScorer
from pytest_llmeval.scoring.scorers.choices.mass import MassScorer
from pytest_llmeval.scoring.scorers.choices.yes_no import YesNoScorer
from pytest_llmeval.scoring.scorers.likelihood.continuation import ContinuationScorer
from pytest_llmeval.scoring.scorers.likelihood.perplexity import PerplexityScorer
from pytest_llmeval.scoring.scorers.references.bleu import BleuScorer
from pytest_llmeval.scoring.scorers.references.chrf import ChrfScorer
from pytest_llmeval.scoring.scorers.references.f1 import F1Scorer
from pytest_llmeval.scoring.scorers.references.meteor import MeteorScorer
from pytest_llmeval.scoring.scorers.references.rouge import RougeScorer
from pytest_llmeval.scoring.scorers.references.ter import TerScorer
from pytest_llmeval.scoring.scorers.replies.contains import ContainsScorer
from pytest_llmeval.scoring.scorers.replies.exact import ExactScorer
from pytest_llmeval.scoring.scorers.replies.json_reply import JsonScorer
from pytest_llmeval.scoring.scorers.replies.number import NumberScorer
from pytest_llmeval.scoring.scorers.replies.pattern import PatternScorer
from pytest_llmeval.scoring.scorers.wrappers.epochs import COUNTING_REDUCTIONS, EpochsScorer
from pytest_llmeval.scoring.scorers.wrappers.filters import FilteredScorer, Pipeline, make_pipeline
from pytest_llmeval.scoring.scorers.wrappers.several import KEYS, Part, SeveralScorer
from pytest_llmeval.suites.format.epochs_spec import EpochsSpec, reduction_parts, reduction_problem
from pytest_llmeval.suites.format.filters_spec import FilterSettings
from pytest_llmeval.suites.format.schema import (
    ChoiceSettings,
    ExactSettings,
    LetterSettings,
    NumberSettings,
    PatternSettings,
    PerplexitySettings,
    ScoreSettings,
    YesNoSettings,
)
from pytest_llmeval.suites.format.score_settings import CustomSettings, OneScoreSettings, SeveralSettings
from pytest_llmeval.suites.format.score_settings.choices import ContinuationSettings, MassSettings
from pytest_llmeval.suites.format.score_settings.mathematics import MathSettings
from pytest_llmeval.suites.format.score_settings.replies import ContainsSettings, JsonSettings
from pytest_llmeval.suites.format.score_settings.several import PartSettings
from pytest_llmeval.suites.format.score_settings.texts import (
    BleuSettings,
    ChrfSettings,
    F1Settings,
    MeteorSettings,
    RougeSettings,
    TerSettings,
)
from pytest_llmeval.suites.loading.suite import NO_SCORERS
from pytest_llmeval.text.wording import Keys

__all__ = ["make_scorer", "suite_scorer"]


def suite_scorer(
    settings: ScoreSettings,
    custom: Mapping[str, Callable[..., Any]] = NO_SCORERS,
    *,
    filters: Sequence[FilterSettings] = (),
    epochs: EpochsSpec | None = None,
) -> Scorer:
    """The scorer of a suite with what the suite puts around it; ``custom`` are those registered from Python, by name.

    Each of several scorers has filters and epochs of its own, so that each reduces its own judgements.
    ``SettingsError`` says in one line what cannot be used.
    """
    pipeline = make_pipeline(filters)
    if not isinstance(settings, SeveralSettings):
        made = _made(settings, custom, ("score",))
        _check_reductions(epochs, settings, made, ("epochs", "reduce"))
        return _surrounded(made, pipeline, _FILTERS, epochs)
    parts = {}
    for name, part in settings.scorers.items():
        keys = (*KEYS, name)
        own = make_pipeline(part.filters, (*keys, "filters"))
        reduced = _reduced(epochs, part, keys)
        inner = _one_of_several(part.score, custom, (*keys, "score"))
        _check_reductions(
            reduced, part.score, inner, ("epochs", "reduce") if part.reduce is None else (*keys, "reduce")
        )
        where = (*keys, "filters") if own else _FILTERS
        parts[name] = Part(name, _surrounded(inner, pipeline + own, where, reduced))
    deciding = parts.pop(settings.deciding)
    return SeveralScorer(deciding, tuple(parts.values()))


_FILTERS: Keys = ("filters",)


def _surrounded(inner: Scorer, pipeline: Pipeline, keys: Keys, epochs: EpochsSpec | None) -> Scorer:
    scorer = FilteredScorer(inner, pipeline, keys) if pipeline else inner
    return (
        scorer if epochs is None else EpochsScorer(scorer, epochs.count, epochs.reduce, epochs.vote, epochs.threshold)
    )


def _reduced(epochs: EpochsSpec | None, part: PartSettings, keys: Keys) -> EpochsSpec | None:
    """The suite's epochs with the reductions of one of several scorers."""
    if part.reduce is None:
        return epochs
    if epochs is None:
        raise SettingsError("found it in a suite without epochs; add epochs, such as epochs: 8", (*keys, "reduce"))
    problem = reduction_problem(part.reduce, epochs.count)
    if problem is not None:
        raise SettingsError(problem, (*keys, "reduce"))
    return epochs.model_copy(update={"reduce": part.reduce})


def _check_reductions(epochs: EpochsSpec | None, settings: ScoreSettings, scorer: Scorer, keys: Keys) -> None:
    """Right replies can only be counted where the scorer says which are, or a threshold does.

    What a function in Python says that names neither its metrics nor what it returns, its scores show.
    """
    if epochs is None:
        return
    if "accuracy" in scorer.metrics:
        if epochs.threshold is not None:
            message = f"{scorer.name} says itself which replies are right; remove it"
            raise SettingsError(message, ("epochs", "threshold"))
        return
    if epochs.threshold is not None or (isinstance(settings, CustomSettings) and not _gives_numbers(scorer)):
        return
    for name in epochs.reduce:
        if reduction_parts(name)[0] in COUNTING_REDUCTIONS:
            who = settings.name if isinstance(settings, CustomSettings) else settings.kind
            raise SettingsError(
                f"{name} counts right replies, and {who} says of none whether it is right; use mean, mode or first, or "
                "say from which number on a reply is right: epochs.threshold",
                keys,
            )


def _gives_numbers(scorer: Scorer) -> bool:
    """Whether a scorer in Python says so before it judges: by the metrics that its function names, or ``-> float``."""
    from pytest_llmeval.scoring.scorers.python.custom import CustomScorer, returns_number

    return isinstance(scorer, CustomScorer) and (bool(scorer.metrics) or returns_number(scorer.judge))


def _one_of_several(settings: OneScoreSettings, custom: Mapping[str, Callable[..., Any]], keys: Keys) -> Scorer:
    if isinstance(settings, PerplexitySettings):
        raise SettingsError("perplexity reads whole texts and shares no request; give it a suite of its own", keys)
    if isinstance(settings, ChoiceSettings) and settings.continuation is not None:
        raise SettingsError("a continuation is for score: choice alone", (*keys, "choice", "continuation"))
    return _made(settings, custom, keys)


def _made(settings: ScoreSettings, custom: Mapping[str, Callable[..., Any]], keys: Keys) -> Scorer:
    """The scorer of settings that stand at ``keys``, which ``SettingsError`` then names."""
    try:
        return make_scorer(settings, custom)
    except SettingsError as error:
        raise SettingsError(str(error), (*keys, *error.keys)) from None
    except ValueError as error:
        raise SettingsError(str(error), keys) from None


def make_scorer(settings: ScoreSettings, custom: Mapping[str, Callable[..., Any]] = NO_SCORERS) -> Scorer:
    """The scorer of a suite; ``custom`` are those registered from Python, by name.

    ``ValueError`` says in one line why these settings cannot be used; the keys of a ``SettingsError`` lead on from
    those of ``settings``.
    """
    match settings:
        case ChoiceSettings():
            return ChoiceScorer(settings)
        case MassSettings():
            return MassScorer(settings)
        case ContinuationSettings():
            return ContinuationScorer(settings)
        case LetterSettings():
            return LetterScorer(settings)
        case YesNoSettings():
            return YesNoScorer(settings)
        case NumberSettings():
            return NumberScorer(settings)
        case ExactSettings():
            return ExactScorer.of(settings)
        case PatternSettings():
            return PatternScorer.of(settings)
        case ContainsSettings():
            return ContainsScorer.of(settings)
        case JsonSettings():
            return JsonScorer.of(settings)
        case MathSettings():
            return MathScorer.of(settings)
        case F1Settings():
            return F1Scorer(settings)
        case BleuSettings():
            return BleuScorer.of(settings)
        case RougeSettings():
            return RougeScorer.of(settings)
        case ChrfSettings():
            return ChrfScorer.of(settings)
        case TerSettings():
            return TerScorer.of(settings)
        case MeteorSettings():
            return MeteorScorer.of(settings)
        case PerplexitySettings():
            return PerplexityScorer(settings)
        case CustomSettings():
            from pytest_llmeval.scoring.scorers.python.custom import make_custom_scorer

            return make_custom_scorer(settings, custom)
        case SeveralSettings():
            return suite_scorer(settings, custom)
        case _:
            assert_never(settings)
