"""What stands in a page of a report's gates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_llmeval.reporting.report.gate_results import GateResult, Regression
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.terminal.comparison_table import p_text
from pytest_llmeval.reporting.terminal.gate_lines import OUTCOMES, is_better
from pytest_llmeval.reporting.terminal.suite_texts import named
from pytest_llmeval.reporting.terminal.tables import number
from pytest_llmeval.reporting.writers.html.changes import gates_of_changes
from pytest_llmeval.reporting.writers.html.tables import Table, printable_cells, samples_address, signed_difference

__all__ = ["gate_tables"]

_MAX_GATES_OPEN = 10


def gate_tables(report: Report, names: Mapping[str, str]) -> Iterator[Table]:
    """Every gate, what failed first; then the numbers of those against a baseline.

    Where there are many, those that did not fail are folded, by their outcome.
    """
    ordered = sorted(report.gates, key=lambda one: (OUTCOMES.index(one.outcome), one.kind))
    if len(ordered) <= _MAX_GATES_OPEN:
        yield from _gate_table("Gates", ordered, report, names)
    else:
        for outcome in OUTCOMES:
            found = [one for one in ordered if one.outcome == outcome]
            if outcome == "failed":
                yield from _gate_table("Gates", found, report, names)
            else:
                yield from _gate_table(f"{len(found):,} {outcome}", found, report, names, is_folded=True)
    tested = [(one, one.regression) for one in ordered if one.regression is not None]
    if tested:
        yield Table(
            title="Against the baseline",
            headers=_TESTED,
            rows=[
                printable_cells(
                    _found_of(one), _suite_of(one, names), *_regression_cells(found, is_better=is_better(one))
                )
                for one, found in tested
            ],
            align=["left", "left", "left", *("right" for _ in _TESTED[3:])],
            notes=[
                "p (Holm): how likely so large a drop is where nothing has changed (of what improved: so large an "
                "improvement), adjusted for all tests there are. "
                "Smallest drop: what so many samples find with 90% power."
            ],
            tones=["bad" if one.outcome == "failed" else "good" for one, _ in tested],
            links={1: _addresses([one for one, _ in tested], report)},
        )


def _gate_table(
    title: str, gates: Sequence[GateResult], report: Report, names: Mapping[str, str], *, is_folded: bool = False
) -> Iterator[Table]:
    if gates:
        yield Table(
            title=title,
            headers=("outcome", "suite", "gate", "what was found"),
            rows=[
                printable_cells(one.outcome, _suite_of(one, names), one.name, "; ".join(_said(one))) for one in gates
            ],
            align=["left"] * 4,
            tones=[{"failed": "bad", "passed": "good"}.get(one.outcome, "") for one in gates],
            is_folded=is_folded,
            links={1: _addresses(gates, report)},
        )


def _addresses(gates: Sequence[GateResult], report: Report) -> list[str]:
    """The samples that each gate is about: those that became worse, where it is by this gate that the page knows."""
    known = {id(one) for one in gates_of_changes(report)}
    return ["" if one.suite is None else _address_of(one, is_listed=id(one) in known) for one in gates]


def _address_of(one: GateResult, *, is_listed: bool) -> str:
    is_worse = is_listed and one.regression is not None and one.regression.num_worse
    change = "worse" if is_worse else None
    return samples_address(suite=one.suite, model=one.model, category=one.category, metric=one.metric, change=change)


def _found_of(one: GateResult) -> str:
    return "improved" if one.outcome != "failed" and is_better(one) else one.outcome


_TESTED = (
    "outcome",
    "suite",
    "metric",
    "n",
    "baseline",
    "now",
    "difference [95%]",
    "p (Holm)",
    "worse",
    "better",
    "smallest drop",
)


def _suite_of(one: GateResult, names: Mapping[str, str]) -> str:
    return "" if one.suite is None else named(one.suite, one.model, names)


def _said(one: GateResult) -> Sequence[str]:
    return one.reason, *one.notes


def _regression_cells(found: Regression, *, is_better: bool) -> Iterator[str]:
    yield from (found.metric, f"{found.n:,}", number(found.baseline), number(found.current))
    yield signed_difference(found.difference, found.ci_low, found.ci_high)
    yield p_text(found.p_improved_adjusted if is_better else found.p_adjusted)
    yield from (f"{found.num_worse:,}", f"{found.num_better:,}")
    yield "" if found.smallest_drop is None else number(found.smallest_drop)
