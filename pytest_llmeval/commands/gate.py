"""Gates on saved reports, nothing rerun: ``llmeval gate``, and ``llmeval compare`` of a report with a baseline.

The options are those of pytest's gates under their short names.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol

from pytest_llmeval.commands.output import check_no_input, say, say_raw, write_file
from pytest_llmeval.data.garbage import without_collection
from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.text.escaping import printable

if TYPE_CHECKING:
    from pytest_llmeval.gates.options import GateOptions
    from pytest_llmeval.reporting.report.report import GateResult, Report

__all__ = ["add_parsers"]


_MODES = ("significant", "margin", "non-inferior")
_COMPARISON_OPTIONS = ("max_drop", "gate_mode", "compare", "alpha", "baseline_last")
_MAX_SHOWN = 60
"""The number of characters of suites' names that a message shows."""


def add_parsers(commands: Any) -> None:
    _add_compare(commands)
    _add_gate(commands)


def _add_compare(commands: Any) -> None:
    parser = commands.add_parser(
        "compare",
        help="compare a report with a baseline, as the gate does",
        description="Compare every suite of a report with the same suite of a baseline, sample by sample, as "
        "pytest --llm-baseline does.",
        epilog="Exit codes: 0 if no gate failed; 1 if a gate failed, if the two cannot be compared, or if the report "
        "has problems; 2 for a usage error.",
    )
    parser.add_argument("baseline", type=Path, help="the earlier report (.json)")
    parser.add_argument("report", type=Path, help="the later report (.json)")
    _add_baseline_options(parser)
    _add_output_options(parser)
    parser.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> int:
    from pytest_llmeval.gates.decide import decide_saved, read_verified
    from pytest_llmeval.gates.earlier_reports import EarlierReports

    check_no_input(options.output, [options.baseline, options.report])
    with without_collection():
        baseline, report = read_verified(options.baseline), read_verified(options.report)
        _tell_what_is_odd(options, baseline, report)
        earlier = EarlierReports.of([(str(options.baseline), baseline)])
        results = decide_saved(report, _gate_options(options, compares=True), earlier)
    return _conclude(report, results, options, nothing="no suite was compared: the two reports have none in common")


def _tell_what_is_odd(options: argparse.Namespace, baseline: Report, report: Report) -> None:
    """Warn of a likely mistake in the call that the results alone would not show."""
    if options.baseline.resolve() == options.report.resolve():
        say("compare", f"{options.report} is compared with itself: nothing in it can have changed")
    before, now = ({suite.info.name: None for suite in one.suites} for one in (baseline, report))
    if before and now and not before.keys() & now.keys():
        texts = (", ".join(names) for names in (before, now))
        first, second = (text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…" for text in texts)
        say("compare", f"{options.baseline} ({first}) and {options.report} ({second}) have no suite in common")


def _add_gate(commands: Any) -> None:
    parser = commands.add_parser(
        "gate",
        help="decide gates on a saved report",
        description="Decide gates on a saved report: those of --gate and --baseline, or without these the gates of the "
        "report's own suites. Nothing is run.",
        epilog="Exit codes: 0 if no gate failed; 1 if a gate failed, if none was decided, or if the report has "
        "problems; 2 for a usage error.",
    )
    parser.add_argument("report", type=Path, help="a report (.json)")
    _add_option(
        parser,
        "--gate",
        action="append",
        type=_parsed_by("suites.format.gates_spec:GivenGate.parse"),
        metavar="'SUITE: RULE'",
        help="a gate: 'boolq: accuracy >= 0.6', or 'ci_low(accuracy) > 0.5' for every suite with the metric; "
        "can be repeated",
    )
    _add_option(
        parser,
        "--baseline",
        type=Path,
        help="an earlier report (.json) to compare with; or a pattern such as 'runs/*.json', to compare with the mean "
        "of the last reports and with the oldest",
    )
    _add_option(
        parser,
        "--baseline-last",
        type=_parsed_by("gates.options:parse_number_of_reports"),
        metavar="K",
        help="how many of the last reports are averaged; default 5",
    )
    _add_baseline_options(parser)
    _add_output_options(parser)
    parser.set_defaults(run=_gate, wrong_call=parser.error)


def _gate(options: argparse.Namespace) -> int:
    from pytest_llmeval.gates.decide import decide_saved, read_verified
    from pytest_llmeval.gates.earlier_reports import read_earlier

    if options.baseline is None and (used := _used_baseline_options(options)):
        options.wrong_call(f"{used[0]} applies to a comparison only: name the other report with --baseline")
    paths = [] if options.baseline is None else _baselines(options.baseline, options.report)
    check_no_input(options.output, [options.report, *paths])
    with without_collection():
        report = read_verified(options.report, options.gate or (() if options.baseline is None else None))
        until = report.created if len(paths) > 1 else None
        earlier = read_earlier(paths, options.baseline_last, until=until) if paths else None
        results = decide_saved(report, _gate_options(options, compares=earlier is not None), earlier)
    nothing = (
        "no gate was decided: the suites have no gates of their own that the report can decide, and gates of the "
        "command line or the ini file are not saved in a report; give them as --gate 'boolq: accuracy >= 0.6'"
    )
    return _conclude(report, results, options, nothing=nothing)


def _baselines(baseline: Path, report: Path) -> list[Path]:
    """Return the reports that are compared with; the report itself, which a pattern may fit, is none of them."""
    from pytest_llmeval.gates.earlier_reports import report_paths

    paths = report_paths(baseline)
    if paths == [baseline]:
        return paths
    others = [path for path in paths if not (report.exists() and path.samefile(report))]
    if not others:
        raise LLMEvalError(f"--baseline {baseline} fits no report but {report} itself")
    return others


class _OptionGroup(Protocol):
    """A parser of argparse, or a group of one."""

    def add_argument(self, *names: str, **settings: Any) -> Any: ...


def _add_option(group: _OptionGroup, name: str, *, pytests: str | None = None, **settings: Any) -> None:
    """Add an option under its own name and, without help, under pytest's, which can be copied from a CI job."""
    group.add_argument(name, **settings)
    settings["dest"] = name.removeprefix("--").replace("-", "_")
    group.add_argument(pytests or f"--llm-{name.removeprefix('--')}", **{**settings, "help": argparse.SUPPRESS})


def _add_baseline_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a comparison with a baseline; each is None if it is not given."""
    group = parser.add_argument_group("comparison with the baseline")
    _add_option(
        group,
        "--max-drop",
        action="append",
        type=_parsed_by("gates.options:Margin.parse"),
        metavar="METRIC=DROP",
        help="a drop that is allowed, in the metric's unit: 'accuracy=0.01', 'boolq: accuracy=0.02'; can be repeated",
    )
    _add_option(
        group,
        "--gate-mode",
        choices=_MODES,
        help="a drop fails: significant (the default): if it is significant and beyond the margin; margin: if it is "
        "beyond the margin; non-inferior: unless the interval excludes a drop beyond the margin",
    )
    _add_option(
        group,
        "--compare",
        choices=("all", "common", "questions"),
        help="all (the default): the suites have to be the same; common: compare the samples that are the same in "
        "both; questions: compare those with the same question, target and scorer, whatever the prompt",
    )
    _add_option(
        group,
        "--alpha",
        type=_parsed_by("gates.options:parse_alpha"),
        metavar="P",
        help="the largest probability that anything fails if nothing got worse, over all tests; default 0.05",
    )


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is tolerated, and where the results go."""
    _add_option(
        parser,
        "--require",
        pytests="--llm-require-gates",
        action="store_true",
        help="a gate that cannot be decided fails",
    )
    _add_option(
        parser,
        "--allow-unscored",
        type=_count,
        default=0,
        metavar="N",
        help="how many samples may be unscored; default 0",
    )
    parser.add_argument("--format", choices=("text", "markdown", "json"), default="text", help="default: text")
    parser.add_argument("-o", "--output", type=Path, help="a file for the results; without it, standard output")


def _used_baseline_options(options: argparse.Namespace) -> Sequence[str]:
    """Return the options of ``_add_baseline_options`` that were given, as they are written."""
    return [f"--{name.replace('_', '-')}" for name in _COMPARISON_OPTIONS if getattr(options, name, None) is not None]


def _gate_options(options: argparse.Namespace, *, compares: bool) -> GateOptions:
    """Return the gates and settings that these options give; ``compares`` says that there is a baseline."""
    from pytest_llmeval.gates.options import BaselineSettings, GateOptions

    given: dict[str, Any] = {
        "margins": None if options.max_drop is None else tuple(options.max_drop),
        "mode": options.gate_mode,
        "compare": options.compare,
        "alpha": options.alpha,
    }
    return GateOptions(
        given=tuple((gate, "option") for gate in getattr(options, "gate", None) or ()),
        comparison=BaselineSettings(**{name: value for name, value in given.items() if value is not None})
        if compares
        else None,
        allow_unscored=options.allow_unscored,
        require=options.require,
    )


def _parsed_by(name: str) -> Callable[[str], Any]:
    """Return a function for argparse that parses an option's text by ``module:function``, imported when it is given.

    Argparse shows the message of one kind of error only.
    """

    def parsed(text: str) -> Any:
        try:
            return resolve_name(f"pytest_llmeval.{name}")(text)
        except ValueError as error:
            found = "" if str(error).startswith("found ") else f", found {text!r}"
            raise argparse.ArgumentTypeError(f"{error}{found}") from None

    return parsed


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"expected a whole number of 0 or more, found {text!r}")
    return int(text)


def _conclude(report: Report, results: Sequence[GateResult], options: argparse.Namespace, *, nothing: str) -> int:
    """Write the results, in GitHub Actions also the job summary and annotations, and return the exit code.

    It is 1 if a gate failed, if the report is not that of a whole run (it has problems, or its run stopped early: no
    gate knows what is missing), and if no gate was decided, which ``nothing`` explains in one line.
    """
    decided = any(result.outcome != "skipped" for result in results)
    failed = any(result.outcome == "failed" for result in results)
    exit_code = 1 if failed or not decided or any(_problems(report)) else 0
    report = replace(report, gates=tuple(sorted(results, key=_is_about_a_number)), exit_code=exit_code)
    lines = (f"{line}\n" for line in _lines(report, options.format))
    write_file(lines, options.output, is_json=options.format == "json")
    _tell_github(report, options.command)
    if not decided:
        say(options.command, "no gate was decided: all were skipped, for the reasons given" if results else nothing)
    return exit_code


def _problems(report: Report) -> Iterator[str]:
    """Say why the report passes no gate, whatever its numbers are."""
    yield from report.problems
    if report.stopped is not None:
        yield f"the run stopped early: {report.stopped}"


def _is_about_a_number(result: GateResult) -> bool:
    """Tell whether a gate is about a number, and not about the call, as one with a margin of an unknown metric is."""
    return result.outcome != "failed" or result.metric is not None


def _lines(report: Report, form: str) -> Iterator[str]:
    if form == "json":
        from pytest_llmeval.reporting.storage.json_form import finite

        found = {
            "exit_code": report.exit_code,
            "problems": list(_problems(report)),
            "gates": report.gates,
        }
        yield json.dumps(finite(found), indent=1)
    elif form == "markdown":
        from pytest_llmeval.reporting.writers.github import MAX_CHARACTERS
        from pytest_llmeval.reporting.writers.markdown import markdown_summary

        yield markdown_summary(report, limit=MAX_CHARACTERS).rstrip("\n")
    else:
        from pytest_llmeval.reporting.tables.suites import short_model_names
        from pytest_llmeval.reporting.writers.text_layout import screen_width, wrapped_lines
        from pytest_llmeval.reporting.writers.text_report import gate_flip_lines, gate_lines

        width = screen_width()
        names = short_model_names(report)
        if flipped := [*gate_flip_lines(report.gates, names, width=width)]:
            yield from (*flipped[1:], "")
        yield from gate_lines(report.gates, names, width=width)
        problems = list(_problems(report))
        for problem in problems:
            yield from wrapped_lines(f"problem: {printable(problem)}", width=width)
        if problems:
            yield "a report with problems does not pass, whatever its gates say"


def _tell_github(report: Report, command: str) -> None:
    from pytest_llmeval.reporting.writers.github import annotation_lines, append_job_summary

    if problem := append_job_summary(report, os.environ):
        say(command, problem)
    for line in annotation_lines(report, os.environ, root=Path.cwd()):
        say_raw(line)  # the runner reads both streams; standard output holds the results, which can be JSON
