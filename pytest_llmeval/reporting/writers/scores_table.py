"""Scores of a saved report, for a notebook: as a table, and as means by subject."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.records import Record, SuiteInfo, without_texts
from pytest_llmeval.reporting.report.report import Report, check_known
from pytest_llmeval.reporting.storage.report_file import read_report
from pytest_llmeval.scoring.metrics.definitions import metric_form
from pytest_llmeval.text.escaping import encodable
from pytest_llmeval.text.wording import quoted

if TYPE_CHECKING:
    import pandas

__all__ = ["LoadedReport", "load_report"]

_COLUMNS = ("suite", "model", "subject", "item", "status", "score")


@dataclass(frozen=True, slots=True)
class LoadedReport:
    """A report with its scores at hand.

    A subject is a sample's category, or its suite's name if it has none; a suite's name stands for all of its samples
    as well. An item is a sample's id. A sample's score is its accuracy (1.0 or 0.0) if it has one, else its value of
    the first of its suite's metrics that samples have values of. It is NaN if the sample was not scored, and if all of
    the suite's metrics are made of several samples at once.

    A subject that is neither a category nor a suite, and by which samples have a value, is a metric: ``subjects=["law",
    "sentence_bleu_2"]`` means ``subjects=["law"], metrics=["sentence_bleu_2"]``.
    """

    report: Report

    def scores(
        self,
        subjects: str | Iterable[str] | None = None,
        items: str | int | Iterable[str | int] | None = None,
        *,
        metrics: str | Iterable[str] | None = None,
        suite: str | None = None,
        model: str | None = None,
    ) -> pandas.DataFrame:
        """Return one row for each sample of these subjects, items, suite and model, or of all, in the report's order.

        Columns: ``suite``, ``model``, ``subject``, ``item``, ``status``, ``score``, then the sample's values by metric
        name; a metric with the name of one of these columns is ``metric.NAME``. With ``items`` the rows are in their
        order, and an absent item is a row of NaN but for its ``item``. With ``metrics`` the columns of values are
        these, in their order, with NaN for values that a sample does not have. Lone surrogates are escaped.

        Raise ``ReportError`` for a suite, model, subject or metric that the report does not have, and if pandas is not
        installed.
        """
        frames = _pandas()
        samples, _, asked = self._chosen(_texts(subjects), _texts(metrics), suite, model)
        rows = [_row(sample, asked) for sample in samples]
        if items is not None:
            by_item: dict[str, list[dict[str, Any]]] = {}
            for row in rows:
                by_item.setdefault(row["item"], []).append(row)
            rows = [row for item in _texts(items) or () for row in by_item.get(item, [{"item": item}])]
        names = (
            tuple(dict.fromkeys(name for row in rows for name in row if name not in _COLUMNS))
            if asked is None
            else tuple(map(_column, asked))
        )
        return frames.DataFrame.from_records(
            [[_cell(row.get(name, math.nan)) for name in (*_COLUMNS, *names)] for row in rows],
            columns=[*_COLUMNS, *map(encodable, names)],
        )

    def mean_scores(
        self,
        subjects: str | Iterable[str] | None = None,
        items: str | int | Iterable[str | int] | None = None,
        *,
        metrics: str | Iterable[str] | None = None,
        suite: str | None = None,
        model: str | None = None,
    ) -> dict[str, float]:
        """Return each subject's mean score over those of its items (of ``items``, or all) that are there and scored.

        With ``metrics``, return each metric's mean over the samples among them that have a value of it. The order is
        the one asked for, or the report's; a mean of nothing is NaN. Raise ``ReportError`` as ``scores`` does, and if a
        mean would mean nothing: of several models if none is chosen, of a subject with scores of two metrics, or of one
        metric that two suites define differently (see ``definitions.py``).
        """
        models = self.report.model_names
        if model is None and len(models) > 1:
            raise ReportError(
                f"the report is on {' and '.join(map(quoted, models))}: choose one with model=…, "
                "since a mean over models means nothing"
            )
        samples, names, columns = self._chosen(_texts(subjects), _texts(metrics), suite, model)
        if items is not None:
            chosen = set(_texts(items) or ())
            samples = [sample for sample in samples if sample.record.id in chosen]
        means = _Means({name: [] for name in columns or names or ()})
        for sample in samples:
            if columns is not None:
                for name in columns:
                    means.add("metric", name, sample.value_of(name), sample.measure_of(name), sample.record.suite)
                continue
            for subject in (sample.subject,) if names is None else sample.names:
                if names is None or subject in names:
                    means.add("subject", subject, sample.score, sample.measure, sample.record.suite)
        return means.by_name()

    def _chosen(
        self, subjects: tuple[str, ...] | None, metrics: tuple[str, ...] | None, suite: str | None, model: str | None
    ) -> tuple[list[_ScoredSample], tuple[str, ...] | None, tuple[str, ...] | None]:
        """Return the samples, their subjects, and the metrics that are asked for; None if none are named."""
        check_known("suite", suite, self.report.suite_names)
        check_known("model", model, self.report.model_names)
        records = [
            without_texts(record)
            for record in self.report.records
            if suite in (None, record.suite) and model in (None, record.model)
        ]
        first = self._metrics(records)
        infos = {one.info.name: one.info for one in self.report.suites}
        samples = [_scored(record, infos.get(record.suite), first.get(record.suite)) for record in records]
        known = dict.fromkeys(name for sample in samples for name in sample.names)
        known |= dict.fromkeys(one.info.name for one in self.report.suites if suite in (None, one.info.name))
        carried = dict.fromkeys(name for sample in samples for name in sample.values)
        stated, of_suites = self._stated_metrics(suite)
        for name in (*(metrics or ()), *(subjects or ())):
            if name in of_suites and name not in carried and name not in known:
                raise ReportError(
                    f"the metric {quoted(name)} is made of all samples of a suite: none has a value of it; "
                    "report.suites has the suite's"
                )
        for name in metrics or ():
            if name not in carried:
                check_known("metric", name, stated)
        for name in subjects or ():
            if name not in carried:
                check_known("subject or metric", name, [*known, *stated])
        own = None if subjects is None else tuple(name for name in subjects if name in known)
        named = None if subjects is None else tuple(name for name in subjects if name not in known)
        if named:
            metrics = tuple(dict.fromkeys((*(metrics or ()), *named)))
            own = own or None
        chosen = [sample for sample in samples if own is None or not set(own).isdisjoint(sample.names)]
        return chosen, own, metrics

    def _stated_metrics(self, suite: str | None) -> tuple[dict[str, None], set[str]]:
        """Return the metrics that samples can have values of, and those that are made of several samples at once."""
        stated: dict[str, None] = {}
        of_suites: set[str] = set()
        for one in self.report.suites:
            if suite in (None, one.info.name):
                stated |= dict.fromkeys((*one.info.metrics, *one.summary.metrics))
                of_suites |= {name for name, found in one.summary.metrics.items() if found.kind in ("pooled", "corpus")}
        return {name: None for name in stated if name not in of_suites}, of_suites

    def _metrics(self, records: Iterable[Record]) -> dict[str, str]:
        """Map each suite to the first of its metrics that its samples have values of."""
        carried: dict[str, set[str]] = {}
        for record in records:
            carried.setdefault(record.suite, set()).update(record.values)
        found: dict[str, str] = {}
        for suite in self.report.suites:
            for name in suite.info.metrics:
                if name in carried.get(suite.info.name, ()):
                    found.setdefault(suite.info.name, name)
        return found


def load_report(path: str | os.PathLike[str]) -> LoadedReport:
    """Return the report in a file, or in the journal of a run that was killed. Raise ``ReportError``, in one line."""
    return LoadedReport(read_report(Path(path)))


@dataclass(frozen=True, slots=True)
class _ScoredSample:
    """A sample with its score.

    ``measure`` names the metric of the score, with the settings that it depends on. ``values`` are the sample's by
    metric; an unscored sample has none.
    """

    record: Record
    info: SuiteInfo | None
    values: Mapping[str, float]
    score: float
    measure: str

    def value_of(self, metric: str) -> float:
        return float(self.values.get(metric, math.nan))

    def measure_of(self, metric: str) -> str:
        form = "" if self.info is None else metric_form(metric, self.info.scorer, self.info.settings)
        return f"{metric} ({form})" if form else metric

    @property
    def subject(self) -> str:
        return self.record.suite if self.record.category is None else self.record.category

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names by which the sample is found: its subject, and its suite's name."""
        return tuple(dict.fromkeys((self.subject, self.record.suite)))


def _scored(record: Record, info: SuiteInfo | None, metric: str | None) -> _ScoredSample:
    """Return the sample with its score, which is of ``metric`` if the sample is neither right nor wrong."""
    values = record.values
    if "accuracy" in values or record.status in ("correct", "wrong"):
        metric, values = "accuracy", {"accuracy": float(record.status == "correct"), **values}
    if record.status == "unscored":
        values = {}
    score = math.nan if metric is None else float(values.get(metric, math.nan))
    form = "" if info is None or metric is None else metric_form(metric, info.scorer, info.settings)
    return _ScoredSample(record, info, values, score, f"{metric} ({form})" if form else f"{metric}")


class _Means:
    """Values by name, with what they measure and the suites that they are of."""

    def __init__(self, values: dict[str, list[float]]) -> None:
        self._values = values
        self._measures: dict[tuple[str, str], dict[str, str]] = {}

    def add(self, what: str, name: str, value: float, measure: str, suite: str) -> None:
        values = self._values.setdefault(name, [])
        if not math.isnan(value):
            values.append(value)
            self._measures.setdefault((what, name), {}).setdefault(measure, suite)

    def by_name(self) -> dict[str, float]:
        """Return the means; raise ``ReportError`` if the values of one name measure two things."""
        for (what, name), own in self._measures.items():
            if len(own) > 1:
                described = " and ".join(f"{measure} of suite {quoted(suite)}" for measure, suite in own.items())
                raise ReportError(
                    f"the {what} {quoted(name)} has {described}: choose one with suite=…, "
                    "since a mean over two metrics means nothing"
                )
        return {name: math.fsum(values) / len(values) if values else math.nan for name, values in self._values.items()}


def _row(sample: _ScoredSample, metrics: tuple[str, ...] | None) -> dict[str, Any]:
    record = sample.record
    fixed = (record.suite, record.model, sample.subject, record.id, record.status, sample.score)
    unscored = record.status == "unscored"
    own = ({} if unscored else record.values) if metrics is None else {name: sample.value_of(name) for name in metrics}
    values = {_column(name): value for name, value in own.items()}
    return {**dict(zip(_COLUMNS, fixed, strict=True)), **values}


def _column(metric: str) -> str:
    return f"metric.{metric}" if metric in _COLUMNS else metric


def _cell(value: Any) -> Any:
    """Return the value with its surrogates escaped: tables of some versions of pandas hold texts in UTF-8."""
    return encodable(value) if isinstance(value, str) else value


def _texts(names: str | int | Iterable[str | int] | None) -> tuple[str, ...] | None:
    """Return the names as texts, each once; None if none are given."""
    if names is None:
        return None
    return tuple(dict.fromkeys(map(str, [names] if isinstance(names, str | int) else names)))


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise ReportError(
            "scores as a table need the package pandas: pip install 'pytest-llmeval-suites[pandas]'"
        ) from None
