"""Tables of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pytest_llmeval.text.escaping import markdown_text

__all__ = ["table"]


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], align: Sequence[str]) -> Iterator[str]:
    """The lines of a table as GitHub reads it, an empty one before and after it; every cell is escaped.

    ``align`` is ``left`` or ``right`` for each column.
    """
    yield ""
    yield _row(headers)
    yield f"| {' | '.join('---' if side == 'left' else '---:' for side in align)} |"
    yield from map(_row, rows)
    yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(markdown_text, cells))} |"
