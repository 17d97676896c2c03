"""A table of a page, and what its cells are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from pytest_llmeval.reporting.terminal.tables import number
from pytest_llmeval.text.escaping import printable

__all__ = ["Table", "printable_cells", "samples_address", "signed_difference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells of text; ``align`` is ``left``, ``right`` or, for a number with its interval, ``value``. ``tones`` are of
    rows: ``bad``, ``good``. One that ``is_folded`` is shown when it is asked for. ``links`` are where a column's cells
    lead, by its number; empty where nowhere.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: Sequence[str]
    notes: Sequence[str] = ()
    tones: Sequence[str] = ()
    is_folded: bool = False
    links: Mapping[int, Sequence[str]] = field(default_factory=dict)


def printable_cells(*cells: str) -> list[str]:
    return [printable(cell) for cell in cells]


def samples_address(**parts: str | None) -> str:
    """Where in the page the script shows these samples, as it writes that itself (``address`` in page.js)."""
    return f"#{urlencode({name: printable(part) for name, part in parts.items() if part is not None})}"


def signed_difference(value: float, low: float | None, high: float | None) -> str:
    text = f"{'+' if value >= 0 else ''}{number(value)}"
    return text if low is None or high is None else f"{text} [{number(low)}, {number(high)}]"
