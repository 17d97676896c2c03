"""Which samples changed: against the baseline where there is one, else against the session's first model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pytest_llmeval.reporting.report.gate_results import GateResult
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Comparison, Report
from pytest_llmeval.scoring.comparison.movers import LEAST_CHANGE, Mover, Movers
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.sample_values import value_of

__all__ = ["Change", "Changes", "Direction", "compared_metric", "gates_of_changes"]

Direction: TypeAlias = Literal["worse", "better", "same"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A sample's value before and now, of the metric by which its suite is compared."""

    direction: Direction
    before: float
    now: float


class Changes:
    """How samples of the report's suites changed.

    A comparison with a baseline takes precedence over one of models; of the suite's metrics accuracy does, else the
    first that samples have values of. Give each record to ``read`` first, then ask ``of``: records of the first model
    may stand after the others.
    """

    def __init__(self, report: Report) -> None:
        self._moved: dict[tuple[str, str | None], dict[str, Change]] = {}
        self._metrics: dict[tuple[str, str], tuple[str, bool]] = {}
        self._first: dict[tuple[str, str], dict[str, float]] = {}
        self._first_models: dict[str, str] = {}
        self._names: dict[str, set[str]] = {}
        for key, (_, moved) in _against_baseline(report).items():
            self._moved[key] = _changes(moved)
        better = report.better_by_suite()
        for one in report.comparisons:
            if (one.suite, one.second) not in self._moved and (metric := compared_metric(one)) is not None:
                is_higher = definition(metric, better.get(one.suite, {})).higher_is_better is not False
                self._metrics[one.suite, one.second] = metric, is_higher
                self._first_models[one.suite] = one.first
                self._names.setdefault(one.suite, set()).add(metric)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was compared."""
        return not self._moved and not self._metrics

    def read(self, record: Record) -> None:
        if self._first_models.get(record.suite) == record.model:
            for name in self._names.get(record.suite, ()):
                if (value := value_of(record.score, name)) is not None:
                    self._first.setdefault((record.suite, name), {})[record.id] = value

    def of(self, record: Record) -> Change | None:
        """None where the sample was not compared. Of a comparison with a baseline what is not known to have changed is
        none too: a report keeps those that changed most.
        """
        for model in (record.model, None):
            if (moved := self._moved.get((record.suite, model))) is not None:
                return moved.get(record.id)
        compared = self._metrics.get((record.suite, record.model or ""))
        if compared is None:
            return None
        metric, is_higher = compared
        now, before = value_of(record.score, metric), self._first.get((record.suite, metric), {}).get(record.id)
        if now is None or before is None:
            return None
        if abs(now - before) <= LEAST_CHANGE:
            return Change(direction="same", before=before, now=now)
        return Change(direction="better" if (now > before) == is_higher else "worse", before=before, now=now)


def gates_of_changes(report: Report) -> list[GateResult]:
    """Those whose comparison with a baseline says which samples changed: one for each suite and model."""
    return [gate for gate, _ in _against_baseline(report).values()]


def _against_baseline(report: Report) -> dict[tuple[str, str | None], tuple[GateResult, Movers]]:
    """The gate and the movers of each suite and model by the metric that says most of a sample: accuracy first."""
    found: dict[tuple[str, str | None], tuple[GateResult, Movers]] = {}
    for one in sorted(report.gates, key=lambda gate: gate.metric != "accuracy"):
        if one.suite is not None and one.regression is not None and one.regression.movers is not None:
            found.setdefault((one.suite, one.model), (one, one.regression.movers))
    return found


def _changes(moved: Movers) -> dict[str, Change]:
    sides: Sequence[tuple[Direction, Sequence[Mover]]] = (("worse", moved.worse), ("better", moved.better))
    return {
        one.id: Change(direction=direction, before=one.before, now=one.now)
        for direction, members in sides
        for one in members
    }


def compared_metric(one: Comparison) -> str | None:
    """Which of the compared metrics says most of a sample."""
    names = list(one.movers)
    return "accuracy" if "accuracy" in names else next(iter(names), None)
