"""The samples of a page: an index by columns, with how each changed, and texts in compressed chunks.

Records are read twice and never held: first for what decides where a sample stands and whether its texts are in the
page, then for what is written. Some twenty bytes of each sample stay in memory, and the value of a sample that others
are compared with.
"""

from __future__ import annotations

import base64
import json
import math
import random
import re
import tempfile
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Literal, NamedTuple, TypeAlias

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.report.report import Comparison, GateResult, Group, Report
from pytest_llmeval.reporting.storage.disk_records import records_at
from pytest_llmeval.reporting.tables.samples import as_text, asked, sample_fields, sample_options
from pytest_llmeval.reporting.tables.suites import metrics_shown, short_model_names, suite_row
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.sample_values import made_of, value_of
from pytest_llmeval.scoring.paired_metrics import (
    LEAST_CHANGE,
    FlippedSample,
    FlippedSamples,
)
from pytest_llmeval.text.escaping import printable, shortened
from pytest_llmeval.types import JSON

__all__ = [
    "CHUNK_RECORDS",
    "MAX_TEXT_BYTES",
    "Changes",
    "PageSamples",
    "compared_metric",
    "gates_of_changes",
    "page_samples",
]


Direction: TypeAlias = Literal["worse", "better", "same"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleChange:
    """A sample's value before and now, of the metric by which its suite is compared."""

    direction: Direction
    before: float
    now: float


class Changes:
    """The changes of the samples of a report.

    A comparison with a baseline takes precedence over one of models, and that one over one of variants; of the suite's
    metrics accuracy does, else the first that samples have values of. Give each record to ``read`` first, then ask
    ``of``: records of the first model, or the first variant, may stand after the others.
    """

    def __init__(self, report: Report) -> None:
        self._moved: dict[Group, dict[str, SampleChange]] = {}
        self._compared: dict[Group, _Compared] = {}
        self._metrics: dict[Group, set[str]] = {}
        self._first: dict[tuple[Group, str], dict[str, float]] = {}
        self._better = report.better_by_suite()
        for key, (_, moved) in _against_baseline(report).items():
            self._moved[key] = _changes(moved)
        for one in report.comparisons:
            self._compare((one.suite, one.second), (one.suite, one.first), compared_metric(one))
        for variant in report.variants:
            metric = variant.metric if variant.metric in variant.movers else None
            self._compare((variant.second, variant.model), (variant.first, variant.model), metric)

    def _compare(self, group: Group, first: Group, metric: str | None) -> None:
        """Note that the group's samples are compared with those of ``first``, unless they are with others."""
        if metric is not None and group not in self._moved and group not in self._compared:
            is_higher = definition(metric, self._better.get(group[0], {})).higher_is_better is not False
            self._compared[group] = _Compared(first, metric, is_higher)
            self._metrics.setdefault(first, set()).add(metric)

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing was compared."""
        return not self._moved and not self._compared

    def read(self, record: Record) -> None:
        """Remember the record's value if others are compared with it."""
        for group in _groups(record):
            for name in self._metrics.get(group, ()):
                if (value := value_of(record, name)) is not None:
                    self._first.setdefault((group, name), {})[record.id] = value

    def of(self, record: Record) -> SampleChange | None:
        """Return how the sample changed, or None if that is not known.

        It is not known for a sample that was not compared. A comparison with a baseline keeps those that changed most.
        """
        for group in _groups(record):
            if (moved := self._moved.get(group)) is not None:
                return moved.get(record.id)
        compared = next((found for group in _groups(record) if (found := self._compared.get(group)) is not None), None)
        if compared is None:
            return None
        first = self._first.get((compared.first, compared.metric), {})
        now, before = value_of(record, compared.metric), first.get(record.id)
        if now is None or before is None:
            return None
        if abs(now - before) <= LEAST_CHANGE:
            return SampleChange(direction="same", before=before, now=now)
        is_better = (now > before) == compared.is_higher
        return SampleChange(direction="better" if is_better else "worse", before=before, now=now)


class _Compared(NamedTuple):
    """The samples with which those of a group are compared, and by which metric."""

    first: Group
    metric: str
    is_higher: bool


def _groups(record: Record) -> tuple[Group, Group]:
    """Return the groups that comparisons know the record by: a session of one model names none."""
    return (record.suite, record.model), (record.suite, None)


def gates_of_changes(report: Report) -> list[GateResult]:
    """Return the gates whose comparison with a baseline says which samples changed: one for each suite and model."""
    return [gate for gate, _ in _against_baseline(report).values()]


def _against_baseline(report: Report) -> dict[tuple[str, str | None], tuple[GateResult, FlippedSamples]]:
    """Map each suite and model to a gate and its samples, by the metric that says most of a sample: accuracy first."""
    found: dict[tuple[str, str | None], tuple[GateResult, FlippedSamples]] = {}
    for one in sorted(report.gates, key=lambda gate: gate.metric != "accuracy"):
        if one.suite is not None and one.regression is not None and one.regression.movers is not None:
            found.setdefault((one.suite, one.model), (one, one.regression.movers))
    return found


def _changes(moved: FlippedSamples) -> dict[str, SampleChange]:
    sides: Sequence[tuple[Direction, Sequence[FlippedSample]]] = (("worse", moved.worse), ("better", moved.better))
    return {
        one.id: SampleChange(direction=direction, before=one.before, now=one.now)
        for direction, members in sides
        for one in members
    }


def compared_metric(one: Comparison) -> str | None:
    """Return which of the compared metrics says most of a sample."""
    names = list(one.movers)
    return "accuracy" if "accuracy" in names else next(iter(names), None)


CHUNK_RECORDS = 250
MAX_TEXT_BYTES = 52_000_000
"""Bytes of all chunks as they stand in the page: with the index of 100,000 samples, it stays within 64 MB."""

STATUSES = ("unscored", "wrong", "scored", "correct")
DIRECTIONS = ("", "worse", "better", "same")
"""Meanings of the numbers in the columns ``status`` and ``change``."""
MISSING = ("", "could not be scored", "empty reply", "no answer in the reply")
"""Meanings of the numbers in the column ``missing``: why a sample has no answer, if it should have one."""

_MAX_TEXT = 200_000
"""Characters of one text of a sample."""
_MAX_SNIPPET, _MAX_ANSWER = 80, 40
_MAX_METRICS = 16
"""The most columns of values to sort and filter by; an opened sample shows all of its values."""

_SPACES = re.compile(r"[ \t\r\n]+")

_TRIED_CHUNKS = 8
_SEED = 20_251


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSamples:
    """The samples of a page, as it holds them.

    ``names`` are what numbers in columns stand for, ``columns`` and ``chunks`` zlib streams of JSON in base64. A chunk
    holds ``CHUNK_RECORDS`` of the samples whose texts are ``kept``, in the order of the columns, the last one
    the rest. ``num_left_out`` samples have no texts in the page.
    """

    num_samples: int
    num_left_out: int
    names: Mapping[str, JSON]
    columns: Mapping[str, str]
    chunks: Iterator[str]


class _Numbers:
    """Names in the order in which they came, each with its number."""

    def __init__(self, known: Sequence[str] = ()) -> None:
        self.numbers = {name: number for number, name in enumerate(known)}

    def __getitem__(self, name: str | None) -> int:
        return self.numbers.setdefault(name or "", len(self.numbers))


@dataclass(slots=True)
class _Overview:
    """Findings of the first reading on each record, by its place in the report; ``sizes`` are characters of text."""

    suites: _Numbers
    models: _Numbers
    categories: _Numbers = field(default_factory=_Numbers)
    suite: array[int] = field(default_factory=lambda: array("L"))
    model: array[int] = field(default_factory=lambda: array("L"))
    category: array[int] = field(default_factory=lambda: array("L"))
    rank: bytearray = field(default_factory=bytearray)
    sizes: array[int] = field(default_factory=lambda: array("L"))

    def add(self, record: Record) -> None:
        self.suite.append(self.suites[record.suite])
        self.model.append(self.models[record.model])
        self.category.append(self.categories[record.category])
        self.rank.append(_rank(record))
        self.sizes.append(_size(record))

    def order(self) -> Sequence[int]:
        """Return the places by suite, category and model; within these as they stand."""
        places = range(len(self.suite))
        return array(
            "L", sorted(places, key=lambda place: (self.suite[place], self.category[place], self.model[place]))
        )

    def kept(self, room: float) -> bytearray:
        """Return for each place whether its texts are kept, with ``room`` characters in all.

        Unscored samples come first, then those that changed and wrong ones, each group in an order of its own that is
        drawn by a seed; then a draw of the others.
        """
        places = list(range(len(self.suite)))
        if sum(self.sizes) > room:
            random.Random(_SEED).shuffle(places)
            places.sort(key=self.rank.__getitem__)
        found = bytearray(len(places))
        for place in places:
            if self.sizes[place] <= room:  # a sample that is too large by itself costs no other its text
                room -= self.sizes[place]
                found[place] = 1
        return found


_UNSCORED, _CHANGED, _WRONG, _OTHER = range(4)


def _rank(record: Record) -> int:
    return _UNSCORED if record.status == "unscored" else _WRONG if record.status == "wrong" else _OTHER


def _size(record: Record) -> int:
    texts = (record.question, record.output, record.reasoning, record.answer, record.reason)
    details = json.dumps(record.details) if record.details else ""
    lengths = [len(text) for text in (*texts, *record.choices, as_text(record.prompt), details) if text is not None]
    return 200 + sum(min(length, _MAX_TEXT) for length in lengths)


@contextmanager
def page_samples(
    report: Report,
    *,
    limit: int = MAX_TEXT_BYTES,
    folder: Path | None = None,
    readers: Sequence[Callable[[Record], None]] = (),
) -> Iterator[PageSamples]:
    """Return what the page has of the report's samples, until the block is left: chunks lie in a temporary file.

    ``limit`` is for the bytes of all chunks. The file is in ``folder``, or in the system's folder for such files.
    ``readers`` are given each record too, while it is at hand. Raises ``ReportError`` for a record that cannot be read,
    and ``OSError``.
    """
    changes, overview = Changes(report), _Overview(_Numbers(report.suite_names), _Numbers(report.model_names))
    for record in report.records:
        overview.add(record)
        for read in (changes.read, *readers):
            read(record)
    if not changes.is_empty:
        for place, record in enumerate(report.records):
            change = changes.of(record)
            if change is not None and change.direction != "same" and overview.rank[place] != _UNSCORED:
                overview.rank[place] = _CHANGED
    order = overview.order()
    room = _room(report, overview, order, limit)
    while True:
        with tempfile.TemporaryFile(dir=folder) as file:
            written = _written(report, overview, order, overview.kept(room), changes, file)
            if file.tell() <= limit or room <= 0:
                yield written
                return
            room = room * 0.95 * limit / file.tell() if room > 1000 else 0


def _room(report: Report, overview: _Overview, order: Sequence[int], limit: int) -> float:
    """Return how many characters of text about fill ``limit`` bytes, found by compressing some chunks."""
    total = sum(overview.sizes)
    if total <= limit:
        return total
    chunks = [order[start : start + CHUNK_RECORDS] for start in range(0, len(order), CHUNK_RECORDS)]
    tried = random.Random(_SEED).sample(chunks, min(_TRIED_CHUNKS, len(chunks)))
    size = sum(len(_chunk(list(records_at(report.records, places)))) for places in tried)
    return sum(overview.sizes[place] for places in tried for place in places) * limit / max(size, 1)


def _written(
    report: Report, overview: _Overview, order: Sequence[int], kept: bytearray, changes: Changes, file: IO[bytes]
) -> PageSamples:
    metrics = _metrics(report)
    columns = _Columns(metrics)
    short = short_model_names(report)
    lines: list[int] = []
    waiting: list[Record] = []

    def close_chunk() -> None:
        data = _chunk(waiting).encode("ascii") + b"\n"
        lines.append(len(data))
        file.write(data)
        waiting.clear()

    for place, record in zip(order, records_at(report.records, order), strict=True):
        numbers = overview.suite[place], overview.model[place], overview.category[place]
        columns.add(record, numbers, changes, is_kept=bool(kept[place]))
        if kept[place]:
            waiting.append(record)
            if len(waiting) == CHUNK_RECORDS:
                close_chunk()
    if waiting:
        close_chunk()

    def chunks() -> Iterator[str]:
        file.seek(0)
        for length in lines:
            yield file.read(length).decode("ascii").rstrip()

    return PageSamples(
        num_samples=len(order),
        num_left_out=len(order) - sum(kept),
        names={
            "suites": [printable(name) for name in overview.suites.numbers],
            "models": [printable(name) for name in overview.models.numbers],
            "short_models": [printable(short.get(name, name)) for name in overview.models.numbers],
            "categories": [printable(name) for name in overview.categories.numbers],
            "metrics": [printable(name) for name in metrics],
            "statuses": list(STATUSES),
            "changes": list(DIRECTIONS),
            "missing": list(MISSING),
            "chunk": CHUNK_RECORDS,
        },
        columns=columns.closed(),
        chunks=chunks(),
    )


def _metrics(report: Report) -> list[str]:
    """Return the metrics that tables show first, then others that samples may have values of."""
    shown = dict.fromkeys(name for suite in report.suites for name in metrics_shown([suite_row(suite, {})]))
    means = dict.fromkeys(name for suite in report.suites for name in suite.distributions)
    made = dict.fromkeys(part for name in shown if name not in means for part in made_of(name))
    known = {*means, *made, "accuracy"}
    found = dict.fromkeys([*shown, *means, *made])
    return list(islice((name for name in found if name in known), _MAX_METRICS))


class _Columns:
    """The index, column by column, compressed as it comes."""

    def __init__(self, metrics: Sequence[str]) -> None:
        self._metrics = metrics
        self._columns: dict[str, _CompressedColumn] = {}

    def add(self, record: Record, numbers: tuple[int, int, int], changes: Changes, *, is_kept: bool) -> None:
        change = changes.of(record)
        values: dict[str, JSON] = dict(zip(("suite", "model", "category"), numbers, strict=True))
        values["status"] = STATUSES.index(record.status)
        values["kept"] = int(is_kept)
        values["id"] = printable(record.id)
        values["snippet"] = _snippet(record)
        values["missing"] = _missing(record)
        values["answer"] = _in_one_line(record.answer or "", _MAX_ANSWER)
        if record.status == "unscored" and not record.answer:
            values["answer"] = _in_one_line(record.reason or "", _MAX_SNIPPET)
        values["change"] = 0 if change is None else DIRECTIONS.index(change.direction)
        values["before"] = None if change is None else change.before
        values["now"] = None if change is None else change.now
        for place, name in enumerate(self._metrics):
            value = record.values.get(name)
            if value is None and name == "accuracy" and record.status in ("correct", "wrong"):
                value = float(record.status == "correct")
            values[f"metric{place}"] = None if record.status == "unscored" else value
        if not self._columns:
            self._columns = {name: _CompressedColumn() for name in values}
        for name, own in values.items():
            self._columns[name].add(own)

    def closed(self) -> dict[str, str]:
        return {name: column.closed() for name, column in self._columns.items()}


def _missing(record: Record) -> int:
    """Return the number in ``MISSING``; a search writes nothing, and gives documents."""
    if record.answer:
        return 0
    if record.status == "unscored":
        return 1
    is_search = isinstance(record.details.get("documents"), list)
    if record.output is not None and not record.output.strip() and not is_search:
        return 2
    return 3 if record.no_answer else 0


def _snippet(record: Record) -> str:
    """Return the beginning of the question in one line; of a prompt without a question its end, where that stands."""
    if question := asked(record):
        return _in_one_line(question, _MAX_SNIPPET)
    text = as_text(record.prompt)[-4 * _MAX_SNIPPET :] if record.prompt is not None else record.output or ""
    words = printable(" ".join(text[-4 * _MAX_SNIPPET :].split()))
    return words if len(words) <= _MAX_SNIPPET else f"…{words[1 - _MAX_SNIPPET :]}"


def _in_one_line(text: str, limit: int) -> str:
    """Return the beginning of a text, with spaces for line ends; other control characters are shown as escapes."""
    return shortened(printable(_SPACES.sub(" ", text[: 4 * limit]).strip(" ")), limit=limit)


class _CompressedColumn:
    """A JSON list that is compressed value by value."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(9)
        self._parts: list[bytes] = []
        self._waiting: list[str] = []
        self._is_first = True

    def add(self, value: JSON) -> None:
        self._waiting.append(_number(value) if isinstance(value, int | float) else json.dumps(value))
        if len(self._waiting) == 4096:
            self._flush()

    def closed(self) -> str:
        self._flush()
        tail = self._compressor.compress(b"[]" if self._is_first else b"]") + self._compressor.flush()
        return base64.b64encode(b"".join([*self._parts, tail])).decode("ascii")

    def _flush(self) -> None:
        if self._waiting:
            text = ("[" if self._is_first else ",") + ",".join(self._waiting)
            self._parts.append(self._compressor.compress(text.encode("ascii")))
            self._waiting.clear()
            self._is_first = False


def _number(value: float) -> str:
    """Return the number with nine digits; null if JSON cannot hold it."""
    return f"{value:.9g}" if math.isfinite(value) else "null"


def _chunk(records: Sequence[Record]) -> str:
    shown = [_shown(record) for record in records]
    data = json.dumps(shown, separators=(",", ":"), allow_nan=False).encode("ascii")
    return base64.b64encode(zlib.compress(data, 9)).decode("ascii")


def _shown(record: Record) -> dict[str, JSON]:
    """Return what an opened sample shows: its texts by name, its options and its values, all safe to be shown."""
    texts: list[JSON] = [
        [printable(name), _bounded(text)]
        for name, text in sample_fields(record, prompt=True, whole=True, options=False)
        if name != "scores"
    ]
    shown: dict[str, JSON] = {"texts": texts, "node": printable(record.nodeid)}
    options: list[JSON] = [
        [_bounded(one.text), one.label and printable(one.label), one.probability, ", ".join(one.marks)]
        for one in sample_options(record)
    ]
    if options:
        shown["options"] = options
    values: list[JSON] = [[printable(name), _finite(value)] for name, value in record.values.items()]
    took: list[JSON] = [
        [name, _finite(value)]
        for name, value in (
            ("prompt tokens", record.num_prompt_tokens),
            ("tokens", record.num_tokens),
            ("replies cut at max_tokens", record.num_truncated),
            ("seconds", record.seconds),
            ("cost", record.cost),
            ("judge's requests", record.num_judge_requests),
            ("judge's tokens", record.num_judge_tokens),
            ("judge's cost", record.judge_cost),
        )
        if value
    ]
    return shown | {"values": values, "took": took}


def _finite(value: float) -> JSON:
    """Return the number with nine digits; None if JSON cannot hold it."""
    if not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.9g}")


def _bounded(text: str) -> str:
    shown = printable(text[: _MAX_TEXT + 1], keep="\n\t")
    if len(text) <= _MAX_TEXT:
        return shown
    return f"{shown[:_MAX_TEXT]}… ({len(text) - _MAX_TEXT:,} more characters are in the JSON report)"
