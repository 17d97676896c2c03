"""Rows of a data file: JSONL, JSON, CSV, TSV or YAML, each with its number and, where the format has one, its line."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.files import Source, read_text
from pytest_llmeval.suites.wording import describe, expected_one_of, quoted
from pytest_llmeval.suites.yaml_lines import read_yaml
from pytest_llmeval.types import JSON

__all__ = ["FORMATS", "Row", "format_of", "read_rows"]

MAX_DATA_BYTES = 2_000_000_000
MAX_YAML_DATA_BYTES = 100_000_000
_EXCERPT = 40

FORMATS: Mapping[str, str] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".yaml": "yaml",
    ".yml": "yaml",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it was read. ``number`` counts from 1 in file order and names a row without an id.

    ``inline`` rows stand in the suite file.
    """

    columns: dict[str, Any]
    source: Source
    number: int
    line: int | None
    inline: bool = False

    @property
    def place(self) -> str:
        """Where the row stands, for the middle of a message."""
        return f"{self.source.shown}, row {self.number}" if self.line is None else f"{self.source.shown}:{self.line}"

    def error(self, message: str) -> SuiteError:
        """A ``SuiteError`` at this row."""
        return self.source.error(f"row {self.number}: {message}" if self.line is None else message, self.line)


def format_of(source: Source) -> str | None:
    """The format that the file's suffix stands for."""
    return FORMATS.get(source.path.suffix.lower())


def read_rows(source: Source, format_: str, key: str | None = None) -> list[Row]:
    """All rows of the file. ``key`` leads to the list of rows in a JSON or YAML file. Raises ``SuiteError``."""
    if key is not None and format_ not in ("json", "yaml"):
        raise source.error(f"is read as {format_}, which has no keys; remove 'key: {key}'")
    if format_ == "yaml":
        document = read_yaml(source, max_bytes=MAX_YAML_DATA_BYTES, too_large="write it as JSONL")
        rows = _rows_at(source, document.value, key)
        path = tuple(key.split(".")) if key else ()
        return [_row(source, row, index, document.line((*path, index))) for index, row in enumerate(rows)]
    text = read_text(source, max_bytes=MAX_DATA_BYTES, too_large="split it")
    if format_ == "jsonl":
        return _read_jsonl(source, text)
    if format_ == "json":
        rows = _rows_at(source, _parse_json(source, text, None), key)
        return [_row(source, row, index, None) for index, row in enumerate(rows)]
    return _read_csv(source, text, "\t" if format_ == "tsv" else ",")


def _row(source: Source, value: JSON, index: int, line: int | None) -> Row:
    if not isinstance(value, dict):
        raise Row({}, source, index + 1, line).error(f"found {describe(value)}, expected a mapping of columns")
    return Row(value, source, index + 1, line)


def _rows_at(source: Source, value: JSON, key: str | None) -> list[JSON]:
    inside = value
    above: list[str] = []
    for part in key.split(".") if key else ():
        if not isinstance(inside, dict) or part not in inside:
            keys = list(inside) if isinstance(inside, dict) else []
            where = f" in {quoted('.'.join(above))}" if above else ""
            raise source.error(f"there is no key {quoted(part)}{where}, which 'key' names{expected_one_of(part, keys)}")
        inside = inside[part]
        above.append(part)
    if isinstance(inside, list):
        return inside
    where = f"found {describe(inside)} at the key {quoted(key)}" if key else f"found {describe(inside)}"
    lists = (
        [".".join((*above, name)) for name, part in inside.items() if isinstance(part, list)]
        if isinstance(inside, dict)
        else []
    )
    advice = f"; 'key' names the list: expected one of {', '.join(lists)}" if lists else ""
    raise source.error(f"{where}, expected a list of rows{advice}")


class _JSONProblem(ValueError):
    pass


def _no_duplicates(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _JSONProblem(f"found the key {quoted(twice)} twice; remove one")
    return mapping


def _no_constant(name: str) -> JSON:
    raise _JSONProblem(f"found {name}, which is not JSON; expected a number or null")


_DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_no_constant)


def _parse_json(source: Source, text: str, line: int | None) -> JSON:
    """``line`` is that of a JSONL row; None for a whole file, whose errors then have lines of their own."""
    try:
        value: JSON = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        start = max(error.pos - _EXCERPT // 2, 0)
        excerpt = text[start : error.pos + _EXCERPT // 2]
        raise source.error(
            f"is not JSON: {error.msg} (column {error.colno}), near {quoted(excerpt)}", line or error.lineno
        ) from None
    except RecursionError:
        raise source.error("is nested too deeply; flatten it", line) from None
    except _JSONProblem as error:
        raise source.error(str(error), line) from None
    except ValueError:  # the only one left: a number that is too long
        digits = f"{sys.get_int_max_str_digits():,}"
        raise source.error(
            f"found a number of more than {digits} digits, expected fewer; write it as text", line
        ) from None
    return value


def _read_jsonl(source: Source, text: str) -> list[Row]:
    rows: list[Row] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line and not line.isspace():
            rows.append(_row(source, _parse_json(source, line, number), len(rows), number))
    return rows


def _read_csv(source: Source, text: str, delimiter: str) -> list[Row]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    rows: list[Row] = []
    start = 1
    try:
        for cells in reader:
            if not cells:
                pass
            elif header is None:
                header = _header(source, cells, start)
            elif len(cells) != len(header):
                raise source.error(
                    f"found {len(cells)} values, expected {len(header)} as in the header; quote a value that holds "
                    f"{'a tab' if delimiter == chr(9) else 'a comma'}, a quote or a line break",
                    start,
                )
            else:
                rows.append(Row(dict(zip(header, cells, strict=True)), source, len(rows) + 1, start))
            start = reader.line_num + 1
    except csv.Error as error:
        raise source.error(f"is not {'TSV' if delimiter == chr(9) else 'CSV'}: {error}", start) from None
    return rows


def _header(source: Source, cells: list[str], line: int) -> list[str]:
    seen: set[str] = set()
    for position, name in enumerate(cells, 1):
        if not name.strip():
            raise source.error(f"column {position} of the header has no name", line)
        if name in seen:
            raise source.error(f"found the column {quoted(name)} twice in the header; rename one", line)
        seen.add(name)
    return cells
