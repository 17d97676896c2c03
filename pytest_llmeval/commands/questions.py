"""The form that many evaluation harnesses exchange: a benchmark, its accuracy, and what was asked and answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_llmeval.commands.sample_text import as_text
from pytest_llmeval.reporting.groups import Group, compared_models, group_of_record, group_of_suite
from pytest_llmeval.reporting.records import Record
from pytest_llmeval.reporting.report import Report
from pytest_llmeval.reporting.spool import Spool
from pytest_llmeval.types import JSON

__all__ = ["questions_json"]


@dataclass(slots=True)
class _Counts:
    correct: int = 0
    total: int = 0


def questions_json(report: Report) -> Iterator[str]:
    """Lines of JSON: a list with ``{benchmark, metrics: {accuracy, correct, total}, questions}`` for each suite.

    A question is ``{qid, question, gold, pred, correct}``, on a line of its own. With several models there is one entry
    for each suite and model, which it has under ``model``. ``total`` counts the samples that are right or wrong, and
    ``accuracy`` is ``correct / total``, null of none; ``correct`` of another sample is null, and ``pred`` of one that
    could not be scored.
    """
    compared = compared_models(report)
    counts: dict[Group, _Counts] = {group_of_suite(suite, compared): _Counts() for suite in report.suites}
    with Spool[Group]() as spool:
        for record in report.records:
            group = group_of_record(record, compared)
            counted = counts.setdefault(group, _Counts())
            counted.correct += record.status == "correct"
            counted.total += record.status in ("correct", "wrong")
            spool.add(group, [json.dumps(_question(record))])
        yield "[\n"
        for place, (group, counted) in enumerate(counts.items()):
            yield (",\n" if place else "") + f" {_head(group, counted)}"
            for row, (line,) in enumerate(spool.rows(group)):
                yield f"{',' if row else ''}\n  {line}"
            yield "\n ]}"
        yield "\n]\n"


def _head(group: Group, counted: _Counts) -> str:
    """The entry's opening, up to where its questions begin."""
    suite, model = group
    accuracy = counted.correct / counted.total if counted.total else None
    head: dict[str, JSON] = {"benchmark": suite}
    if model is not None:
        head["model"] = model
    head["metrics"] = {"accuracy": accuracy, "correct": counted.correct, "total": counted.total}
    return json.dumps(head).removesuffix("}") + ', "questions": ['


def _question(record: Record) -> dict[str, JSON]:
    return {
        "qid": record.id,
        "question": record.question,
        "gold": None if record.target is None else as_text(record.target),
        "pred": None if record.status == "unscored" else record.answer,
        "correct": {"correct": True, "wrong": False}.get(record.status),
    }
