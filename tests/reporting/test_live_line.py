"""The live line: its text from a state, and what it leaves on a terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.reporting.terminal import (
    LiveLine,
    Progress,
    background_texts,
    loading_text,
    progress_text,
)
from pytest_llmeval.types import ServerUse


def text(num_done: int, num_total: int, elapsed_s: float, *, model: str = "gpt2", width: int = 80) -> str:
    return progress_text(Progress(model=model, num_done=num_done, num_total=num_total, elapsed_s=elapsed_s), width)


@pytest.mark.parametrize(
    ("num_done", "num_total", "elapsed_s", "expected"),
    [
        (0, 200, 0.0, "gpt2: 0/200 samples"),
        (0, 200, 9.0, "gpt2: 0/200 samples"),
        (50, 200, 10.0, "gpt2: 50/200 samples, 5 samples/s, 30 s left"),
        (1234, 14042, 10.0, "gpt2: 1,234/14,042 samples, 123 samples/s, 1 min 44 s left"),
        (1, 14042, 1.0, "gpt2: 1/14,042 samples, 1 samples/s, 3 h 54 min left"),
        (1, 1001, 600.0, "gpt2: 1/1,001 samples, 0.1 samples/min, 6 d 22 h left"),
        (200, 200, 10.0, "gpt2: 200/200 samples, 20 samples/s, 0 s left"),
        (201, 200, 10.0, "gpt2: 201/200 samples, 20.1 samples/s, 0 s left"),
    ],
)
def test_progress(num_done: int, num_total: int, elapsed_s: float, expected: str) -> None:
    assert text(num_done, num_total, elapsed_s) == expected


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (None, "gpt2: 50/200 samples, 5 samples/s, 30 s left, 64 in flight"),
        (ServerUse(num_prompt_tokens=1200, num_tokens=34), "64 in flight, 1,234 tokens"),
        (ServerUse(retries={"429": 2, "500": 1}, num_tokens=7, cost=0.0123), "3 retried, 7 tokens, cost 0.012"),
        (ServerUse(cost=1234.5), "0 tokens, cost 1,234.50"),
    ],
)
def test_a_model_behind_a_server(use: ServerUse | None, expected: str) -> None:
    background = background_texts(64, use)
    progress = Progress(model="gpt2", num_done=50, num_total=200, elapsed_s=10.0, background=background)
    assert progress_text(progress, 200).endswith(expected)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (44, "gpt2: 50/200 samples, 5 samples/s, 30 s left"),
        (43, "gpt2: 50/200 samples, 5 samples/s"),
        (32, "gpt2: 50/200 samples"),
        (9, "gpt2: 50/"),
        (0, ""),
    ],
)
def test_what_does_not_fit_is_left_out(width: int, expected: str) -> None:
    assert text(50, 200, 10.0, width=width) == expected


def test_a_models_name_cannot_act_on_the_terminal() -> None:
    assert text(0, 1, 0.0, model="a\x1b[2Jb\nc") == "a\\x1b[2Jb\\nc: 0/1 samples"
    assert loading_text("a\rb", 0.0, 80) == "loading a\\rb …"


def test_loading_says_for_how_long() -> None:
    assert loading_text("gpt2", 0.9, 80) == "loading gpt2 …"
    assert loading_text("gpt2", 12.9, 80) == "loading gpt2: 12 s"
    assert loading_text("gpt2", 200.0, 80) == "loading gpt2: 3 min 20 s"
    assert loading_text("gpt2", 12.0, 80, "INFO 3 of 4") == "loading gpt2: 12 s | INFO 3 of 4"
    assert loading_text("gpt2", 12.0, 25, "INFO 3 of 4") == "loading gpt2: 12 s | INFO"


def test_a_wide_character_takes_two_columns() -> None:
    assert loading_text("模型", 0.0, 15) == "loading 模型 …"
    assert loading_text("模型", 0.0, 14) == "loading 模型 …"
    assert loading_text("模型", 0.0, 13) == "loading 模型 "


@dataclass
class Terminal:
    """A screen that does what the sequences of the live line ask for, and no other."""

    width: int = 40
    column: int | None = 0
    rows: list[str] = field(default_factory=lambda: [""])
    row: int = 0
    at: int = 0
    num_writes: int = 0

    def type(self, text: str) -> None:
        """What pytest writes."""
        self.write(text)
        self.column = self.at
        self.num_writes = 0

    def write(self, text: str) -> None:
        self.num_writes += 1
        for part in re.findall(r"\x1b\[\d*[A-Z]|[\r\n]|[^\x1b\r\n]+", text):
            self._act(part)

    def _act(self, part: str) -> None:
        line = self.rows[self.row]
        if part == "\n":
            self.row += 1
            if self.row == len(self.rows):
                self.rows.append("")
        elif part == "\r":
            self.at = 0
        elif part == "\x1b[J":
            self.rows[self.row :] = [line[: self.at], *("" for _ in self.rows[self.row + 1 :])]
        elif part == "\x1b[A":
            self.row -= 1
        elif part.startswith("\x1b["):
            assert part.endswith("C")
            self.at += int(part[2:-1])
        else:
            self.rows[self.row] = line[: self.at].ljust(self.at) + part + line[self.at + len(part) :]
            self.at += len(part)


@given(written=st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=30), shown=st.integers(1, 5))
def test_pytests_line_stays_as_it_is(written: str, shown: int) -> None:
    terminal = Terminal()
    terminal.type(written)
    now = 0.0
    line = LiveLine(terminal, lambda: now)
    for number in range(shown):
        now += 1
        line.show(lambda width: f"working {10 ** (9 - number)}"[:width])  # noqa: B023 (called at once)
        assert terminal.rows == [written, f"working {10 ** (9 - number)}"]
    line.clear()
    assert terminal.rows == [written, ""]
    assert (terminal.row, terminal.at) == (0, len(written))


def test_at_most_ten_times_a_second() -> None:
    terminal = Terminal()
    now = 5.0
    line = LiveLine(terminal, lambda: now)
    line.show(lambda width: "one")
    now = 5.09
    line.show(lambda width: "two")
    assert terminal.rows[-1] == "one"
    line.show(lambda width: "urgent", at_once=True)
    assert terminal.rows[-1] == "urgent"
    now = 5.2
    line.show(lambda width: "three")
    assert terminal.rows[-1] == "three"


def test_nothing_is_cleared_that_was_not_shown() -> None:
    terminal = Terminal()
    line = LiveLine(terminal, lambda: 0.0)
    line.clear()
    line.show(lambda width: "one")
    line.clear()
    line.clear()
    assert terminal.num_writes == 2


def test_nothing_is_shown_where_the_cursor_cannot_be_put_back() -> None:
    terminal = Terminal(column=None)
    line = LiveLine(terminal, lambda: 0.0)
    line.show(lambda width: "one")
    line.clear()
    assert terminal.rows == [""]
