"""Skill: accuracy on a scale on which guessing is 0, whatever number of options a sample shows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_llmeval.scoring.statistics.clustered import estimate_mean, is_rare, proportion_interval, t_of
from pytest_llmeval.scoring.statistics.intervals import CONFIDENCE, mean, normal_quantile, wilson_limits

__all__ = ["lowest_skill", "skill", "skill_interval"]


def skill(correct: float, chance: float) -> float:
    """Return ``(correct - chance) / (1 - chance)``: 0 is guessing, 1 is perfect. ``ValueError`` unless 0 <= chance <
    1.
    """
    if not 0 <= chance < 1:
        raise ValueError(f"skill needs a chance of at least 0 and below 1, found {chance}")
    return (correct - chance) / (1 - chance)


def lowest_skill(chances: Sequence[float | None]) -> float:
    """Return the skill of a model that is always wrong on the samples that carry ``skill``, which have these chances.

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
    """Return the 95% interval of the mean skill of right and wrong answers; None where a skill is that of neither.

    ``chances[i]`` is that of the sample whose skill is ``skills[i]``, ``clusters[i]`` its cluster.

    Where every sample has the same chance, skill is a linear function of accuracy, and has accuracy's interval on its
    own scale. Where chances differ, skill is ``1 - mean(w) * r``, of ``w = 1 / (1 - chance)`` and the share r of wrong
    answers in which a sample weighs w. The interval is then Wilson's of r, over as many samples as would have the
    standard error of the skill (``clustered.worth_of``); where all are right, or all wrong, over as many as the weights
    are worth, ``sum(w)² / sum(w²)`` (L. Kish, Survey Sampling, 1965), or that share of the clusters.

    ``ValueError`` for fewer than ``MIN_CLUSTERS``.
    """
    known = _known(chances)
    values = None if known is None else _rights(skills, known)
    if known is None or values is None:
        return None
    if len(set(known)) == 1:
        low, high = proportion_interval(values, clusters)
        return skill(low, known[0]), skill(high, known[0])
    weights = [1 / (1 - chance) for chance in known]
    total, found = math.fsum(weights), estimate_mean(skills, clusters)
    worth = total**2 / math.fsum(weight**2 for weight in weights)
    quantile = normal_quantile(CONFIDENCE)
    if found is not None and clusters is not None:
        worth, quantile = worth * found.num_effective / len(values), t_of(found)
    scale = total / len(weights)
    wrong = math.fsum(weight for weight, value in zip(weights, values, strict=True) if not value) / total
    if found is not None and 0 < wrong < 1 and found.stderr > 0:
        worth = wrong * (1 - wrong) * (scale / found.stderr) ** 2
        if clusters is not None and is_rare(min(wrong, 1 - wrong), found):
            worth = min(worth, found.num_effective)
    low, high = wilson_limits(wrong, worth, quantile)
    return 1 - scale * high, 1 - scale * low


def _known(chances: Sequence[float | None]) -> list[float] | None:
    """Return the values; None where one of them is unknown, and where there are none."""
    known = [chance for chance in chances if chance is not None and 0 <= chance < 1]
    return known if known and len(known) == len(chances) else None


def _rights(skills: Sequence[float], chances: Sequence[float]) -> list[float] | None:
    """Return 1 for the skill of a right answer at its chance, 0 for that of a wrong one; None where one is neither."""
    right, wrong = ({chance: skill(correct, chance) for chance in set(chances)} for correct in (1.0, 0.0))
    values = [
        1.0 if value == right[chance] else 0.0
        for value, chance in zip(skills, chances, strict=True)
        if value == right[chance] or value == wrong[chance]
    ]
    return values if len(values) == len(skills) else None
