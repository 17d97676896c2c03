"""The end of a session in the terminal: lines of text from a report."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pytest_llmeval.reporting.comparison_table import comparison_lines, short_model_names
from pytest_llmeval.reporting.engine_lines import engine_lines
from pytest_llmeval.reporting.escape import printable
from pytest_llmeval.reporting.metric_tables import category_lines, suite_lines
from pytest_llmeval.reporting.report import Report, SuiteReport
from pytest_llmeval.reporting.tables import joined_lines, number
from pytest_llmeval.types import JSON

__all__ = ["Terminal", "summary_lines", "write_summary"]

_MAX_UNSCORED = 20
_MAX_CATEGORIES = 50
_MACRO = {"accuracy": "accuracy", "skill": "skill", "brier": "Brier"}
"""Metrics whose mean over categories stands below their table; the report has them all."""


class Terminal(Protocol):
    """The part of pytest's terminal reporter that a summary is written to."""

    def write_sep(self, sep: str, title: str | None = None, **markup: bool) -> None: ...

    def write_line(self, line: str, **markup: bool) -> None: ...


def write_summary(terminal: Terminal, report: Report, path: Path | None) -> None:
    """Write the summary, and where the report went."""
    # Where there is no terminal to ask (a CI log), lines may be longer than a terminal's usual 80 columns.
    width = shutil.get_terminal_size(fallback=(120, 24)).columns
    terminal.write_sep("=", ": ".join(("LLM evaluation", *_describe_models(report.models))))
    for line in summary_lines(report, width=width):
        urgent = line.startswith(("problem:", "could not be scored:", "stopped early"))
        terminal.write_line(line, **({"red": True} if urgent else {}))
    if path is not None and not any(str(path) in problem for problem in report.problems):
        terminal.write_line(f"report: {path}")


def summary_lines(report: Report, *, width: int) -> Iterator[str]:
    """What a user reads at the end: the suites, their categories, what could not be scored, tokens and speed.

    A table wider than ``width`` columns becomes a list. Every value is shown with the 95% interval of its metric.
    """
    yield from suite_lines([(_named(suite, report), suite.summary) for suite in report.suites], width=width)
    for suite in report.suites:
        if counts := _counts(suite):
            yield f"{printable(_named(suite, report))}: {counts}"
    if report.comparisons:
        yield ""
        yield from comparison_lines(report.comparisons, short_model_names(report), width=width)
    for suite in report.suites:
        if len(suite.categories) > 1:
            yield ""
            rows = list(suite.categories.items())
            yield from category_lines(f"{_named(suite, report)} by category", rows[:_MAX_CATEGORIES], width=width)
            if len(rows) > _MAX_CATEGORIES:
                yield f"… and {len(rows) - _MAX_CATEGORIES} categories more, all in the report"
            if macro := _macro(suite):
                yield from joined_lines("mean over categories:", macro, width=width)
    yield from _unscored(report)
    for problem in report.problems:
        yield f"problem: {printable(problem)}"
    if report.stopped:
        yield f"stopped early ({printable(report.stopped)}): these numbers are of what had run"
    if speed := _speed(report):
        yield ""
        yield speed
    yield from engine_lines(
        [(_named(suite, report), suite.engine) for suite in report.suites if suite.engine is not None]
    )


def _describe_models(models: Sequence[Mapping[str, JSON]]) -> Iterator[str]:
    """The models in a few words: name, device, dtype. Nothing where tests recorded scores without one."""
    described = []
    for model in models:
        facts = [model[key] for key in ("device", "dtype", "revision") if model.get(key)]
        described.append(printable(str(model["name"]) + (f" ({', '.join(map(str, facts))})" if facts else "")))
    if described:
        yield "; ".join(described)


def _named(suite: SuiteReport, report: Report) -> str:
    """The suite's name, with its model where the session had several."""
    names = short_model_names(report)
    if len(names) < 2:
        return suite.info.name
    return f"{suite.info.name} ({', '.join(names[model] for model in suite.models)})"


def _counts(suite: SuiteReport) -> str:
    """Counts that belong to the scorer, and what is out of the ordinary."""
    summary = suite.summary
    counts = {
        name.replace("_", " "): metric.value for name, metric in summary.metrics.items() if metric.kind == "count"
    }
    shown = {name: int(value) for name, value in counts.items() if value is not None}
    if summary.num_no_answer:
        shown.setdefault("no answer", summary.num_no_answer)
    if summary.num_unscored:
        shown["unscored"] = summary.num_unscored
    if suite.num_skipped:
        shown["skipped"] = suite.num_skipped
    if "yes predicted" not in shown:  # one of the counts of yes_no; elsewhere worth a word only if there are any
        shown = {name: count for name, count in shown.items() if count or not name.endswith("no answer")}
    return ", ".join(f"{printable(name)} {count}" for name, count in shown.items())


def _macro(suite: SuiteReport) -> list[str]:
    """The means over categories of the metrics that a table shows first."""
    shown = [f"{heading} {number(suite.macro[name])}" for name, heading in _MACRO.items() if name in suite.macro]
    return shown or [f"{printable(name)} {number(value)}" for name, value in [*suite.macro.items()][:1]]


def _unscored(report: Report) -> Iterator[str]:
    unscored = [record for record in report.records if record.status == "unscored"]
    if not unscored:
        return
    yield ""
    yield f"could not be scored: {len(unscored)}"
    for record in unscored[:_MAX_UNSCORED]:
        yield f"  {printable(record.nodeid)}: {printable(record.reason or 'no reason given')}"
    if len(unscored) > _MAX_UNSCORED:
        yield f"  … and {len(unscored) - _MAX_UNSCORED} more"


def _speed(report: Report) -> str:
    num_samples = sum(suite.summary.num_scored for suite in report.suites)
    num_prompt_tokens = sum(suite.num_prompt_tokens for suite in report.suites)
    num_tokens = sum(suite.num_tokens for suite in report.suites)
    seconds = sum(suite.seconds for suite in report.suites)
    if not num_samples or not num_tokens or seconds <= 0:
        return ""
    return (
        f"{num_samples:,} sample{'' if num_samples == 1 else 's'}, "
        f"{num_prompt_tokens:,} prompt tokens and {num_tokens:,} scored or generated, "
        f"in {seconds:.1f} s of the model's time: {num_samples / seconds:,.1f} samples/s, "
        f"{(num_prompt_tokens + num_tokens) / seconds:,.0f} tokens/s"
    )
