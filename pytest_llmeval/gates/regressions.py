"""Decides whether a drop against a baseline fails the run, and words the result in one line."""

from __future__ import annotations

import math

from pytest_llmeval.gates.subjects import USAGE_METRICS
from pytest_llmeval.reporting.report.report import Regression
from pytest_llmeval.reporting.tables.cells import number, small_number
from pytest_llmeval.scoring.paired_metrics import PairedMetric
from pytest_llmeval.text.wording import counted

__all__ = [
    "fails",
    "is_beyond",
    "numeric_noise",
    "regression_reason",
    "too_few_measured",
    "undecided_reason",
]

_ROUNDING = 1e-9
_NUMERIC_NOISE = 1e-4


def fails(found: Regression, largest_drop: float | None) -> bool:
    """Tell whether the gate fails; ``largest_drop`` is the end of the drop's interval, or None if it has none.

    ``significant``: the drop is significant at ``alpha``, and beyond the margin and the noise. ``margin``: it is beyond
    the margin. ``non-inferior``: nothing excludes a drop beyond the margin.
    """
    values = found.baseline, found.current
    if found.mode == "non-inferior":
        return largest_drop is None or is_beyond(largest_drop, found.margin, values)
    if found.mode == "margin":
        return is_beyond(found.drop, found.margin, values)
    return found.p_adjusted <= found.alpha and is_beyond(found.drop, max(found.margin, found.noise), values)


def _is_within_noise(found: Regression) -> bool:
    """Tell whether a drop fails nothing only because it is within the noise."""
    values = found.baseline, found.current
    return (
        found.mode == "significant"
        and found.p_adjusted <= found.alpha
        and is_beyond(found.drop, found.margin, values)
        and not is_beyond(found.drop, found.noise, values)
    )


def numeric_noise(baseline: float) -> float:
    """Return the drop that is attributed to rounding if no margin was given: a ten-thousandth of the baseline's value.

    Another batch size or processor shifts every logprob by about as much, and a shift of all samples is significant
    however small it is. Rounding is relative to the value, so a metric whose zero has no meaning (an elo, a score that
    starts at 1,000) can have a real drop below this, and needs a margin of its own.
    """
    return _NUMERIC_NOISE * abs(baseline)


def is_beyond(drop: float, margin: float, values: tuple[float, float]) -> bool:
    """Tell whether ``drop`` is more than ``margin``, and not by rounding alone: as floats, 0.70 - 0.69 is above 0.01.

    Rounding errors are relative to the largest of the two ``values`` that the drop lies between, and the margin.
    """
    return drop - margin > _ROUNDING * max(*map(abs, values), margin)


_MAX_DECIMALS = 9


def regression_reason(found: Regression, *, flipped_to: tuple[str, str] | None, largest_drop: float | None) -> str:
    """Return ``accuracy 0.700 -> 0.650: -0.050 [-0.071, -0.029], p = 0.0004 (Holm over 20: 0.008), 90 samples …``.

    A significant improvement begins with ``improved:`` and has its own p-values. ``flipped_to`` are words for samples
    that became worse and better, or None if the metric is not made of single samples' values.
    ``largest_drop`` is the end of the drop's interval, as ``fails`` takes it.
    """
    has_improved = found.p_improved_adjusted <= found.alpha and found.drop < 0
    p, adjusted = found.p_value, found.p_adjusted
    if has_improved:
        p, adjusted = found.p_improved, found.p_improved_adjusted
    of_family = f" (Holm over {found.family}: {_rounded(adjusted)})" if found.family > 1 else ""
    clusters = "" if found.num_clusters is None else f" in {found.num_clusters:,} clusters"
    parts = [f"{_effect(found)}, n {found.n:,}{clusters}", f"p {_p_value(p)}{of_family}"]
    if flipped_to is not None:
        worse, better = flipped_to
        parts.append(f"{counted(found.num_worse, 'sample')} became {worse} and {found.num_better:,} {better}")
    clauses = [", ".join(parts), *_margin_clauses(found, largest_drop)]
    if found.smallest_drop is not None:
        clauses.append(f"a drop of {_size(found.smallest_drop)} would be found (90% power)")
    return ("improved: " if has_improved else "") + "; ".join(clauses)


def too_few_measured(metric: str, paired: PairedMetric, num_unscored: int, min_measurable: float) -> str | None:
    """Return why too few pairs have a value on both sides, or None if they are enough.

    ``num_unscored`` pairs are unscored on a side or both. Pairs that are not measurable on both sides do not count: the
    metric has no meaning for them.
    """
    num_one_sided = paired.num_lost + paired.num_gained
    num_lacking = num_one_sided + num_unscored
    num_pairs = paired.difference.n + num_lacking
    if num_lacking <= (1 - min_measurable) * num_pairs + _ROUNDING:
        return None
    sides = f"now: {paired.num_lost:,}, in the baseline: {paired.num_gained:,}"
    what, hint = "not measurable", "; not_measurable in the suite can say what such a sample counts as"
    if num_unscored:
        what = "not measured"
        sides = f"unscored: {num_unscored:,}" + (f"; not measurable {sides}" if num_one_sided else "")
    return (
        f"{metric} is {what} on one side of {num_lacking:,} of {num_pairs:,} pairs ({sides}); a comparison needs "
        f"values on both sides of at least {min_measurable:.4g} of the pairs "
        f"(min_measurable){hint if num_one_sided else ''}"
    )


def undecided_reason(found: Regression, level: float) -> str:
    """Return the reason why a test that could not have failed decides nothing.

    Where all of n samples became worse, the sign test's p is 0.5 to the power of n, which has to be at most ``level``.
    """
    units, count = ("samples", found.n) if found.num_clusters is None else ("clusters", found.num_clusters)
    least = math.ceil(-math.log2(level))
    return f"undecided: too few {units} for any drop to be significant ({count:,}; at least {least:,} are needed)"


def _effect(found: Regression) -> str:
    values = found.baseline, found.current
    difference = found.difference if is_beyond(abs(found.difference), 0.0, values) else 0.0
    decimals = _decimals(difference)
    interval = ""
    if found.ci_low is not None and found.ci_high is not None:
        interval = f" [{_fixed(found.ci_low, decimals)}, {_fixed(found.ci_high, decimals)}]"
    sign = "+" if difference > 0 else ""
    write = small_number if found.metric in USAGE_METRICS else number
    before, after = (write(value) if decimals <= _MAX_DECIMALS else _fixed(value, decimals) for value in values)
    return f"{found.metric} {before} -> {after}: {sign}{_fixed(difference, decimals)}{interval}"


def _margin_clauses(found: Regression, largest_drop: float | None) -> list[str]:
    margin, values = _size(found.margin), (found.baseline, found.current)
    where = f"{'beyond' if is_beyond(found.drop, found.margin, values) else 'within'} the margin {margin}"
    if found.mode == "margin":
        rate = "" if found.false_alarm_rate is None else f"{found.false_alarm_rate:.1%}"
        return [where, f"a drop beyond it is seen in {rate} of runs in which nothing has changed"]
    if found.mode == "non-inferior":
        if largest_drop is None:
            return [f"without an interval a drop beyond the margin {margin} is not excluded"]
        if found.ci_low is None:
            return ["no sample's value has changed"]
        said = "is not excluded" if is_beyond(largest_drop, found.margin, values) else "is excluded"
        return [f"a drop beyond the margin {margin} {said}"]
    if _is_within_noise(found):
        return [f"within numeric noise {_size(found.noise)}"]
    if found.margin and found.drop > 0:
        return [where]
    return []


def _p_value(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"= {_rounded(p)}"


def _rounded(p: float) -> str:
    if p < 0.0001:
        return "< 0.0001"
    return f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def _size(value: float) -> str:
    return _fixed(value, _decimals(value))


def _decimals(value: float) -> int:
    """Return three decimals, or more if three would show zero; above ``_MAX_DECIMALS`` it takes an exponent."""
    decimals = 3
    while value and abs(value) < 5 * 10**-decimals and decimals <= _MAX_DECIMALS:
        decimals += 1
    return decimals


def _fixed(value: float, decimals: int) -> str:
    if decimals > _MAX_DECIMALS:
        return f"{value:.2e}"
    return number(value) if decimals == 3 or abs(value) >= 1000 else f"{value:.{decimals}f}"
