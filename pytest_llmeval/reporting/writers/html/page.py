"""Writes a report as one HTML file that needs nothing else: no server, no network, no other file.

Texts of models and data reach it escaped by the template, or as data that the script shows as text alone. The page's
Content-Security-Policy allows the one script and the one style sheet by their hashes, and no request at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template, select_autoescape

from pytest_llmeval.reporting.figures.catalogue import KINDS, FiguresUnavailable, figures_of
from pytest_llmeval.reporting.report.report import GateResult, Report
from pytest_llmeval.reporting.report.risks import RiskReader
from pytest_llmeval.reporting.storage.atomic_write import atomic_write
from pytest_llmeval.reporting.tables.comparisons import diff_heading, gate_name, shown_diff
from pytest_llmeval.reporting.tables.session import incomplete_texts, model_texts
from pytest_llmeval.reporting.tables.suites import average_texts, named, short_model_names
from pytest_llmeval.reporting.writers.html import tables
from pytest_llmeval.reporting.writers.html.matrix import changes_texts, suite_matrix
from pytest_llmeval.reporting.writers.html.samples import MAX_TEXT_BYTES, PageSamples, gates_of_changes, page_samples
from pytest_llmeval.text.escaping import printable
from pytest_llmeval.text.wording import counted

__all__ = ["GENERATOR", "headline", "page_resource", "page_template", "problem_texts", "resource_hash", "write_html"]

GENERATOR = "pytest-llmeval-suites"
"""The name by which a page is known as one of ours."""

_MARK = "<!-- samples -->"
"""Marks where the template leaves off for the samples, which are not held in memory."""


def write_html(report: Report, path: Path, *, limit: int = MAX_TEXT_BYTES) -> None:
    """Write the report as a page. Raises ``ReportError``.

    ``limit`` is for the bytes that the texts of samples take; the page says how many were left out.
    """
    reasons, risks = tables.UnscoredReasons(), RiskReader(report)
    with (
        atomic_write(path, encoding="utf-8") as file,
        page_samples(report, limit=limit, folder=_folder(path), readers=(reasons.add, risks.add)) as samples,
    ):
        before, _, after = _rendered(report, samples, reasons, risks).partition(_MARK)
        file.write(before)
        for name, column in samples.columns.items():
            file.write(f'<script type="text/plain" class="column" data-name="{name}">{column}</script>\n')
        file.write(f"<script>{page_resource('page.js')}</script>\n")
        for place, chunk in enumerate(samples.chunks):
            file.write(f'<script type="text/plain" id="chunk-{place}">{chunk}</script>\n')
        file.write(after)


def _folder(path: Path) -> Path | None:
    """Return a folder with room for what the page is made of: beside it, or None if it is a pipe."""
    return path.resolve().parent if path.is_file() or not path.exists() else None


def _rendered(report: Report, samples: PageSamples, reasons: tables.UnscoredReasons, risks: RiskReader) -> str:
    names = short_model_names(report)
    models = printable("; ".join(model_texts(report.models)))
    figures, no_figures = _figures(report)
    matrix = suite_matrix(report, names)
    return page_template("page.html.jinja").render(
        title=f"LLM evaluation: {models}" if models else "LLM evaluation",
        generator=f"{GENERATOR} {version(GENERATOR)}",
        policy=_policy(),
        style=page_resource("page.css"),
        verdict=headline(report, names),
        gates=list(tables.gate_tables(report, names)),
        prompt_diffs=[
            (printable(diff_heading(one, names)), shown_diff(one)) for one in report.gates if one.prompt_diff
        ],
        matrix=matrix,
        changed=_first(list(changes_texts(matrix))),
        address=partial(tables.gate_address, {id(one) for one in gates_of_changes(report)}),
        averages=list(map(printable, average_texts(report, names))),
        changes=list(tables.change_tables(report, names)),
        flipped=tables.flipped_tables(report, names),
        calibration=list(_calibration(report, figures, list(tables.calibration_tables(report, names, risks.curves())))),
        price=list(tables.price_tables(report, names)),
        problems=list(problem_texts(report)),
        unscored=tables.unscored_table(reasons),
        environment=list(tables.environment_tables(report, names)),
        samples=samples,
        names=_names(samples.names),
        figures=figures,
        no_figures=no_figures,
        mark=_MARK,
    )


def _figures(report: Report) -> tuple[Mapping[str, Sequence[_Drawn]], str | None]:
    """Return the report's figures by kind, and why there are none, or not all.

    The matrix shows what forest plots would. The less important prices have the kind ``price-others``.
    """
    drawn: dict[str, list[_Drawn]] = {}
    try:
        figures = figures_of(report, [kind for kind in KINDS if kind != "forest"])
    except FiguresUnavailable as error:
        return {}, f"without figures: {error}"
    for figure in figures:
        from pytest_llmeval.reporting.figures.image_files import svg_text  # needs matplotlib

        try:
            shown = _Drawn(figure.title, svg_text(figure), figure.num_suites, figure.suite)
        except Exception as error:  # matplotlib draws some parts late
            figures.note_failure(figure.name, error)
            continue
        drawn.setdefault(figure.kind, []).append(shown)
    _fold_single_prices(drawn)
    notes = []
    if figures.failed:
        notes.append(f"figures that could not be drawn: {printable('; '.join(figures.failed))}")
    if count := figures.num_left_out:
        notes.append(f"{count:,} more figure{'s' * (count > 1)}: llmeval plot REPORT -o FOLDER/ draws all")
    return drawn, "; ".join(notes) or None


@dataclass(frozen=True, slots=True)
class _Drawn:
    title: str
    svg: str
    num_suites: int
    suite: str | None = None


def _calibration(
    report: Report, figures: Mapping[str, Sequence[_Drawn]], shown: Sequence[tables.PageTable]
) -> Iterator[tuple[Sequence[_Drawn], Sequence[tables.PageTable]]]:
    """Yield the figures of each suite with the tables that stand beside them."""
    for suite in report.suite_names:
        for kind in ("reliability", "risk-coverage"):
            own = [figure for figure in figures.get(kind, ()) if figure.suite == suite]
            numbers = [table for table in shown if table.beside == (kind, suite)]
            if own or numbers:
                yield own, numbers


def _fold_single_prices(drawn: dict[str, list[_Drawn]]) -> None:
    """Make the figures of one suite further ones if another figure compares several suites."""
    single = [figure for figure in drawn.get("price", ()) if figure.num_suites == 1]
    if single and len(single) < len(drawn["price"]):
        drawn["price"] = [figure for figure in drawn["price"] if figure.num_suites > 1]
        drawn["price-others"] = single


def _names(names: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what numbers in columns stand for: for the choices of the page's filters, and for its script as JSON."""
    return {**names, "json": base64.b64encode(json.dumps(names).encode("ascii")).decode("ascii")}


def _policy() -> str:
    """Return a policy that allows only the script and the style sheet as they are, and no way to make more of text."""
    parts = [
        "default-src 'none'",
        f"script-src {resource_hash('page.js')}",
        f"style-src {resource_hash('page.css')}",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    return "; ".join(parts)


def resource_hash(name: str) -> str:
    """Return the hash by which a page's policy allows its script or its style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(page_resource(name).encode('utf-8')).digest()).decode('ascii')}'"


@cache
def page_resource(name: str) -> str:
    """Return the text of a file of this folder."""
    return (files(__package__) / name).read_text(encoding="utf-8").replace("\r\n", "\n")


@cache
def page_template(name: str) -> Template:
    """Return a template of this folder, which escapes all texts that it is given."""
    environment = Environment(
        loader=FunctionLoader(page_resource),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


_MAX_LINES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The beginning of a page: what a reader has to know first.

    ``tone`` is ``bad``, ``good``, or empty if nothing was decided. ``failed`` are the first gates that failed.
    """

    text: str
    tone: str
    failed: Sequence[str]
    facts: Sequence[str]


def headline(report: Report, names: Mapping[str, str]) -> Headline:
    """Return what a reader has to know first: what failed, or that nothing did; then when, how long and of what."""
    outcomes = Counter(gate.outcome for gate in report.gates)
    num_unscored = sum(suite.summary.num_unscored for suite in report.suites)
    parts, tone = [], ""
    skipped = f", {outcomes['skipped']:,} skipped" if outcomes["skipped"] else ""
    if outcomes["failed"]:
        parts.append(f"{outcomes['failed']:,} of {counted(len(report.gates), 'gate')} failed{skipped}")
        tone = "bad"
    elif outcomes["passed"]:
        parts.append(f"{counted(outcomes['passed'], 'gate')} passed{skipped}")
        tone = "good"
    elif report.gates:
        parts.append(f"{counted(len(report.gates), 'gate')} skipped")
    if report.stopped:
        parts.append("stopped early")
        tone = "bad"
    if num_unscored:
        expected = sum(suite.summary.num_expected for suite in report.suites)
        parts.append(f"{num_unscored:,} of {counted(expected, 'sample')} could not be scored")
        tone = "bad"
    if report.num_failed_tests:
        parts.append(f"{counted(report.num_failed_tests, 'test')} failed beside the samples")
        tone = "bad"
    if report.problems:
        parts.append(counted(len(report.problems), "problem"))
        tone = "bad"
    if report.exit_code != 0 and tone != "bad":
        parts.append(f"the run failed with exit code {report.exit_code}")
        tone = "bad"
    text = "; ".join(parts) or "no gates: nothing was decided"
    num_samples = sum(suite.summary.num_scored for suite in report.suites)
    facts = [
        f"{counted(num_samples, 'sample')} scored in {counted(len(report.suite_names), 'suite')}",
        f"started {report.created}",
        f"took {report.seconds:,.1f} s",
        f"exit code {report.exit_code}",
    ]
    failed = [one for one in report.gates if one.outcome == "failed"]
    lines = _first([_failed_text(one, names) for one in failed])
    return Headline(
        text=text[0].upper() + text[1:],
        tone=tone,
        failed=[printable(line) for line in lines],
        facts=[printable(fact) for fact in facts],
    )


def _first(lines: Sequence[str]) -> Sequence[str]:
    more = [f"and {len(lines) - _MAX_LINES:,} more, see below"] if len(lines) > _MAX_LINES else []
    return [*lines[:_MAX_LINES], *more]


def _failed_text(gate: GateResult, names: Mapping[str, str]) -> str:
    """Return what was found; of a comparison without its name, and without what it could have found."""
    if gate.regression is None or gate.suite is None:
        return f"{gate_name(gate, names, separator=': ')}: {gate.reason}"
    return f"{named(gate.suite, gate.model, names)}: {gate.reason.partition('; ')[0]}"


def problem_texts(report: Report) -> Iterator[str]:
    """Say what makes the numbers incomplete."""
    yield from map(printable, (*incomplete_texts(report), *report.problems))
