"""Skill: accuracy on a scale on which guessing is 0, whatever number of options a sample shows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_llmeval.scoring.statistics.clustered import count_clusters, proportion_interval
from pytest_llmeval.scoring.statistics.intervals import CONFIDENCE, mean, normal_quantile, t_quantile, wilson_limits
from pytest_llmeval.types import Score

__all__ = ["lowest_skill", "skill", "skill_interval"]


def skill(correct: float, chance: float) -> float:
    """``(correct - chance) / (1 - chance)``: 0 is guessing, 1 is perfect. ``ValueError`` unless 0 <= chance < 1."""
    if not 0 <= chance < 1:
        raise ValueError(f"skill needs a chance of at least 0 and below 1, found {chance}")
    return (correct - chance) / (1 - chance)


def lowest_skill(carriers: Sequence[Score]) -> float:
    """The skill of a model that is always wrong on these samples, which carry ``skill``; it depends on their chances.

    A score's chance is that of the scorer that decides: of the skill of another one of several nothing is known, and
    the lowest is -inf.
    """
    chances = _chances(carriers)
    return -math.inf if chances is None else mean([skill(0.0, chance) for chance in chances])


def skill_interval(carriers: Sequence[Score], clusters: Sequence[int] | None = None) -> tuple[float, float] | None:
    """The 95% interval of the mean skill of scores that carry ``skill``, where Student's t would not do; else None.

    Where every sample has the same chance, skill is a linear function of accuracy, and has accuracy's interval on its
    own scale. Student's t would give an interval of no width to a model that is always right.

    Where chances differ and the model is always right, or always wrong, skill is ``1 - mean(w) * r``, of ``w = 1 / (1 -
    chance)`` and the share r of wrong answers in which a sample weighs w. The interval is then Wilson's of r, over as
    many samples as the weights are worth, ``sum(w)² / sum(w²)`` (L. Kish, Survey Sampling, 1965).

    None where a skill is not that of a right or a wrong answer, too. ``clusters[i]`` is that of ``carriers[i]``, of
    which a cluster counts as one sample in the second case; ``ValueError`` for fewer than ``MIN_CLUSTERS``.
    """
    chances = _chances(carriers)
    if not chances:
        return None
    rights = [_right(score, chance) for score, chance in zip(carriers, chances, strict=True)]
    values = [float(right) for right in rights if right is not None]
    if len(values) < len(carriers):
        return None
    if len(set(chances)) == 1:
        low, high = proportion_interval(values, clusters)
        return skill(low, chances[0]), skill(high, chances[0])
    if len(set(values)) > 1:
        return None
    weights = [1 / (1 - chance) for chance in chances]
    worth, quantile = math.fsum(weights) ** 2 / math.fsum(weight**2 for weight in weights), normal_quantile(CONFIDENCE)
    if clusters is not None:
        num_clusters = count_clusters(clusters)
        worth, quantile = worth * num_clusters / len(values), t_quantile(num_clusters - 1, CONFIDENCE)
    low, high = wilson_limits(1 - values[0], worth, quantile)
    return 1 - mean(weights) * high, 1 - mean(weights) * low


def _chances(carriers: Sequence[Score]) -> list[float] | None:
    """None where one of them is unknown."""
    chances = [score.chance for score in carriers if score.chance is not None and 0 <= score.chance < 1]
    return chances if chances and len(chances) == len(carriers) else None


def _right(score: Score, chance: float) -> bool | None:
    value = score.values["skill"]
    if value == skill(1.0, chance):
        return True
    return False if value == skill(0.0, chance) else None
