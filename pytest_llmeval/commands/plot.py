"""``llmeval plot``: figures of reports, for papers and slides."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmeval.commands.output import check_no_input, say, write_out
from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.reporting.figures.catalogue import KINDS, ReportFigures, planned_figures
from pytest_llmeval.text.wording import expected_one_of, nearest, quoted

if TYPE_CHECKING:
    from pytest_llmeval.reporting.figures.report_figure import PlannedFigure
    from pytest_llmeval.reporting.report.report import Report

__all__ = ["add_parsers"]

_FORMATS = ("svg", "pdf", "png")
_MAX_NAMED, _MAX_SUITES = 4, 20
"""The numbers of figures, and of suites, that a message names."""
_ALL_METRICS = "all"


def add_parsers(commands: Any) -> None:
    parser = commands.add_parser(
        "plot",
        help="draw figures of reports: SVG, PDF, PNG",
        description="Draw figures of reports (needs matplotlib: the extra report). Several reports are drawn side by "
        "side, each with its models. All intervals are those of the reports.",
        epilog="Exit codes: 0; 1 if there is nothing to draw, or a file cannot be written; 2 for a usage error.",
    )
    parser.add_argument("reports", type=Path, nargs="+", metavar="report", help="reports (.json), or journals")
    parser.add_argument(
        *("-o", "--output"),
        required=True,
        metavar="FILE|FOLDER",
        help="a file that ends in .svg, .png (one figure) or .pdf (a page for each figure), or a folder with a file "
        "for each figure; missing folders are created",
    )
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind of figures; can be repeated")
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        help="forest, differences and price: this metric instead of each suite's main one; can be repeated; "
        f"{_ALL_METRICS}: every metric",
    )
    parser.add_argument(
        "--figure", action="append", default=[], metavar="NAME", help="only this figure; can be repeated"
    )
    parser.add_argument(
        "--no-title", action="store_true", help="do not write the title above each figure: a paper has a caption"
    )
    parser.add_argument("--format", choices=_FORMATS, help="format of the files in a folder (default: svg)")
    parser.set_defaults(run=_plot, wrong_call=parser.error)


def _plot(options: argparse.Namespace) -> int:
    target = Path(options.output)
    is_file = not os.path.isdir(target) and target.suffix.lower().removeprefix(".") in _FORMATS
    if not is_file and target.suffix and not os.path.isdir(target) and not options.output.endswith(("/", os.sep)):
        options.wrong_call(
            f"--output {options.output}: expected a name that ends in .svg, .pdf or .png, or a folder; "
            "with / at its end, it is created"
        )
    if is_file and options.format is not None:
        options.wrong_call(f"--format is for a folder: the name of the file {options.output} says which format it has")
    check_no_input(target, options.reports)
    report = _report(options.reports)
    planned = _planned(report, options, _metrics(report, options.metric))
    figures = ReportFigures(planned)
    if is_file:
        written = _write_file(figures, [one.name for one in planned], target, has_titles=not options.no_title)
    else:
        files = {one.name: target / f"{one.name}.{options.format or _FORMATS[0]}" for one in planned}
        for file in files.values():
            check_no_input(file, options.reports)
        written = _write_files(figures, files, has_titles=not options.no_title)
    write_out(f"{file}\n" for file in written)
    if figures.failed:
        raise LLMEvalError(f"could not be drawn: {'; '.join(figures.failed)}")
    return 0


def _report(paths: Sequence[Path]) -> Report:
    from pytest_llmeval.reporting.report.merge import side_by_side
    from pytest_llmeval.reporting.storage.report_file import read_report

    given: dict[Path, Path] = {}
    for path in paths:
        if other := given.get(path.resolve()):
            raise LLMEvalError(f"{path} was given twice (as {other})")
        given[path.resolve()] = path
    report = side_by_side([(str(path), read_report(path)) for path in paths])
    if differing := _differing_suites(report):
        several, asks = ("suites", "ask") if len(differing) > 1 else ("suite", "asks")
        more = f", and {len(differing) - _MAX_SUITES} more" if len(differing) > _MAX_SUITES else ""
        named = f"{', '.join(differing[:_MAX_SUITES])}{more}"
        say(
            "plot",
            f"the reports differ in what the {several} {named} {asks} or how replies are judged (their fingerprints "
            "differ): numbers that stand side by side are not of the same questions",
        )
    return report


def _differing_suites(report: Report) -> list[str]:
    """Return the names that suites with different fingerprints share."""
    found: dict[str, set[str]] = {}
    for suite in report.suites:
        if suite.info.fingerprint is not None:
            found.setdefault(suite.info.name, set()).add(suite.info.fingerprint)
    return [name for name, fingerprints in found.items() if len(fingerprints) > 1]


def _metrics(report: Report, wanted: Sequence[str]) -> list[str]:
    """Return the metrics that were asked for; raise ``LLMEvalError`` if no suite has one of that name."""
    known = list(dict.fromkeys(name for suite in report.suites for name in suite.summary.metrics))
    for name in wanted:
        if name not in (*known, _ALL_METRICS):
            raise LLMEvalError(f"there is no metric {quoted(name)}{expected_one_of(name, [_ALL_METRICS, *known])}")
    return known if _ALL_METRICS in wanted else list(wanted)


def _planned(report: Report, options: argparse.Namespace, metrics: Sequence[str]) -> list[PlannedFigure]:
    """Return the figures that were chosen; raise ``LLMEvalError`` if there are none."""
    kinds, wanted = options.kind or KINDS, set(options.figure)
    found: list[PlannedFigure] = []
    for planned in planned_figures(report, kinds, metrics=metrics):
        found.append(planned)
        wanted.discard(planned.name)
        if options.figure and not wanted:
            break  # the records may be needed for the other figures only
    names = [planned.name for planned in found]
    if not found:
        what = "nothing to draw" if options.kind is None else f"nothing for {', '.join(kinds)}"
        raise LLMEvalError(f"there is {what} in {', '.join(map(str, options.reports))}")
    for name in options.figure:
        if name in wanted:
            near = nearest(name, names)
            others = f"there are {_first(names)}" if near is None else f"did you mean {quoted(near)}?"
            raise LLMEvalError(f"there is no figure {quoted(name)}; {others}")
    return [planned for planned in found if not options.figure or planned.name in options.figure]


def _write_file(figures: ReportFigures, names: Sequence[str], path: Path, *, has_titles: bool) -> list[Path]:
    """Write a file, and return its path if it was written."""
    from pytest_llmeval.reporting.figures.image_files import write_pdf

    several = len(names) > 1
    if several and path.suffix.lower() != ".pdf":
        raise LLMEvalError(
            f"{path} can hold one figure, and there are {len(names)}: choose one with --figure ({_first(names)}), or "
            "name a .pdf, or a folder, which gets a file for each"
        )
    if not several:
        return _write_files(figures, {names[0]: path}, has_titles=has_titles)
    if (first := next(figures, None)) is None:
        return []
    write_pdf(chain([first], figures), path, has_titles=has_titles)
    return [path]


def _write_files(figures: ReportFigures, files: Mapping[str, Path], *, has_titles: bool) -> list[Path]:
    """Write each figure to the file of its name before the next is drawn, and return the paths of those written."""
    from pytest_llmeval.reporting.figures.image_files import write_figure

    written = []
    for figure in figures:
        try:
            write_figure(figure, files[figure.name], has_title=has_titles)
        except LLMEvalError:
            raise
        except Exception as error:
            figures.note_failure(figure.name, error)
        else:
            written.append(files[figure.name])
    return written


def _first(names: Sequence[str]) -> str:
    more = f", and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{', '.join(names[:_MAX_NAMED])}{more}"
