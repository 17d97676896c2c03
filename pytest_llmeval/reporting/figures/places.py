"""Where short texts stand beside points, so that they can be read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Box", "places_beside"]

_HEIGHT = 0.095
"""Inches of the digits of a text."""
_MARK = 0.045
"""From the middle of a point's mark to its edge."""
_GAP, _RISE = 0.056, 0.07
"""From the middle of a point to the edge of its text, and to its middle."""
_FURTHER = 0.09
"""How much further a text can stand if there is no room at its point."""
_ROUNDING = 1e-9


class Box(NamedTuple):
    left: float
    low: float
    right: float
    high: float

    def overlap(self, other: Box) -> float:
        """The area that both have."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.high, other.high) - max(self.low, other.low)
        return width * height if width > 0 and height > 0 else 0.0


def places_beside(
    points: Sequence[tuple[float, float]],
    widths: Sequence[float],
    *,
    marks: Sequence[tuple[float, float]],
    inside: Box,
) -> list[tuple[float, float]]:
    """For each point, from there to its text's left end and middle, all in inches.

    A text of this width stands at the first place where it covers no text before it and no mark, and is ``inside``;
    where there is none, at the one where it covers least.
    """
    taken = [Box(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in marks]
    found = []
    for (x, y), width in zip(points, widths, strict=True):
        places = _places(width)
        boxes = [Box(x + right, y + up - _HEIGHT / 2, x + right + width, y + up + _HEIGHT / 2) for right, up in places]
        chosen, least = 0, math.inf
        for place, box in enumerate(boxes):
            covered = sum(box.overlap(one) for one in taken) + width * _HEIGHT - box.overlap(inside)
            if covered < least - _ROUNDING:
                chosen, least = place, covered
            if least < _ROUNDING:
                break
        found.append(places[chosen])
        taken.append(boxes[chosen])
    return found


def _places(width: float) -> list[tuple[float, float]]:
    """From a point to a text's left end and middle: right of it and left, then above and below, then further away."""
    near = [(side, rise) for side in (_GAP, -_GAP - width) for rise in (_RISE, -_RISE, 0.0)]
    above = [(-width / 2, rise) for rise in (_RISE + _MARK, -_RISE - _MARK)]
    far = [(side, rise) for side in (_GAP, -_GAP - width, -width / 2) for rise in (_RISE + _FURTHER, -_RISE - _FURTHER)]
    return [*near, *above, *far]
