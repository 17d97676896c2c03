"""Tables and numbers as a terminal shows them."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tabulate import tabulate

__all__ = [
    "Coloured",
    "Table",
    "columns_of",
    "joined_lines",
    "number",
    "room_for_names",
    "short_number",
    "table_lines",
    "total_width",
    "wrapped_lines",
]


_GAP = "  "

# Spaces at which a line is not broken: in [0.605, 0.781], n 40, p = 0.01, >= 0.6, 7 tokens/s. No text that is printable
# has the character that stands for them meanwhile.
_HELD = re.compile(r"(?<=\d,) (?=-?[\d.,e+-]+\])|(?<=\b[np]) (?=[\d<=])|(?<=[<>=]) (?=-?[\d.])|(?<=\d) (?=\w+/s|m?s\b)")
_HOLD = "\x1f"

_LEAST_NAME = 12
"""Columns for names below which a table is rather taken apart than that most names stand on lines of their own."""


class Coloured(str):
    """Text with colours for its parts, where there are colours; everywhere else it is ordinary text.

    ``spans`` are (start, end, colour), in order and apart from each other; colours as pytest's terminal writer names
    them.
    """

    __slots__ = ("spans",)
    spans: tuple[tuple[int, int, str], ...]

    def __new__(cls, text: str, colour: str | None = None) -> Coloured:
        made = super().__new__(cls, text)
        made.spans = () if colour is None else ((0, len(text), colour),)
        return made

    @classmethod
    def joined(cls, parts: Sequence[str]) -> Coloured:
        """The parts one after the other, each in the colours that it has."""
        made, start, spans = cls("".join(parts)), 0, []
        for part in parts:
            if isinstance(part, Coloured):
                spans += [(start + begin, start + end, colour) for begin, end, colour in part.spans]
            start += len(part)
        made.spans = tuple(spans)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells of text, ``align`` with ``left`` or ``right`` for each column.

    A row with one cell stands over those that follow it, across all columns. ``keys`` is how many of the first columns
    say what a row is about.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: Sequence[str]
    keys: int = 1

    @property
    def widths(self) -> list[int]:
        """Columns of the terminal that each column takes."""
        whole = [self.headers, *(row for row in self.rows if len(row) == len(self.headers))]
        return [max(columns_of(row[place]) for row in whole) for place in range(len(self.headers))]

    def fits(self, width: int) -> bool:
        return total_width(self.widths) <= width

    def only(self, places: Sequence[int]) -> Table:
        """The first column and these, and the rows that have something in these."""
        rows: list[Sequence[str]] = []
        for row in self.rows:
            if len(row) == len(self.headers):
                if any(row[place] for place in places):
                    rows.append([row[0], *(row[place] for place in places)])
                continue
            if rows and len(rows[-1]) == 1:
                rows.pop()  # nothing stands below it
            rows.append(row)
        if rows and len(rows[-1]) == 1:
            rows.pop()
        places = [0, *places]
        return Table(
            headers=[self.headers[place] for place in places], rows=rows, align=[self.align[place] for place in places]
        )

    def narrowed(self, room: int) -> Table:
        """The table with ``room`` columns for the first column: what takes more stands over the rest of its row."""
        rows: list[Sequence[str]] = []
        for row in self.rows:
            if len(row) == len(self.headers) and columns_of(row[0]) > room:
                rows += [[row[0]], ["", *row[1:]]]
            else:
                rows.append(row)
        return replace(self, rows=rows)


def total_width(widths: Sequence[int]) -> int:
    """Columns that a table takes whose own columns take these."""
    return sum(widths) + len(_GAP) * max(len(widths) - 1, 0)


def room_for_names(widths: Sequence[int], width: int) -> int:
    """Columns that the first of these has where the others take what they need; 0 for fewer than names need."""
    room = width - total_width([0, *widths[1:]])
    return 0 if room < min(_LEAST_NAME, widths[0]) else min(room, widths[0])


def table_lines(table: Table, *, width: int, widths: Mapping[str, int] | None = None) -> Iterator[str]:
    """The table in lines of at most ``width`` columns.

    ``widths`` are those of columns, by header, so that several tables line up: the least that a column takes, of the
    first the most that it takes too. They are left alone where the table does not fit with them.

    Where the table is too wide, first cells that are long stand on a line of their own; then it is taken apart into
    tables below each other, which share the first column; and where not even that has room, it is a list.
    """
    given = widths or {}
    aligned = table.narrowed(given.get(table.headers[0], width))
    shared = [max(one, given.get(header, 0)) for one, header in zip(aligned.widths, table.headers, strict=True)]
    if total_width(shared) <= width:
        yield from _drawn(aligned, shared)
        return
    parts = _parts(table, width)
    for place, part in enumerate(parts):
        yield from [""] * (place > 0)
        yield from _drawn(part, part.widths)
    if not parts:
        yield from _listed(table, width)


def _parts(table: Table, width: int) -> list[Table]:
    """The table in as many as it takes; none if a column has no room beside the first."""
    if room := room_for_names(table.widths, width):
        return [table.narrowed(room)]
    keys, parts = [*range(1, table.keys)], list[Table]()
    names = [row[0] for row in table.rows if len(row) == len(table.headers)]
    again = [] if len({*names}) == len(names) else keys  # where names alone do not say what a row is about
    places = [*keys]
    num_before = len(keys)
    for column in range(table.keys, len(table.headers)):
        if len(places) > num_before and not room_for_names(table.only([*places, column]).widths, width):
            parts.append(table.only(places))
            places, num_before = [*again], len(again)
        places.append(column)
    parts.append(table.only(places))
    rooms = [room_for_names(part.widths, width) for part in parts]
    return [part.narrowed(room) for part, room in zip(parts, rooms, strict=True)] if all(rooms) else []


def _drawn(table: Table, widths: Sequence[int]) -> Iterator[str]:
    whole = [row for row in table.rows if len(row) == len(table.headers)]
    rules = ["-" * width for width in widths]  # the first row: it gives the columns their widths
    # Headers as a row like the others: as headers each would take two columns more than it needs.
    rule, heading, *lines = tabulate(
        [rules, table.headers, *whole],
        tablefmt="plain",
        disable_numparse=True,
        preserve_whitespace=True,
        colalign=table.align,
    ).splitlines()
    yield heading.rstrip()
    yield rule
    drawn = iter(lines)
    for row in table.rows:
        yield _coloured(next(drawn).rstrip(), row) if len(row) == len(table.headers) else row[0]


def _coloured(line: str, cells: Sequence[str]) -> str:
    """The drawn line in the colours of its cells, which tabulate does not know."""
    parts: list[str] = []
    for cell in cells:
        if isinstance(cell, Coloured):
            before, found, line = line.partition(cell)
            parts += [before, cell] if found else [before]
        else:
            start = line.find(cell) + len(cell)
            parts.append(line[:start])
            line = line[start:]
    return Coloured.joined([*parts, line])


def _listed(table: Table, width: int) -> Iterator[str]:
    for name, *values in table.rows:
        yield name
        # A row of one cell has no values.
        items = [f"{header} {value}" for header, value in zip(table.headers[1:], values, strict=False) if value]
        if items:
            yield from joined_lines(" ", items, width=width)


def joined_lines(start: str, items: Sequence[str], *, width: int) -> Iterator[str]:
    """``start`` and the items with commas between them, on further lines where ``width`` columns do not hold them all.

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


def wrapped_lines(text: str, *, width: int, indent: str) -> list[str]:
    """The words of ``text`` on lines of at most ``width`` columns, those after the first indented.

    A word that is longer stays whole: it is a path or a name to be copied. So do an interval and ``n 40``.
    """
    held = _HELD.sub(_HOLD, text)
    lines = textwrap.wrap(
        held, max(width, 20), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(_HOLD, " ") for line in lines] or [text]


def columns_of(text: str) -> int:
    """Columns that a terminal gives to the text: two to wide East Asian characters, none to combining ones."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def number(value: float) -> str:
    """Three decimals; none of what is large, as a perplexity can be."""
    if abs(value) < 1000:
        return f"{value:.3f}"
    return f"{value:,.0f}" if abs(value) < 1e7 else f"{value:.3e}"


def short_number(value: float) -> str:
    """``number`` without the zero before the point; ``1`` and ``0`` for what has no other digits."""
    text = number(value)
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if digits == "0.000":
        return "0"
    return sign + ("1" if digits == "1.000" else digits.removeprefix("0") if digits.startswith("0.") else digits)
