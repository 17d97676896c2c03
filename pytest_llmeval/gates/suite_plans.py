"""Finds the suites and metrics of a session that are compared with a baseline, and says why others are not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pytest_llmeval.gates.earlier_reports import ABSENT, EarlierRuns, other_form, suite_of_baseline
from pytest_llmeval.gates.options import Compare, Margin, Selection
from pytest_llmeval.gates.subjects import SubjectError, find_compared, find_metric, nearest_or_all, no_variant
from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import (
    GateOutcome,
    GateResult,
    Group,
    Report,
    SuiteReport,
    compared_models,
    group_of_suite,
)
from pytest_llmeval.reporting.report.served_models import REPLIES, changed_judge, replies_identity
from pytest_llmeval.reporting.report.summaries import leading_metric
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.judged import HUMAN
from pytest_llmeval.scoring.paired_metrics import (
    needed_values,
)
from pytest_llmeval.suites.format.gates_spec import ANY_SUITE
from pytest_llmeval.text.names import plain_name
from pytest_llmeval.text.wording import quoted
from pytest_llmeval.types import JSON

__all__ = [
    "BASELINE",
    "GatedMetric",
    "Plan",
    "SuitePlans",
    "baseline_gate",
    "changed_definition",
    "compared_metrics",
    "compared_usage",
    "unmatched_margins",
    "with_metrics",
]

BASELINE = "baseline"
"""The word in the names of gates for the only report that a session is compared with."""

_MAX_PROBLEMS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A suite of this session with the baseline's suite to compare it with, or a result if there is none.

    ``notes`` are about the baseline as a whole. ``is_judged``: the suite's own scorer has compared each reply with the
    baseline's.
    """

    after: SuiteReport
    before: SuiteReport | None = None
    metrics: tuple[GatedMetric, ...] = ()
    notes: tuple[str, ...] = ()
    result: GateResult | None = None
    is_judged: bool = False

    @property
    def compares_ratings(self) -> bool:
        """Tell whether a metric is made of ratings by people."""
        return any(HUMAN in needed_values(metric.name) for metric in self.metrics)


class SuitePlans:
    """The suites of two reports, and which of them are compared."""

    def __init__(
        self,
        baseline: Report,
        current: Report,
        margins: tuple[Margin, ...],
        compare: Compare,
        partners: Mapping[str, str],
        runs: Mapping[Group, EarlierRuns] | None = None,
    ) -> None:
        """Compare suites of ``current`` with the baseline's ``partners``, by their names."""
        self.baseline, self.current, self._margins, self.compare = baseline, current, margins, compare
        self._partners = partners
        self._runs = runs or {}
        self.models_before, self.models_now = compared_models(baseline), compared_models(current)

    def plans(self, undecided: GateOutcome) -> Iterator[Plan]:
        """Yield the plan of each suite of this session."""
        incomplete = tuple(_incomplete(self.baseline))
        for after in self.current.suites:
            metrics = _gated_metrics(after, self._margins)
            found = self._partner(after, metrics, incomplete)
            if isinstance(found, SuiteReport):
                is_judged = REPLIES in after.info.fingerprint_parts
                name = found.info.name
                other = () if name == after.info.name else (f"compared with {quoted(name)} of the baseline",)
                notes = (*incomplete, *other)
                yield Plan(after=after, before=found, metrics=metrics, notes=notes, is_judged=is_judged)
            else:
                outcome = undecided if found.startswith(ABSENT) else "failed"
                result = self.result(after, metrics[0].name if metrics else None, outcome, found)
                yield Plan(after=after, result=result)

    def _partner(
        self, after: SuiteReport, metrics: Sequence[GatedMetric], incomplete: Sequence[str]
    ) -> SuiteReport | str:
        """Return the baseline's suite that this one is compared with, or the reason why there is none."""
        if self.current.stopped is not None:
            return f"the session stopped early: {self.current.stopped}"
        if incomplete and self.compare != "common":
            return f"{'; '.join(incomplete)}; --llm-compare common compares the samples that it has"
        found = self._suite_before(after)
        if isinstance(found, str):
            return found
        if after.info.fingerprint_parts.get(REPLIES) not in (None, replies_identity(self.baseline, found)):
            return "its replies were compared with those of another report"
        if (changed := changed_judge(after, self.current, self.baseline)) is not None:
            return changed
        return found if metrics else "it has no metric to compare"

    def runs_of(self, before: SuiteReport, metric: str) -> Sequence[Mapping[str, Record]]:
        """Return the scores whose means the baseline's suite has, if it has means of the metric."""
        runs = self._runs.get(group_of_suite(before, self.models_before))
        return () if runs is None else runs.of_metric(metric)

    def _suite_before(self, after: SuiteReport) -> SuiteReport | str:
        """Return the suite of ``partners`` on the suite's model, or why there is none."""
        if (name := self._partners.get(after.info.name)) is not None:
            return suite_of_baseline(self.baseline, name, after.models[0] if after.models else None)
        if (other := self._by_questions(after.info)) is not None:
            return f"{ABSENT}, which has {quoted(other)}: --llm-compare questions compares the two, whatever the prompt"
        variants = dict.fromkeys(one.info.name for one in self.baseline.suites if one.info.base == after.info.base)
        if not variants:
            return ABSENT
        return f"{ABSENT}, which has it in variants only ({', '.join(variants)}), none of which is asked in this way"

    def suites_that_did_not_run(self, selection: Selection, undecided: GateOutcome) -> Iterator[GateResult]:
        """Yield a result for each suite of the baseline that is not in the session, nor compared with another form.

        If both have several models, there is a result for each suite and model. A suite that the baseline has on a
        single model is compared with all models, and is missing only if it did not run at all.
        """
        by_model = bool(self.models_before and self.models_now)
        names = [suite.info.name for suite in self.baseline.suites]
        of_session = {suite.info.name for suite in self.current.suites}
        all_models = ({*self.models_before}, {*self.models_now})
        are_told_apart = all(len(set(map(plain_name, models))) == len(models) for models in all_models)
        named = plain_name if are_told_apart else str

        def group(suite: SuiteReport, models: tuple[str, ...]) -> Group:
            name, model = group_of_suite(suite, models)
            return name, None if model is None else named(model)

        seen = {group(suite, self.models_now) for suite in self.current.suites}
        for suite in self.current.suites:
            found = self._suite_before(suite)
            if isinstance(found, SuiteReport):
                seen.add((found.info.name, group(suite, self.models_now)[1]))
                of_session.add(found.info.name)
        for before in self.baseline.suites:
            name = before.info.name
            model = group(before, self.models_before)[1] if by_model else None
            if (name, model) in seen or (name in of_session and (model is None or names.count(name) == 1)):
                continue
            seen.add((name, model))
            on_model = "" if model is None else f" on {quoted(model)}"
            outcome, reason = undecided, f"in the baseline, and not selected{on_model}"
            if not selection.covers(before.info):
                reason = "in the baseline, and not among the suites of this session"
            elif not selection.is_partial:
                outcome, reason = "failed", f"in the baseline, and did not run{on_model}"
            others = [one.info.name for one in self.current.suites if self._by_questions(one.info) == name]
            if others:
                listed = ", ".join(map(quoted, dict.fromkeys(others)))
                reason += f"; --llm-compare questions compares {listed} with it, whatever the prompt"
            metrics = _gated_metrics(before, self._margins)
            metric = metrics[0].name if metrics else None
            yield baseline_gate(metric, outcome, reason, suite=name, model=model, path=before.info.path)

    def _by_questions(self, info: SuiteInfo) -> str | None:
        """Return with what ``questions`` would compare a suite that has no partner."""
        if self.compare == "questions" or info.name in self._partners:
            return None
        return other_form(info.base, info.fingerprint_parts, (one.info for one in self.baseline.suites))

    def margins_of_nothing(self, outcome: GateOutcome) -> Iterator[GateResult]:
        """Yield a result for each margin that applies to no suite."""
        names = self.current.suite_names
        current, before = (with_metrics(report.suites) for report in (self.current, self.baseline))
        for margin, reason in unmatched_margins(self._margins, current, before):
            suite = margin.suite if margin.suite in names else None
            yield replace(baseline_gate(None, outcome, reason, suite=suite), name=f"max drop {margin}")

    def result(
        self,
        suite: SuiteReport,
        metric: str | None,
        outcome: GateOutcome,
        reason: str,
        *,
        notes: tuple[str, ...] = (),
    ) -> GateResult:
        """Return a result for a suite of this session; ``metric`` is None if none of its metrics is compared."""
        name, model = group_of_suite(suite, self.models_now)
        return baseline_gate(metric, outcome, reason, suite=name, model=model, path=suite.info.path, notes=notes)


def baseline_gate(
    metric: str | None,
    outcome: GateOutcome,
    reason: str,
    *,
    suite: str | None = None,
    model: str | None = None,
    path: str | None = None,
    notes: tuple[str, ...] = (),
) -> GateResult:
    return GateResult(
        name=BASELINE if metric is None else f"{metric} vs {BASELINE}",
        kind="baseline",
        origin="option",
        outcome=outcome,
        reason=reason,
        suite=suite,
        model=model,
        path=path,
        metric=metric,
        notes=notes,
    )


def _incomplete(baseline: Report) -> Iterator[str]:
    """Yield the reasons why the baseline is incomplete."""
    if baseline.stopped is not None:
        yield f"the baseline stopped early: {baseline.stopped}"
    if baseline.problems:
        more = len(baseline.problems) - _MAX_PROBLEMS
        shown = ", ".join(map(quoted, baseline.problems[:_MAX_PROBLEMS]))
        yield f"the baseline has problems: {shown}{f', and {more} more' if more > 0 else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedMetric:
    """A metric of a suite that is compared. ``margin`` is the drop that is allowed, or None if none was given;
    ``share`` is the drop as a share of the baseline's value, if it was given so.

    ``problem`` says why it cannot be compared, if so; only then may ``higher_is_better`` be None. ``is_usage``: it is
    one of ``USAGE_METRICS``.
    """

    name: str
    higher_is_better: bool | None
    margin: float | None = None
    share: float | None = None
    problem: str | None = None
    is_usage: bool = False


def _gated_metrics(suite: SuiteReport, margins: Sequence[Margin]) -> tuple[GatedMetric, ...]:
    """Return the suite's primary metric, if it has one, and the metrics that a margin names.

    If two margins are for one metric, the one that names the variant counts, else the one that names the suite, else
    the later one.
    """
    metrics = _metrics_of(suite)
    allowed: dict[str, Margin] = {}
    usage: dict[str, Margin] = {}
    own = [margin for margin in margins if margin.matches(suite.info)]
    for margin in sorted(own, key=lambda one: [ANY_SUITE, suite.info.base, suite.info.name].index(one.suite)):
        try:
            name, is_usage = find_compared(margin.metric, metrics)
        except SubjectError:
            continue
        (usage if is_usage else allowed)[name] = margin
    primary = leading_metric(suite.info, metrics)
    names = dict.fromkeys((*(() if primary is None else (primary,)), *allowed))
    return (
        *(_gated(suite, name, allowed.get(name), is_primary=name == primary) for name in names),
        *(_with_margin(GatedMetric(name=name, higher_is_better=False, is_usage=True), usage[name]) for name in usage),
    )


def _with_margin(metric: GatedMetric, margin: Margin | None) -> GatedMetric:
    if margin is None:
        return metric
    return replace(metric, share=margin.value) if margin.is_share else replace(metric, margin=margin.value)


def compared_metrics(suite: SuiteReport, margins: Sequence[Margin]) -> tuple[str, ...]:
    """Return the names of the metrics by which a suite with these margins is compared, of those that it has."""
    return tuple(one.name for one in _gated_metrics(suite, margins) if one.name in suite.summary.metrics)


def compared_usage(suite: SuiteReport, margins: Sequence[Margin]) -> tuple[str, ...]:
    """Return which of ``USAGE_METRICS`` are compared in a suite with these margins."""
    return tuple(one.name for one in _gated_metrics(suite, margins) if one.is_usage)


SuiteWithMetrics: TypeAlias = tuple[SuiteInfo, Sequence[str]]
"""A suite with the names of the metrics that it has."""


def unmatched_margins(
    margins: Sequence[Margin], suites: Sequence[SuiteWithMetrics], others: Sequence[SuiteWithMetrics]
) -> Iterator[tuple[Margin, str]]:
    """Yield each margin that is for nothing in ``suites``, nor in ``others`` that ran elsewhere, with the reason."""
    infos = [info for info, _ in (*suites, *others)]
    names = [info.name for info, _ in suites]
    for margin in margins:
        own = [metrics for info, metrics in suites if margin.matches(info)]
        rest = [metrics for info, metrics in others if margin.matches(info) and info.name not in names]
        if margin.suite != ANY_SUITE and not own:
            if not rest:
                known = list(dict.fromkeys(info.name for info in infos))
                hint = nearest_or_all(margin.suite, known, known)
                yield margin, no_variant(margin.suite, infos) or f"there is no suite {quoted(margin.suite)}{hint}"
            continue
        if all(_why_unknown(metrics, margin.metric) is not None for metrics in (*own, *rest)):
            metrics = dict.fromkeys(name for metrics in (*own, *rest) for name in metrics)
            yield margin, _why_unknown((*metrics,), margin.metric) or "there is no suite"


def with_metrics(suites: Iterable[SuiteReport]) -> list[SuiteWithMetrics]:
    """Return suites of a report with the metrics that they have, and those that they may have."""
    return [(suite.info, _metrics_of(suite)) for suite in suites]


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


def _why_unknown(
    metrics: Sequence[str], metric: str, find: Callable[[str, Sequence[str]], object] = find_compared
) -> str | None:
    try:
        find(metric, metrics)
    except SubjectError as error:
        return str(error)
    return None


def _gated(suite: SuiteReport, name: str, margin: Margin | None, *, is_primary: bool) -> GatedMetric:
    is_higher = definition(name, suite.info.better).higher_is_better
    said = suite.info.higher_is_better
    if said is not None and name == suite.info.primary_metric:
        is_higher = said
    problem = None
    if is_primary and suite.info.primary_metric is not None:
        problem = _why_unknown(_metrics_of(suite), name, find_metric)
    if definition(name).kind == "count":
        problem = f"{name} is a count of samples, which cannot be compared; name a metric with a value for each"
    elif problem is None and is_higher is None:
        problem = (
            f"it is not known whether a higher {name} is better: write `primary_metric: {{name: {name}, "
            "better: higher}` (or lower) in the suite"
        )
    return _with_margin(GatedMetric(name=name, higher_is_better=is_higher, problem=problem), margin)
