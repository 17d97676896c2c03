"""What a summary says of how log-likelihoods were computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_llmeval.text.escaping import printable
from pytest_llmeval.types import EngineUse

__all__ = ["engine_lines"]


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
            line += f"; {num_audited} {requests} also scored plain, and differed by at most {max(differences):.0e}"
        elif engine == "tree":
            line += "; no request could be audited against plain scoring"
        yield line
