"""What gates found, as a terminal shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pytest_llmeval.reporting.report.gate_results import GateOutcome, GateResult
from pytest_llmeval.reporting.terminal.suite_texts import named
from pytest_llmeval.reporting.terminal.tables import Coloured, wrapped_lines
from pytest_llmeval.text.escaping import printable

__all__ = ["MAX_FAILED", "OUTCOMES", "count_line", "gate_lines", "gate_name", "is_better"]

OUTCOMES: tuple[GateOutcome, ...] = ("failed", "skipped", "passed")
"""As they are shown: first what a reader has to act on."""

_FAILED, _BETTER = "red", "green"
"""Nothing else of gates has a colour: what a reader has to act on, and what is significant."""

MAX_FAILED = 50
_MAX_OTHERS = 10


def gate_lines(results: Sequence[GateResult], names: Mapping[str, str], *, width: int) -> Iterator[str]:
    """How many gates came out how; then each that failed, that was compared with a baseline, or that is one of few.

    ``names`` are those of ``short_model_names``. Gates that were skipped for one reason share a line.
    """
    if not results:
        return
    yield count_line(results)
    for outcome in OUTCOMES:
        baseline = [result for result in results if result.outcome == outcome and result.kind == "baseline"]
        threshold = [result for result in results if result.outcome == outcome and result.kind == "threshold"]
        match outcome:
            case "failed":
                yield from _listed([*baseline, *threshold], names, MAX_FAILED, width)
            case "skipped":
                yield from _skipped([*baseline, *threshold], names, width)
            case "passed":
                yield from _listed(baseline, names, MAX_FAILED, width)
                if len(threshold) <= _MAX_OTHERS:
                    yield from _listed(threshold, names, _MAX_OTHERS, width)


def count_line(results: Sequence[GateResult]) -> str:
    """``gates: 1 failed, 3 passed``."""
    counts = Counter(result.outcome for result in results)
    parts: list[str] = []
    for outcome in OUTCOMES:
        if counts[outcome]:
            parts += [
                ", " if parts else "gates: ",
                Coloured(f"{counts[outcome]} {outcome}", _FAILED if outcome == "failed" else None),
            ]
    return Coloured.joined(parts)


def gate_name(result: GateResult, names: Mapping[str, str], *, separator: str = ", ") -> str:
    """``boolq (gpt2), accuracy >= 0.6``; not yet ``printable``."""
    if result.suite is None:
        return result.name
    return f"{named(result.suite, result.model, names)}{separator}{result.name}"


def _listed(results: Sequence[GateResult], names: Mapping[str, str], limit: int, width: int) -> Iterator[str]:
    for result in results[:limit]:
        colour = _FAILED if result.outcome == "failed" else _BETTER if is_better(result) else None
        text = f"{result.outcome}: {gate_name(result, names)}: {result.reason}"
        lines = wrapped_lines(printable(text), width=width, indent="  ")
        if result.notes:
            lines += wrapped_lines(f"  {printable('; '.join(result.notes))}", width=width, indent="    ")
        yield from (Coloured(line, colour) for line in lines)
    if len(results) > limit:
        yield f"… and {len(results) - limit} more that {results[0].outcome}, all in the report"


def is_better(result: GateResult) -> bool:
    """Whether the metric has become better, significantly."""
    found = result.regression
    return found is not None and found.drop < 0 and found.p_improved_adjusted <= found.alpha


def _skipped(results: Sequence[GateResult], names: Mapping[str, str], width: int) -> Iterator[str]:
    """One line for each reason: a session of one suite can skip as many gates as its baseline has suites."""
    by_reason: dict[str, list[str]] = {}
    for result in results:
        by_reason.setdefault(result.reason, []).append(gate_name(result, names))
    for reason, gates in [*by_reason.items()][:_MAX_OTHERS]:
        shown = "; ".join(gates[:_MAX_OTHERS])
        if len(gates) > _MAX_OTHERS:
            shown += f"; and {len(gates) - _MAX_OTHERS} more"
        yield from wrapped_lines(printable(f"skipped: {shown}: {reason}"), width=width, indent="  ")
    if len(by_reason) > _MAX_OTHERS:
        yield f"… and {len(by_reason) - _MAX_OTHERS} more reasons, all in the report"
