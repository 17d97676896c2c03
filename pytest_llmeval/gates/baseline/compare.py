"""The gate against a baseline: did a suite get worse, sample by sample?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.gates.baseline.gated_metrics import GatedMetric, changed_definition
from pytest_llmeval.gates.baseline.reasons import (
    fails,
    is_beyond,
    numeric_noise,
    regression_reason,
    too_few_measured,
    undecided_reason,
)
from pytest_llmeval.gates.baseline.sample_pairs import (
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
from pytest_llmeval.gates.baseline.suite_plans import Plan, SuitePlans, baseline_gate
from pytest_llmeval.gates.options import BaselineSettings, GateOptions, Selection
from pytest_llmeval.reporting.report.report import (
    GateOutcome,
    GateResult,
    Group,
    Regression,
    Report,
    SuiteReport,
    group_of_suite,
)
from pytest_llmeval.scoring.paired_metrics import (
    PairedMetric,
    PairingError,
    counted,
    needed_values,
    pair_metric,
    pooled_over_suites,
)
from pytest_llmeval.scoring.statistics.paired_tests import FamilyTest, run_family

__all__ = ["compare_reports"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    """One metric of one suite that is tested, as a member of the session's family; or of several suites together."""

    gate: GateResult
    metric: GatedMetric
    paired: PairedMetric
    num_left_out: int
    parts: tuple[_Test, ...] = ()


def compare_reports(
    baseline: Report, current: Report, options: GateOptions, selection: Selection
) -> tuple[GateResult, ...]:
    """Compare every suite of ``current`` with that of its name in ``baseline``; in the order of the suites.

    A suite that did not run because the session looked elsewhere, or left tests out, is skipped.
    """
    settings = options.comparison or BaselineSettings()
    plans_of = SuitePlans(baseline, current, settings.margins, settings.compare)
    undecided = options.undecided
    plans = list(plans_of.plans(undecided))
    # Of the baseline's suites each counts once.
    compared = {id(plan.before): plan.before for plan in plans if plan.before is not None and not plan.is_judged}
    pairing = Pairing(
        compare=settings.compare,
        is_selection=selection.is_partial,
        num_unscored=sum(num_unscored(one.summary) for one in current.suites),
        num_unscored_before=sum(num_unscored(before.summary) for before in compared.values()),
        allow_unscored=options.allow_unscored,
        require=options.require,
        reports=(baseline, current),
    )
    results = _decided(list(_tests(plans_of, plans, pairing, undecided)), settings, undecided)
    results += plans_of.suites_that_did_not_run(selection, undecided)
    results += plans_of.margins_of_nothing(undecided if selection.is_partial else "failed")
    if all(result.outcome == "skipped" for result in results):
        reasons = dict.fromkeys(result.reason for result in results)
        why = "; ".join(reasons) or "there is no suite in the session, and none in the baseline"
        outcome: GateOutcome = undecided if options.origin == "ini" else "failed"
        results.append(baseline_gate(None, outcome, f"nothing was compared: {why}"))
    return tuple(dataclasses.replace(result, origin=options.origin) for result in results)


def _decided(
    found: Sequence[GateResult | _Test], settings: BaselineSettings, undecided: GateOutcome
) -> list[GateResult]:
    """Return the results, in the same order: what was to be tested is tested, as one family.

    Suites so small that no drop of theirs could be significant are tested together as well, at the end.
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
    """For each metric and model one test of all suites that are too small to be tested alone."""
    if settings.mode != "significant":
        return
    groups: dict[tuple[str, str | None], list[_Test]] = {}
    for one in tests:
        if not one.paired.can_find(settings.alpha / len(tests)):
            groups.setdefault((one.metric.name, one.gate.model), []).append(one)
    for (name, model), parts in groups.items():
        paired = pooled_over_suites([part.paired for part in parts]) if len(parts) > 1 else None
        if paired is None or not paired.can_find(settings.alpha / (len(tests) + len(groups))):
            continue
        margins = [part.metric.margin for part in parts if part.metric.margin is not None]
        names = ", ".join(str(part.gate.suite) for part in parts)
        gate = baseline_gate(name, "failed", "", model=model, notes=(f"{len(parts)} suites: {names}",))
        yield _Test(
            gate=dataclasses.replace(gate, name=f"{gate.name}, small suites together"),
            metric=dataclasses.replace(parts[0].metric, margin=max(margins, default=None)),
            paired=paired,
            num_left_out=sum(part.num_left_out for part in parts),
            parts=tuple(parts),
        )


def _tests(
    plans_of: SuitePlans, plans: Sequence[Plan], pairing: Pairing, undecided: GateOutcome
) -> Iterator[GateResult | _Test]:
    """Yield each suite's results, and the tests that are still to be made."""
    models_before, models_now = plans_of.models_before, plans_of.models_now
    first = kept_records(plans_of.baseline, _needed(plans, models_before, of_baseline=True))
    second = kept_records(plans_of.current, _needed(plans, models_now, of_baseline=False))
    for plan in plans:
        if plan.result is not None:
            yield plan.result
        elif plan.before is not None:
            own_first = first[group_of_suite(plan.before, models_before)]
            own_second = second[group_of_suite(plan.after, models_now)]
            pair = pair_with_ties if plan.is_judged else pair_samples
            try:
                pairs = pair(plan.before, plan.after, own_first, own_second, pairing)
            except (Refusal, Undecided) as error:
                outcome = undecided if isinstance(error, Undecided) else "failed"
                yield plans_of.result(plan.after, plan.metrics[0].name, outcome, str(error), notes=plan.notes)
            else:
                yield from (_test(plans_of, plan, plan.before, pairs, metric) for metric in plan.metrics)


def _needed(plans: Sequence[Plan], models: tuple[str, ...], *, of_baseline: bool) -> Mapping[Group, set[str]]:
    """Return names of the values that are needed of each group's records."""
    needed: dict[Group, set[str]] = {}
    for plan in plans:
        suite = plan.before if of_baseline else plan.after
        if plan.before is not None and suite is not None:
            names = set[str]()
            if not (of_baseline and plan.is_judged):
                names = names.union(*(needed_values(metric.name) for metric in plan.metrics))
            needed.setdefault(group_of_suite(suite, models), set()).update(names)
    return needed


def _test(
    plans_of: SuitePlans, plan: Plan, before: SuiteReport, pairs: SamplePairs, metric: GatedMetric
) -> GateResult | _Test:
    gate = plans_of.result(plan.after, metric.name, "failed", "", notes=(*plan.notes, *pairs.notes))
    if metric.problem is not None or metric.higher_is_better is None:
        return dataclasses.replace(gate, reason=metric.problem or "")
    if plan.is_judged and metric.name != JUDGED_METRIC:
        return dataclasses.replace(gate, reason=f"{metric.name} does not compare the suite with its baseline")
    changed = None if plan.is_judged else changed_definition(metric.name, plans_of.baseline, before, plan.after)
    if changed is not None:
        return dataclasses.replace(gate, reason=f"{metric.name} has another definition in the baseline: {changed}")
    try:
        paired = pair_metric(
            metric.name,
            pairs.first,
            pairs.second,
            higher_is_better=metric.higher_is_better,
            clusters=pairs.clusters,
            margin=metric.margin or 0.0,
        )
    except PairingError as error:
        return dataclasses.replace(gate, reason=f"{metric.name} {error}")
    if paired.num_lacking and plans_of.compare == "all":
        found = f"{metric.name} has no value in the baseline in {counted(paired.num_lacking)} that it scored"
        return dataclasses.replace(gate, reason=f"{found}; --llm-compare common leaves them out")
    least = plan.after.info.min_measurable
    if (reason := too_few_measured(metric.name, paired, pairs.num_unscored, least)) is not None:
        return dataclasses.replace(gate, reason=reason)
    if paired.num_unmeasured:
        note = f"{counted(paired.num_unmeasured)} left out, on which {metric.name} is not measurable"
        gate = dataclasses.replace(gate, notes=(*gate.notes, note))
    if paired.num_lacking:
        note = f"{counted(paired.num_lacking)} left out, without {metric.name} in the baseline"
        gate = dataclasses.replace(gate, notes=(*gate.notes, note))
    num_left_out = pairs.num_left_out + paired.num_lacking + paired.num_unmeasured
    return _Test(gate=gate, metric=metric, paired=paired, num_left_out=num_left_out)


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
    return dataclasses.replace(one.gate, outcome=outcome, reason=reason, value=difference.second, regression=regression)
