"""How samples' values are spread, and which samples became worse and better: tables for a terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_llmeval.reporting.report.gate_results import GateResult
from pytest_llmeval.reporting.report.report import Comparison, SuiteReport
from pytest_llmeval.reporting.terminal.suite_texts import named, suite_name
from pytest_llmeval.reporting.terminal.tables import Table, number, table_lines, wrapped_lines
from pytest_llmeval.scoring.comparison.movers import USUALLY_KEPT, Mover, Movers
from pytest_llmeval.text.escaping import printable

__all__ = [
    "MAX_MOVED",
    "Moved",
    "compared_movers",
    "distribution_cells",
    "distribution_lines",
    "gate_mover_lines",
    "gate_movers",
    "movers_cells",
    "movers_heading",
]

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
