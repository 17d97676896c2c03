"""How the requests of a session were run, summed over processes."""

from __future__ import annotations

from dataclasses import replace

from pytest_llmeval.types import EngineUse

__all__ = ["merged"]

_MIXED = "; other workers passed the audit and used the tree"


def merged(one: EngineUse | None, other: EngineUse) -> EngineUse:
    """What two processes found about one suite: the worse of the two, and how much was audited at the most.

    Both audited the same samples, so their counts are not added.
    """
    if one is None:
        return other
    worse = max(one, other, key=lambda use: (use.engine == "plain", use.largest_difference or 0.0))
    mixed = "" if one.engine == other.engine or _MIXED in worse.reason else _MIXED
    return replace(worse, reason=worse.reason + mixed, num_audited=max(one.num_audited, other.num_audited))
