"""What stands in a page without a script: tables of a report's numbers. Figures are not made here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from urllib.parse import urlencode

from pytest_llmeval.reporting.report.gate_results import GateResult, Regression
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Comparison, Report, SuiteReport
from pytest_llmeval.reporting.report.risk_curves import points_with_intervals
from pytest_llmeval.reporting.terminal.comparison_table import comparison_cells, p_text
from pytest_llmeval.reporting.terminal.gate_lines import OUTCOMES, is_better
from pytest_llmeval.reporting.terminal.latency_lines import latency_cells
from pytest_llmeval.reporting.terminal.metric_tables import USUAL, Row, metric_cells, metrics_shown, with_interval
from pytest_llmeval.reporting.terminal.movers_table import (
    Moved,
    compared_movers,
    distribution_cells,
    gate_movers,
    movers_cells,
    movers_heading,
)
from pytest_llmeval.reporting.terminal.per_sample_table import per_sample_cells
from pytest_llmeval.reporting.terminal.store_lines import store_texts
from pytest_llmeval.reporting.terminal.suite_texts import (
    category_section,
    count_texts,
    mean_texts,
    named,
    suite_name,
    suite_row,
    unlike_texts,
)
from pytest_llmeval.reporting.terminal.summary import engine_lines, server_lines, speed_lines
from pytest_llmeval.reporting.terminal.tables import number
from pytest_llmeval.reporting.writers.html.changes import compared_metric, gates_of_changes
from pytest_llmeval.scoring.comparison.differences import Difference
from pytest_llmeval.scoring.comparison.movers import USUALLY_KEPT, Movers
from pytest_llmeval.scoring.comparison.paired_metrics import flip_words
from pytest_llmeval.scoring.metrics.calibration import ReliabilityBin
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.judged import is_of_trust
from pytest_llmeval.scoring.metrics.risk_coverage import RiskCoverage, RiskPoint, risks_at
from pytest_llmeval.scoring.statistics.paired_tests import mcnemar
from pytest_llmeval.text.escaping import printable
from pytest_llmeval.types import JSON

__all__ = [
    "MoversTables",
    "Table",
    "UnscoredReasons",
    "average_texts",
    "calibration_tables",
    "categories_tables",
    "change_tables",
    "environment_tables",
    "gate_tables",
    "movers_tables",
    "price_tables",
    "suite_counts",
    "suite_tables",
    "unscored_table",
]

_MAX_UNSCORED = 20
_MAX_MOVERS = 40
_MAX_GATES_OPEN, _MAX_CHANGES_OPEN = 10, 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells of text; ``align`` is ``left``, ``right`` or, for a number with its interval, ``value``. ``tones`` are of
    rows: ``bad``, ``good``. One that ``is_folded`` is shown when it is asked for. ``links`` are where a column's cells
    lead, by its number; empty where nowhere.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: Sequence[str]
    notes: Sequence[str] = ()
    tones: Sequence[str] = ()
    is_folded: bool = False
    links: Mapping[int, Sequence[str]] = field(default_factory=dict)


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
                _printable(_found_of(one), _suite_of(one, names), *_regression_cells(found, is_better=is_better(one)))
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
            rows=[_printable(one.outcome, _suite_of(one, names), one.name, "; ".join(_said(one))) for one in gates],
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
    return _address(suite=one.suite, model=one.model, category=one.category, metric=one.metric, change=change)


def _address(**parts: str | None) -> str:
    """Where in the page the script shows these samples, as it writes that itself (``address`` in page.js)."""
    return f"#{urlencode({name: printable(part) for name, part in parts.items() if part is not None})}"


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
    yield _difference(found.difference, found.ci_low, found.ci_high)
    yield p_text(found.p_improved_adjusted if is_better else found.p_adjusted)
    yield from (f"{found.num_worse:,}", f"{found.num_better:,}")
    yield "" if found.smallest_drop is None else number(found.smallest_drop)


def _difference(value: float, low: float | None, high: float | None) -> str:
    text = f"{'+' if value >= 0 else ''}{number(value)}"
    return text if low is None or high is None else f"{text} [{number(low)}, {number(high)}]"


def suite_tables(report: Report, names: Mapping[str, str]) -> Iterator[Table]:
    """Every suite's main metrics with their intervals: the usual ones together, then those that suites share."""
    rows = [suite_row(suite, names) for suite in report.suites]
    usual = [row for row in rows if any(name in USUAL for name in metrics_shown([row]))]
    if usual:
        yield _metric_table("Suites", "suite", usual, [name for name in metrics_shown(usual) if name in USUAL])
    others: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        own = tuple(name for name in metrics_shown([row]) if name not in USUAL)
        if own or row not in usual:
            others.setdefault(own, []).append(row)
    for metrics, members in others.items():
        yield _metric_table(f"Suites: {printable(', '.join(metrics)) or 'no metrics'}", "suite", members, metrics)


def _metric_table(title: str, heading: str, rows: Sequence[Row], metrics: Sequence[str]) -> Table:
    headers, cells, align = metric_cells(heading, rows, metrics)
    return Table(title=title, headers=headers, rows=cells, align=[*align[:2], *("value" for _ in align[2:])])


def average_texts(report: Report, names: Mapping[str, str]) -> Iterator[str]:
    """Averages over suites, or why there are none."""
    for averages in report.averages:
        over = named("suites", averages.model, names)
        for kind, metrics, parts in (("macro", averages.macro, "suite"), ("micro", averages.micro, None)):
            if means := ", ".join(mean_texts(metrics, parts=parts)):
                yield printable(f"{kind} average over {over}: {means}")
        yield from map(printable, unlike_texts(averages))


def suite_counts(report: Report, names: Mapping[str, str]) -> Iterator[str]:
    """What is counted of each suite, and what is out of the ordinary."""
    for suite in report.suites:
        if counts := ", ".join(count_texts(suite)):
            yield printable(f"{suite_name(suite, names)}: {counts}")


def categories_tables(report: Report, names: Mapping[str, str]) -> Iterator[Table]:
    """The categories of each suite that has several, its models one below the other in each category."""
    by_name: dict[str, list[SuiteReport]] = {}
    for suite in report.suites:
        if len(suite.categories) > 1:
            by_name.setdefault(suite.info.name, []).append(suite)
    for name, suites in by_name.items():
        rows: dict[str, list[Row]] = {}
        notes = []
        for suite in suites:
            model = ", ".join(names.get(model, model) for model in suite.models)
            for row in category_section(suite, names).rows:
                rows.setdefault(row.name, []).append(row._replace(name=named(row.name, model, names)))
            if means := ", ".join(mean_texts(suite.macro, parts="category")):
                notes.append(printable(f"macro average over {named('categories', model, names)}: {means}"))
        ordered = [row for members in rows.values() for row in members]
        title = printable(f"{name} by category ({len(rows)})")
        table = _metric_table(title, "category", ordered, metrics_shown(ordered))
        yield replace(table, notes=notes, is_folded=True)


def change_tables(report: Report, names: Mapping[str, str]) -> Iterator[Table]:
    """Models against the first one, and how many samples flipped with the paired test."""
    for headers, rows in comparison_cells(report.comparisons, names):
        yield Table(
            title=f"Against {headers[3]}",
            headers=headers,
            rows=rows,
            align=["left", "left", "right", "right", *("value" for _ in headers[4:])],
            notes=["Over the samples that both scored: value (difference [95% interval], samples gained and lost)."],
        )
    is_told = False
    for became, title in _CHANGED.items():
        became_headers = [f"became {word}" for word in became]
        rows = [row for one in report.comparisons for row in _flip_rows(one, report, names, became)]
        has_p = any(row[-1] for row in rows)
        if rows:
            yield Table(
                title=f"{title} ({len(rows)})" if len(rows) > _MAX_CHANGES_OPEN else title,
                headers=("suite", "model", "metric", "n", *became_headers, "difference [95%]", "p"),
                rows=rows,
                align=["left", "left", "left", *["right"] * 5],
                notes=_TESTED_HOW if has_p and not is_told else [],
                is_folded=len(rows) > _MAX_CHANGES_OPEN,
            )
            is_told = is_told or has_p


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
        links={1: [_address(sample=one.id, of=moved.suite, by=moved.model) for one in shown]},
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
    one: Comparison, report: Report, names: Mapping[str, str], became: tuple[str, str]
) -> Iterator[list[str]]:
    """The metrics by which samples ``became`` this, and not those that say how far a judge is to be trusted."""
    better = report.better_of(one.suite)
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
        difference = _difference(found.difference, found.ci_low, found.ci_high)
        p = _two_sided(found)
        shown = "" if p is None else p_text(p)
        yield _printable(one.suite, model, metric, f"{found.n:,}", *counts, difference, shown)


def _changed(found: Difference, moved: Movers | None, higher_is_better: bool | None) -> tuple[int, int] | None:
    """How many samples became worse, and better; None where that is not known."""
    if found.num_gained is not None and found.num_lost is not None and higher_is_better is not None:
        return (found.num_lost, found.num_gained) if higher_is_better else (found.num_gained, found.num_lost)
    return None if moved is None else (moved.num_worse, moved.num_better)


def _two_sided(found: Difference) -> float | None:
    """Its p-value; of a report from before there was one, that of proportions."""
    if found.p_value is None and found.num_gained is not None and found.num_lost is not None:
        return None if found.num_clusters else mcnemar(found.num_lost, found.num_gained).p_two_sided
    return found.p_value


def calibration_tables(report: Report, names: Mapping[str, str], curves: Mapping[int, RiskCoverage]) -> Iterator[Table]:
    """The bins of each suite's reliability diagram, and its risk over coverage from ``curves``, see ``RiskReader``."""
    for suite in report.suites:
        name = printable(suite_name(suite, names))
        if suite.reliability is not None:
            error = suite.summary.metrics.get("ece")
            value = None if error is None else error.value
            yield Table(
                title=f"{name}: reliability",
                headers=("confidence", "n", "mean confidence", "accuracy", "gap"),
                rows=[_bin_cells(one) for one in suite.reliability if one.n],
                align=["left", *["right"] * 4],
                notes=[] if value is None else [f"expected calibration error {number(value)}"],
                is_folded=True,
            )
        if (curve := curves.get(id(suite))) is not None:
            points = points_with_intervals(suite, curve) or risks_at(curve)
            yield Table(
                title=f"{name}: risk and coverage",
                headers=("coverage", "n", "least confidence", "risk [95%]"),
                rows=[_risk_cells(point, has_interval=suite.info.cluster is None) for point in points],
                align=["right", "right", "right", "value"],
                notes=[f"area under the curve (AURC) {number(curve.aurc)}, n {curve.n:,}"],
                is_folded=True,
            )


def _risk_cells(point: RiskPoint, *, has_interval: bool) -> list[str]:
    ends = (point.ci_low, point.ci_high) if has_interval else (None, None)
    return [f"{point.coverage:.0%}", f"{point.n:,}", number(point.confidence), with_interval(point.risk, *ends)]


def _bin_cells(one: ReliabilityBin) -> list[str]:
    gap = None if one.confidence is None or one.accuracy is None else one.accuracy - one.confidence
    numbers = ["" if value is None else number(value) for value in (one.confidence, one.accuracy, gap)]
    return [f"{one.low:.2f} to {one.high:.2f}", f"{one.n:,}", *numbers]


def price_tables(report: Report, names: Mapping[str, str]) -> Iterator[Table]:
    """What samples took, how long, and how their values are spread."""
    is_first = True
    for title, (headers, rows), num_texts in (
        ("A sample took, in the mean", per_sample_cells(report, names, always=True), 1),
        ("Time of samples", latency_cells(report.suites, names), 1),
        ("Distribution of metrics over samples", distribution_cells(report.suites, names), 2),
    ):
        if rows:
            align = ["left" if place < num_texts else "right" for place in range(len(headers))]
            yield Table(title=title, headers=headers, rows=rows, align=align, is_folded=not is_first)
            is_first = False


class UnscoredReasons:
    """Why samples could not be scored: how many for each reason, and the first of them: its node id and address."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: dict[str, tuple[str, str]] = {}

    def add(self, record: Record) -> None:
        if record.status == "unscored":
            reason = record.reason or "no reason given"
            if reason not in self.counts and len(self.counts) >= 10 * _MAX_UNSCORED:
                reason = "another reason"
            self.counts[reason] += 1
            if reason not in self.first:
                address = _address(sample=record.id, of=record.suite, by=record.model)
                self.first[reason] = record.nodeid, address


def unscored_table(reasons: UnscoredReasons) -> Table | None:
    """The reasons, the most frequent first; None where every sample was scored."""
    counts, first = reasons.counts, reasons.first
    if not counts:
        return None
    shown = counts.most_common(_MAX_UNSCORED)
    rows = [_printable(f"{count:,}", reason, first[reason][0]) for reason, count in shown]
    notes = []
    if len(counts) > _MAX_UNSCORED:
        notes.append(f"{len(counts) - _MAX_UNSCORED:,} more reasons are in the JSON report")
    return Table(
        title=f"Could not be scored: {counts.total():,}",
        headers=("samples", "reason", "the first of them"),
        rows=rows,
        align=("right", "left", "left"),
        notes=notes,
        links={2: [first[reason][1] for reason, _ in shown]},
    )


def environment_tables(report: Report, names: Mapping[str, str]) -> Iterator[Table]:
    """What ran: models, judges, how log-likelihoods were computed, versions, options."""
    for title, members in (("Models", report.models), ("Judges and embedders", report.judges)):
        if members:
            rows = [_printable(str(one["name"]), _facts(one)) for one in members]
            yield Table(
                title=title, headers=("name", "what is known of it"), rows=rows, align=["left"] * 2, is_folded=True
            )
    uses = [(suite_name(suite, names), suite.engine) for suite in report.suites if suite.engine is not None]
    lines = [
        *speed_lines(report),
        *engine_lines(uses),
        *store_texts(report),
        *server_lines(report.models),
        *server_lines(report.judges),
    ]
    if lines:
        rows = [_printable(line) for line in lines]
        yield Table(title="How it was asked", headers=("",), rows=rows, align=["left"], is_folded=True)
    scorers = [_suite_cells(suite) for suite in _each_suite(report)]
    if scorers:
        headers = ("suite", "file", "scorer", "settings")
        yield Table(title="Suites", headers=headers, rows=scorers, align=["left"] * 4, is_folded=True)
    for title, facts in (("Environment", _flat(report.environment)), ("Options", report.options)):
        rows = [_printable(name, _as_cell(value)) for name, value in facts.items() if value not in (None, [], {}, "")]
        if rows:
            yield Table(title=title, headers=("name", "value"), rows=rows, align=["left"] * 2, is_folded=True)


def _each_suite(report: Report) -> Iterator[SuiteReport]:
    seen: set[str] = set()
    for suite in report.suites:
        if suite.info.name not in seen:
            seen.add(suite.info.name)
            yield suite


def _suite_cells(suite: SuiteReport) -> list[str]:
    info = suite.info
    settings = _as_cell(dict(info.settings)) if info.settings else ""
    return _printable(info.name, info.path or "", info.scorer or "", settings)


def _facts(model: Mapping[str, JSON]) -> str:
    facts = _flat({name: value for name, value in model.items() if name not in ("name", "use")})
    return ", ".join(f"{name} {_as_cell(value)}" for name, value in facts.items() if value not in (None, [], {}, ""))


def _flat(facts: Mapping[str, JSON]) -> dict[str, JSON]:
    """With what stands in mappings beside the rest."""
    found: dict[str, JSON] = {}
    for name, value in facts.items():
        found |= value if isinstance(value, dict) else {name: value}
    return found


def _as_cell(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _printable(*cells: str) -> list[str]:
    return [printable(cell) for cell in cells]
