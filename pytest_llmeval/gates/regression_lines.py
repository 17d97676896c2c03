"""What a test against a baseline found, in one line."""

from __future__ import annotations

from pytest_llmeval.gates.verdict import is_beyond
from pytest_llmeval.reporting.gate_results import Regression
from pytest_llmeval.reporting.tables import number

__all__ = ["regression_reason", "undecided_reason"]


def regression_reason(found: Regression, *, flipped_to: tuple[str, str] | None) -> str:
    """``accuracy 0.700 -> 0.650: -0.050 [-0.071, -0.029], p = 0.0004 (Holm over 20: 0.008), 90 samples became …``.

    An improvement that is significant begins with ``improved:`` and has its own p-values. ``flipped_to`` says what
    samples became, for the worse and for the better; None where they have no part of their own in the metric.
    """
    has_improved = found.p_improved_adjusted <= found.alpha and found.drop < 0
    p, adjusted = found.p_value, found.p_adjusted
    if has_improved:
        p, adjusted = found.p_improved, found.p_improved_adjusted
    of_family = f" (Holm over {found.family}: {_rounded(adjusted)})" if found.family > 1 else ""
    clusters = "" if found.num_clusters is None else f" in {found.num_clusters:,} clusters"
    parts = [f"{_effect(found)}, n {found.n:,}{clusters}", f"p {_p_value(p)}{of_family}"]
    if flipped_to is not None:
        samples = "sample" if found.num_worse == 1 else "samples"
        worse, better = flipped_to
        parts.append(f"{found.num_worse:,} {samples} became {worse} and {found.num_better:,} {better}")
    clauses = [", ".join(parts), *_verdict(found)]
    if found.smallest_drop is not None:
        clauses.append(f"a drop of {_size(found.smallest_drop)} would be found (90% power)")
    return ("improved: " if has_improved else "") + "; ".join(clauses)


def undecided_reason(found: Regression) -> str:
    """Of a test that passes whatever happened: a gate that cannot fail decides nothing."""
    units, count = ("samples", found.n) if found.num_clusters is None else ("clusters", found.num_clusters)
    return f"undecided, for no drop can be significant with so few {units} ({count:,})"


def _effect(found: Regression) -> str:
    decimals = _decimals(found.difference)
    interval = ""
    if found.ci_low is not None and found.ci_high is not None:
        interval = f" [{_fixed(found.ci_low, decimals)}, {_fixed(found.ci_high, decimals)}]"
    sign = "+" if found.difference > 0 else ""
    return (
        f"{found.metric} {number(found.baseline)} -> {number(found.current)}: "
        f"{sign}{_fixed(found.difference, decimals)}{interval}"
    )


def _verdict(found: Regression) -> list[str]:
    margin = _size(found.margin)
    if found.mode == "margin":
        rate = "" if found.false_alarm_rate is None else f"{found.false_alarm_rate:.1%}"
        where = f"beyond the margin {margin}" if is_beyond(found.drop, found.margin) else f"within the margin {margin}"
        return [where, f"a drop beyond it is seen in {rate} of runs in which nothing has changed"]
    if found.mode == "non-inferior":
        end = found.ci_low if found.higher_is_better else found.ci_high
        if end is None:
            return [f"without an interval a drop beyond the margin {margin} is not excluded"]
        largest = -end if found.higher_is_better else end
        said = "is not excluded" if is_beyond(largest, found.margin) else "is excluded"
        return [f"a drop beyond the margin {margin} {said}"]
    if found.margin and found.drop > 0:
        return [f"{'beyond' if is_beyond(found.drop, found.margin) else 'within'} the margin {margin}"]
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
    """Three, as everywhere; more of what three would show as nothing."""
    decimals = 3
    while value and abs(value) < 5 * 10**-decimals and decimals < 9:
        decimals += 1
    return decimals


def _fixed(value: float, decimals: int) -> str:
    return number(value) if decimals == 3 or abs(value) >= 1000 else f"{value:.{decimals}f}"
