"""Scores of a saved report, for a notebook: as a table, and as means by subject."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.records import Record, SuiteInfo, without_texts
from pytest_llmeval.reporting.report.report import Report, check_known
from pytest_llmeval.reporting.storage.read import read_report
from pytest_llmeval.scoring.metrics.metric_forms import metric_form
from pytest_llmeval.text.escaping import encodable
from pytest_llmeval.text.wording import quoted

if TYPE_CHECKING:
    import pandas

__all__ = ["LoadedReport", "load_report"]

_COLUMNS = ("suite", "model", "subject", "item", "status", "score")


@dataclass(frozen=True, slots=True)
class LoadedReport:
    """A report with its scores at hand.

    A subject is a sample's category, or its suite's name where it has none; a suite's name stands for all of its
    samples as well. An item is a sample's id. A sample's score is its accuracy (1.0 or 0.0) where it has one, else its
    value of the first of its suite's metrics that samples have values of; NaN where it was not scored, and where all of
    the suite's metrics are made of several samples at once.
    """

    report: Report

    def scores(
        self,
        subjects: str | Iterable[str] | None = None,
        items: str | int | Iterable[str | int] | None = None,
        *,
        suite: str | None = None,
        model: str | None = None,
    ) -> pandas.DataFrame:
        """One row for each sample, in the report's order: those of these subjects, items, suite and model, else all.

        Columns: ``suite``, ``model``, ``subject``, ``item``, ``status``, ``score``, then the sample's values by metric
        name; a metric that is called as one of these columns is ``metric.NAME``. With ``items`` the rows are in their
        order, and one that is absent is a row of NaN but for its ``item``.

        Lone surrogates are escaped.

        Needs pandas. Raises ``ReportError`` for a suite, model or subject that the report does not have, and where
        pandas is not installed.
        """
        frames = _pandas()
        rows = [_row(sample) for sample in self._samples(_texts(subjects), suite, model)]
        if items is not None:
            by_item: dict[str, list[dict[str, Any]]] = {}
            for row in rows:
                by_item.setdefault(row["item"], []).append(row)
            rows = [row for item in _texts(items) or () for row in by_item.get(item, [{"item": item}])]
        metrics = dict.fromkeys(name for row in rows for name in row if name not in _COLUMNS)
        return frames.DataFrame.from_records(
            [[_cell(row.get(name, math.nan)) for name in (*_COLUMNS, *metrics)] for row in rows],
            columns=[*_COLUMNS, *map(encodable, metrics)],
        )

    def mean_scores(
        self,
        subjects: str | Iterable[str] | None = None,
        items: str | int | Iterable[str | int] | None = None,
        *,
        suite: str | None = None,
        model: str | None = None,
    ) -> dict[str, float]:
        """Each subject's mean score over those of its items (of ``items``, else of all) that are there and scored.

        In the order asked for, else in the report's. NaN for a subject with none. Raises ``ReportError`` as ``scores``
        does, and for a report on several models where none is chosen, and for a subject that has scores of two metrics,
        or of one that two suites define otherwise (see ``metric_forms.py``): a mean over those means nothing.
        """
        models = self.report.model_names
        if model is None and len(models) > 1:
            raise ReportError(
                f"the report is on {' and '.join(map(quoted, models))}: choose one with model=…, "
                "since a mean over models means nothing"
            )
        asked, chosen = _texts(subjects), None if items is None else set(_texts(items) or ())
        found: dict[str, list[float]] = {subject: [] for subject in asked or ()}
        measures: dict[str, dict[str, str]] = {}
        for sample in self._samples(asked, suite, model):
            for subject in sample.names if asked is not None else (sample.subject,):
                values = found.get(subject) if asked is not None else found.setdefault(subject, [])
                if values is None or (chosen is not None and sample.record.id not in chosen):
                    continue
                if not math.isnan(sample.score):
                    values.append(sample.score)
                    measures.setdefault(subject, {}).setdefault(sample.measure, sample.record.suite)
        for subject, own in measures.items():
            if len(own) > 1:
                described = " and ".join(f"{measure} of suite {quoted(name)}" for measure, name in own.items())
                raise ReportError(
                    f"the subject {quoted(subject)} has {described}: choose one with suite=…, "
                    "since a mean over two metrics means nothing"
                )
        return {subject: math.fsum(values) / len(values) if values else math.nan for subject, values in found.items()}

    def _samples(
        self, subjects: tuple[str, ...] | None, suite: str | None, model: str | None
    ) -> Iterator[_ScoredSample]:
        check_known("suite", suite, self.report.suite_names)
        check_known("model", model, self.report.model_names)
        records = [
            without_texts(record)
            for record in self.report.records
            if suite in (None, record.suite) and model in (None, record.model)
        ]
        metrics = self._metrics(records)
        infos = {one.info.name: one.info for one in self.report.suites}
        samples = [_scored(record, infos.get(record.suite), metrics.get(record.suite)) for record in records]
        known = dict.fromkeys(name for sample in samples for name in sample.names)
        known |= dict.fromkeys(one.info.name for one in self.report.suites if suite in (None, one.info.name))
        for subject in subjects or ():
            check_known("subject", subject, known)
        for sample in samples:
            if subjects is None or not set(subjects).isdisjoint(sample.names):
                yield sample

    def _metrics(self, records: Iterable[Record]) -> dict[str, str]:
        """By suite, the first of its metrics that its samples have values of."""
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
    """The report in a file, or in the journal of a run that was killed. Raises ``ReportError``, in one line."""
    return LoadedReport(read_report(Path(path)))


@dataclass(frozen=True, slots=True)
class _ScoredSample:
    """``measure`` says what the score is one of: a metric, and what of its suite's settings that depends on."""

    record: Record
    score: float
    measure: str

    @property
    def subject(self) -> str:
        return self.record.suite if self.record.category is None else self.record.category

    @property
    def names(self) -> tuple[str, ...]:
        """What it is found by: its subject, and its suite's name."""
        return tuple(dict.fromkeys((self.subject, self.record.suite)))


def _scored(record: Record, info: SuiteInfo | None, metric: str | None) -> _ScoredSample:
    """``metric`` is the first that its suite's samples carry: what its score is, where it has no right or wrong."""
    values = record.values
    if "accuracy" in values or record.status in ("correct", "wrong"):
        metric, values = "accuracy", {"accuracy": float(record.status == "correct"), **values}
    score = math.nan if record.status == "unscored" or metric is None else float(values.get(metric, math.nan))
    form = "" if info is None or metric is None else metric_form(metric, info.scorer, info.settings)
    return _ScoredSample(record, score, f"{metric} ({form})" if form else f"{metric}")


def _row(sample: _ScoredSample) -> dict[str, Any]:
    record = sample.record
    fixed = (record.suite, record.model, sample.subject, record.id, record.status, sample.score)
    values = {f"metric.{name}" if name in _COLUMNS else name: value for name, value in record.values.items()}
    return {**dict(zip(_COLUMNS, fixed, strict=True)), **values}


def _cell(value: Any) -> Any:
    """Tables of some versions of pandas hold texts in UTF-8."""
    return encodable(value) if isinstance(value, str) else value


def _texts(names: str | int | Iterable[str | int] | None) -> tuple[str, ...] | None:
    """Several names, each once, or one."""
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
