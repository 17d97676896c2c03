"""When a drop against a baseline fails the run."""

from __future__ import annotations

from pytest_llmeval.reporting.gate_results import GateMode

__all__ = ["fails", "is_beyond"]

_ROUNDING = 1e-9


def fails(
    mode: GateMode, *, drop: float, margin: float, p_adjusted: float, alpha: float, largest_drop: float | None
) -> bool:
    """Whether a gate of this mode fails; ``largest_drop`` is the end of the drop's interval, None where there is none.

    ``significant``: the drop is significant at ``alpha`` and beyond the margin. ``margin``: it is beyond the margin.
    ``non-inferior``: nothing excludes a drop beyond the margin.
    """
    if mode == "non-inferior":
        return largest_drop is None or is_beyond(largest_drop, margin)
    return is_beyond(drop, margin) and (mode == "margin" or p_adjusted <= alpha)


def is_beyond(drop: float, margin: float) -> bool:
    """Whether ``drop`` is more than ``margin``, and not by rounding alone (0.70 - 0.69 is more than 0.01 as floats)."""
    return drop - margin > _ROUNDING * max(1.0, abs(margin))
