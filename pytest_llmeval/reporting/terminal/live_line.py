"""One line on a terminal that says what the model is doing, below the line that pytest is writing.

It stands there only while the model works, and is gone before pytest writes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pytest_llmeval.reporting.tables.cells import cost_text
from pytest_llmeval.reporting.writers.text_layout import columns_of
from pytest_llmeval.text.escaping import first_line, printable
from pytest_llmeval.text.wording import time_text
from pytest_llmeval.types import ServerUse

__all__ = ["LiveLine", "Progress", "background_texts", "loading_text", "progress_text"]

_MIN_INTERVAL_S = 0.1
"""Seconds between two texts: a reader sees no more than ten a second, and a slow connection should not carry more."""

_MAX_NAME = 60
_BAR_COLUMNS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a session: ``num_done`` of its ``num_total`` samples are answered.

    ``elapsed_s`` are the seconds since the first request, without the loading of models. ``background`` says how far a
    model is that answers in the background, as ``background_texts`` does.
    """

    model: str
    num_done: int
    num_total: int
    elapsed_s: float
    background: Sequence[str] = ()


def loading_text(model: str, elapsed_s: float, width: int) -> str:
    """Return what the line says while a model loads, for ``elapsed_s`` seconds by now, in at most ``width`` columns."""
    name = _shown(model)
    return _fitted([f"loading {name}: {time_text(int(elapsed_s))}" if elapsed_s >= 1 else f"loading {name} …"], width)


def progress_text(progress: Progress, width: int, *, with_bar: bool = False) -> str:
    """Return what the line says while a model answers, as far as it fits ``width`` columns.

    Samples per second and the time left are known from the first answer on. ``with_bar``: begin with a progress bar.
    """
    name = _shown(progress.model)
    bar = f"{_bar(progress.num_done, progress.num_total)} " if with_bar else ""
    parts = [f"{bar}{name}: {progress.num_done:,}/{progress.num_total:,} samples"]
    if progress.num_done and progress.elapsed_s > 0:
        rate = progress.num_done / progress.elapsed_s
        left_s = max(progress.num_total - progress.num_done, 0) / rate
        parts += [f", {_rate(rate)}", f", {time_text(left_s)} left"]
    parts += [f", {text}" for text in progress.background]
    return _fitted(parts, width)


def background_texts(num_in_flight: int, use: ServerUse | None) -> list[str]:
    """Say how far a model is that answers in the background: requests in flight, retries, tokens, cost."""
    texts = [f"{num_in_flight:,} in flight"]
    if use is not None:
        if num_retries := sum(use.retries.values()):
            texts.append(f"{num_retries:,} retried")
        texts.append(f"{use.num_prompt_tokens + use.num_tokens:,} tokens")
        if use.cost is not None:
            texts.append(f"cost {cost_text(use.cost)}")
    return texts


def _shown(model: str) -> str:
    return first_line(printable(model), limit=_MAX_NAME) or "the model"


def _bar(num_done: int, num_total: int) -> str:
    num_filled = _BAR_COLUMNS * min(num_done, num_total) // max(num_total, 1)
    return f"[{'#' * num_filled}{'.' * (_BAR_COLUMNS - num_filled)}]"


def _rate(per_second: float) -> str:
    """Return samples per second with three digits, or samples per minute if one takes many seconds."""
    if per_second < 0.1:
        return f"{60 * per_second:.2g} samples/min"
    return f"{per_second:,.0f} samples/s" if per_second >= 100 else f"{per_second:.3g} samples/s"


def _fitted(parts: list[str], width: int) -> str:
    """Return as many of the parts as fit, or the beginning of the first if not even that fits."""
    text = parts[0]
    for part in parts[1:]:
        if columns_of(text + part) > width:
            break
        text += part
    while text and columns_of(text) > width:
        text = text[:-1]
    return text


class Screen(Protocol):
    """A terminal that can be written to, and that knows how far pytest has written on its line."""

    def write(self, text: str) -> None: ...

    @property
    def width(self) -> int:
        """The columns of the terminal."""

    @property
    def column(self) -> int | None:
        """The column in which pytest will go on to write, from 0; None if that is not known."""


class LiveLine:
    """A text on the line below the cursor, written at most ten times a second; the cursor is put back each time."""

    def __init__(self, screen: Screen, clock: Callable[[], float]) -> None:
        self._screen = screen
        self._clock = clock
        self._drawn_at: float | None = None
        self._is_shown = False

    def show(self, make_text: Callable[[int], str], *, at_once: bool = False) -> None:
        """Show what ``make_text`` gives for the columns there are; nothing if something was shown a moment ago."""
        now = self._clock()
        if not at_once and self._drawn_at is not None and now - self._drawn_at < _MIN_INTERVAL_S:
            return
        column = self._screen.column
        if column is None:
            return
        # The last column stays free: a terminal that has written it is about to wrap.
        self._write_below(make_text(self._screen.width - 1), column)
        self._drawn_at, self._is_shown = now, True

    def clear(self) -> None:
        """Leave the terminal as pytest made it."""
        if self._is_shown:
            self._write_below("", self._screen.column or 0)
            self._is_shown = False

    def _write_below(self, text: str, column: int) -> None:
        # A line feed scrolls where the cursor is at the bottom, which saving and restoring its place would not survive.
        # All that is below goes: a text that was on one row can stand on two when the terminal was made narrower.
        forward = f"\x1b[{column}C" if column else ""
        self._screen.write(f"\n\r{text}\x1b[J\x1b[A\r{forward}")
