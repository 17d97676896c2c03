"""The end of a session in the terminal: lines of text from a report."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pytest_llmeval.reporting.report.report import Averages, Report, use_of_model
from pytest_llmeval.reporting.report.served import fingerprint_texts
from pytest_llmeval.reporting.tables.comparisons import comparison_lines, count_line, gate_lines
from pytest_llmeval.reporting.tables.hints import no_answer_lines, unjudged_lines
from pytest_llmeval.reporting.tables.session import latency_lines, per_sample_lines, phase_lines, store_texts
from pytest_llmeval.reporting.tables.suites import (
    category_lines,
    category_section,
    common_layout,
    count_texts,
    mean_texts,
    metrics_shown,
    selection_text,
    short_model_names,
    suite_lines,
    suite_name,
    suite_row,
    unlike_texts,
    with_interval,
)
from pytest_llmeval.reporting.terminal.live_line import shown_cost
from pytest_llmeval.reporting.writers.text_layout import Coloured, columns_of, joined_lines, wrapped_lines
from pytest_llmeval.text.escaping import printable, without_commands
from pytest_llmeval.types import JSON, EngineUse, ServerUse

__all__ = [
    "Terminal",
    "as_terminal",
    "engine_lines",
    "main_numbers",
    "model_texts",
    "server_lines",
    "speed_lines",
    "summary_lines",
    "write_main_numbers",
    "write_paths",
    "write_summary",
]

_MAX_UNSCORED, _MAX_ALIKE = 20, 5
"""Samples that are shown, and those of one reason."""
_MAX_SUITES = 3
"""Suites that a single line tells of."""
_URGENT = ("problem:", "could not be scored:", "stopped early", "store: replies could")


class Terminal(Protocol):
    """The part of pytest's terminal reporter that a summary is written to."""

    def write_sep(self, sep: str, title: str | None = None, **markup: bool) -> None: ...

    def write_line(self, line: str, **markup: bool) -> None: ...

    def write(self, content: str, **markup: bool) -> None: ...


class _Output:
    """Standard output, without colours."""

    def write_sep(self, sep: str, title: str | None = None, **markup: bool) -> None:
        self.write_line(f"{sep * 3} {title} {sep * 3}" if title else sep * 80)

    def write_line(self, line: str, **markup: bool) -> None:
        self.write(f"{line}\n")

    def write(self, content: str, **markup: bool) -> None:
        sys.stdout.write(content)


def as_terminal(reporter: Any) -> Terminal:
    """``reporter``, or standard output where it is not like pytest's, in whose place a plugin has put it."""
    names = ("write_sep", "write_line", "write", "currentfspath")
    return reporter if all(hasattr(reporter, name) for name in names) else _Output()


def write_summary(terminal: Terminal, report: Report, paths: Sequence[Path]) -> None:
    """Write the summary, and the files that the report was written to. No line of it is a command to GitHub Actions."""
    # Where there is no terminal to ask (a CI log), lines may be longer than a terminal's usual 80 columns.
    width = shutil.get_terminal_size(fallback=(120, 24)).columns
    models = printable("; ".join(model_texts(report.models)))  # none where tests recorded scores without one
    terminal.write_sep("=", f"LLM evaluation: {models}" if models else "LLM evaluation")
    if any(metric.ci_low is not None for suite in report.suites for metric in suite.summary.metrics.values()):
        terminal.write_line("each number with its 95% interval")
    is_urgent = False
    for line in summary_lines(report, width=width):
        is_urgent = line.startswith(_URGENT) or (is_urgent and line.startswith(" "))
        _write(terminal, line, width, {"red": True} if is_urgent else {})
    write_paths(terminal, paths)


def write_main_numbers(terminal: Terminal, report: Report) -> None:
    """Write one line, where there is no summary."""
    _write(terminal, main_numbers(report), shutil.get_terminal_size(fallback=(120, 24)).columns, {})


def main_numbers(report: Report) -> str:
    """``LLM evaluation: sums accuracy 0.500 [0.150, 0.850], n 4; gates: 1 failed``: the first metric of each suite.

    Of more than a few suites it is their mean.
    """
    names = short_model_names(report)
    parts = []
    for suite in report.suites:
        row = suite_row(suite, names)
        for metric in metrics_shown([row])[:1]:
            found = suite.summary.metrics[metric]
            value = "-" if found.value is None else with_interval(found.value, found.ci_low, found.ci_high)
            parts.append(f"{row.name} {metric} {value}, n {found.n:,}")
    if len(parts) > _MAX_SUITES:
        num_samples = sum(suite.summary.num_scored for suite in report.suites)
        means = [
            f"macro average {text}" + (f" of {names.get(averages.model, averages.model)}" if averages.model else "")
            for averages in report.averages
            for text in [*mean_texts(averages.macro, parts="suite")][:1]
        ]
        parts = [f"{len(report.suites):,} suites, {num_samples:,} samples", *means[:_MAX_SUITES]]
    num_unscored = sum(suite.summary.num_unscored for suite in report.suites)
    parts += [f"{num_unscored:,} could not be scored"] if num_unscored else []
    parts += [f"problem: {problem}" for problem in report.problems[:1]]
    parts += [count_line(report.gates)] if report.gates else []
    return printable(f"LLM evaluation: {'; '.join(parts)}")


def write_paths(terminal: Terminal, paths: Sequence[Path]) -> None:
    """Write where the report was written to; the page last, where a reader's eye and a terminal's link are."""
    width = shutil.get_terminal_size(fallback=(120, 24)).columns
    for path in sorted(paths, key=lambda path: path.suffix.lower() == ".html"):
        _write(terminal, f"report: {printable(str(path))}", width, {})


def _write(terminal: Terminal, line: str, width: int, markup: Mapping[str, bool]) -> None:
    """Write a line in its colours. A terminal breaks a line that is too long inside a word; a log does not break it."""
    safe = without_commands(line)
    spans = line.spans if isinstance(line, Coloured) else ()
    if spans and safe == line:
        written = 0
        for start, end, colour in spans:
            terminal.write(line[written:start])
            terminal.write(line[start:end], **{colour: True})
            written = end
        terminal.write_line(line[written:])
    elif spans:
        terminal.write_line(safe, **{spans[0][2]: True})
    elif getattr(terminal, "isatty", False) and columns_of(safe) > width:
        indent = " " * (len(safe) - len(safe.lstrip()) + 2)
        for part in wrapped_lines(safe, width=width, indent=indent):
            terminal.write_line(part, **markup)
    else:
        terminal.write_line(safe, **markup)


def summary_lines(report: Report, *, width: int) -> Iterator[str]:
    """What a user reads at the end: the suites, their categories, what could not be scored, tokens and speed, gates.

    A table wider than ``width`` columns becomes a list. Every value is shown with the 95% interval of its metric.
    """
    names = short_model_names(report)
    suites = [(suite_name(suite, names), suite) for suite in report.suites]
    rows = [suite_row(suite, names) for suite in report.suites]
    sections = [category_section(suite, names) for suite in report.suites if len(suite.categories) > 1]
    layout = common_layout(rows, sections, width=width)
    yield from suite_lines(rows, width=width, layout=layout)
    for averages in report.averages:
        yield from _averages(averages, names, width)
    for name, suite in suites:
        if counts := [printable(text) for text in count_texts(suite)]:
            yield from joined_lines(f"{printable(name)}:", counts, width=width)
    yield from no_answer_lines(report, names, width=width)
    yield from unjudged_lines(report, names, width=width)
    if report.comparisons:
        yield ""
        yield from comparison_lines(report.comparisons, names, width=width)
    if took := [*per_sample_lines(report, names, width=width)]:
        yield from ("", *took)
    if sections:
        yield ""
        yield from category_lines(sections, width=width, layout=layout)
    yield from _unscored(report)
    for problem in report.problems:
        yield f"problem: {printable(problem)}"
    if (selection := selection_text(report)) is not None:
        yield printable(selection)
    if report.stopped:
        yield f"stopped early ({printable(report.stopped)}): these numbers cover only what had run"
    if timing := [*speed_lines(report), *latency_lines(report.suites, names, width=width)]:
        yield from ("", *timing)
    for text in store_texts(report):
        yield from wrapped_lines(printable(text), width=width, indent="  ")
    yield from server_lines(report.models)
    yield from server_lines(report.judges)
    yield from engine_lines([(name, suite.engine) for name, suite in suites if suite.engine is not None])
    if report.gates:
        yield ""
        yield from gate_lines(report.gates, names, width=width)


def model_texts(models: Sequence[Mapping[str, JSON]]) -> Iterator[str]:
    """Each model in a few words: name, device, dtype, revision. Not yet ``printable``."""
    for model in models:
        facts = [model[key] for key in ("device", "dtype", "revision") if model.get(key)]
        yield str(model["name"]) + (f" ({', '.join(map(str, facts))})" if facts else "")


def _averages(averages: Averages, names: Mapping[str, str], width: int) -> Iterator[str]:
    """The means over the suites of one model, of the metrics that a table shows first."""
    of_model = f" of {names.get(averages.model, averages.model)}" if averages.model and len(names) > 1 else ""
    for kind, metrics, parts in (("macro", averages.macro, "suite"), ("micro", averages.micro, None)):
        if means := [printable(text) for text in mean_texts(metrics, parts=parts)]:
            yield from joined_lines(f"{kind} average over suites{printable(of_model)}:", means, width=width)
    for text in unlike_texts(averages):
        yield from wrapped_lines(printable(text), width=width, indent="  ")


def _unscored(report: Report) -> Iterator[str]:
    shown: list[str] = []
    counts: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for record in report.records:
        if record.status == "unscored":
            reason = record.reason or "no reason given"
            counts[reason if reason in counts or len(counts) < _MAX_UNSCORED else ""] += 1
            if len(shown) < _MAX_UNSCORED and counts[reason] <= _MAX_ALIKE:
                shown.append(f"  {printable(record.nodeid)}: {printable(reason)}")
            else:
                left_out[reason if counts[reason] > _MAX_ALIKE else ""] += 1
    if not counts:
        return
    yield ""
    yield f"could not be scored: {counts.total()}"
    yield from shown
    for reason, number in left_out.items():
        yield f"  … and {number:,} more" + (f": {printable(reason)}" if reason else "")


def speed_lines(report: Report) -> Iterator[str]:
    """Samples and tokens of the session, by the time that they took."""
    num_samples = sum(suite.summary.num_scored for suite in report.suites)
    num_prompt_tokens = sum(suite.num_prompt_tokens for suite in report.suites)
    num_tokens = sum(suite.num_tokens for suite in report.suites)
    seconds = sum(suite.seconds for suite in report.suites)
    whose = "of the model's time"
    is_reused = report.store is not None and report.store.num_reused > 0
    if seconds > report.seconds and not is_reused and any(map(use_of_model, report.models)):
        seconds, whose = report.seconds, "from start to end"  # a server answers many at once
    if not num_samples or not num_tokens or seconds <= 0:
        return
    yield (
        f"{num_samples:,} sample{'' if num_samples == 1 else 's'}, "
        f"{num_prompt_tokens:,} prompt tokens and {num_tokens:,} scored or generated, "
        f"in {seconds:.1f} s {whose}: {num_samples / seconds:,.1f} samples/s, "
        f"{(num_prompt_tokens + num_tokens) / seconds:,.0f} tokens/s"
    )
    yield from phase_lines(report.suites)


def server_lines(models: Sequence[Mapping[str, JSON]]) -> Iterator[str]:
    """What was sent to each model behind a server; those of judges say whose."""
    for model in models:
        use = use_of_model(model)
        if use is None:
            continue
        role = f"{printable(str(model['role']))} " if "role" in model else ""
        name = f"{role}{printable(str(model['name']))}: " if role or len(models) > 1 else ""
        requests = f"{name}{use.num_requests:,} request{'' if use.num_requests == 1 else 's'}"
        parts = [
            f"{requests} to the server",
            f"{use.num_prompt_tokens:,} prompt tokens and {use.num_tokens:,} generated as it counts them",
        ]
        num_replicas = _num_replicas(model, use)
        if num_replicas:
            parts = [f"{requests} to {_shares(use, num_replicas)}"]
        if use.retries:
            reasons = ", ".join(f"{printable(reason)}: {count:,}" for reason, count in use.retries.items())
            parts.append(f"tried again {sum(use.retries.values()):,} times ({reasons})")
        names = [served for served in use.served_models if served not in str(model["name"])]
        if names:
            parts.append(f"answered by {printable(' and by '.join(names))}")
        if use.left_out:
            parts.append(f"without {printable(', '.join(use.left_out))}, which the server refused")
        if use.cost is not None:
            parts.append(f"cost {shown_cost(use.cost)}")
        yield ", ".join(parts)
        for ended in use.ended:
            what = "a replica ended" if num_replicas else "a replica is missing"
            yield f"{name}{what}: {printable(ended)}"
        yield from map(printable, fingerprint_texts([model]))


def _num_replicas(model: Mapping[str, JSON], use: ServerUse) -> int:
    """How many replicas on Ray ``model`` was to have; 0 for a server."""
    details = model.get("details")
    asked_for = details.get("replicas") if isinstance(details, Mapping) else None
    return max(len(use.replicas), asked_for if isinstance(asked_for, int) else 0)


def _by_number(share: tuple[str, int]) -> list[str | int]:
    """So that ``replica 10`` comes after ``replica 2``."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"([0-9]+)", share[0]))]


def _shares(use: ServerUse, num_replicas: int) -> str:
    """The replicas that answered, of those that were to: the others loaded too late, or were not needed."""
    told = f"{num_replicas} replica{'' if num_replicas == 1 else 's'}"
    if not use.replicas:
        return told
    shares = ", ".join(f"{printable(where)} {count:,}" for where, count in sorted(use.replicas.items(), key=_by_number))
    return f"{'' if len(use.replicas) == num_replicas else f'{len(use.replicas)} of '}{told} ({shares})"


def engine_lines(uses: Sequence[tuple[str, EngineUse]]) -> Iterator[str]:
    """One line for each way in which suites were computed; ``uses`` are (suite, what was done)."""
    ways: dict[tuple[str, str], list[tuple[str, EngineUse]]] = {}
    for suite, use in uses:
        ways.setdefault((use.engine, use.reason), []).append((suite, use))
    for (engine, reason), members in ways.items():
        line = f"log-likelihoods: {engine} ({printable(reason)})"
        if len(ways) > 1:
            line += f" for {', '.join(printable(suite) for suite, _ in members)}"
        differences = [use.largest_difference for _, use in members if use.largest_difference is not None]
        if differences:
            num_audited = sum(use.num_audited for _, use in members)
            requests = "request was" if num_audited == 1 else "requests were"
            line += f"; {num_audited} {requests} also scored plain, and differed by at most {max(differences):.0e}"
        elif engine == "tree":
            line += "; no request could be audited against plain scoring"
        yield line
