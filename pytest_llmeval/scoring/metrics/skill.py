"""Skill: accuracy on a scale on which guessing is 0, whatever number of options a sample shows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_llmeval.scoring.statistics.clustered import count_clusters, proportion_interval
from pytest_llmeval.scoring.statistics.intervals import CONFIDENCE, mean, normal_quantile, t_quantile, wilson_limits

__all__ = ["lowest_skill", "skill", "skill_interval"]


def skill(correct: float, chance: float) -> float:
    """``(correct - chance) / (1 - chance)``: 0 is guessing, 1 is perfect. ``ValueError`` unless 0 <= chance < 1."""
    if not 0 <= chance < 1:
        raise ValueError(f"skill needs a chance of at least 0 and below 1, found {chance}")
    return (correct - chance) / (1 - chance)


def lowest_skill(chances: Sequence[float | None]) -> float:
    """The skill of a model that is always wrong on the samples that carry ``skill``, which have these chances.

    A score's chance is that of the scorer that decides: of the skill of another one of several nothing is known, and
    the lowest is -inf.
    """
    known = _known(chances)
    if known is None:
        return -math.inf
    lowest = {chance: skill(0.0, chance) for chance in set(known)}
    return mean([lowest[chance] for chance in known])


def skill_interval(
    skills: Sequence[float], chances: Sequence[float | None], clusters: Sequence[int] | None = None
) -> tuple[float, float] | None:
    """The 95% interval of the mean skill of samples, where Student's t would not do; else None.

    ``chances[i]`` is that of the sample whose skill is ``skills[i]``.

    Where every sample has the same chance, skill is a linear function of accuracy, and has accuracy's interval on its
    own scale. Student's t would give an interval of no width to a model that is always right.

    Where chances differ and the model is always right, or always wrong, skill is ``1 - mean(w) * r``, of ``w = 1 / (1 -
    chance)`` and the share r of wrong answers in which a sample weighs w. The interval is then Wilson's of r, over as
    many samples as the weights are worth, ``sum(w)² / sum(w²)`` (L. Kish, Survey Sampling, 1965).

    None where a skill is not that of a right or a wrong answer, too. ``clusters[i]`` is that of ``skills[i]``, of
    which a cluster counts as one sample in the second case; ``ValueError`` for fewer than ``MIN_CLUSTERS``.
    """
    known = _known(chances)
    values = None if known is None else _rights(skills, known)
    if known is None or values is None:
        return None
    if len(set(known)) == 1:
        low, high = proportion_interval(values, clusters)
        return skill(low, known[0]), skill(high, known[0])
    if len(set(values)) > 1:
        return None
    weights = [1 / (1 - chance) for chance in known]
    worth, quantile = math.fsum(weights) ** 2 / math.fsum(weight**2 for weight in weights), normal_quantile(CONFIDENCE)
    if clusters is not None:
        num_clusters = count_clusters(clusters)
        worth, quantile = worth * num_clusters / len(values), t_quantile(num_clusters - 1, CONFIDENCE)
    low, high = wilson_limits(1 - values[0], worth, quantile)
    return 1 - mean(weights) * high, 1 - mean(weights) * low


def _known(chances: Sequence[float | None]) -> list[float] | None:
    """None where one of them is unknown, and where there are none."""
    known = [chance for chance in chances if chance is not None and 0 <= chance < 1]
    return known if known and len(known) == len(chances) else None


def _rights(skills: Sequence[float], chances: Sequence[float]) -> list[float] | None:
    """1 for the skill of a right answer at its chance, 0 for that of a wrong one; None where one is neither."""
    right, wrong = ({chance: skill(correct, chance) for chance in set(chances)} for correct in (1.0, 0.0))
    values = [
        1.0 if value == right[chance] else 0.0
        for value, chance in zip(skills, chances, strict=True)
        if value == right[chance] or value == wrong[chance]
    ]
    return values if len(values) == len(skills) else None
