"""Which suite of a report a record belongs to: with several models, which model's too."""

from __future__ import annotations

from typing import TypeAlias

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Report, SuiteReport
from pytest_llmeval.text.model_names import plain_name
from pytest_llmeval.text.wording import quoted

__all__ = [
    *("ABSENT", "Group", "compared_models", "described_group", "group_of_record", "group_of_suite"),
    "suite_of_baseline",
]

ABSENT = "not in the baseline"

Group: TypeAlias = tuple[str, str | None]
"""What numbers are taken over: a suite, and where several models were given one of them."""


def compared_models(report: Report) -> tuple[str, ...]:
    """The models of a session that was given several, in their order; none for a session of one."""
    models = report.options.get("model")
    return tuple(map(str, models)) if isinstance(models, list | tuple) and len(models) > 1 else ()


def group_of_record(record: Record, compared: tuple[str, ...]) -> Group:
    """The group that counts the record, in a report whose ``compared_models`` are these."""
    return record.suite, record.model if record.model in compared else None


def group_of_suite(suite: SuiteReport, compared: tuple[str, ...]) -> Group:
    """The group that the suite's numbers are taken over, in a report whose ``compared_models`` are these."""
    first = suite.models[0] if suite.models else None
    return suite.info.name, first if first in compared else None


def suite_of_baseline(baseline: Report, name: str, model: str | None) -> SuiteReport | str:
    """The suite of this name that one on ``model`` is compared with; where there is none, why (``ABSENT``, …).

    Where the baseline has it on one model, that is the one; else on the same model.
    """
    partners = [one for one in baseline.suites if one.info.name == name]
    if not partners:
        return ABSENT
    if len(partners) == 1:
        return partners[0]
    for named in (str, plain_name):  # reports of schema 1 and 2 have names with arguments that decide no reply
        same = [one for one in partners if model is not None and one.models and named(one.models[0]) == named(model)]
        if len(same) == 1:
            return same[0]
    models = ", ".join(quoted(one.models[0]) for one in partners if one.models)
    own = "a model without a name" if model is None else quoted(model)
    return f"the baseline has this suite on {models}, and not on {own}"


def described_group(group: Group) -> str:
    suite, model = group
    return f"suite {suite!r}" if model is None else f"suite {suite!r} on {model}"
