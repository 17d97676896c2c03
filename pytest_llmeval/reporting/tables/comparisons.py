"""What gates found, as a terminal shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_llmeval.reporting.report.gate_results import GateOutcome, GateResult
from pytest_llmeval.reporting.report.report import Comparison, SuiteReport
from pytest_llmeval.reporting.tables.suites import named, suite_name
from pytest_llmeval.reporting.writers.text_layout import (
    Coloured,
    Table,
    joined_lines,
    number,
    short_number,
    table_lines,
    wrapped_lines,
)
from pytest_llmeval.scoring.comparison.differences import Difference
from pytest_llmeval.scoring.comparison.movers import USUALLY_KEPT, Mover, Movers
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.text.escaping import printable

__all__ = [
    "MAX_FAILED",
    "MAX_MOVED",
    "OUTCOMES",
    "Moved",
    "compared_movers",
    "comparison_cells",
    "comparison_lines",
    "count_line",
    "distribution_cells",
    "distribution_lines",
    "gate_lines",
    "gate_mover_lines",
    "gate_movers",
    "gate_name",
    "is_better",
    "movers_cells",
    "movers_heading",
    "p_text",
]


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


def comparison_lines(comparisons: Sequence[Comparison], names: Mapping[str, str], *, width: int) -> Iterator[str]:
    """Each model's value of the suites' first metric, and its difference from the first model with the 95% interval.

    Of proportions, ``+3 -5`` says how many samples it has that the first has not, and the other way round. A difference
    whose interval does not hold 0 is green where the model is better than the first, and red where it is worse.
    """
    short_cells = [rows for _, rows, _ in comparison_cells(comparisons, names, is_short=True)]
    for place, (headers, rows, meaning) in enumerate(comparison_cells(comparisons, names)):
        yield from [""] * (place > 0)
        yield from joined_lines(f"against {headers[3]}, over the samples that both scored:", [meaning], width=width)
        table = _table(headers, rows)
        if not table.fits(width):
            table = _table(headers, short_cells[place])
        yield from table_lines(table, width=width)


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return Table(headers=headers, rows=rows, align=["left", "left", "right", *("left" for _ in headers[3:])], keys=3)


def comparison_cells(
    comparisons: Sequence[Comparison], names: Mapping[str, str], *, is_short: bool = False, has_p: bool = False
) -> Iterator[tuple[list[str], list[list[str]], str]]:
    """Headers and rows, made ``printable``, of a table for each model that others stand against: ``headers[3]``.

    The third says what a cell holds. A session has one table; a report may have been edited. ``has_p``: with the
    p-values of the paired tests.
    """
    compared = [comparison for comparison in comparisons if comparison.differences]
    for first in dict.fromkeys(comparison.first for comparison in compared):
        own = [comparison for comparison in compared if comparison.first == first]
        seconds = list(dict.fromkeys(comparison.second for comparison in own))
        suites: dict[str, dict[str, Comparison]] = {}
        for comparison in own:
            suites.setdefault(comparison.suite, {})[comparison.second] = comparison
        headers = ["suite", "metric", "n", *(printable(names.get(model, model)) for model in (first, *seconds))]
        rows = [_row(suite, members, seconds, is_short, has_p) for suite, members in suites.items()]
        yield headers, rows, _meaning([*suites.values()], has_p)


def _meaning(suites: Sequence[Mapping[str, Comparison]], has_p: bool) -> str:
    """``value (difference [95% interval], samples gained and lost)``: flips and p where a cell has them."""
    shown = [one.differences.get(_first_metric(own)) for own in suites for one in own.values()]
    parts = ["difference [95% interval]"]
    if any(difference is not None and difference.num_gained is not None for difference in shown):
        parts.append("samples gained and lost")
    if has_p and any(difference is not None and difference.p_value is not None for difference in shown):
        parts.append("two-sided p of the paired test that gates make")
    return f"value ({', '.join(parts)})"


def p_text(p: float) -> str:
    """A p-value in three digits: ``0.012``, ``< 0.001``."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _row(suite: str, own: Mapping[str, Comparison], seconds: Sequence[str], is_short: bool, has_p: bool) -> list[str]:
    metric = _first_metric(own)
    found = {model: comparison.differences.get(metric) for model, comparison in own.items()}
    differences = {model: difference for model, difference in found.items() if difference is not None}
    widest = max(differences.values(), key=lambda difference: difference.n)
    cells = [_cell(metric, differences.get(model), widest.n, is_short, has_p) for model in seconds]
    return [printable(suite), printable(metric), str(widest.n), number(widest.first), *cells]


def _first_metric(own: Mapping[str, Comparison]) -> str:
    """The metric that all models have and that a reader looks at first."""
    (one, *others) = own.values()
    common = [name for name in one.differences if all(name in other.differences for other in others)]
    return "accuracy" if "accuracy" in common else (common or list(one.differences))[0]


def _cell(metric: str, difference: Difference | None, usual_n: int, is_short: bool, has_p: bool) -> str:
    if difference is None:
        return ""
    shown, gap = (short_number, "") if is_short else (number, " ")
    sign = "+" if difference.difference >= 0 else ""
    found = f"{sign}{shown(difference.difference)}"
    if difference.ci_low is not None and difference.ci_high is not None:
        found += f" [{shown(difference.ci_low)},{gap}{shown(difference.ci_high)}]"
    if difference.num_gained is not None:
        found += f", +{difference.num_gained} -{difference.num_lost}"
    if has_p and difference.p_value is not None:
        found += f", p {p_text(difference.p_value)}"
    if difference.n != usual_n:
        found += f", n {difference.n}"
    return Coloured(f"{number(difference.second)} ({found})", _colour(metric, difference))


def _colour(metric: str, difference: Difference) -> str | None:
    """Of a difference that is significant; none where neither direction is better."""
    low, high, higher_is_better = difference.ci_low, difference.ci_high, definition(metric).higher_is_better
    if low is None or high is None or higher_is_better is None or low <= 0.0 <= high:
        return None
    return "green" if (low > 0.0) is higher_is_better else "red"


MAX_MOVED = 10
"""Metrics of suites whose movers are shown; the JSON report has all."""


class Moved(NamedTuple):
    """Samples that changed in one metric of a suite, on one model: ``what`` says which and against what."""

    what: str
    movers: Movers
    suite: str
    model: str | None


_QUANTILES = ("mean", "sd", "min", "p50", "p95", "max")


def distribution_cells(suites: Sequence[SuiteReport], names: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """Headers and rows, made ``printable``: a row for each metric whose values are more than zeros and ones."""
    rows = []
    for suite in suites:
        for name, found in suite.distributions.items():
            metric = suite.summary.metrics.get(name)
            if metric is not None and metric.kind == "mean":
                numbers = [getattr(found, key) for key in _QUANTILES]
                texts = ["" if value is None else number(value) for value in numbers]
                rows.append([printable(suite_name(suite, names)), printable(name), f"{found.n:,}", *texts])
    return ["suite", "metric", "n", *_QUANTILES], rows


def gate_movers(results: Sequence[GateResult], names: Mapping[str, str]) -> Iterator[Moved]:
    """What was compared with a baseline, where a sample changed at all."""
    for result in results:
        found = None if result.regression is None else result.regression.movers
        if found is not None and result.suite is not None and found.num_worse + found.num_better:
            what = f"{named(result.suite, result.model, names)}: {result.name}"
            yield Moved(what, found, result.suite, result.model)


def compared_movers(comparisons: Sequence[Comparison], names: Mapping[str, str]) -> Iterator[Moved]:
    """The metrics of a second model against the first, where a sample differs at all."""
    for one in comparisons:
        first, second = names.get(one.first, one.first), names.get(one.second, one.second)
        for metric, found in one.movers.items():
            if found.num_worse + found.num_better:
                yield Moved(f"{one.suite}: {metric} of {second} against {first}", found, one.suite, one.second)


def movers_heading(moved: Moved) -> str:
    """``sums: accuracy vs baseline: 3 samples worse, 1 better, 96 the same``; made ``printable``."""
    found = moved.movers
    samples = "sample" if found.num_worse == 1 else "samples"
    counts = f"{found.num_worse:,} {samples} worse, {found.num_better:,} better, {found.num_same:,} the same"
    return printable(f"{moved.what}: {counts}")


def movers_cells(found: Movers) -> tuple[list[str], list[list[str]]]:
    """Headers and rows, made ``printable``: those that became worse first, of each side the ``USUALLY_KEPT`` first."""
    rows = [_flipped_row("worse", one) for one in found.worse[:USUALLY_KEPT]]
    rows += [_flipped_row("better", one) for one in found.better[:USUALLY_KEPT]]
    return ["", "sample", "before", "now", "change"], rows


def _flipped_row(side: str, one: Mover) -> list[str]:
    sign = "+" if one.difference > 0 else ""
    return [side, printable(one.id), number(one.before), number(one.now), f"{sign}{number(one.difference)}"]


def gate_mover_lines(results: Sequence[GateResult], names: Mapping[str, str], *, width: int) -> Iterator[str]:
    """What changed most in each metric that was compared with a baseline, of the first ``MAX_MOVED`` of them."""
    found = [*gate_movers(results, names)]
    for one in found[:MAX_MOVED]:
        headers, rows = movers_cells(one.movers)
        yield from ("", *wrapped_lines(movers_heading(one), width=width, indent="  "))
        table = Table(headers=headers, rows=rows, align=["left", "left", "right", "right", "right"], keys=2)
        yield from table_lines(table, width=width)
    if len(found) > MAX_MOVED:
        yield from ("", f"… and {len(found) - MAX_MOVED:,} more metrics with samples that changed: --format json")


def distribution_lines(suites: Sequence[SuiteReport], names: Mapping[str, str], *, width: int) -> Iterator[str]:
    """The table of ``distribution_cells``; nothing where there is no row."""
    headers, rows = distribution_cells(suites, names)
    if rows:
        align = ["left", "left", *("right" for _ in headers[2:])]
        yield from table_lines(Table(headers=headers, rows=rows, align=align, keys=2), width=width)
