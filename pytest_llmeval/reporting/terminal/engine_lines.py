"""What a summary says of how log-likelihoods were computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_llmeval.models.base import EngineUse
from pytest_llmeval.text.escaping import printable

__all__ = ["engine_lines", "merged"]


_MIXED = "; other workers passed the audit and went by the tree"


def merged(one: EngineUse | None, other: EngineUse) -> EngineUse:
    """What two processes found about one suite: the worse of the two, and how much was audited at the most.

    Both audited the same samples, so their counts are not added.
    """
    if one is None:
        return other
    worse = max(one, other, key=lambda use: (use.engine == "plain", use.largest_difference or 0.0))
    mixed = "" if one.engine == other.engine or _MIXED in worse.reason else _MIXED
    return replace(worse, reason=worse.reason + mixed, num_audited=max(one.num_audited, other.num_audited))


def engine_lines(uses: Sequence[tuple[str, EngineUse]]) -> Iterator[str]:
    """One line for each way in which suites were computed; ``uses`` are (suite, what was done)."""
    ways: dict[tuple[str, str], list[tuple[str, EngineUse]]] = {}
    for suite, use in uses:
        ways.setdefault((use.engine, use.reason), []).append((suite, use))
    for (engine, reason), members in ways.items():
        line = f"log-likelihoods: {engine} ({printable(reason)})"
        if len(ways) > 1:
            line += f" for {', '.join(printable(suite) for suite, _ in members)}"
        differences = [use.largest_difference for _, use in members if use.largest_difference is not None]
        if differences:
            num_audited = sum(use.num_audited for _, use in members)
            requests = "request was" if num_audited == 1 else "requests were"
            line += f"; {num_audited} {requests} scored plain too, and differed by {max(differences):.0e} at most"
        elif engine == "tree":
            line += "; nothing of it could be checked against plain scoring"
        yield line
