"""Tables of Markdown, and a text of parts that can be shortened: the least important units are left out and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pytest_llmeval.reporting.tables.cells import Table
from pytest_llmeval.text.escaping import markdown_text

__all__ = ["DETAILS", "FAILURES", "HEAD", "NUMBERS", "OTHERS", "MarkdownPart", "markdown_table", "whole", "within"]


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]], align: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table as GitHub reads it, an empty one before and after it; every cell is escaped."""
    yield ""
    yield _row(headers)
    yield f"| {' | '.join('---:' if side == 'right' else '---' for side in align)} |"
    yield from map(_row, rows)
    yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(markdown_text, cells))} |"


HEAD, FAILURES, NUMBERS, OTHERS, DETAILS = range(5)
"""Importance of a unit, the most important first."""


@dataclass(frozen=True, slots=True)
class MarkdownPart:
    """Units that follow each other, each with its importance; ``head`` are the lines before the first.

    ``what`` and ``many`` name one and several units that were left out; units without a name are not counted.
    """

    head: Sequence[str]
    units: Iterable[tuple[int, Iterable[str]]]
    what: str = ""
    many: str = ""

    @classmethod
    def of(cls, lines: Iterable[str], urgency: int) -> MarkdownPart:
        """Return a part of lines that are kept or left out together."""
        return cls((), [(urgency, lines)])

    @classmethod
    def table(
        cls,
        table: Table,
        urgency: int | Sequence[int],
        what: str,
        *,
        heading: str | None = None,
    ) -> MarkdownPart:
        """Return a table whose rows are units, with one ``urgency`` for all or one for each row."""
        before, head, rule, *lines, after = markdown_table(table.headers, table.rows, table.align)
        each = [urgency] * len(lines) if isinstance(urgency, int) else urgency
        units = [(one, [line]) for one, line in zip(each, lines, strict=True)]
        if units:
            units[-1][1].append(after)
        return cls([*([] if heading is None else [heading]), before, head, rule], units, what)


def whole(parts: Iterable[MarkdownPart]) -> Iterator[str]:
    """Yield the lines of all parts, with no two empty ones in a row."""
    return _single_spaced(line for part in parts for line in _lines(part.head, (lines for _, lines in part.units)))


def _lines(head: Sequence[str], units: Iterable[Iterable[str]]) -> Iterator[str]:
    for place, lines in enumerate(units):
        if not place:
            yield from head
        yield from lines


def within(parts: Iterable[MarkdownPart], limit: int) -> Iterator[str]:
    """Yield the most important lines that fit into ``limit`` characters, and count the others in their places."""
    found = [_KeptUnits(part) for part in parts]
    names = {kept.part.what: kept for kept in found if kept.part.what}  # the last of each name counts for all
    closing = f"Left out to stay within {limit:,} characters, which is what GitHub takes of a comment."
    room = limit - sum(_size(_counted(name, kept.part.many, 10**9)) for name, kept in names.items())
    room -= _size([closing])
    for urgency in range(DETAILS + 1):
        for kept in found:
            room = kept.take(urgency, room)
    left_out = Counter[str]()
    for kept in found:
        left_out[kept.part.what] += kept.num_left_out
    lines: list[str] = []
    for kept in found:
        lines += _lines(kept.part.head, kept.lines)
        name = kept.part.what
        if name and names[name] is kept and left_out[name]:
            lines += _counted(name, kept.part.many, left_out[name])
    if +left_out:
        lines.append(closing)
    return _single_spaced(iter(lines))


class _KeptUnits:
    """The units that are kept of a part, from its beginning."""

    def __init__(self, part: MarkdownPart) -> None:
        self.part = part
        self._units = [(urgency, list(lines)) for urgency, lines in part.units]
        self._is_full = False
        self.lines: list[list[str]] = []

    @property
    def num_left_out(self) -> int:
        return len(self._units) - len(self.lines)

    def take(self, urgency: int, room: int) -> int:
        """Keep the next units that are as important as ``urgency`` while there is room. Return the room left."""
        while not self._is_full and self.num_left_out and self._units[len(self.lines)][0] <= urgency:
            lines = self._units[len(self.lines)][1]
            size = _size(lines) + (0 if self.lines else _size(self.part.head))
            if size + 1 > room:  # one for the empty line that ends a table
                self._is_full = True
            else:
                room -= size
                self.lines.append(lines)
        return room


def _counted(name: str, many: str, number: int) -> list[str]:
    return ["", f"… and {number:,} more {name if number == 1 else many or f'{name}s'}", ""]


def _size(lines: Iterable[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _single_spaced(lines: Iterable[str]) -> Iterator[str]:
    was_empty = False
    for line in lines:
        if line or not was_empty:
            yield line
        was_empty = not line
