"""The gate against a baseline: which suites and metrics are compared, and whether one of them got worse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pytest_llmeval.gates.earlier_reports import LATEST, EarlierReports, EarlierRuns, EarlierSide
from pytest_llmeval.gates.options import BaselineSettings, Compare, GateOptions, Margin, Selection
from pytest_llmeval.gates.regressions import (
    fails,
    is_beyond,
    numeric_noise,
    regression_reason,
    too_few_measured,
    undecided_reason,
)
from pytest_llmeval.gates.sample_pairs import (
    JUDGED_METRIC,
    Pairing,
    Refusal,
    SamplePairs,
    Undecided,
    kept_records,
    num_unscored,
    pair_samples,
    pair_with_ties,
)
from pytest_llmeval.gates.subjects import SECONDS, USAGE_METRICS, SubjectError, find_compared, no_variant
from pytest_llmeval.gates.usage import usage_of, usage_pairs
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import (
    ABSENT,
    GateOutcome,
    GateResult,
    Group,
    Regression,
    Report,
    SuiteReport,
    compared_models,
    group_of_suite,
    suite_of_baseline,
)
from pytest_llmeval.reporting.report.served_models import REPLIES, changed_judge, replies_identity
from pytest_llmeval.reporting.report.summaries import leading_metric
from pytest_llmeval.reporting.tables.cells import small_number
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.judged import HUMAN
from pytest_llmeval.scoring.paired_metrics import (
    PairedMetric,
    PairingError,
    counted,
    needed_values,
    pair_metric,
    pooled_over_suites,
)
from pytest_llmeval.scoring.statistics.paired_tests import FamilyTest, run_family
from pytest_llmeval.suites.format.gates_spec import ANY_SUITE
from pytest_llmeval.text.names import plain_name
from pytest_llmeval.text.wording import nearest, quoted
from pytest_llmeval.types import JSON

__all__ = [
    "baseline_gate",
    "compare_reports",
    "compared_metrics",
    "compared_usage",
]


_BASELINE = "baseline"
"""The word in the names of gates for the only report that a session is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    """A test of one metric, of one suite or of several suites together. All tests of a session are one family."""

    gate: GateResult
    metric: GatedMetric
    paired: PairedMetric
    num_left_out: int
    against: str = _BASELINE
    parts: tuple[_Test, ...] = ()
    base: str = ""
    """The name of the suite without its variant's."""


def compare_reports(
    earlier: EarlierReports, current: Report, options: GateOptions, selection: Selection
) -> tuple[GateResult, ...]:
    """Compare every suite of ``current`` with the suite of its name in ``earlier`` reports, in the order of the suites.

    With one report this is the baseline. With several the newest is, and a suite is compared with the mean of the last
    ones and with the oldest. A suite that did not run because the session looked elsewhere, or left tests out, is
    skipped.
    """
    settings = options.comparison or BaselineSettings()
    undecided = options.undecided
    plans_of = SuitePlans(earlier.newest, current, settings.margins, settings.compare)
    found: list[GateResult | _Test] = []
    if len(earlier.reports) == 1:
        found += _compared(plans_of, current.suite_names, options, selection)
    else:
        for side in earlier.sides(current.suites, settings.compare):
            own_plans = SuitePlans(side.report, current, settings.margins, settings.compare, side.runs)
            found += [_with_side(side, one) for one in _compared(own_plans, side.suites, options, selection)]
    results = _decided(found, settings, undecided)
    known = {name for _, report in earlier.reports for name in report.suite_names}
    results += plans_of.suites_that_did_not_run(selection, undecided, known)
    results += plans_of.margins_of_nothing(undecided if selection.is_partial else "failed")
    if all(result.outcome == "skipped" for result in results):
        reasons = dict.fromkeys(result.reason for result in results)
        why = "; ".join(reasons) or "there is no suite in the session, and none in the baseline"
        outcome: GateOutcome = undecided if options.origin == "ini" else "failed"
        results.append(baseline_gate(None, outcome, f"nothing was compared: {why}"))
    return tuple(replace(result, origin=options.origin) for result in results)


def _compared(
    plans_of: SuitePlans, suites: Collection[str], options: GateOptions, selection: Selection
) -> Iterator[GateResult | _Test]:
    """Yield the tests of the suites with these names, and the results that need no test."""
    plans = [plan for plan in plans_of.plans(options.undecided) if plan.after.info.name in suites]
    # A suite of the baseline counts once, even if several models are compared with it.
    compared = {id(plan.before): plan.before for plan in plans if plan.before is not None and not plan.is_judged}
    pairing = Pairing(
        compare=plans_of.compare,
        is_selection=selection.is_partial,
        num_unscored=sum(num_unscored(one.summary) for one in plans_of.current.suites),
        num_unscored_before=sum(num_unscored(before.summary) for before in compared.values()),
        allow_unscored=options.allow_unscored,
        require=options.require,
        reports=(plans_of.baseline, plans_of.current),
    )
    yield from _tests(plans_of, plans, pairing, options.undecided)


def _with_side(side: EarlierSide, found: GateResult | _Test) -> GateResult | _Test:
    """Return a test or a result with the name of the report that it is against, and notes on that report.

    No mean is taken of what samples used, so that this is compared with the latest report.
    """
    gate = found.gate if isinstance(found, _Test) else found
    is_usage = found.metric.is_usage if isinstance(found, _Test) else gate.metric in USAGE_METRICS
    against = LATEST if is_usage and side.runs else side.name
    name = against if gate.metric is None else f"{gate.metric} vs {against}"
    notes = side.notes.get(gate.suite or "", ())
    gate = replace(gate, name=name, notes=(*gate.notes, *notes))
    if not isinstance(found, _Test):
        return gate
    return replace(found, gate=gate, against=against)


def _decided(
    found: Sequence[GateResult | _Test], settings: BaselineSettings, undecided: GateOutcome
) -> list[GateResult]:
    """Run the tests as one family, and return all results in the same order.

    Suites that are too small for any drop to be significant are also tested together, at the end.
    """
    tests = [one for one in found if isinstance(one, _Test)]
    together = list(_together(tests, settings))
    family = [*tests, *together]
    tested = run_family([one.paired.paired for one in family], settings.alpha)
    shared = {id(one) for group in together for one in group.parts}
    results = {
        id(one): _tested(one, result, len(family), settings, "skipped" if id(one) in shared else undecided)
        for one, result in zip(family, tested, strict=True)
    }
    return [
        *(results[id(one)] if isinstance(one, _Test) else one for one in found),
        *(results[id(one)] for one in together),
    ]


def _together(tests: Sequence[_Test], settings: BaselineSettings) -> Iterator[_Test]:
    """Yield a test for each metric and model, of all suites that are too small to be tested alone.

    The variants of a suite answer the same questions: a test has one of them, the first ones of all suites, the second
    ones, and so on.
    """
    if settings.mode != "significant":
        return
    groups: dict[tuple[str, str | None, str, int], list[_Test]] = {}
    places: Counter[tuple[str, str | None, str, str]] = Counter()
    for one in tests:
        key = one.metric.name, one.gate.model, one.against, one.base
        place, places[key] = places[key], places[key] + 1
        if not one.paired.can_find(settings.alpha / len(tests)):
            groups.setdefault((one.metric.name, one.gate.model, one.against, place), []).append(one)
    for (name, model, against, place), parts in groups.items():
        paired = pooled_over_suites([part.paired for part in parts]) if len(parts) > 1 else None
        if paired is None or not paired.can_find(settings.alpha / (len(tests) + len(groups))):
            continue
        margins = [part.metric.margin for part in parts if part.metric.margin is not None]
        names = ", ".join(str(part.gate.suite) for part in parts)
        gate = baseline_gate(name, "failed", "", model=model, notes=(f"{len(parts)} suites: {names}",))
        variants = f", variant {place + 1} of each" if place else ""
        yield _Test(
            gate=replace(gate, name=f"{name} vs {against}, small suites together{variants}"),
            metric=replace(parts[0].metric, margin=max(margins, default=None)),
            paired=paired,
            num_left_out=sum(part.num_left_out for part in parts),
            against=against,
            parts=tuple(parts),
        )


def _tests(
    plans_of: SuitePlans, plans: Sequence[Plan], pairing: Pairing, undecided: GateOutcome
) -> Iterator[GateResult | _Test]:
    """Yield each suite's results, and the tests that are still to be made."""
    models_before, models_now = plans_of.models_before, plans_of.models_now
    first = kept_records(plans_of.baseline, [plan.before for plan in plans if plan.before is not None])
    second = kept_records(plans_of.current, [plan.after for plan in plans if plan.before is not None])
    for plan in plans:
        if plan.result is not None:
            yield plan.result
        elif plan.before is not None:
            own_first = first[group_of_suite(plan.before, models_before)]
            own_second = second[group_of_suite(plan.after, models_now)]
            pair = pair_with_ties if plan.is_judged else partial(pair_samples, are_rated=plan.compares_ratings)
            try:
                pairs = pair(plan.before, plan.after, own_first, own_second, pairing)
            except (Refusal, Undecided) as error:
                outcome = undecided if isinstance(error, Undecided) else "failed"
                yield plans_of.result(plan.after, plan.metrics[0].name, outcome, str(error), notes=plan.notes)
            else:
                found = [_test(plans_of, plan, plan.before, pairs, metric, undecided) for metric in plan.metrics]
                yield from _with_diff(found, pairs.prompt_diff)


def _with_diff(found: Sequence[GateResult | _Test], diff: tuple[str, ...]) -> list[GateResult | _Test]:
    """Return the results of a suite, the first of them with the diff of its prompts."""
    first, *others = found
    if isinstance(first, _Test):
        return [replace(first, gate=replace(first.gate, prompt_diff=diff)), *others]
    return [replace(first, prompt_diff=diff), *others]


def _test(
    plans_of: SuitePlans,
    plan: Plan,
    before: SuiteReport,
    pairs: SamplePairs,
    metric: GatedMetric,
    undecided: GateOutcome,
) -> GateResult | _Test:
    gate = plans_of.result(plan.after, metric.name, "failed", "", notes=(*plan.notes, *pairs.notes))
    if metric.problem is not None or metric.higher_is_better is None:
        return replace(gate, reason=metric.problem or "")
    if plan.is_judged and metric.name != JUDGED_METRIC:
        outcome: GateOutcome = undecided if metric.is_usage else "failed"  # a margin may be meant for other suites
        return replace(gate, outcome=outcome, reason=f"{metric.name} does not compare the suite with its baseline")
    if plans_of.baseline.is_brief and not plan.is_judged and not _is_kept(metric, plans_of.baseline, before, pairs):
        hint = "--llm-update-baseline keeps each suite's primary metric, and those that --llm-max-drop names"
        found = f"the baseline does not keep {metric.name}"
        if metric.is_usage:
            found, hint = (
                f"the baseline has no {metric.name}",
                "it is kept where it is known and --llm-max-drop names it",
            )
        return replace(gate, reason=f"{found}: {hint}")
    least = plan.after.info.min_measurable
    if metric.is_usage:
        try:
            pairs = usage_pairs(pairs, metric.name, (plans_of.baseline, plans_of.current), least)
        except Undecided as error:
            return replace(gate, outcome=undecided, reason=str(error))
        load = (_LOAD,) if metric.name == SECONDS else ()
        gate = replace(gate, notes=(*plan.notes, *pairs.notes, *load))
    elif not plan.is_judged and (changed := _changed_definition(metric.name, plans_of.baseline, before, plan.after)):
        return replace(gate, reason=f"{metric.name} has another definition in the baseline: {changed}")
    try:
        paired = pair_metric(
            metric.name,
            pairs.first,
            pairs.second,
            higher_is_better=metric.higher_is_better,
            clusters=pairs.clusters,
            margin=metric.margin or 0.0,
            runs=() if metric.is_usage or plan.is_judged else plans_of.runs_of(before, metric.name),
        )
    except PairingError as error:
        return replace(gate, reason=f"{metric.name} {error}")
    if paired.num_lacking and plans_of.compare != "common":
        found = f"{metric.name} has no value in the baseline in {counted(paired.num_lacking)} that it scored"
        return replace(gate, reason=f"{found}; --llm-compare common leaves them out")
    if (reason := too_few_measured(metric.name, paired, pairs.num_unscored, least)) is not None:
        return replace(gate, reason=reason)
    if (share := metric.share) is not None:
        whole = paired.difference.first
        metric = replace(metric, margin=share * abs(whole))
        paired = replace(paired, paired=paired.paired.with_margin(share * abs(whole)))
        note = f"the margin is {100 * share:g}% of the baseline's {small_number(whole)}"
        gate = replace(gate, notes=(*gate.notes, note))
    if paired.num_unmeasured:
        note = f"{counted(paired.num_unmeasured)} left out, on which {metric.name} is not measurable"
        gate = replace(gate, notes=(*gate.notes, note))
    if paired.num_lacking:
        note = f"{counted(paired.num_lacking)} left out, without {metric.name} in the baseline"
        gate = replace(gate, notes=(*gate.notes, note))
    num_left_out = pairs.num_left_out + paired.num_lacking + paired.num_unmeasured
    return _Test(gate=gate, metric=metric, paired=paired, num_left_out=num_left_out, base=plan.after.info.base)


def _is_kept(metric: GatedMetric, baseline: Report, before: SuiteReport, pairs: SamplePairs) -> bool:
    """Tell whether a kept baseline has the metric, or the times of samples that were not timed by themselves."""
    if not metric.is_usage:
        return metric.name in before.summary.metrics
    records = [record for record in pairs.first.values() if isinstance(record, Record)]
    if metric.name == SECONDS and any(record.seconds for record in records):
        return True
    return any(usage_of(record, metric.name, baseline.created) is not None for record in records)


def _tested(
    one: _Test, found: FamilyTest, family: int, settings: BaselineSettings, undecided: GateOutcome
) -> GateResult:
    paired, difference, margin = one.paired, one.paired.difference, one.metric.margin
    level = settings.alpha / family
    smallest = paired.smallest_drop(level)
    values = difference.first, difference.second
    regression = Regression(
        mode=settings.mode,
        metric=one.metric.name,
        higher_is_better=paired.higher_is_better,
        n=difference.n,
        baseline=difference.first,
        current=difference.second,
        difference=difference.difference,
        ci_low=difference.ci_low,
        ci_high=difference.ci_high,
        drop=paired.drop,
        margin=margin or 0.0,
        noise=numeric_noise(difference.first) if settings.mode == "significant" and margin is None else 0.0,
        method=found.test.method,
        p_value=found.test.p_drop,
        p_adjusted=found.p_drop,
        p_improved=found.test.p_improved,
        p_improved_adjusted=found.p_improved,
        family=family,
        alpha=settings.alpha,
        num_draws=found.test.num_draws,
        num_worse=paired.num_worse,
        num_better=paired.num_better,
        num_clusters=difference.num_clusters,
        smallest_drop=smallest if smallest is not None and is_beyond(smallest, 0.0, values) else None,
        false_alarm_rate=found.test.false_alarm_rate if settings.mode == "margin" else None,
        num_left_out=one.num_left_out,
        movers=paired.movers,
    )
    is_failed = fails(regression, paired.largest_drop)
    outcome: GateOutcome = "failed" if is_failed else "passed"
    reason = regression_reason(regression, flipped_to=paired.flipped_to, largest_drop=paired.largest_drop)
    if settings.mode == "significant" and not is_failed and not paired.can_find(level):
        outcome, reason = undecided, f"{undecided_reason(regression)}: {reason}"
    return replace(one.gate, outcome=outcome, reason=reason, value=difference.second, regression=regression)


_LOAD = (
    "load changes the times of a whole run: p-values, intervals and rates do not know of it, only the margin allows it"
)

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
        runs: Mapping[Group, EarlierRuns] | None = None,
    ) -> None:
        self.baseline, self.current, self._margins, self.compare = baseline, current, margins, compare
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
                yield Plan(after=after, before=found, metrics=metrics, notes=incomplete, is_judged=is_judged)
            else:
                outcome = undecided if found == ABSENT else "failed"
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
        """Return ``suite_of_baseline``, which under ``questions`` may be the suite of before there were variants."""
        model = after.models[0] if after.models else None
        base = after.info.base if self.compare == "questions" else None
        return suite_of_baseline(self.baseline, after.info.name, model, base=base)

    def suites_that_did_not_run(
        self, selection: Selection, undecided: GateOutcome, known: Collection[str]
    ) -> Iterator[GateResult]:
        """Yield a result for each suite of the baseline that is not in the session.

        If both have several models, there is a result for each suite and model. A suite that the baseline has on a
        single model is compared with all models, and is missing only if it did not run at all. A variant stands for its
        suite if no earlier report has it: its name is not among those that are ``known``.
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
            if isinstance(found, SuiteReport) and suite.info.name not in known:
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
            metrics = _gated_metrics(before, self._margins)
            metric = metrics[0].name if metrics else None
            yield baseline_gate(metric, outcome, reason, suite=name, model=model, path=before.info.path)

    def margins_of_nothing(self, outcome: GateOutcome) -> Iterator[GateResult]:
        """Yield a result for each margin that applies to no suite."""
        names = self.current.suite_names
        for margin, reason in _unmatched_margins(self._margins, self.current.suites, self.baseline.suites):
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
        name=_BASELINE if metric is None else f"{metric} vs {_BASELINE}",
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


def _unmatched_margins(
    margins: Sequence[Margin], suites: Sequence[SuiteReport], others: Sequence[SuiteReport]
) -> Iterator[tuple[Margin, str]]:
    """Yield each margin that is for nothing in ``suites``, nor in ``others`` that ran elsewhere, with the reason."""
    names = [suite.info.name for suite in suites]
    for margin in margins:
        own = [suite for suite in suites if margin.matches(suite.info)]
        rest = [suite for suite in others if margin.matches(suite.info) and suite.info.name not in names]
        if margin.suite != ANY_SUITE and not own:
            if not rest:
                infos = [suite.info for suite in (*suites, *others)]
                near = nearest(margin.suite, [info.name for info in infos])
                hint = f"; did you mean {quoted(near)}?" if near else ""
                problem = no_variant(margin.suite, infos) or f"there is no suite {quoted(margin.suite)}{hint}"
                yield margin, problem
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


def _changed_definition(name: str, baseline: Report, before: SuiteReport, after: SuiteReport) -> str | None:
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
        find_compared(metric, _metrics_of(suite))
    except SubjectError as error:
        return str(error)
    return None


def _gated(suite: SuiteReport, name: str, margin: Margin | None, *, is_primary: bool) -> GatedMetric:
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
    return _with_margin(GatedMetric(name=name, higher_is_better=is_higher, problem=problem), margin)
