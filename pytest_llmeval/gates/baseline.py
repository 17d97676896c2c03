"""The gate against a baseline: did a suite get worse, sample by sample?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_llmeval.gates.gated_metrics import (
    GatedMetric,
    changed_definition,
    gated_metrics,
    unmatched_margins,
)
from pytest_llmeval.gates.kept_records import KeptRecord, kept_records
from pytest_llmeval.gates.margins import Margin
from pytest_llmeval.gates.regression_lines import regression_reason, undecided_reason
from pytest_llmeval.gates.sample_pairs import Pairing, Refusal, SamplePairs, pair_samples
from pytest_llmeval.gates.verdict import fails
from pytest_llmeval.reporting.gate_results import GateMode, GateOutcome, GateResult, Regression
from pytest_llmeval.reporting.groups import Group, compared_models, group_of_suite
from pytest_llmeval.reporting.records import SuiteInfo
from pytest_llmeval.reporting.report import Report, SuiteReport
from pytest_llmeval.scoring.families import FamilyTest, run_family
from pytest_llmeval.scoring.paired_metrics import PairedMetric, PairingError, needed_values, pair_metric
from pytest_llmeval.suites.wording import quoted

__all__ = ["BaselineSettings", "Margin", "compare_reports"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineSettings:
    """How a session is compared with its baseline. ``compare`` ``common`` takes the samples that are the same in both,
    where the suites differ; ``alpha`` is the chance of a false alarm in the whole session.
    """

    mode: GateMode = "significant"
    margins: tuple[Margin, ...] = ()
    compare: Literal["all", "common"] = "all"
    alpha: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    """One metric of one suite that is tested, as a member of the session's family."""

    gate: GateResult
    metric: GatedMetric
    paired: PairedMetric
    pairs: SamplePairs


def compare_reports(
    baseline: Report,
    current: Report,
    settings: BaselineSettings,
    *,
    covers: Callable[[SuiteInfo], bool] = lambda info: True,
    is_selection: bool = False,
    allow_unscored: int = 0,
    require: bool = False,
) -> tuple[GateResult, ...]:
    """Compare every suite of ``current`` with that of its name in ``baseline``; in the order of the suites.

    ``covers`` says of a suite of the baseline whether the session looked where it stands, ``is_selection`` whether the
    session left out tests there: a suite that did not run for one of the two reasons is skipped. ``allow_unscored``
    samples of the session may be unscored. ``require`` turns what would be skipped, and selections, into failures.
    """
    comparison = _Comparison(baseline, current, settings)
    undecided: GateOutcome = "failed" if require else "skipped"
    pairing = Pairing(
        compare=settings.compare,
        is_selection=is_selection,
        num_unscored=sum(max(0, one.summary.num_expected - one.summary.num_scored) for one in current.suites),
        allow_unscored=allow_unscored,
        require=require,
    )
    plans = list(comparison.plans(undecided))
    results = _decided(list(comparison.tests(plans, pairing)), settings, undecided)
    results += comparison.suites_that_did_not_run(covers, is_selection=is_selection, undecided=undecided)
    results += comparison.margins_of_nothing(undecided if is_selection else "failed")
    if all(result.outcome == "skipped" for result in results):
        reasons = dict.fromkeys(result.reason for result in results)
        why = "; ".join(reasons) or "there is no suite in the session, and none in the baseline"
        results.append(_gate("baseline", None, None, "failed", f"nothing was compared: {why}"))
    return tuple(results)


def _decided(
    found: Sequence[GateResult | _Test], settings: BaselineSettings, undecided: GateOutcome
) -> list[GateResult]:
    """The results, in the same order: what was to be tested is tested, as one family."""
    family = [one for one in found if isinstance(one, _Test)]
    tested = iter(run_family([one.paired.paired for one in family], settings.alpha))
    return [
        _tested(one, next(tested), len(family), settings, undecided) if isinstance(one, _Test) else one for one in found
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A suite of now, with the baseline's that it is compared with; a result where there is none."""

    after: SuiteReport
    before: SuiteReport | None = None
    metrics: tuple[GatedMetric, ...] = ()
    result: GateResult | None = None


class _Comparison:
    """Two reports and how they are compared."""

    def __init__(self, baseline: Report, current: Report, settings: BaselineSettings) -> None:
        self.baseline, self.current, self.settings = baseline, current, settings
        self._compared_before, self._compared = compared_models(baseline), compared_models(current)

    def plans(self, undecided: GateOutcome) -> Iterator[_Plan]:
        """Which suites are compared with which, and by what."""
        for after in self.current.suites:
            metrics = gated_metrics(after, self.settings.margins)
            name = metrics[0].name if metrics else "baseline"
            if self.current.stopped is not None:
                reason = f"the session stopped early: {self.current.stopped}"
                yield _Plan(after=after, result=self._result(after, name, "failed", reason))
                continue
            partners = [one for one in self.baseline.suites if one.info.name == after.info.name]
            if not partners:
                yield _Plan(after=after, result=self._result(after, name, undecided, "not in the baseline"))
                continue
            partner = partners[0] if len(partners) == 1 else _of_same_model(after, partners)
            if partner is None:
                models = ", ".join(quoted(one.models[0]) for one in partners if one.models)
                own = quoted(after.models[0]) if after.models else "a model without a name"
                reason = f"the baseline has this suite on {models}, and not on {own}"
                yield _Plan(after=after, result=self._result(after, name, "failed", reason))
            elif not metrics:
                yield _Plan(after=after, result=self._result(after, name, "failed", "it has no metric to compare"))
            else:
                yield _Plan(after=after, before=partner, metrics=metrics)

    def tests(self, plans: Sequence[_Plan], pairing: Pairing) -> Iterator[GateResult | _Test]:
        """Each suite's results, and the tests that are still to be made."""
        first = kept_records(self.baseline, self._needed(plans, self._compared_before, of_baseline=True))
        second = kept_records(self.current, self._needed(plans, self._compared, of_baseline=False))
        for plan in plans:
            if plan.result is not None:
                yield plan.result
            elif plan.before is not None:
                yield from self._tests_of(
                    plan,
                    plan.before,
                    first[group_of_suite(plan.before, self._compared_before)],
                    second[group_of_suite(plan.after, self._compared)],
                    pairing,
                )

    def suites_that_did_not_run(
        self, covers: Callable[[SuiteInfo], bool], *, is_selection: bool, undecided: GateOutcome
    ) -> Iterator[GateResult]:
        """A result for each suite of the baseline that is not in the session."""
        told = {suite.info.name for suite in self.current.suites}
        for before in self.baseline.suites:
            name = before.info.name
            if name in told:
                continue
            told.add(name)
            outcome, reason = undecided, "in the baseline, and not selected"
            if not covers(before.info):
                reason = "in the baseline, and not among the suites of this session"
            elif not is_selection:
                reason = "in the baseline, and did not run"
                if self.settings.compare == "all":
                    outcome = "failed"
            metrics = gated_metrics(before, self.settings.margins)
            metric = metrics[0].name if metrics else "baseline"
            gate = _gate(_title(metric), name, None, outcome, reason)
            yield dataclasses.replace(gate, path=before.info.path, metric=metrics[0].name if metrics else None)

    def margins_of_nothing(self, outcome: GateOutcome) -> Iterator[GateResult]:
        """A result for each margin that no suite takes."""
        for found in unmatched_margins(self.settings.margins, self.current.suites, self.baseline.suites):
            yield _gate(f"max drop {found.margin}", found.suite, None, outcome, found.reason)

    def _needed(
        self, plans: Sequence[_Plan], compared: tuple[str, ...], *, of_baseline: bool
    ) -> Mapping[Group, set[str]]:
        needed: dict[Group, set[str]] = {}
        for plan in plans:
            suite = plan.before if of_baseline else plan.after
            if plan.before is not None and suite is not None:
                names = set[str]().union(*(needed_values(metric.name) for metric in plan.metrics))
                needed.setdefault(group_of_suite(suite, compared), set()).update(names)
        return needed

    def _tests_of(
        self,
        plan: _Plan,
        before: SuiteReport,
        first: Mapping[str, KeptRecord],
        second: Mapping[str, KeptRecord],
        pairing: Pairing,
    ) -> Iterator[GateResult | _Test]:
        after = plan.after
        try:
            pairs = pair_samples(before, after, first, second, pairing)
        except Refusal as refusal:
            yield self._result(after, plan.metrics[0].name, "failed", str(refusal))
            return
        for metric in plan.metrics:
            gate = self._result(after, metric.name, "failed", "", notes=pairs.notes)
            changed = changed_definition(metric.name, self.baseline, before, after)
            if metric.problem is not None or metric.higher_is_better is None:
                yield dataclasses.replace(gate, reason=metric.problem or "")
            elif changed is not None:
                reason = f"{metric.name} is not what it was in the baseline: {changed}"
                yield dataclasses.replace(gate, reason=reason)
            else:
                try:
                    paired = pair_metric(
                        metric.name,
                        pairs.first,
                        pairs.second,
                        higher_is_better=metric.higher_is_better,
                        clusters=pairs.clusters,
                        margin=metric.margin,
                    )
                except PairingError as error:
                    yield dataclasses.replace(gate, reason=f"{metric.name} {error}")
                else:
                    yield _Test(gate=gate, metric=metric, paired=paired, pairs=pairs)

    def _result(
        self, suite: SuiteReport, metric: str, outcome: GateOutcome, reason: str, *, notes: tuple[str, ...] = ()
    ) -> GateResult:
        name, model = group_of_suite(suite, self._compared)
        gate = _gate(_title(metric), name, model, outcome, reason)
        own = None if metric == "baseline" else metric
        return dataclasses.replace(gate, path=suite.info.path, metric=own, notes=notes)


def _of_same_model(after: SuiteReport, partners: Sequence[SuiteReport]) -> SuiteReport | None:
    model = after.models[0] if after.models else None
    return next((one for one in partners if model is not None and one.models[:1] == (model,)), None)


def _tested(
    one: _Test, found: FamilyTest, family: int, settings: BaselineSettings, undecided: GateOutcome
) -> GateResult:
    paired, difference, margin = one.paired, one.paired.difference, one.metric.margin
    level = settings.alpha / family
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
        margin=margin,
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
        smallest_drop=paired.smallest_drop(level),
        false_alarm_rate=found.test.false_alarm_rate,
        num_left_out=one.pairs.num_left_out,
    )
    is_failed = fails(
        settings.mode,
        drop=paired.drop,
        margin=margin,
        p_adjusted=found.p_drop,
        alpha=settings.alpha,
        largest_drop=paired.largest_drop,
        baseline=difference.first,
    )
    outcome: GateOutcome = "failed" if is_failed else "passed"
    reason = regression_reason(regression, flipped_to=paired.flipped_to)
    if settings.mode == "significant" and not is_failed and not paired.can_find(level):
        outcome, reason = undecided, f"{undecided_reason(regression)}: {reason}"
    return dataclasses.replace(one.gate, outcome=outcome, reason=reason, value=difference.second, regression=regression)


def _gate(name: str, suite: str | None, model: str | None, outcome: GateOutcome, reason: str) -> GateResult:
    return GateResult(
        name=name, kind="baseline", origin="option", outcome=outcome, reason=reason, suite=suite, model=model
    )


def _title(metric: str) -> str:
    return "baseline" if metric == "baseline" else f"{metric} vs baseline"
