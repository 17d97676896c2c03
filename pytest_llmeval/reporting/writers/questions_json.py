"""The form that many evaluation harnesses exchange: a benchmark, its accuracy, its questions and answers."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Group, Report, compared_models, group_of_record, group_of_suite
from pytest_llmeval.reporting.storage.atomic_write import atomic_write
from pytest_llmeval.reporting.storage.disk_records import records_at
from pytest_llmeval.reporting.tables.samples import as_text
from pytest_llmeval.types import JSON

__all__ = ["write_questions"]


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
