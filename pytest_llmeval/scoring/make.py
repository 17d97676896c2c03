"""From a suite's ``score`` settings to the scorer that judges by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any

from pytest_llmeval.scoring.base import Scorer, SettingsError, SettingsScorer
from pytest_llmeval.scoring.scorers.python.custom import make_custom_scorer
from pytest_llmeval.scoring.scorers.wrappers.epochs import COUNTING_REDUCTIONS, EpochsScorer
from pytest_llmeval.scoring.scorers.wrappers.filters import FilteredScorer, Pipeline, make_pipeline
from pytest_llmeval.scoring.scorers.wrappers.several import KEYS, Part, SeveralScorer
from pytest_llmeval.suites.format.epochs_spec import EpochsSpec, reduction_parts, reduction_problem
from pytest_llmeval.suites.format.filters_spec import FilterSettings
from pytest_llmeval.suites.format.score_settings import CustomSettings, PartSettings, ScoreSettings, SeveralSettings
from pytest_llmeval.suites.format.score_settings.scorer_settings import ScorerSettings
from pytest_llmeval.suites.loading.suite import NO_SCORERS
from pytest_llmeval.text.wording import Keys

__all__ = ["make_scorer", "scorer_class", "suite_scorer"]


def suite_scorer(
    settings: ScoreSettings,
    custom: Mapping[str, Callable[..., Any]] = NO_SCORERS,
    *,
    filters: Sequence[FilterSettings] = (),
    epochs: EpochsSpec | None = None,
    not_measurable: Mapping[str, float] = MappingProxyType({}),
) -> Scorer:
    """The scorer of a suite with what the suite puts around it; ``custom`` are those registered from Python, by name.

    Each of several scorers has filters and epochs of its own, so that each reduces its own judgements.
    ``SettingsError`` says in one line what cannot be used.
    """
    pipeline = make_pipeline(filters)
    if not isinstance(settings, SeveralSettings):
        made = _made(settings, custom, ("score",))
        _check_reductions(epochs, made, ("epochs", "reduce"))
        return _surrounded(made, pipeline, _FILTERS, epochs, not_measurable)
    parts = {}
    for name, part in settings.scorers.items():
        keys = (*KEYS, name)
        own = make_pipeline(part.filters, (*keys, "filters"))
        reduced = _reduced(epochs, part, keys)
        if part.score.why_alone is not None:
            message, own_keys = part.score.why_alone
            raise SettingsError(message, (*keys, "score", *own_keys))
        inner = _made(part.score, custom, (*keys, "score"))
        _check_reductions(reduced, inner, ("epochs", "reduce") if part.reduce is None else (*keys, "reduce"))
        where = (*keys, "filters") if own else _FILTERS
        prefix = "" if name == settings.deciding else f"{name}."
        numbers = {key.removeprefix(prefix): one for key, one in not_measurable.items() if key.startswith(prefix)}
        parts[name] = Part(name, _surrounded(inner, pipeline + own, where, reduced, numbers))
    deciding = parts.pop(settings.deciding)
    return SeveralScorer(deciding, tuple(parts.values()))


_FILTERS: Keys = ("filters",)


def _surrounded(
    inner: Scorer, pipeline: Pipeline, keys: Keys, epochs: EpochsSpec | None, not_measurable: Mapping[str, float]
) -> Scorer:
    scorer = FilteredScorer(inner, pipeline, keys) if pipeline else inner
    if epochs is None:
        return scorer
    return EpochsScorer(scorer, epochs.count, epochs.reduce, epochs.vote, epochs.threshold, dict(not_measurable))


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


def _check_reductions(epochs: EpochsSpec | None, scorer: Scorer, keys: Keys) -> None:
    """Right replies can only be counted where the scorer says which are, or a threshold does."""
    if epochs is None or scorer.tells_right_from_wrong is None:
        return
    if scorer.tells_right_from_wrong:
        if epochs.threshold is not None:
            message = f"{scorer.name} itself decides which replies are right; remove it"
            raise SettingsError(message, ("epochs", "threshold"))
        return
    if epochs.threshold is not None:
        return
    for name in epochs.reduce:
        if reduction_parts(name)[0] in COUNTING_REDUCTIONS:
            raise SettingsError(
                f"{name} counts right replies, and {scorer.name} does not decide whether a reply is right; use mean, "
                "mode or first, or set epochs.threshold, the lowest number of a right reply",
                keys,
            )


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
    if isinstance(settings, SeveralSettings):
        return suite_scorer(settings, custom)
    if isinstance(settings, CustomSettings):
        return make_custom_scorer(settings, custom)
    return scorer_class(settings).of(settings)


def scorer_class(settings: ScorerSettings | type[ScorerSettings]) -> type[SettingsScorer[Any]]:
    """The class that the settings name, imported on first use: what one scorer needs costs suites of others nothing."""
    module, _, name = settings.scorer.partition(":")
    found: type[SettingsScorer[Any]] = getattr(import_module(f"{__package__}.{module}"), name)
    return found
