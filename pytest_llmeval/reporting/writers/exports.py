"""Samples for other programs and for notebooks: CSV, Parquet, JSON by questions, and a table of scores.

The JSON is the form that many evaluation harnesses exchange: a benchmark, its accuracy, its questions and answers.
"""

from __future__ import annotations

import csv
import importlib
import json
import math
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmeval.errors import LLMEvalError, ReportError
from pytest_llmeval.reporting.report.records import Record, SuiteInfo, without_texts
from pytest_llmeval.reporting.report.report import (
    Group,
    Report,
    check_known,
    compared_models,
    group_of_record,
    group_of_suite,
)
from pytest_llmeval.reporting.storage.atomic_write import atomic_path, atomic_write
from pytest_llmeval.reporting.storage.disk_records import records_at
from pytest_llmeval.reporting.storage.report_file import read_report
from pytest_llmeval.reporting.tables.samples import as_text
from pytest_llmeval.scoring.metrics.definitions import metric_form, shown_order
from pytest_llmeval.text.escaping import csv_text, encodable, printable
from pytest_llmeval.text.wording import quoted
from pytest_llmeval.types import JSON

if TYPE_CHECKING:
    import pandas

__all__ = ["COLUMNS", "LoadedReport", "load_report", "write_csv", "write_parquet", "write_questions"]


COLUMNS = (
    *("suite", "model", "id", "category", "cluster", "status", "answer", "target", "no_answer", "chance"),
    *("num_prompt_tokens", "num_tokens", "seconds", "cost"),
    *("question", "choices", "prompt", "output", "reason", "details", "nodeid", "fingerprint"),
    *("reasoning", "num_truncated", "judge_cost"),
)
"""Fields of a record that are columns, before the columns of its values."""


def write_csv(report: Report, path: Path) -> None:
    """Write one row for each sample as CSV (RFC 4180), in UTF-8, with a head. Raise ``ReportError``.

    A sample's values follow ``COLUMNS`` under the metrics' names; one with the name of a column has ``values.`` before
    it. A cell without a value is empty, and so is one whose value is not known or is no finite number. Lists and
    mappings are JSON. No text is a formula (see ``csv_text``).
    """
    columns = _value_columns(report)
    with atomic_write(path, encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, *map(csv_text, columns.values())])
        for record in report.records:
            data = _known(record)
            values = (record.values.get(name) for name in columns)
            writer.writerow([*(_csv_cell(data[name]) for name in COLUMNS), *map(_csv_cell, values)])


def _value_columns(report: Report) -> dict[str, str]:
    """Map the names of the samples' values to their columns, in the order in which they are shown."""
    names = sorted({name for record in report.records for name in record.values}, key=shown_order)
    return {name: f"values.{name}" if name in COLUMNS else name for name in names}


def _known(record: Record) -> dict[str, JSON]:
    """Return the record's fields; None for tokens that nobody has counted, and for a time that nobody has taken."""
    data = record.to_dict()
    if not record.has_counted_tokens:
        data["num_tokens"] = data["num_prompt_tokens"] = None
    data["seconds"] = data["seconds"] or None
    return data


def _csv_cell(value: JSON) -> JSON:
    if isinstance(value, str):
        return csv_text(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return csv_text(_ENCODER.encode(value)) if value else None


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)


_BATCH = 5_000
"""The most samples that are held at once."""

_FLOATS = ("chance", "seconds", "cost", "judge_cost")
_INTEGERS = ("num_prompt_tokens", "num_tokens", "num_truncated")
_OTHERS = (*_FLOATS, *_INTEGERS, "no_answer")
"""Columns that are no text."""


def write_parquet(report: Report, path: Path) -> None:
    """Write one row for each sample as Parquet, with the columns of the CSV report; those of values are float64.

    Lists and mappings are JSON, as in the CSV report, and so is a target that is no text; lone surrogates are escaped.
    Raise ``LLMEvalError`` if pyarrow is not installed or refuses a value, or if the file cannot be written.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise LLMEvalError(
            "Parquet needs pyarrow, which is not installed: pip install 'pytest-llmeval-suites[datasets]'"
        ) from None
    columns = _value_columns(report)
    kinds = {
        **dict.fromkeys(_FLOATS, pyarrow.float64()),
        **dict.fromkeys(_INTEGERS, pyarrow.int64()),
        "no_answer": pyarrow.bool_(),
    }
    schema = pyarrow.schema(
        [(name, kinds.get(name, pyarrow.string())) for name in COLUMNS]
        + [(encodable(column), pyarrow.float64()) for column in columns.values()]
    )
    with atomic_path(path) as file:
        try:
            with pyarrow.parquet.ParquetWriter(str(file), schema) as writer:
                records = iter(report.records)
                while rows := [_row(record, columns) for record in islice(records, _BATCH)]:
                    writer.write_table(pyarrow.Table.from_pylist(rows, schema))
        except (pyarrow.ArrowException, OverflowError) as error:
            if isinstance(error, OSError):
                raise
            reason = printable(str(error))
            raise LLMEvalError(
                f"cannot write {path}: a value does not fit into a column of Parquet: {reason}"
            ) from None


def _row(record: Record, columns: dict[str, str]) -> dict[str, Any]:
    data = _known(record)
    row = {name: _parquet_cell(name, data[name]) for name in COLUMNS}
    return row | {encodable(columns[metric]): value for metric, value in record.values.items()}


def _parquet_cell(name: str, value: JSON) -> JSON:
    if value is None or name in _OTHERS:
        return value
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list | tuple | dict) and not value:
        return None
    return json.dumps(value, default=str)


@dataclass(slots=True)
class _Counts:
    """Counts of a suite's samples; ``num_expected`` were to run, ``numbers`` have no right or wrong.

    ``deciding`` names the value that is the credit of a sample: 1 if right, 0 if wrong, between if partly right.
    """

    num_expected: int = 0
    correct: int = 0
    wrong: int = 0
    partial: int = 0
    numbers: int = 0
    partial_credit: float = 0.0
    deciding: str = "accuracy"

    def add(self, record: Record) -> None:
        self.correct += record.status == "correct"
        self.wrong += record.status == "wrong"
        if record.status == "scored":
            credit = record.values.get(self.deciding)
            if credit is not None and 0 <= credit <= 1:
                self.partial += 1
                self.partial_credit += credit
            else:
                self.numbers += 1

    def metrics(self, num_questions: int) -> dict[str, JSON]:
        """Return the form's metrics; a sample that is not known to be right or wrong is unscored."""
        total = max(self.num_expected, num_questions) - self.numbers
        # In a suite of numbers nothing can be right: 0 would be a failure turned into a number.
        num_judged = self.correct + self.wrong + self.partial
        has_accuracy = total > 0 and (num_judged > 0 or self.numbers == 0)
        credit = self.correct + self.partial_credit
        return {
            "accuracy": credit / total if has_accuracy else None,
            "credit": credit,
            "correct": self.correct,
            "total": total,
            "unscored": total - num_judged,
        }


def write_questions(report: Report, path: Path) -> None:
    """Write ``{benchmark, metrics: {accuracy, credit, correct, total, unscored}, questions}`` as JSON.

    Several suites are a list. A question is ``{qid, question, gold, pred, correct}``, on a line of its own. With
    several models there is one entry for each suite and model, which it has under ``model``. ``accuracy`` is ``credit /
    total``, ``correct`` a number of whole samples. Credit is 1 for a right sample and 0 for a wrong one. A sample that
    is partly right (a tie, one that is asked several times) has the accuracy that the report's mean is taken over, or
    the first ``pass@k`` of a suite that has these in place of the accuracy. ``total`` counts all samples that were to
    run, but for those whose score is a number with no right or wrong. Those that could not be scored are among them, as
    ``unscored``, and so are those that a session which stopped early did not come to. ``correct`` of a sample that is
    neither right nor wrong is null, and so is ``pred`` of an unscored sample, and the accuracy of no samples. Raise
    ``ReportError``.
    """
    with atomic_write(path) as file:
        file.writelines(_parts(report))


def _parts(report: Report) -> Iterator[str]:
    compared = compared_models(report)
    counts: dict[Group, _Counts] = {}
    for suite in report.suites:
        counted = counts.setdefault(group_of_suite(suite, compared), _Counts())
        counted.num_expected += suite.summary.num_expected
        found = (one for one in suite.info.metrics if one == "accuracy" or one.startswith(("pass@", "pass^")))
        counted.deciding = next(found, "accuracy")
    places: dict[Group, array[int]] = {}
    for place, record in enumerate(report.records):
        group = group_of_record(record, compared)
        counts.setdefault(group, _Counts()).add(record)
        places.setdefault(group, array("Q")).append(place)
    is_list = len(counts) != 1
    yield "[\n" if is_list else ""
    for number, (group, counted) in enumerate(counts.items()):
        own = places.get(group, ())
        yield (",\n" if number else "") + f"{' ' * is_list}{_head(group, counted.metrics(len(own)))}"
        for row, record in enumerate(records_at(report.records, own)):
            yield f"{',' if row else ''}\n  {json.dumps(_question(record))}"
        yield "\n ]}"
    yield "\n]\n" if is_list else "\n"


def _head(group: Group, metrics: dict[str, JSON]) -> str:
    """Return the entry's opening, up to where its questions begin."""
    suite, model = group
    head: dict[str, JSON] = {"benchmark": suite}
    if model is not None:
        head["model"] = model
    head["metrics"] = metrics
    return json.dumps(head).removesuffix("}") + ', "questions": ['


def _question(record: Record) -> dict[str, JSON]:
    return {
        "qid": record.id,
        "question": record.question or (as_text(record.prompt) if isinstance(record.prompt, list) else record.question),
        "gold": None if record.target is None or record.target == [] else as_text(record.target),
        "pred": None if record.status == "unscored" else record.answer,
        "correct": {"correct": True, "wrong": False}.get(record.status),
    }


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
        rows = [_score_row(sample, asked) for sample in samples]
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


def _score_row(sample: _ScoredSample, metrics: tuple[str, ...] | None) -> dict[str, Any]:
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
