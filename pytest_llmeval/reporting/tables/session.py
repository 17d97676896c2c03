"""How long samples took, as a terminal shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from pytest_llmeval.reporting.report.report import PerSample, Report, StoreUse, SuiteReport
from pytest_llmeval.reporting.tables.suites import suite_name
from pytest_llmeval.reporting.terminal.live_line import shown_cost
from pytest_llmeval.reporting.writers.text_layout import Table, joined_lines, table_lines
from pytest_llmeval.scoring.metrics.percentiles import Percentiles
from pytest_llmeval.text.escaping import printable
from pytest_llmeval.text.quantities import time_text

__all__ = [
    "LEAST_SECONDS_UNCOUNTED",
    "duration",
    "latency_cells",
    "latency_lines",
    "per_sample_cells",
    "per_sample_lines",
    "phase_lines",
    "store_texts",
]


_PERCENTILES = ("p50", "p95", "p99")
_SHOWN = ("mean", *_PERCENTILES)
_LEAST_SECONDS = 5e-6
"""What is shown as 0.01 ms; less is noise."""
LEAST_SECONDS_UNCOUNTED = 1e-3


def latency_lines(suites: Sequence[SuiteReport], names: Mapping[str, str], *, width: int) -> Iterator[str]:
    """The latency of the session's samples in a line.

    Of one suite with its percentiles, and those of its tokens/s. Percentiles of several suites cannot be averaged: of
    them it is the mean over all samples, and the smallest and largest p95 of a suite. The Markdown report has them all.
    """
    timed = [(suite, latency) for suite in suites if (latency := _measured(suite)) is not None]
    if not timed:
        return
    if len(timed) == 1:
        ((suite, latency),) = timed
        for what, found, shown in (
            ("latency of a sample:", latency, duration),
            ("tokens/s of a sample:", suite.tokens_per_second, _rate),
        ):
            if found is not None:
                items = [f"{name} {text}" for name, text in zip(_SHOWN, _texts(found, shown), strict=True)]
                yield from joined_lines(what, items, width=width)
        return
    num_samples = sum(latency.n for _, latency in timed)
    mean = math.fsum(latency.mean * latency.n for _, latency in timed) / num_samples
    ordered = sorted(timed, key=lambda pair: pair[1].p95)
    (first, fastest), (last, slowest) = ordered[0], ordered[-1]
    low, high = duration(fastest.p95), duration(slowest.p95)
    fast, slow = (printable(suite_name(suite, names)) for suite in (first, last))
    spread = low if low == high else f"from {low} ({fast}) to {high} ({slow})"
    yield from joined_lines("latency of a sample:", [f"mean {duration(mean)}", f"p95 {spread}"], width=width)


def latency_cells(suites: Sequence[SuiteReport], names: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """Headers and rows, made ``printable``, of a table of every suite's latency and tokens/s, where it has them."""
    headers = ["suite", "n", "latency mean", *_PERCENTILES, "tokens/s mean", *_PERCENTILES]
    rows = []
    for suite in suites:
        if (latency := _measured(suite)) is not None:
            cells = [printable(suite_name(suite, names)), str(latency.n)]
            speed = suite.tokens_per_second
            rows.append([*cells, *_texts(latency, duration), *([""] * 4 if speed is None else _texts(speed, _rate))])
    return headers, rows


def _measured(suite: SuiteReport) -> Percentiles | None:
    """The suite's latency, where it says something: a user's function that calls no service takes no time."""
    is_counted = suite.num_prompt_tokens + suite.num_tokens > 0
    least = _LEAST_SECONDS if is_counted else LEAST_SECONDS_UNCOUNTED
    return None if suite.latency is None or suite.latency.p95 < least else suite.latency


def phase_lines(suites: Sequence[SuiteReport]) -> Iterator[str]:
    """How fast prompts were read and texts written, over all suites whose model tells these apart."""
    known = [suite.phases for suite in suites if suite.phases is not None]
    rates = []
    for what, pairs in (
        ("prefill", [(one.prefill_tokens, one.prefill_seconds) for one in known]),
        ("decode", [(one.decode_tokens, one.decode_seconds) for one in known]),
    ):
        tokens, seconds = sum(count for count, _ in pairs), math.fsum(spent for _, spent in pairs)
        if tokens and seconds > 0:
            rates.append(f"{what} {_rate(tokens / seconds)} tokens/s")
    if rates:
        yield f"generated texts: {', '.join(rates)}"


def duration(seconds: float) -> str:
    """Three digits, in milliseconds below a second."""
    return f"{_three_digits(seconds)} s" if seconds >= 1 else f"{_three_digits(1000 * seconds)} ms"


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 100 else _three_digits(per_second)


def _texts(found: Percentiles, shown: Callable[[float], str]) -> list[str]:
    return [shown(getattr(found, name)) for name in _SHOWN]


def _three_digits(value: float) -> str:
    """Neither an exponent nor digits that mean nothing."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


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


_WITHOUT_NEED = ("replay", "guessing")
"""Backends that have their answers at hand."""


def store_texts(report: Report) -> Iterator[str]:
    """How many samples the store answered, how old their replies are, and what is odd. Not yet ``printable``."""
    store = report.store
    if store is None or not store.num_samples:
        return
    text = f"store {store.folder}: {store.num_reused:,} of {store.num_samples:,} samples reused"
    if store.oldest is not None and store.newest is not None:
        ages = list(dict.fromkeys(_age(report.created, asked_at) for asked_at in (store.newest, store.oldest)))
        text += f", asked {' to '.join(ages)} before this session; times and speed were measured then"
    yield text
    if flaws := "; ".join(_flaws(store)):
        yield f"store {store.folder}: {flaws}"
    for model in (*report.models, *report.judges):
        details = model.get("details")
        stored = details.get("store") if isinstance(details, Mapping) else None
        name = f"{model['role']} {model['name']}" if "role" in model else str(model["name"])
        if stored is None and model.get("backend") not in (*_WITHOUT_NEED, None):  # None: an older report's judge
            yield f"store: {name}: is not asked through the store"
        elif isinstance(stored, str) and "not reused" in stored:
            yield f"store: {name}: {stored}; --llm-store-max-age 7d reuses those of the last 7 days"
    if store.problem is not None:
        yield f"store: replies could no longer be kept: {store.problem}"


def _flaws(store: StoreUse) -> Iterator[str]:
    if number := store.num_unreadable:
        yield f"{number:,} {'file' if number == 1 else 'files'} cannot be read ({store.why_unreadable})"
    if number := store.num_damaged:
        lines, them = ("line is", "it") if number == 1 else ("lines are", "them")
        yield f"{number:,} damaged {lines} not used, llmeval store compact removes {them}"


def _age(created: str, asked_at: str) -> str:
    """Of a reply at the start of the session; nothing where one of the two is no time."""
    try:
        return time_text(max(0.0, (datetime.fromisoformat(created) - datetime.fromisoformat(asked_at)).total_seconds()))
    except (TypeError, ValueError):
        return asked_at
