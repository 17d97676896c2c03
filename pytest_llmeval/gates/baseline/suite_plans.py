"""Which suites of a session are compared with which of its baseline's, and which are not compared at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_llmeval.gates.baseline.gated_metrics import GatedMetric, gated_metrics, unmatched_margins
from pytest_llmeval.gates.options import Margin, Selection
from pytest_llmeval.reporting.report.replies import REPLIES, changed_judge, replies_identity
from pytest_llmeval.reporting.report.report import (
    ABSENT,
    GateOutcome,
    GateResult,
    Group,
    Report,
    SuiteReport,
    compared_models,
    group_of_suite,
    suite_of_baseline,
)
from pytest_llmeval.text.names import plain_name
from pytest_llmeval.text.wording import quoted

__all__ = ["Plan", "SuitePlans", "baseline_gate"]

_MAX_PROBLEMS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A suite of now, with the baseline's that it is compared with; a result where there is none.

    ``notes`` tell of what both have in common with all others: of the baseline as a whole. ``is_judged``: the suite's
    own scorer has compared each reply with the baseline's.
    """

    after: SuiteReport
    before: SuiteReport | None = None
    metrics: tuple[GatedMetric, ...] = ()
    notes: tuple[str, ...] = ()
    result: GateResult | None = None
    is_judged: bool = False


class SuitePlans:
    """The suites of two reports."""

    def __init__(
        self, baseline: Report, current: Report, margins: tuple[Margin, ...], compare: Literal["all", "common"]
    ) -> None:
        self.baseline, self.current, self._margins, self.compare = baseline, current, margins, compare
        self.models_before, self.models_now = compared_models(baseline), compared_models(current)

    def plans(self, undecided: GateOutcome) -> Iterator[Plan]:
        """Yield which suites are compared with which, and by what."""
        incomplete = tuple(_incomplete(self.baseline))
        for after in self.current.suites:
            metrics = gated_metrics(after, self._margins)
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
        """Return the suite of the baseline that this one is compared with; where there is none, why."""
        if self.current.stopped is not None:
            return f"the session stopped early: {self.current.stopped}"
        if incomplete and self.compare == "all":
            return f"{'; '.join(incomplete)}; --llm-compare common compares the samples that it has"
        found = suite_of_baseline(self.baseline, after.info.name, after.models[0] if after.models else None)
        if isinstance(found, str):
            return found
        if after.info.fingerprint_parts.get(REPLIES) not in (None, replies_identity(self.baseline, found)):
            return "its replies were compared with those of another report"
        if (changed := changed_judge(after, self.current, self.baseline)) is not None:
            return changed
        return found if metrics else "it has no metric to compare"

    def suites_that_did_not_run(self, selection: Selection, undecided: GateOutcome) -> Iterator[GateResult]:
        """Yield a result for each suite of the baseline that is not in the session.

        Where both are of several models, one for each suite on a model; but for a suite that the baseline has on one
        model only, with which it is compared on all.
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
            metrics = gated_metrics(before, self._margins)
            metric = metrics[0].name if metrics else None
            yield baseline_gate(metric, outcome, reason, suite=name, model=model, path=before.info.path)

    def margins_of_nothing(self, outcome: GateOutcome) -> Iterator[GateResult]:
        """Yield a result for each margin that no suite takes."""
        names = self.current.suite_names
        for margin, reason in unmatched_margins(self._margins, self.current.suites, self.baseline.suites):
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
        """Return one of a suite of now; ``metric`` is None where it has none that is compared."""
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
        name="baseline" if metric is None else f"{metric} vs baseline",
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
    """Yield why the baseline does not hold all that its session was to find."""
    if baseline.stopped is not None:
        yield f"the baseline stopped early: {baseline.stopped}"
    if baseline.problems:
        more = len(baseline.problems) - _MAX_PROBLEMS
        shown = ", ".join(map(quoted, baseline.problems[:_MAX_PROBLEMS]))
        yield f"the baseline has problems: {shown}{f', and {more} more' if more > 0 else ''}"
