"""``llmeval show``: a saved report as its session printed it, or samples of it."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmeval.commands.output import say, write_out

if TYPE_CHECKING:
    from pytest_llmeval.reporting.report.records import Record
    from pytest_llmeval.reporting.report.report import Report

__all__ = ["add_parsers"]

_WHICH: dict[str, Callable[[Record], bool]] = {
    "wrong": lambda record: record.status == "wrong",
    "correct": lambda record: record.status == "correct",
    "scored": lambda record: record.status == "scored",
    "tied": lambda record: any(value and name.rpartition(".")[2] == "ties" for name, value in record.values.items()),
    "unscored": lambda record: record.status == "unscored",
    "no_answer": lambda record: record.no_answer,
    "all": lambda record: True,
}


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser(
        "show",
        help="print the summary of a report, or samples of it",
        description="Print the summary of a report as the session printed it; with --samples, --category or --id, its "
        "samples. The journal of a killed run is a report of the samples that it had finished.",
    )
    parser.add_argument("report", type=Path, help="a report (.json), or a journal")
    parser.add_argument("--samples", choices=tuple(_WHICH), metavar="WHICH", help=f"samples: {', '.join(_WHICH)}")
    parser.add_argument("--category", help="samples of this category")
    parser.add_argument("--id", action="append", metavar="ID", help="this sample, in full; can be repeated")
    parser.add_argument("--suite", help="show this suite only, with all its variants; or one variant: boolq@polite")
    parser.add_argument("--model", help="show this model only")
    parser.add_argument("--prompts", action="store_true", help="show the prompts of samples")
    parser.add_argument(
        "--distribution",
        action="store_true",
        help="print how the samples' values of each metric are spread: mean, sd, min, p50, p95, max",
    )
    parser.add_argument("--format", choices=("text", "markdown", "json"), default="text", help="default: text")
    parser.set_defaults(run=_show, wrong_call=parser.error)


def _is_chosen(record: Record, options: argparse.Namespace, suites: Collection[str] | None) -> bool:
    """Tell whether all conditions that are given hold; ``suites`` None are all."""
    return (
        _WHICH[options.samples or "all"](record)
        and (suites is None or record.suite in suites)
        and options.model in (None, record.model)
        and options.category in (None, record.category)
        and (options.id is None or record.id in options.id)
    )


def _show(options: argparse.Namespace) -> int:
    from pytest_llmeval.reporting.report.report import check_known
    from pytest_llmeval.reporting.storage.report_file import read_report

    picks = [name for name in ("samples", "category", "id") if getattr(options, name) is not None]
    if options.distribution and picks:
        options.wrong_call(f"--distribution is of whole suites: not with --{' and --'.join(picks)}")
    report = read_report(options.report)
    suites = None if options.suite is None else report.suites_called(options.suite)
    check_known("model", options.model, report.model_names)
    if options.samples is None and options.category is None and options.id is None:
        _warn(report, options.report)
        shown = _restricted(report, suites, options.model)
        write_out((f"{part}\n" for part in _summary(shown, options.format)), is_json=options.format == "json")
        if options.distribution:
            write_out(f"{line}\n" for line in _distribution(shown, options.format))
        return 0
    categories = {name for one in report.suites if suites is None or one.info.name in suites for name in one.categories}
    check_known("category", options.category, sorted(categories))
    whole = options.id is not None
    records = _with_ids(report, options.id, suites) if whole else report.records
    chosen = (record for record in records if _is_chosen(record, options, suites))
    lines = _samples(chosen, options.format, whole=whole, prompt=whole or options.prompts)
    write_out((f"{line}\n" for line in lines), is_json=options.format == "json")
    return 0


def _warn(report: Report, path: Path) -> None:
    """Warn if what the report says does not agree with its records; it is shown all the same."""
    from pytest_llmeval.reporting.report.verify import report_problem

    if problem := report_problem(report, f"the report {path}"):
        say("show", problem)


def _restricted(report: Report, suites: Collection[str] | None, model: str | None) -> Report:
    """Return the report with these suites (None: all) and this model only.

    A summary needs the unscored records, and those without an answer if they are many; if there are none, no record is
    read.
    """
    from pytest_llmeval.reporting.tables.session import has_many_without_answer

    def is_chosen(suite: str | None) -> bool:
        return suites is None or suite in suites

    chosen = tuple(one for one in report.suites if is_chosen(one.info.name) and (model is None or model in one.models))
    return replace(
        report,
        suites=chosen,
        models=tuple(one for one in report.models if model in (None, one.get("name"))),
        comparisons=tuple(one for one in report.comparisons if model is None and is_chosen(one.suite)),
        variants=tuple(
            one for one in report.variants if is_chosen(one.second) and (model is None or one.model in (None, model))
        ),
        averages=tuple(
            one for one in report.averages if suites is None and (model is None or one.model in (None, model))
        ),
        gates=tuple(one for one in report.gates if is_chosen(one.suite) and model in (None, one.model)),
        records=_summary_records(report, suites, model)
        if any(one.summary.num_unscored or has_many_without_answer(one.summary) for one in chosen)
        else (),
    )


def _summary_records(report: Report, suites: Collection[str] | None, model: str | None) -> list[Record]:
    from pytest_llmeval.reporting.report.records import without_texts

    return [
        without_texts(record)
        for record in report.records
        if (record.status == "unscored" or record.no_answer)
        and (suites is None or record.suite in suites)
        and model in (None, record.model)
    ]


def _summary(report: Report, form: str) -> Iterator[str]:
    if form == "json":
        from pytest_llmeval.reporting.storage.json_form import head_to_json

        yield json.dumps(head_to_json(report), indent=1)
    elif form == "markdown":
        from pytest_llmeval.reporting.writers.markdown import markdown_summary

        yield markdown_summary(report).rstrip("\n")
    else:
        from pytest_llmeval.reporting.writers.text_layout import screen_width
        from pytest_llmeval.reporting.writers.text_report import printed_lines, session_lines, summary_heading

        width = screen_width()
        lines = [*session_lines(report, width=width)]  # all of it, or an error alone
        yield f" {summary_heading(report)} ".center(width, "=")
        for line in lines:
            yield from printed_lines(line, width=width, wraps=sys.stdout.isatty())


def _distribution(report: Report, form: str) -> Iterator[str]:
    """Yield how values are spread over samples; older reports do not say it, and the JSON has it anyway."""
    if form == "json":
        return
    if form == "markdown":
        from pytest_llmeval.reporting.writers.markdown import markdown_distribution

        yield from ("", *markdown_distribution(report))
        return
    from pytest_llmeval.reporting.tables.suites import short_model_names
    from pytest_llmeval.reporting.writers.text_layout import screen_width
    from pytest_llmeval.reporting.writers.text_report import distribution_lines

    lines = [*distribution_lines(report.suites, short_model_names(report), width=screen_width())]
    none = ": the report has none of a metric that is a mean of more than zeros and ones"
    yield from ("", f"distribution over samples{'' if lines else none}", *lines)


def _samples(records: Iterable[Record], form: str, *, whole: bool, prompt: bool) -> Iterator[str]:
    if form == "json":
        from pytest_llmeval.reporting.storage.json_form import record_to_json

        yield "["
        before: str | None = None
        for text in map(record_to_json, records):
            if before is not None:
                yield f"{before},"
            before = text
        yield from ("]",) if before is None else (before, "]")
        return
    lines_of: Callable[..., Iterator[str]]
    if form == "text":
        from pytest_llmeval.reporting.writers.text_report import sample_lines as lines_of
    else:
        from pytest_llmeval.reporting.writers.markdown import sample_markdown as lines_of
    count = 0
    for count, record in enumerate(records, start=1):
        if count > 1 and form == "text":
            yield ""
        yield from lines_of(record, whole=whole, prompt=prompt)
    if form == "text":
        if count:
            yield ""
        yield f"{count} sample{'' if count == 1 else 's'}"


def _with_ids(report: Report, ids: Sequence[str], suites: Collection[str] | None) -> list[Record]:
    """Return the samples of these suites (None: all) and ids. Raise ``ReportError`` for an id that no sample has."""
    from pytest_llmeval.reporting.report.report import check_known

    of_suites = (record for record in report.records if suites is None or record.suite in suites)
    found = [record for record in of_suites if record.id in ids]
    for given in ids:
        if all(record.id != given for record in found):
            known = {record.id for record in report.records if suites is None or record.suite in suites}
            check_known("sample", given, itertools.islice(sorted(known), 10_000))
    return found
