"""What stands in a page of models against the first one, and of the samples that changed most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from pytest_llmeval.reporting.report.report import Comparison, Report
from pytest_llmeval.reporting.terminal.comparison_table import comparison_cells, p_text
from pytest_llmeval.reporting.terminal.movers_table import (
    Moved,
    compared_movers,
    gate_movers,
    movers_cells,
    movers_heading,
)
from pytest_llmeval.reporting.writers.html.changes import compared_metric
from pytest_llmeval.reporting.writers.html.tables import Table, printable_cells, samples_address, signed_difference
from pytest_llmeval.scoring.comparison.differences import Difference
from pytest_llmeval.scoring.comparison.movers import USUALLY_KEPT, Movers
from pytest_llmeval.scoring.comparison.paired_metrics import flip_words
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.judged import is_of_trust
from pytest_llmeval.scoring.statistics.paired_tests import mcnemar

__all__ = ["MoversTables", "change_tables", "movers_tables"]

_MAX_MOVERS, _MAX_CHANGES_OPEN = 40, 30


def change_tables(report: Report, names: Mapping[str, str]) -> Iterator[Table]:
    """Models against the first one, and how many samples each metric changed of, with its paired test."""
    for headers, rows, meaning in comparison_cells(report.comparisons, names):
        yield Table(
            title=f"Against {headers[3]}",
            headers=headers,
            rows=rows,
            align=["left", "left", "right", "right", *("value" for _ in headers[4:])],
            notes=[f"Over the samples that both scored: {meaning}."],
        )
    better = report.better_by_suite()
    is_explained = False
    for became, title in _CHANGED.items():
        became_headers = [f"became {word}" for word in became]
        rows = [row for one in report.comparisons for row in _flip_rows(one, better.get(one.suite, {}), names, became)]
        has_p = any(row[-1] for row in rows)
        if rows:
            yield Table(
                title=f"{title} ({len(rows)})" if len(rows) > _MAX_CHANGES_OPEN else title,
                headers=("suite", "model", "metric", "n", *became_headers, "difference [95%]", "p"),
                rows=rows,
                align=["left", "left", "left", *["right"] * 5],
                notes=_TESTED_HOW if has_p and not is_explained else [],
                is_folded=len(rows) > _MAX_CHANGES_OPEN,
            )
            is_explained = is_explained or has_p


@dataclass(frozen=True, slots=True, kw_only=True)
class MoversTables:
    """Which samples changed most: by gates and by the metric by which samples are compared; by the further ones."""

    main: Sequence[Table]
    further: Sequence[Table]
    num_left_out: int


def movers_tables(report: Report, names: Mapping[str, str]) -> MoversTables:
    """A table for each metric of a gate or a comparison, as many as a page can show."""
    firsts, others = [], []
    for one in report.comparisons:
        main = compared_metric(one)
        firsts.append(replace(one, movers={name: own for name, own in one.movers.items() if name == main}))
        others.append(replace(one, movers={name: own for name, own in one.movers.items() if name != main}))
    first = [*gate_movers(report.gates, names), *compared_movers(firsts, names)]
    further = [*compared_movers(others, names)]
    num_further = max(0, _MAX_MOVERS - len(first))
    return MoversTables(
        main=[_movers_table(moved) for moved in first[:_MAX_MOVERS]],
        further=[_movers_table(moved) for moved in further[:num_further]],
        num_left_out=max(0, len(first) + len(further) - _MAX_MOVERS),
    )


def _movers_table(moved: Moved) -> Table:
    found = moved.movers
    headers, rows = movers_cells(found)
    left_out = max(0, found.num_worse - USUALLY_KEPT), max(0, found.num_better - USUALLY_KEPT)
    shown = [*found.worse[:USUALLY_KEPT], *found.better[:USUALLY_KEPT]]
    notes = [f"and {left_out[0]:,} more that are worse, {left_out[1]:,} that are better: in the list of samples"]
    return Table(
        title=movers_heading(moved),
        headers=headers,
        rows=rows,
        align=["left", "left", "right", "right", "right"],
        tones=["bad" if row[0] == "worse" else "good" for row in rows],
        notes=notes if any(left_out) else [],
        is_folded=True,
        links={1: [samples_address(sample=one.id, of=moved.suite, by=moved.model) for one in shown]},
    )


_CHANGED: Mapping[tuple[str, str], str] = MappingProxyType(
    {("wrong", "right"): "Flips", ("worse", "better"): "Changes of each suite"}
)
"""What samples became, and the title of the table that counts them."""


_TESTED_HOW = (
    "p: how likely a difference as large, either way, is where nothing differs; two-sided, of each suite and metric "
    "by itself. Of values that are all 0 or 1, as of right and wrong answers, it is the exact McNemar test; of others, "
    "and where samples lie in clusters, the sign-flip test, in which the two models' values of a sample (or cluster) "
    "change places. Gates make the same tests. Blank where there is no test.",
)


def _flip_rows(
    one: Comparison, better: Mapping[str, str], names: Mapping[str, str], became: tuple[str, str]
) -> Iterator[list[str]]:
    """The metrics by which samples ``became`` this, and not those that say how far a judge is to be trusted."""
    for metric, found in one.differences.items():
        known = definition(metric, better)
        if not known.in_terminal or (is_of_trust(metric) and metric.startswith("judge.")):
            continue
        if flip_words(metric, is_zero_or_one=found.num_gained is not None) != became:
            continue
        model = f"{names.get(one.second, one.second)} against {names.get(one.first, one.first)}"
        changed = _changed(found, one.movers.get(metric), known.higher_is_better)
        if changed is None and found.p_value is None:
            continue
        counts = ("", "") if changed is None else [f"{count:,}" for count in changed]
        difference = signed_difference(found.difference, found.ci_low, found.ci_high)
        p = _two_sided(found)
        shown = "" if p is None else p_text(p)
        yield printable_cells(one.suite, model, metric, f"{found.n:,}", *counts, difference, shown)


def _changed(found: Difference, moved: Movers | None, higher_is_better: bool | None) -> tuple[int, int] | None:
    """How many samples became worse, and better; None where that is not known."""
    if found.num_gained is not None and found.num_lost is not None and higher_is_better is not None:
        return (found.num_lost, found.num_gained) if higher_is_better else (found.num_gained, found.num_lost)
    return None if moved is None else (moved.num_worse, moved.num_better)


def _two_sided(found: Difference) -> float | None:
    """Its p-value; of a report from before there was one, that of proportions."""
    if found.p_value is None and found.is_of_flips:
        return mcnemar(found.num_lost or 0, found.num_gained or 0).p_two_sided
    return found.p_value
