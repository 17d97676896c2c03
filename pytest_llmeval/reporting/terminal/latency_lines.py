"""How long samples took, as a terminal shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from pytest_llmeval.reporting.report.report import SuiteReport
from pytest_llmeval.reporting.terminal.suite_texts import suite_name
from pytest_llmeval.reporting.terminal.tables import joined_lines
from pytest_llmeval.scoring.metrics.percentiles import Percentiles
from pytest_llmeval.text.escaping import printable

__all__ = ["LEAST_SECONDS_UNCOUNTED", "duration", "latency_cells", "latency_lines", "phase_lines"]

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
