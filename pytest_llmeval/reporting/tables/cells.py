"""Tables of text, and what their cells hold: numbers written as text, and text that is good or bad news."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = [
    "Table",
    "Tone",
    "Toned",
    "cost_text",
    "duration_text",
    "number",
    "p_text",
    "rate_text",
    "short_number",
    "signed",
    "small_number",
    "with_interval",
]

_MOST_DECIMALS = 12

Tone: TypeAlias = Literal["good", "bad", "strong"]


class Toned(str):
    """Text whose parts have tones, for writers that can show them; for all others it is ordinary text.

    ``spans`` are (start, end, tone), in order and apart from each other.
    """

    __slots__ = ("spans",)
    spans: tuple[tuple[int, int, Tone], ...]

    def __new__(cls, text: str, tone: Tone | None = None) -> Toned:
        made = super().__new__(cls, text)
        made.spans = () if tone is None else ((0, len(text), tone),)
        return made

    @classmethod
    def joined(cls, parts: Sequence[str]) -> Toned:
        """Return the parts one after the other, each with the tones that it has."""
        made, start, spans = cls("".join(parts)), 0, []
        for part in parts:
            if isinstance(part, Toned):
                spans += [(start + begin, start + end, tone) for begin, end, tone in part.spans]
            start += len(part)
        made.spans = tuple(spans)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells of text, made ``printable``.

    ``align`` is ``left``, ``right`` or ``value`` for each column. ``value`` is a number with its interval: on the left,
    if a writer does not set intervals apart. A row of one cell stands over the rows that follow it, across all columns.
    The first ``keys`` columns say what a row is about.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: Sequence[str]
    keys: int = 1


def number(value: float) -> str:
    """Return the number with three decimals, or with none if it is large, as a perplexity can be."""
    if abs(value) < 1000:
        return f"{value:.3f}"
    return f"{value:,.0f}" if abs(value) < 1e7 else f"{value:.3e}"


def small_number(value: float) -> str:
    """Return ``number``, with as many decimals as three digits of a value below 0.1 need."""
    if value == 0 or abs(value) >= 0.1:
        return number(value)
    return f"{value:.{min(2 - math.floor(math.log10(abs(value))), _MOST_DECIMALS)}f}"


def short_number(value: float) -> str:
    """Return ``number`` without the zero before the point; a number without other digits is ``1`` or ``0``."""
    text = number(value)
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if digits == "0.000":
        return "0"
    return sign + ("1" if digits == "1.000" else digits.removeprefix("0") if digits.startswith("0.") else digits)


def with_interval(
    value: float,
    ci_low: float | None,
    ci_high: float | None,
    *,
    is_short: bool = False,
    write: Callable[[float], str] = number,
) -> str:
    """Return ``0.700 [0.605, 0.781]``, or short ``0.700 .605–.781``; without an interval the value alone."""
    if ci_low is None or ci_high is None:
        return write(value)
    if is_short:
        return f"{number(value)} {short_number(ci_low)}–{short_number(ci_high)}"
    return f"{write(value)} [{write(ci_low)}, {write(ci_high)}]"


def signed(value: float, write: Callable[[float], str] = number) -> str:
    """Return ``number`` with a plus before values above 0."""
    return f"+{write(value)}" if value > 0 else write(value)


def p_text(p: float) -> str:
    """Return a p-value with three decimals: ``0.012``, ``< 0.001``."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def duration_text(seconds: float) -> str:
    """Return a time with three digits, in milliseconds if it is shorter than a second."""
    return f"{_three_digits(seconds)} s" if seconds >= 1 else f"{_three_digits(1000 * seconds)} ms"


def rate_text(per_second: float) -> str:
    """Return a number per second with three digits."""
    return f"{per_second:,.0f}" if per_second >= 100 else _three_digits(per_second)


def cost_text(cost: float) -> str:
    """Return a sum of money in the currency of the prices, with two decimals, or two digits if it is less than one."""
    return f"{cost:,.2f}" if cost >= 1 else f"{cost:.2g}"


def _three_digits(value: float) -> str:
    """Return the number without an exponent, and without digits that mean nothing."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
