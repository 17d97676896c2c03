"""Tables and numbers as a terminal shows them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from tabulate import tabulate

__all__ = ["joined_lines", "number", "table_lines", "table_width", "wrapped_lines"]


def table_lines(
    headers: Sequence[str], rows: Sequence[Sequence[str]], align: Sequence[str], *, width: int
) -> Iterator[str]:
    """A table of text; where it is wider than ``width`` columns, a list of its rows without their empty cells.

    ``align`` is ``left`` or ``right`` for each column.
    """
    lines = _table(headers, rows, align)
    if max(map(len, lines)) <= width:
        yield from (line.rstrip() for line in lines)
        return
    yield headers[0]
    for name, *values in rows:
        yield f"  {name}"
        for header, value in zip(headers[1:], values, strict=True):
            if value:
                yield f"    {header} {value}"


def table_width(headers: Sequence[str], rows: Sequence[Sequence[str]], align: Sequence[str]) -> int:
    """Columns that the table takes."""
    return max(map(len, _table(headers, rows, align)))


def joined_lines(start: str, items: Sequence[str], *, width: int) -> Iterator[str]:
    """``start`` and the items with commas between them, on further lines where ``width`` columns do not hold them all.

    No item is broken.
    """
    line = start
    for place, item in enumerate(items):
        text = f" {item}" + ("," if place + 1 < len(items) else "")
        if len(line) + len(text) > width and line.strip():
            yield line
            line = " "
        line += text
    yield line


def wrapped_lines(text: str, *, width: int, indent: str) -> list[str]:
    """The words of ``text`` on lines of at most ``width`` columns, those after the first indented.

    A word that is longer stays whole: it is a path or a name that somebody will copy.
    """
    return textwrap.wrap(
        text, max(width, 20), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [text]


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], align: Sequence[str]) -> list[str]:
    return tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True, colalign=align).splitlines()


def number(value: float) -> str:
    """Three decimals; none of what is large, as a perplexity can be."""
    if abs(value) < 1000:
        return f"{value:.3f}"
    return f"{value:,.0f}" if abs(value) < 1e7 else f"{value:.3e}"
