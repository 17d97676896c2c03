"""Writes to pytest's terminal: the summary in colours, the live line below the tests, and the prompts of samples."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.tables.cells import Tone, Toned, cost_text
from pytest_llmeval.reporting.writers.text_layout import columns_of, screen_width
from pytest_llmeval.reporting.writers.text_report import main_numbers, printed_lines, session_lines, summary_heading
from pytest_llmeval.scoring.base import PreparedSample
from pytest_llmeval.text.escaping import first_line, printable, without_commands
from pytest_llmeval.text.messages import shown_turn
from pytest_llmeval.text.wording import time_text
from pytest_llmeval.types import (
    ConversationRequest,
    EmbeddingRequest,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    Message,
    Prompt,
    Response,
    ServerUse,
)

__all__ = [
    "LiveLine",
    "Progress",
    "Terminal",
    "as_terminal",
    "background_texts",
    "judge_lines",
    "loading_text",
    "progress_text",
    "prompt_lines",
    "write_baseline",
    "write_main_numbers",
    "write_paths",
    "write_summary",
]


_URGENT = ("problem:", "could not be scored:", "stopped early", "store: replies could")
"""Beginnings of lines that a reader has to act on."""

_MARKUP: Mapping[Tone, str] = MappingProxyType({"good": "green", "bad": "red", "strong": "bold"})
"""The markup of pytest's terminal writer for each tone."""


class Terminal(Protocol):
    """The part of pytest's terminal reporter that a summary is written to."""

    def write_sep(self, sep: str, title: str | None = None, **markup: bool) -> None: ...

    def write_line(self, line: str, **markup: bool) -> None: ...

    def write(self, content: str, **markup: bool) -> None: ...


class _Output:
    """Standard output, without colours."""

    def write_sep(self, sep: str, title: str | None = None, **markup: bool) -> None:
        self.write_line(f"{sep * 3} {title} {sep * 3}" if title else sep * 80)

    def write_line(self, line: str, **markup: bool) -> None:
        self.write(f"{line}\n")

    def write(self, content: str, **markup: bool) -> None:
        sys.stdout.write(content)


def as_terminal(reporter: Any) -> Terminal:
    """Return ``reporter``, or standard output if a plugin has put another kind of object in its place."""
    names = ("write_sep", "write_line", "write", "currentfspath")
    return reporter if all(hasattr(reporter, name) for name in names) else _Output()


def write_summary(terminal: Terminal, report: Report, paths: Sequence[Path], *, is_short: bool = False) -> None:
    """Write the summary, and the files that the report was written to. No line of it is a command to GitHub Actions."""
    width = screen_width()
    terminal.write_sep("=", summary_heading(report))
    is_urgent = False
    for line in session_lines(report, width=width, is_short=is_short):
        is_urgent = line.startswith(_URGENT) or (is_urgent and line.startswith(" "))
        _write_line(terminal, line, width, {"red": True} if is_urgent else {})
    write_paths(terminal, paths)


def write_main_numbers(terminal: Terminal, report: Report) -> None:
    """Write one line, for sessions without a summary."""
    _write_line(terminal, main_numbers(report), screen_width(), {})


def write_paths(terminal: Terminal, paths: Sequence[Path]) -> None:
    """Write where the report is; the page comes last, where a reader's eye and a terminal's link are."""
    for path in sorted(paths, key=lambda path: path.suffix.lower() == ".html"):
        _write_line(terminal, f"report: {printable(str(path))}", screen_width(), {})


def write_baseline(terminal: Terminal, lines: Sequence[str], *, is_written: bool) -> None:
    """Write what became of the baseline that the session was to leave."""
    for place, line in enumerate(lines):
        text = f"{'  ' if place else 'baseline: '}{printable(line)}"
        _write_line(terminal, text, screen_width(), {} if is_written else {"red": True})


def _write_line(terminal: Terminal, line: str, width: int, markup: Mapping[str, bool]) -> None:
    """Write a line in its colours. A terminal breaks a line that is too long inside a word; a log does not break it."""
    safe = without_commands(line)
    spans = line.spans if isinstance(line, Toned) else ()
    if spans and safe == line:
        written = 0
        for start, end, tone in spans:
            terminal.write(line[written:start])
            terminal.write(line[start:end], **{_MARKUP[tone]: True})
            written = end
        terminal.write_line(line[written:])
    elif spans:
        terminal.write_line(safe, **{_MARKUP[spans[0][2]]: True})
    else:
        for part in printed_lines(line, width=width, wraps=getattr(terminal, "isatty", False)):
            terminal.write_line(part, **markup)


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


def loading_text(model: str, elapsed_s: float, width: int, said: str = "") -> str:
    """Return what the line says while a model loads, for ``elapsed_s`` seconds by now, in at most ``width`` columns.

    ``said`` is the last line of its server, if that starts meanwhile.
    """
    name = _model_text(model)
    text = f"loading {name}: {time_text(int(elapsed_s))}" if elapsed_s >= 1 else f"loading {name} …"
    return _fitted([f"{text} | {said}" if said else text], width)


def progress_text(progress: Progress, width: int, *, with_bar: bool = False) -> str:
    """Return what the line says while a model answers, as far as it fits ``width`` columns.

    Samples per second and the time left are known from the first answer on. ``with_bar``: begin with a progress bar.
    """
    name = _model_text(progress.model)
    bar = f"{_bar(progress.num_done, progress.num_total)} " if with_bar else ""
    parts = [f"{bar}{name}: {progress.num_done:,}/{progress.num_total:,} samples"]
    if progress.num_done and progress.elapsed_s > 0:
        rate = progress.num_done / progress.elapsed_s
        left_s = max(progress.num_total - progress.num_done, 0) / rate
        parts += [f", {_speed_text(rate)}", f", {time_text(left_s)} left"]
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


def _model_text(model: str) -> str:
    return first_line(printable(model), limit=_MAX_NAME) or "the model"


def _bar(num_done: int, num_total: int) -> str:
    num_filled = _BAR_COLUMNS * min(num_done, num_total) // max(num_total, 1)
    return f"[{'#' * num_filled}{'.' * (_BAR_COLUMNS - num_filled)}]"


def _speed_text(per_second: float) -> str:
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


def prompt_lines(question: PreparedSample, *, marks: tuple[str, str] = ("⟦", "⟧")) -> Iterator[str]:
    """Yield lines that show each request; ``marks`` stand around what is scored.

    Options that follow the same context are shown one under the other, the right ones with ``*``.
    """
    opening, closing = marks
    right = question.right
    shown: Prompt | None = None
    for place, request in enumerate(question.requests):
        if isinstance(request, LoglikelihoodRollingRequest | EmbeddingRequest):
            yield from (opening + printable(request.text, keep="\n") + closing).split("\n")
            return  # nothing is expected of a text that is scored whole, or embedded
        context = request.prompt if isinstance(request, GenerateRequest) else request.context
        first, scored = context != shown, f"{opening}{_scored_part(request)}{closing}"
        shown = context
        marker = " *" if place in right and len(question.requests) > 1 else ""
        if not first:
            yield f"{scored}{marker}"
        elif isinstance(context, str):
            yield from printable(f"{context}{scored}{marker}", keep="\n").split("\n")
        else:
            yield "(turns, before the model's chat template)"
            if isinstance(request, GenerateRequest) and request.tools:
                for tool in json.loads(request.tools):
                    yield f"<tools> {printable(json.dumps(tool['function'], ensure_ascii=False))}"
            is_begun = context[-1].role == "assistant"
            for turn in context[: len(context) - is_begun]:
                yield from printable(shown_turn(turn), keep="\n").split("\n")
            begun = context[-1].content if is_begun else ""
            yield from printable(f"<assistant> {begun}{scored}{marker}", keep="\n").split("\n")
            for text in request.turns if isinstance(request, ConversationRequest) else ():
                yield from printable(f"<user> {text}\n<assistant> {scored}", keep="\n").split("\n")
    target = question.target
    yield f"target: {printable(target if isinstance(target, str) else ' | '.join(target))}"


def judge_lines(
    evaluation: Evaluation, question: PreparedSample, *, marks: tuple[str, str] = ("⟦", "⟧")
) -> Iterator[str]:
    """Yield the first prompt of a judge, about the reply that the data hold or about a placeholder."""
    if "judge" not in evaluation.scorer.roles:
        return
    given = question.sample.response
    reply = given if isinstance(given, str) else f"{marks[0]}the reply{marks[1]}"
    contexts = (f"{marks[0]}a context{marks[1]}",) if "contexts" not in question.sample.variables else None
    responses: list[Response] = [
        GenerateResponse(text=reply, contexts=contexts, turns=_earlier_turns(request, marks))
        if isinstance(request, GenerateRequest)
        else LoglikelihoodResponse(loglikelihood=-1.0, num_tokens=1)
        for request in question.requests
    ]
    asking = evaluation.asking(question, responses)
    try:
        asked = next(asking)
    except StopIteration:  # the reply of the data is decided without a judge
        return
    finally:
        asking.close()
    for request in asked.requests if asked.role == "judge" else ():
        if isinstance(request, GenerateRequest):
            yield "judge (turns, before its chat template)"
            prompt = request.prompt
            turns = (Message(role="user", content=prompt),) if isinstance(prompt, str) else prompt
            for turn in turns:
                yield from printable(shown_turn(turn), keep="\n").split("\n")


def _earlier_turns(request: GenerateRequest, marks: tuple[str, str]) -> tuple[GenerateResponse, ...]:
    count = len(request.turns) if isinstance(request, ConversationRequest) else 0
    return tuple(GenerateResponse(text=f"{marks[0]}reply {number}{marks[1]}") for number in range(1, count + 1))


def _scored_part(request: LoglikelihoodRequest | GenerateRequest) -> str:
    if isinstance(request, GenerateRequest):
        stop = f", stop {list(request.stop)!r}" if request.stop else ""
        return f"reply of up to {request.max_tokens} tokens{stop}"
    return printable(request.continuation)
