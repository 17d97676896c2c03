"""What a sample took of each model, beside what that bought: tokens, seconds, cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_llmeval.reporting.report.report import PerSample, Report
from pytest_llmeval.reporting.terminal.latency_lines import LEAST_SECONDS_UNCOUNTED, duration
from pytest_llmeval.reporting.terminal.live_line import shown_cost
from pytest_llmeval.reporting.terminal.suite_texts import suite_name
from pytest_llmeval.reporting.terminal.tables import Table, table_lines
from pytest_llmeval.text.escaping import printable

__all__ = ["per_sample_cells", "per_sample_lines"]

_HEADERS = ("suite", "n", "prompt tokens", "tokens", "time", "cost", "cost in all")


def per_sample_lines(report: Report, names: Mapping[str, str], *, width: int) -> Iterator[str]:
    """Where models are compared, or say what a reply costs: the means over each suite's scored samples."""
    headers, rows = per_sample_cells(report, names)
    if rows:
        yield "a sample took, in the mean:"
        table = Table(headers=headers, rows=rows, align=["left", *("right" for _ in headers[1:])])
        yield from table_lines(table, width=width)


def per_sample_cells(
    report: Report, names: Mapping[str, str], *, always: bool = False
) -> tuple[list[str], list[list[str]]]:
    """Headers and rows, made ``printable``, without the columns that no suite has a number for.

    Nothing where no models are compared and no cost is known, unless the table is ``always`` wanted.
    """
    if not always and not report.comparisons and all(suite.cost is None for suite in report.suites):
        return [], []
    is_timed = any(_takes_time(suite.per_sample) for suite in report.suites if suite.per_sample is not None)
    rows = [
        [
            printable(suite_name(suite, names)),
            *_cells(suite.per_sample, is_timed),
            _cost(suite.cost) + _of(suite.num_priced or 0, suite.summary.num_scored + suite.summary.num_unscored),
        ]
        for suite in report.suites
        if suite.per_sample is not None
    ]
    used = [place for place in range(len(_HEADERS)) if place < 2 or any(row[place] for row in rows)]
    if len(used) < 3:
        return [], []
    return [_HEADERS[place] for place in used], [[row[place] for place in used] for row in rows]


def _takes_time(found: PerSample) -> bool:
    """Whether the time says something: a function that calls no service takes none. One that does shows all of them."""
    is_counted = found.num_prompt_tokens + found.num_tokens > 0
    return found.seconds > 0 and (is_counted or found.seconds >= LEAST_SECONDS_UNCOUNTED)


def _cells(found: PerSample, is_timed: bool) -> list[str]:
    return [
        str(found.n),
        *(_count(number, found) for number in (found.num_prompt_tokens, found.num_tokens)),
        duration(found.seconds) if is_timed and found.seconds > 0 else "",
        _cost(found.cost) + _of(found.num_priced, found.n),
    ]


def _count(number: float, found: PerSample) -> str:
    """Blank for 0, which is what a program leaves out that does not count them."""
    if number == 0:
        return ""
    shown = f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.1f}"
    return shown + _of(found.num_counted, found.n)


def _of(number: int, n: int) -> str:
    """Return `` (n 5)`` for a mean or sum over some of the samples, and an empty text for one over all."""
    return f" (n {number})" if 0 < number < n else ""


def _cost(cost: float | None) -> str:
    return "" if cost is None else shown_cost(cost)
