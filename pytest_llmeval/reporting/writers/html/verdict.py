"""What a page begins with: what failed, and what makes its numbers incomplete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.terminal.gate_lines import gate_name
from pytest_llmeval.reporting.terminal.suite_texts import selection_text
from pytest_llmeval.text.escaping import printable

__all__ = ["Verdict", "problem_texts", "verdict"]

_MAX_FAILED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``tone`` is ``bad``, ``good`` or empty, where nothing was decided. ``failed`` are the gates that failed first."""

    text: str
    tone: str
    failed: Sequence[str]
    facts: Sequence[str]


def verdict(report: Report, names: Mapping[str, str]) -> Verdict:
    """What a reader has to know first: what failed, else that nothing did; then when, how long and of what."""
    outcomes = Counter(gate.outcome for gate in report.gates)
    num_unscored = sum(suite.summary.num_unscored for suite in report.suites)
    parts, tone = [], ""
    skipped = f", {outcomes['skipped']:,} skipped" if outcomes["skipped"] else ""
    if outcomes["failed"]:
        parts.append(f"{outcomes['failed']:,} of {_counted(len(report.gates), 'gate')} failed{skipped}")
        tone = "bad"
    elif outcomes["passed"]:
        parts.append(f"{_counted(outcomes['passed'], 'gate')} passed{skipped}")
        tone = "good"
    elif report.gates:
        parts.append(f"{_counted(len(report.gates), 'gate')} skipped")
    if report.stopped:
        parts.append("stopped early")
        tone = "bad"
    if num_unscored:
        expected = sum(suite.summary.num_expected for suite in report.suites)
        parts.append(f"{num_unscored:,} of {_counted(expected, 'sample')} could not be scored")
        tone = "bad"
    if report.num_failed_tests:
        parts.append(f"{_counted(report.num_failed_tests, 'test')} failed beside the samples")
        tone = "bad"
    if report.problems:
        parts.append(_counted(len(report.problems), "problem"))
        tone = "bad"
    if report.exit_code != 0 and tone != "bad":
        parts.append(f"the run failed with exit code {report.exit_code}")
        tone = "bad"
    text = "; ".join(parts) or "no gates: nothing was decided"
    num_samples = sum(suite.summary.num_scored for suite in report.suites)
    facts = [
        f"{_counted(num_samples, 'sample')} scored in {_counted(len(report.suite_names), 'suite')}",
        f"started {report.created}",
        f"took {report.seconds:,.1f} s",
        f"exit code {report.exit_code}",
    ]
    failed = [one for one in report.gates if one.outcome == "failed"]
    lines = [f"{gate_name(one, names, separator=': ')}: {one.reason}" for one in failed[:_MAX_FAILED]]
    if len(failed) > _MAX_FAILED:
        lines.append(f"and {len(failed) - _MAX_FAILED:,} more, see below")
    return Verdict(
        text=text[0].upper() + text[1:],
        tone=tone,
        failed=[printable(line) for line in lines],
        facts=[printable(fact) for fact in facts],
    )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def problem_texts(report: Report) -> Iterator[str]:
    """What makes the numbers incomplete."""
    if (selection := selection_text(report)) is not None:
        yield printable(selection)
    if report.stopped:
        yield printable(f"stopped early ({report.stopped}): these numbers cover only what had run")
    yield from map(printable, report.problems)
