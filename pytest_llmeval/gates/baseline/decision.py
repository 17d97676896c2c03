"""When a drop against a baseline fails the run."""

from __future__ import annotations

from pytest_llmeval.reporting.report.gate_results import Regression

__all__ = ["fails", "is_beyond", "is_within_noise", "numeric_noise"]

_ROUNDING = 1e-9
_NUMERIC_NOISE = 1e-4


def fails(found: Regression, largest_drop: float | None) -> bool:
    """Whether the gate fails; ``largest_drop`` is the end of the drop's interval, None where there is none.

    ``significant``: the drop is significant at ``alpha``, and beyond the margin and the noise. ``margin``: it is beyond
    the margin. ``non-inferior``: nothing excludes a drop beyond the margin.
    """
    values = found.baseline, found.current
    if found.mode == "non-inferior":
        return largest_drop is None or is_beyond(largest_drop, found.margin, values)
    if found.mode == "margin":
        return is_beyond(found.drop, found.margin, values)
    return found.p_adjusted <= found.alpha and is_beyond(found.drop, max(found.margin, found.noise), values)


def is_within_noise(found: Regression) -> bool:
    """Whether a drop fails nothing for the noise alone."""
    values = found.baseline, found.current
    return (
        found.mode == "significant"
        and found.p_adjusted <= found.alpha
        and is_beyond(found.drop, found.margin, values)
        and not is_beyond(found.drop, found.noise, values)
    )


def numeric_noise(baseline: float) -> float:
    """The drop that is attributed to rounding where no margin was given: a ten-thousandth of the baseline's value.

    Another batch size or processor shifts every logprob by as little, and a shift of all samples is significant however
    small it is. It is a guess at rounding and at nothing else, which is relative to the value; a metric whose zero has
    no meaning (an elo, a score that starts at 1,000) can have a real drop below it, and takes a margin of its own.
    """
    return _NUMERIC_NOISE * abs(baseline)


def is_beyond(drop: float, margin: float, values: tuple[float, float]) -> bool:
    """Whether ``drop`` is more than ``margin``, and not by rounding alone (0.70 - 0.69 is more than 0.01 as floats).

    What rounding can do is relative to the largest of the two ``values`` that the drop lies between, and the margin.
    """
    return drop - margin > _ROUNDING * max(*map(abs, values), margin)
