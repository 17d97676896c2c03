"""Which samples of a suite are scored by the slow path too, before the fast one is trusted with the suite."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

__all__ = ["choose_audited", "choose_spares"]

_ONE_IN = 200
_MOST = 16
"""Every process that runs the suite does the audit before its first answer, so a large suite's must stay small."""


def choose_audited(sizes: Mapping[str, int]) -> list[str]:
    """Return ids of the longest sample and of one in 200 others, at most 16 of those; ``sizes`` are lengths by id.

    The longest reaches across every limit that any sample does: a window, a switch of rotary angles. The others are
    drawn by their ids, so that no other sample, worker or run changes who they are.
    """
    if not sizes:
        return []
    longest = max(sizes, key=lambda sample_id: (sizes[sample_id], sample_id))
    others = sorted((sample_id for sample_id in sizes if sample_id != longest), key=_draw)
    return [longest, *others[: min(_MOST, len(sizes) // _ONE_IN)]]


def choose_spares(sizes: Mapping[str, int]) -> list[str]:
    """Return ids to try one after the other where none of those fits into the model: ever shorter ones."""
    by_size = sorted(sizes, key=lambda sample_id: (-sizes[sample_id], sample_id))
    places = {len(by_size) * part // 8 for part in range(8)} | {len(by_size) - 1}
    return [by_size[place] for place in sorted(places) if 0 < place < len(by_size)]


def _draw(sample_id: str) -> bytes:
    return hashlib.sha256(f"audit:{sample_id}".encode("utf-8", "surrogatepass")).digest()
