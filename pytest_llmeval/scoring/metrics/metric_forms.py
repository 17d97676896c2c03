"""The part of a suite's settings that belongs to a metric's definition: BLEU of two tokenizers is two metrics of one
name.

A metric says how an answer compares with what is right, and how that is made one number. How the answer was found (a
prompt, filters, the normalisation of log-likelihoods) is no part of it: accuracy is accuracy in all suites.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import regex

from pytest_llmeval.scoring.metrics.definitions import is_known, split_name
from pytest_llmeval.types import JSON

__all__ = ["NOT_MEASURABLE", "metric_form", "metric_limits", "named_metrics"]

NOT_MEASURABLE = "not_measurable"
"""Among the settings of a suite: what a sample counts as on which a metric is not measurable, by metric."""

_SETTINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(sentence_)?bleu_\d+", ("tokenize", "smoothing", "smooth_value", "lowercase")),
    (r"(sentence_)?chrf(_p|_pp)?", ("beta", "lowercase", "whitespace")),
    (r"(sentence_)?ter", ("normalized", "no_punct", "asian_support", "case_sensitive")),
    (r"rouge_.+", ("stemmer",)),
    (r"meteor", ("synonyms", "stemmer", "tokenize", "alpha", "beta", "gamma")),
    (r"(word|byte|token)_perplexity|bits_per_byte", ("windows", "stride")),
    (r"(corrected_)?aspect(s|_.+)", ("scale",)),
    (r"(corrected_)?context_precision", ("k",)),
    (r"(corrected_)?answer_relevance(_ragas)?", ("questions",)),
    (r"(ndcg(_exp)?|judged)@\d+", ("ties", "no_relevant")),
    (
        r"(recall|precision|f1|hit_rate|ap|rr)(@\d+)?|r_precision|bpref",
        ("relevant_from", "ties", "no_relevant"),
    ),
)
"""By metrics, those of their scorer's settings that their formula depends on."""


def metric_form(name: str, scorer: str | None, settings: Mapping[str, JSON]) -> str:
    """Return the settings that the metric ``name`` depends on in a suite, such as ``tokenize 13a, smoothing exp``.

    ``scorer`` and ``settings`` are those of ``SuiteInfo``. Two suites of which this differs give two metrics under one
    name. Empty where no setting decides. A metric whose name is none of ours means what its scorer makes it mean.
    """
    prefix, base = split_name(name)
    numbers = settings.get(NOT_MEASURABLE)
    counts_as = f"{numbers[name]} where not measurable" if isinstance(numbers, Mapping) and name in numbers else None
    scorer, settings = _judge_of(prefix.removesuffix("."), scorer, settings)
    own = {key: value for key, value in settings.items() if key not in _NO_FORM}
    if not is_known(name) or base == "score":
        form = ", ".join(filter(None, (scorer, _shown(own, own)))) if scorer else ""
    else:
        form = _shown(own, _settings_of(base))
    return ", ".join(filter(None, (form, counts_as)))


_NO_FORM = ("kind", "filters", "epochs", "score", NOT_MEASURABLE)


@lru_cache(maxsize=4_096)
def _settings_of(base: str) -> tuple[str, ...]:
    return next((keys for pattern, keys in _SETTINGS if regex.fullmatch(pattern, base)), ())


def metric_limits(name: str, scorer: str | None, settings: Mapping[str, JSON]) -> tuple[float, float] | None:
    """Return the lowest and the highest value of a metric where a suite's settings say it: of ratings, their scale.

    ``scorer`` and ``settings`` as ``metric_form`` takes them.
    """
    prefix, base = split_name(name)
    _, settings = _judge_of(prefix.removesuffix("."), scorer, settings)
    if not _is_rating(base):
        return None
    scale = settings.get("scale")
    if not isinstance(scale, list | tuple) or len(scale) != 2:
        return None
    low, high = scale
    return (float(low), float(high)) if isinstance(low, int) and isinstance(high, int) else None


@lru_cache(maxsize=4_096)
def _is_rating(base: str) -> bool:
    return regex.fullmatch(r"(corrected_)?aspect(s|_.+)|judge\.human_mean", base) is not None


def named_metrics(scorer: str | None, settings: Mapping[str, JSON]) -> tuple[str, ...]:
    """Return what a suite's settings name as its metrics, as its scores carry them; nothing where they leave that to
    us.

    ``scorer`` and ``settings`` as ``metric_form`` takes them.
    """
    parts = settings.get("scorers")
    if scorer == "several" and isinstance(parts, Mapping) and parts:
        deciding = str(settings.get("decides") or next(iter(parts)))
        found: list[str] = []
        for name in parts:
            kind, own = _judge_of(str(name), scorer, settings)
            found += [metric if name == deciding else f"{name}.{metric}" for metric in named_metrics(kind, own)]
        return tuple(found)
    named = settings.get("metrics") if scorer in _NAMING else None
    return tuple(map(str, named)) if isinstance(named, list | tuple) else ()


_NAMING = ("rag", "retrieval")
"""Scorers with a setting for that."""


def _judge_of(part: str, scorer: str | None, settings: Mapping[str, JSON]) -> tuple[str | None, Mapping[str, JSON]]:
    """Return the one of several scorers that gives the metrics with this prefix; the deciding one's have none."""
    parts = settings.get("scorers")
    if scorer != "several" or not isinstance(parts, Mapping) or not parts:
        return scorer, settings
    name = part or settings.get("decides") or next(iter(parts))
    found = parts.get(str(name))
    score = found.get("score") if isinstance(found, Mapping) else None
    if not isinstance(score, Mapping):
        return scorer, settings
    return str(score.get("kind")), score


def _shown(settings: Mapping[str, JSON], keys: Mapping[str, JSON] | tuple[str, ...]) -> str:
    return ", ".join(f"{key} {_text(settings[key])}" for key in keys if settings.get(key) is not None)


def _text(value: JSON) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
