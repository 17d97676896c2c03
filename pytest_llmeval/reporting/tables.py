"""Tables and numbers as a terminal shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tabulate import tabulate

__all__ = ["number", "table_lines"]


def table_lines(
    headers: Sequence[str], rows: Sequence[Sequence[str]], align: Sequence[str], *, width: int
) -> Iterator[str]:
    """A table of text; where it is wider than ``width`` columns, a list of its rows without their empty cells.

    ``align`` is ``left`` or ``right`` for each column.
    """
    text = tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True, colalign=align)
    lines = text.splitlines()
    if max(map(len, lines)) <= width:
        yield from (line.rstrip() for line in lines)
        return
    yield headers[0]
    for name, *values in rows:
        yield f"  {name}"
        for header, value in zip(headers[1:], values, strict=True):
            if value:
                yield f"    {header} {value}"


def number(value: float) -> str:
    """Three decimals; none of what is large, as a perplexity can be."""
    if abs(value) < 1000:
        return f"{value:.3f}"
    return f"{value:,.0f}" if abs(value) < 1e7 else f"{value:.3e}"
