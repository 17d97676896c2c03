"""Which metrics of a suite are compared with a baseline, and how much each may drop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.gates.options import Margin
from pytest_llmeval.gates.subjects import SubjectError, find_metric
from pytest_llmeval.reporting.report.report import Report, SuiteReport
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.suites.format.gates_spec import ANY_SUITE
from pytest_llmeval.text.wording import nearest, quoted
from pytest_llmeval.types import JSON

__all__ = ["GatedMetric", "changed_definition", "gated_metrics", "unmatched_margins"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedMetric:
    """One metric of a suite. ``problem`` says why it cannot be compared, where it cannot; ``higher_is_better`` is None
    only there. ``margin`` is the drop that is allowed, None where none was given.
    """

    name: str
    higher_is_better: bool | None
    margin: float | None = None
    problem: str | None = None


def gated_metrics(suite: SuiteReport, margins: Sequence[Margin]) -> tuple[GatedMetric, ...]:
    """Return the suite's primary metric, then those that a margin names; none where it has no metric that can be
    compared.

    Of two margins of one metric, that which names the suite holds, else the later one.
    """
    metrics = _metrics_of(suite)
    allowed: dict[str, float] = {}
    for margin in sorted((one for one in margins if one.matches(suite.info.name)), key=lambda one: one.suite != "*"):
        try:
            allowed[find_metric(margin.metric, metrics)] = margin.value
        except SubjectError:
            continue
    primary = _primary(suite, metrics)
    names = dict.fromkeys((*(() if primary is None else (primary,)), *allowed))
    return tuple(_gated(suite, name, allowed.get(name), is_primary=name == primary) for name in names)


def unmatched_margins(
    margins: Sequence[Margin], suites: Sequence[SuiteReport], others: Sequence[SuiteReport]
) -> Iterator[tuple[Margin, str]]:
    """Margins for nothing in the session's ``suites``, nor, where they ran elsewhere, in ``others``; and why."""
    names = [suite.info.name for suite in suites]
    for margin in margins:
        own = [suite for suite in suites if margin.matches(suite.info.name)]
        rest = [suite for suite in others if margin.matches(suite.info.name) and suite.info.name not in names]
        if margin.suite != ANY_SUITE and not own:
            if not rest:
                near = nearest(margin.suite, (*names, *(suite.info.name for suite in others)))
                hint = f"; did you mean {quoted(near)}?" if near else ""
                yield margin, f"there is no suite {quoted(margin.suite)}{hint}"
            continue
        problems = [_why_unknown(suite, margin.metric) for suite in own]
        if None in problems or any(_why_unknown(suite, margin.metric) is None for suite in rest):
            continue
        if margin.suite != ANY_SUITE:
            yield margin, problems[0] or ""
            continue
        known = dict.fromkeys(metric for suite in (*own, *rest) for metric in _metrics_of(suite))
        near = nearest(margin.metric, known)
        hint = f"; did you mean {near}?" if near else ""
        yield margin, f"no suite has a metric {quoted(margin.metric)}{hint}"


def changed_definition(name: str, baseline: Report, before: SuiteReport, after: SuiteReport) -> str | None:
    """Say what the metric's name meant when the baseline was made; None if it means the same.

    A baseline that does not say so (schema 1) is known by the kind of its metric alone.
    """
    own_meaning = definition(name, after.info.better)
    now: Mapping[str, JSON] = {
        "kind": own_meaning.kind,
        "higher_is_better": own_meaning.higher_is_better,
        "version": own_meaning.version,
    }
    then = baseline.definitions.get(name)
    if then is None:
        found, own = before.summary.metrics.get(name), after.summary.metrics.get(name)
        if found is None or own is None or found.kind == own.kind or {found.kind, own.kind} == {"mean", "proportion"}:
            return None
        return f"kind {found.kind} -> {own.kind}"
    changes = [
        f"{key} {_said(then[key])} -> {_said(value)}"
        for key, value in now.items()
        # A proportion is a mean with another interval.
        if then.get(key) != value and not (key == "kind" and {then[key], value} == {"mean", "proportion"})
    ]
    return ", ".join(changes) or None


def _said(value: JSON) -> str:
    return str(value).lower() if isinstance(value, bool) else "unknown" if value is None else str(value)


def _metrics_of(suite: SuiteReport) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*suite.summary.metrics, *suite.info.metrics)))


def _why_unknown(suite: SuiteReport, metric: str) -> str | None:
    try:
        find_metric(metric, _metrics_of(suite))
    except SubjectError as error:
        return str(error)
    return None


def _primary(suite: SuiteReport, metrics: Sequence[str]) -> str | None:
    """Return the metric that the suite names, else accuracy, else the first metric with a known better direction, else
    the first.
    """
    if suite.info.primary_metric is not None:
        return suite.info.primary_metric
    if "accuracy" in metrics:
        return "accuracy"
    values = [name for name in metrics if definition(name).kind != "count"]
    directions = {name: definition(name, suite.info.better).higher_is_better for name in values}
    return next((name for name in values if directions[name] is not None), values[0] if values else None)


def _gated(suite: SuiteReport, name: str, margin: float | None, *, is_primary: bool) -> GatedMetric:
    is_higher = definition(name, suite.info.better).higher_is_better
    said = suite.info.higher_is_better
    if said is not None and name == suite.info.primary_metric:
        is_higher = said
    problem = None
    if definition(name).kind == "count":
        problem = f"{name} is a count of samples, which cannot be compared; name a metric with a value for each"
    elif is_primary and suite.info.primary_metric is not None and (why := _why_unknown(suite, name)) is not None:
        problem = why
    elif is_higher is None:
        problem = (
            f"it is not known whether a higher {name} is better: write `primary_metric: {{name: {name}, "
            "better: higher}` (or lower) in the suite"
        )
    return GatedMetric(name=name, higher_is_better=is_higher, margin=margin, problem=problem)
