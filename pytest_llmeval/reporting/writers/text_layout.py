"""Tables and sentences as lines of plain text that fit a width."""

from __future__ import annotations

import re
import shutil
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tabulate import tabulate

from pytest_llmeval.reporting.tables.cells import Table, Toned

__all__ = [
    "columns_of",
    "fits",
    "joined_lines",
    "room_for_names",
    "screen_width",
    "table_lines",
    "total_width",
    "widths_of",
    "wrapped_lines",
]

_GAP = "  "

# Spaces at which a line is not broken: in [0.605, 0.781], n 40, p = 0.01, >= 0.6, 7 tokens/s. No text that is printable
# has the character that stands for them meanwhile.
_HELD = re.compile(r"(?<=\d,) (?=-?[\d.,e+-]+\])|(?<=\b[np]) (?=[\d<=])|(?<=[<>=]) (?=-?[\d.])|(?<=\d) (?=\w+/s|m?s\b)")
_HOLD = "\x1f"

_LEAST_NAME = 12
"""The least columns for names: if there is room for fewer, most names would stand on lines of their own."""


def screen_width() -> int:
    """Return the columns of the terminal; a log without one (of CI, say) may have longer lines than the usual 80."""
    return shutil.get_terminal_size(fallback=(120, 24)).columns


def widths_of(table: Table) -> list[int]:
    """Return the columns of the terminal that each column of the table takes."""
    whole = [table.headers, *(row for row in table.rows if _is_whole(row, table))]
    return [max(columns_of(row[place]) for row in whole) for place in range(len(table.headers))]


def fits(table: Table, width: int) -> bool:
    """Tell whether a table fits ``width`` columns as it is."""
    return total_width(widths_of(table)) <= width


def total_width(widths: Sequence[int]) -> int:
    """Return the columns of a whole table from those of its columns."""
    return sum(widths) + len(_GAP) * max(len(widths) - 1, 0)


def room_for_names(widths: Sequence[int], width: int) -> int:
    """Return what the other columns leave of ``width`` for the first; 0 if it is too little."""
    room = width - total_width([0, *widths[1:]])
    return 0 if room < min(_LEAST_NAME, widths[0]) else min(room, widths[0])


def table_lines(table: Table, *, width: int, widths: Mapping[str, int] | None = None) -> Iterator[str]:
    """Yield the table in lines of at most ``width`` columns.

    ``widths`` are those of columns, by header, so that several tables line up: the least that a column takes, and for
    the first column the most as well. They are ignored if the table does not fit with them.

    If the table is too wide, first cells that are long stand on a line of their own; then it is taken apart into tables
    below each other, which share the first column; if not even that has room, it becomes a list.
    """
    given = widths or {}
    aligned = _narrowed(table, given.get(table.headers[0], width))
    shared = [max(one, given.get(header, 0)) for one, header in zip(widths_of(aligned), table.headers, strict=True)]
    if total_width(shared) <= width:
        yield from _drawn(aligned, shared)
        return
    parts = _parts(table, width)
    for place, part in enumerate(parts):
        yield from [""] * (place > 0)
        yield from _drawn(part, widths_of(part))
    if not parts:
        yield from _listed(table, width)


def _is_whole(row: Sequence[str], table: Table) -> bool:
    """Tell whether a row has all columns, and is not one cell that stands over others."""
    return len(row) == len(table.headers)


def _parts(table: Table, width: int) -> list[Table]:
    """Return the table in as many parts as it takes; none if a column has no room beside the first."""
    if room := room_for_names(widths_of(table), width):
        return [_narrowed(table, room)]
    keys, parts = [*range(1, table.keys)], list[Table]()
    names = [row[0] for row in table.rows if _is_whole(row, table)]
    again = [] if len({*names}) == len(names) else keys  # if names alone do not say what a row is about
    places = [*keys]
    num_before = len(keys)
    for column in range(table.keys, len(table.headers)):
        if len(places) > num_before and not room_for_names(widths_of(_only(table, [*places, column])), width):
            parts.append(_only(table, places))
            places, num_before = [*again], len(again)
        places.append(column)
    parts.append(_only(table, places))
    rooms = [room_for_names(widths_of(part), width) for part in parts]
    return [_narrowed(part, room) for part, room in zip(parts, rooms, strict=True)] if all(rooms) else []


def _only(table: Table, places: Sequence[int]) -> Table:
    """Return the first column and these, and the rows that have something in these."""
    rows: list[Sequence[str]] = []
    for row in table.rows:
        if _is_whole(row, table):
            if any(row[place] for place in places):
                rows.append([row[0], *(row[place] for place in places)])
            continue
        if rows and len(rows[-1]) == 1:
            rows.pop()  # nothing stands below it
        rows.append(row)
    if rows and len(rows[-1]) == 1:
        rows.pop()
    places = [0, *places]
    headers, align = [table.headers[place] for place in places], [table.align[place] for place in places]
    return Table(headers=headers, rows=rows, align=align)


def _narrowed(table: Table, room: int) -> Table:
    """Return the table with ``room`` columns for the first: a longer first cell stands over the rest of its row."""
    rows: list[Sequence[str]] = []
    for row in table.rows:
        if _is_whole(row, table) and columns_of(row[0]) > room:
            rows += [[row[0]], ["", *row[1:]]]
        else:
            rows.append(row)
    return replace(table, rows=rows)


def _drawn(table: Table, widths: Sequence[int]) -> Iterator[str]:
    whole = [row for row in table.rows if _is_whole(row, table)]
    rules = ["-" * width for width in widths]  # the first row: it gives the columns their widths
    # Headers as a row like the others: as headers each would take two columns more than it needs.
    rule, heading, *lines = tabulate(
        [rules, table.headers, *whole],
        tablefmt="plain",
        disable_numparse=True,
        preserve_whitespace=True,
        colalign=["right" if side == "right" else "left" for side in table.align],
    ).splitlines()
    yield heading.rstrip()
    yield rule
    drawn = iter(lines)
    for row in table.rows:
        yield _with_tones(next(drawn).rstrip(), row) if _is_whole(row, table) else row[0]


def _with_tones(line: str, cells: Sequence[str]) -> str:
    """Return the drawn line with the tones of its cells, which tabulate does not know."""
    parts: list[str] = []
    for cell in cells:
        if isinstance(cell, Toned):
            before, found, line = line.partition(cell)
            parts += [before, cell] if found else [before]
        else:
            start = line.find(cell) + len(cell)
            parts.append(line[:start])
            line = line[start:]
    return Toned.joined([*parts, line])


def _listed(table: Table, width: int) -> Iterator[str]:
    for name, *values in table.rows:
        yield name
        # A row of one cell has no values.
        items = [f"{header} {value}" for header, value in zip(table.headers[1:], values, strict=False) if value]
        if items:
            yield from joined_lines(" ", items, width=width)


def joined_lines(start: str, items: Sequence[str], *, width: int) -> Iterator[str]:
    """Yield ``start`` and the items with commas between them, on as many lines as ``width`` columns make of them.

    No item is broken.
    """
    line = start
    for place, item in enumerate(items):
        text = f" {item}" + ("," if place + 1 < len(items) else "")
        if columns_of(line) + columns_of(text) > width and line.strip():
            yield line
            line = " "
        line += text
    yield line


def wrapped_lines(text: str, *, width: int, indent: str = "  ") -> list[str]:
    """Return the words of ``text`` on lines of at most ``width`` columns, the lines after the first indented.

    A word that is longer stays whole: it is a path or a name to be copied. So do an interval and ``n 40``.
    """
    held = _HELD.sub(_HOLD, text)
    lines = textwrap.wrap(
        held, max(width, 20), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(_HOLD, " ") for line in lines] or [text]


def columns_of(text: str) -> int:
    """Return the columns that a terminal gives a text: two to wide East Asian characters, none to combining ones."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )
