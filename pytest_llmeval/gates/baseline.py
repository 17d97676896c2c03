"""The gate against a baseline: which suites and metrics are compared, and whether one of them got worse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pytest_llmeval.gates.earlier_reports import LATEST, EarlierReports, EarlierSide
from pytest_llmeval.gates.options import BaselineSettings, GateOptions, Selection
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
from pytest_llmeval.gates.subjects import SECONDS, USAGE_METRICS
from pytest_llmeval.gates.suite_plans import BASELINE, GatedMetric, Plan, SuitePlans, baseline_gate, changed_definition
from pytest_llmeval.gates.usage import usage_of, usage_pairs
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import (
    GateOutcome,
    GateResult,
    Regression,
    Report,
    SuiteReport,
    group_of_suite,
)
from pytest_llmeval.reporting.tables.cells import small_number
from pytest_llmeval.scoring.paired_metrics import (
    PairedMetric,
    PairingError,
    counted,
    pair_metric,
    pooled_over_suites,
)
from pytest_llmeval.scoring.statistics.paired_tests import FamilyTest, run_family

__all__ = ["compare_reports"]

_LOAD = "load changes all times of a run: p-values, intervals and rates do not count it, only the margin allows for it"

_MAX_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    """A test of one metric, of one suite or of several suites together. All tests of a session are one family."""

    gate: GateResult
    metric: GatedMetric
    paired: PairedMetric
    num_left_out: int
    against: str = BASELINE
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
    partners = earlier.partners(current.suites, settings.compare)
    plans_of = SuitePlans(earlier.newest, current, settings.margins, settings.compare, partners)
    found: list[GateResult | _Test] = []
    if len(earlier.reports) == 1:
        found += _compared(plans_of, current.suite_names, options, selection)
    else:
        for side in earlier.sides(current.suites, settings.compare):
            own_plans = SuitePlans(side.report, current, settings.margins, settings.compare, partners, side.runs)
            found += [_with_side(side, one) for one in _compared(own_plans, side.suites, options, selection)]
    results = _decided(found, settings, undecided)
    results += plans_of.suites_that_did_not_run(selection, undecided)
    results += plans_of.margins_of_nothing(undecided if selection.is_partial else "failed")
    if all(result.outcome == "skipped" for result in results):
        outcome: GateOutcome = undecided if options.origin == "ini" else "failed"
        results.append(baseline_gate(None, outcome, f"nothing was compared: {_why_nothing(results)}"))
    return tuple(replace(result, origin=options.origin) for result in results)


def _why_nothing(results: Sequence[GateResult]) -> str:
    """Return each reason once, with the suites that it is about if there are several reasons."""
    suites: dict[str, dict[str, None]] = {}
    for result in results:
        suites.setdefault(result.reason, {}).update({} if result.suite is None else {result.suite: None})
    if not suites:
        return "there is no suite in the session, and none in the baseline"
    told = []
    for reason, names in suites.items():
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        listed = f"{', '.join(list(names)[:_MAX_NAMED])}{more}: " if names and len(suites) > 1 else ""
        told.append(f"{listed}{reason}")
    return "; ".join(told)


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
                "a kept baseline has it only if it was known and --llm-max-drop named it",
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
    elif not plan.is_judged and (changed := changed_definition(metric.name, plans_of.baseline, before, plan.after)):
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
    return any(usage_of(record, metric.name, baseline) is not None for record in records)


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
        outcome, reason = undecided, f"{undecided_reason(regression, level)}: {reason}"
    return replace(one.gate, outcome=outcome, reason=reason, value=difference.second, regression=regression)
