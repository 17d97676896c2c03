"""Samples for other programs: CSV for spreadsheets and Parquet, with a row for each, and JSON by questions.

The JSON is the form that many evaluation harnesses exchange: a benchmark, its accuracy, its questions and answers.
"""

from __future__ import annotations

import csv
import json
import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Group, Report, compared_models, group_of_record, group_of_suite
from pytest_llmeval.reporting.storage.atomic_write import atomic_path, atomic_write
from pytest_llmeval.reporting.storage.disk_records import records_at
from pytest_llmeval.reporting.tables.samples import as_text
from pytest_llmeval.scoring.metrics.definitions import shown_order
from pytest_llmeval.text.escaping import csv_text, encodable, printable
from pytest_llmeval.types import JSON

__all__ = ["COLUMNS", "value_columns", "write_csv", "write_parquet", "write_questions"]

COLUMNS = (
    *("suite", "model", "id", "category", "cluster", "status", "answer", "target", "no_answer", "chance"),
    *("num_prompt_tokens", "num_tokens", "seconds", "cost"),
    *("question", "choices", "prompt", "output", "reason", "details", "nodeid", "fingerprint"),
    *("reasoning", "num_truncated"),
)
"""Fields of a record that are columns, before the columns of its values."""


def write_csv(report: Report, path: Path) -> None:
    """Write one row for each sample as CSV (RFC 4180), in UTF-8, with a head. Raise ``ReportError``.

    A sample's values follow ``COLUMNS`` under the metrics' names; one with the name of a column has ``values.`` before
    it. A cell without a value is empty, and so is one whose value is no finite number. Lists and mappings are JSON. No
    text is a formula (see ``csv_text``).
    """
    columns = value_columns(report)
    with atomic_write(path, encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, *map(csv_text, columns.values())])
        for record in report.records:
            data = record.to_dict()
            values = (record.values.get(name) for name in columns)
            writer.writerow([*(_csv_cell(data[name]) for name in COLUMNS), *map(_csv_cell, values)])


def value_columns(report: Report) -> dict[str, str]:
    """Map the names of the samples' values to their columns, in the order in which they are shown."""
    names = sorted({name for record in report.records for name in record.values}, key=shown_order)
    return {name: f"values.{name}" if name in COLUMNS else name for name in names}


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

_FLOATS = ("chance", "seconds", "cost")
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
    columns = value_columns(report)
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
    data = record.to_dict()
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
        "question": record.question,
        "gold": None if record.target is None or record.target == [] else as_text(record.target),
        "pred": None if record.status == "unscored" else record.answer,
        "correct": {"correct": True, "wrong": False}.get(record.status),
    }
