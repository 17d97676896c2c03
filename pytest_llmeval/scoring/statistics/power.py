"""The smallest drop that a paired test would find: what a gate that passed has ruled out."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["POWER", "mcnemar_power", "smallest_drop_of_mcnemar", "smallest_drop_of_mean"]

POWER = 0.9
"""How likely the smallest detectable drop is to be found."""

_TOLERANCE = 1e-4
_REACH = 7.5
"""Standard deviations of the number of flipped samples that are summed over."""


def smallest_drop_of_mcnemar(n: int, discordance: float, level: float, power: float = POWER) -> float | None:
    """Return the smallest drop of accuracy that McNemar's exact one-sided test finds with this power, of ``n`` samples.

    ``discordance`` is the share of samples that flip either way; a drop beyond it raises it, all flips then being for
    the worse. Correct to 1e-4, rounded up; None where even a drop of 1 is not found, of too few samples.
    """
    if mcnemar_power(n, discordance, 1.0, level) < power:
        return None
    low, high = 0.0, 1.0
    while high - low > _TOLERANCE:
        middle = (low + high) / 2
        if mcnemar_power(n, discordance, middle, level) < power:
            low = middle
        else:
            high = middle
    return high


def mcnemar_power(n: int, discordance: float, drop: float, level: float) -> float:
    """Return how likely McNemar's exact one-sided test at ``level`` is to find a true ``drop`` of ``n`` samples.

    The number of flipped samples is binomial with probability ``max(discordance, drop)``, and each of them became worse
    with probability ``(1 + drop / discordance) / 2``: summed over both, without the normal approximation of R. J.
    Connor (1987, doi:10.2307/2531961), which is too hopeful of few flips. ``ValueError`` for what is not a probability.
    """
    import numpy as np
    from scipy.special import bdtrc, gammaln, xlog1py, xlogy

    if n < 1 or not (0 <= discordance <= 1 and 0 <= drop <= 1 and 0 < level < 1):
        raise ValueError(f"no power of n {n}, discordance {discordance}, drop {drop}, level {level}")
    flips = max(discordance, drop)
    if flips == 0:
        return 0.0
    spread = _REACH * math.sqrt(n * flips * (1 - flips)) + 10
    fewest, most = max(0, math.floor(n * flips - spread)), min(n, math.ceil(n * flips + spread))
    counts, needed = np.arange(fewest, most + 1), _worse_needed(fewest, most, level)
    log_weights = gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)
    weights = np.exp(log_weights + xlogy(counts, flips) + xlog1py(n - counts, -flips))
    found = np.where(needed > counts, 0.0, bdtrc(np.maximum(needed - 1, 0), counts, min(1.0, (1 + drop / flips) / 2)))
    return float(np.sum(weights * found))


def smallest_drop_of_mean(stderr: float | None, level: float, power: float = POWER) -> float | None:
    """Return the smallest drop of a mean that a one-sided test finds with this power, in the metric's unit.

    ``(z(1 - level) + z(power)) * stderr`` with the standard error of the paired difference (of clusters, theirs): the
    normal approximation. None where there is none.
    """
    if not stderr:
        return None
    return (NormalDist().inv_cdf(1 - level) + NormalDist().inv_cdf(power)) * stderr


@lru_cache(maxsize=8)  # a search tries many drops that leave the number of flipped samples as it is
def _worse_needed(fewest: int, most: int, level: float) -> NDArray[np.int64]:
    """Return how many of ``fewest``, …, ``most`` flipped samples must have become worse for ``p <= level``.

    One more than all of them where no number is enough: k flips with ``0.5 ** k > level`` are never significant.
    """
    import numpy as np
    from scipy.special import bdtr, bdtrik

    # p is the chance of at most `better` of the flipped ones: the largest such number, from a continuous start.
    flipped = np.arange(fewest, most + 1)
    with np.errstate(all="ignore"):
        start = np.nan_to_num(np.floor(bdtrik(level, flipped, 0.5)), nan=-1.0, posinf=-1.0, neginf=-1.0)
    better = np.clip(start, -1, flipped).astype(np.int64) + 1
    for _ in range(3):
        too_many = (better >= 0) & (bdtr(np.maximum(better, 0), flipped, 0.5) > level)
        better = np.where(too_many, better - 1, better)
    return np.asarray(np.where(better < 0, flipped + 1, flipped - better), dtype=np.int64)
