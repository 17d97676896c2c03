"""When a drop against a baseline fails the run."""

from __future__ import annotations

from pytest_llmeval.reporting.gate_results import GateMode

__all__ = ["fails", "is_beyond"]

_ROUNDING = 1e-9
_NUMERIC_NOISE = 1e-4


def fails(
    mode: GateMode,
    *,
    drop: float,
    margin: float,
    p_adjusted: float,
    alpha: float,
    largest_drop: float | None,
    baseline: float = 0.0,
) -> bool:
    """Whether a gate of this mode fails; ``largest_drop`` is the end of the drop's interval, None where there is none.

    ``significant``: the drop is significant at ``alpha`` and beyond the margin, which is at least a ten-thousandth of
    the ``baseline``'s value: another batch size or processor shifts every logprob by as little, and a shift of all
    samples is significant however small it is. ``margin``: it is beyond the margin. ``non-inferior``: nothing excludes
    a drop beyond the margin.
    """
    if mode == "non-inferior":
        return largest_drop is None or is_beyond(largest_drop, margin)
    if mode == "margin":
        return is_beyond(drop, margin)
    return is_beyond(drop, max(margin, _NUMERIC_NOISE * abs(baseline))) and p_adjusted <= alpha


def is_beyond(drop: float, margin: float) -> bool:
    """Whether ``drop`` is more than ``margin``, and not by rounding alone (0.70 - 0.69 is more than 0.01 as floats)."""
    return drop - margin > _ROUNDING * max(1.0, abs(margin))
