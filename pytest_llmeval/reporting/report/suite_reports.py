"""A suite's part of a report, and the averages over suites, whatever the records hold."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmeval.reporting.report.groups import Group, described_group
from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import Averages, SuiteReport
from pytest_llmeval.reporting.report.summaries import average_suites, counted_suite, summarize_suite
from pytest_llmeval.text.redaction import describe
from pytest_llmeval.types import EngineUse

__all__ = ["averages_or_problem", "suite_report"]


def suite_report(
    group: Group,
    info: SuiteInfo,
    records: Sequence[Record],
    *,
    num_expected: int,
    num_skipped: int,
    model: str | None,
    engine: EngineUse | None,
    problems: list[str],
) -> SuiteReport:
    """``summarize_suite``; where the records' values have no metrics ``counted_suite``, and why is added to
    ``problems``: one suite's numbers must not cost the others' report.
    """
    try:
        return summarize_suite(
            info, records, num_expected=num_expected, num_skipped=num_skipped, model=model, engine=engine
        )
    except Exception as error:
        problems.append(f"{described_group(group)} has no metrics: {describe(error)}")
        return counted_suite(
            info, records, num_expected=num_expected, num_skipped=num_skipped, model=model, engine=engine
        )


def averages_or_problem(
    suites: Sequence[SuiteReport], records: Sequence[Record], problems: list[str]
) -> tuple[Averages, ...]:
    """``average_suites``; none, and a line in ``problems``, where they cannot be taken."""
    try:
        return average_suites(suites, records)
    except Exception as error:
        problems.append(f"there are no averages over suites: {describe(error)}")
        return ()
