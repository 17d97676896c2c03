"""Rows of one data file in any format, each with its number and, where the format has one, its line."""

from __future__ import annotations

import csv
import datetime
import importlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pytest_llmeval.data.files import Source, check_ratio, compression_of, decode, import_arrow, open_bytes, read_text
from pytest_llmeval.data.yaml_reader import read_yaml
from pytest_llmeval.errors import RefusedError, SuiteError
from pytest_llmeval.text.redaction import redact
from pytest_llmeval.text.wording import Keys, describe, dotted, expected_one_of, quoted
from pytest_llmeval.types import JSON

__all__ = [
    "FORMATS",
    "JSON_DECODER",
    "MAX_DATA_BYTES",
    "Binary",
    "NoColumnError",
    "Row",
    "column_value",
    "format_of",
    "parse_json",
    "read_rows",
    "rows_of_batch",
]

_BATCH_ROWS = 64
"""The rows of a batch: few, as a batch is in memory as a whole, and a value that is in the file once can be that of
every row."""
_ANY_RATIO_BYTES = 20_000_000
"""Columns with few values are stored in almost nothing: so much may come out of any file (see ``check_ratio``)."""


@dataclass(frozen=True, slots=True)
class Binary:
    """Stands for bytes in a row, such as an image's: kept out of memory, an error where a template shows them."""

    column: str
    num_bytes: int
    digest: int

    @property
    def described(self) -> str:
        """Return what an error says that it found."""
        return f"binary data in the column {quoted(self.column)} ({self.num_bytes:,} bytes, such as an image)"

    def __str__(self) -> str:
        raise RefusedError(f"found {self.described}, expected text")

    def __format__(self, spec: str) -> str:
        return str(self)


def read_parquet(source: Source, *, max_bytes: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file as ``rows_of_batch`` makes them, read in batches. Raises ``SuiteError``."""
    open_bytes(source, max_bytes=max_bytes, too_large="split it").close()
    arrow = import_arrow(source, "a Parquet file")
    parquet = importlib.import_module("pyarrow.parquet")
    num_left = max_bytes
    try:
        with parquet.ParquetFile(os.fspath(source.path)) as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                num_left -= batch.nbytes
                if num_left < 0:
                    raise source.error(
                        f"is too large: its values take more than {max_bytes / 1_000_000:.1f} MB; split it"
                    )
                check_ratio(source, max_bytes - num_left, source.path.stat().st_size, _ANY_RATIO_BYTES)
                yield from rows_of_batch(source, batch)
    except (arrow.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise source.error(f"cannot be read as Parquet: {reason}") from None


def rows_of_batch(source: Source, batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Arrow record batch or table.

    Lists and structs become lists and mappings; dates, times and decimals their text; bytes a ``Binary``. Raises
    ``SuiteError`` for two columns of one name, or values that Python does not have.
    """
    names: list[str] = batch.schema.names
    if len({*names}) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise source.error(f"found the column {quoted(twice)} twice; rename one")
    columns = [_values(source, sys.intern(name), batch.column(name)) for name in names]
    names = [sys.intern(name) for name in names]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _values(source: Source, name: str, column: Any) -> list[Any]:
    arrow = importlib.import_module("pyarrow")
    if isinstance(column, arrow.DictionaryArray):  # the rows share what is there once
        shared = _values(source, name, column.dictionary)
        return [None if place is None else shared[place] for place in column.indices.to_pylist()]
    try:
        if arrow.types.is_timestamp(column.type) and column.type.unit == "ns":
            column = column.cast(arrow.timestamp("us", column.type.tz), safe=False)
        values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    except (ValueError, OverflowError, KeyError, NotImplementedError, TypeError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise source.error(f"the column {quoted(name)} of the type {column.type} cannot be read: {reason}") from None
    return [_plain(value, name) for value in values]


def _plain(value: Any, column: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return Binary(column, len(value), hash(bytes(value)))
    if isinstance(value, dict):
        return {str(key): _plain(inner, column) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, column) for inner in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if hasattr(value, "tolist"):  # numpy's, which some types of Arrow become
        return _plain(value.tolist(), column)
    return str(value)  # decimals, durations, UUIDs


MAX_DATA_BYTES = 2_000_000_000
MAX_YAML_DATA_BYTES = 100_000_000
_EXCERPT = 40
_READ = 4_000
"""The characters before and behind an excerpt in which secrets are looked for."""
_MAX_CELL = 2_000_000_000
_EACH = "*"
_MAX_LEVELS = 3
"""The most mappings around a list of rows that is found without a key."""
_ID, _VALUE, _INDEX = "id", "value", "index"
_SEPARATORS = (";", "\t", "|")
"""Other separators than the comma. Spreadsheets write semicolons in countries with a decimal comma."""
_SAID = re.compile(r"(?i)(?P<quote>\"?)sep=(?P<separator>[^\"\w])(?P=quote)")
"""A first line by which Excel is told the separator."""

FORMATS: Mapping[str, str] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".parquet": "parquet",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it was read. ``number`` counts from 1 in the order of the data and names a row without an id.

    ``inline`` rows stand in the suite file. ``position`` is the row's number in its own file, where the data have
    several.
    """

    columns: dict[str, Any]
    source: Source
    number: int
    line: int | None
    inline: bool = False
    position: int | None = None

    @property
    def place(self) -> str:
        """Return where the row stands, for the middle of a message."""
        if self.line is not None:
            return f"{self.source.shown}:{self.line}"
        return f"{self.source.shown}, row {self.position or self.number}"

    def error(self, message: str) -> SuiteError:
        """Return a ``SuiteError`` at this row."""
        if self.line is None:
            message = f"row {self.position or self.number}: {message}"
        return self.source.error(message, self.line)


class NoColumnError(LookupError):
    """A row has no such column. ``part`` of its name is not ``inside`` the value in which it was looked for."""

    def __init__(self, part: str, inside: object) -> None:
        super().__init__(part)
        self.part = part
        self.inside = inside


def column_value(columns: Mapping[str, Any], column: str) -> Any:
    """Return the value of a column, in which dots reach nested ones. Raise ``NoColumnError``."""
    if column in columns:
        return columns[column]
    inside: Any = columns
    for part in column.split("."):
        if isinstance(inside, dict) and part in inside:
            inside = inside[part]
        elif isinstance(inside, list) and part.isdecimal() and int(part) < len(inside):
            inside = inside[int(part)]
        else:
            raise NoColumnError(part, inside)
    return inside


def format_of(path: Path) -> str | None:
    """Return the format that the file's suffix stands for, before that of a compression: ``.jsonl`` of
    ``rows.jsonl.gz``.
    """
    return FORMATS.get(data_suffix(path).lower())


def data_suffix(path: Path) -> str:
    """Return the suffix before that of a compression."""
    return os.path.splitext(path.stem)[1] if compression_of(path) is not None else path.suffix


def read_rows(
    source: Source,
    format_: str,
    key: str | None = None,
    columns: Sequence[str] | None = None,
    *,
    separator: str | None = None,
    num_before: int = 0,
    or_one_row: bool = False,
    of_ids: bool = False,
    is_row: Callable[[Mapping[str, JSON]], bool] | None = None,
) -> Iterator[Row]:
    """Return the rows of a file, one by one.

    ``key`` leads to the list of rows in a JSON or YAML file, in which ``*`` goes through a list or mapping. ``columns``
    are the names of those of a CSV or TSV file without a header. ``separator`` stands between the values of these; else
    it is what a first line ``sep=;`` says, a tab in TSV, and in CSV a comma, or what the first line has in place of
    commas. ``num_before`` rows of other files come before this one's. With ``or_one_row`` a JSON file that holds a
    mapping, and no list, is one row; with ``of_ids`` a file that holds a mapping is one of ids to rows where no ``key``
    is given; with ``is_row`` the one list of such rows in the mappings of a JSON file is found without a ``key``. A
    file of the format ``text`` is one row with the column ``text``. Raises ``SuiteError``, for a broken row when it is
    reached.
    """
    if key is not None and format_ not in ("json", "yaml"):
        raise source.error(f"is read as {format_}, which has no keys; remove 'key: {key}'")
    if columns is not None and format_ not in ("csv", "tsv"):
        raise source.error(f"is read as {format_}, whose columns have names; remove 'columns'")
    if separator is not None and format_ not in ("csv", "tsv"):
        raise source.error(f"is read as {format_}, which has no separator; remove 'separator'")
    file = _File(source, num_before)
    match format_:
        case "yaml":
            return _read_yaml(file, key, of_ids)
        case "json":
            return _read_json(file, key, or_one_row, of_ids, is_row)
        case "jsonl":
            return _read_jsonl(file)
        case "parquet":
            return _read_parquet(file)
        case "text":
            return _read_text(file)
        case _:
            return _read_csv(file, separator, columns, usual="\t" if format_ == "tsv" else None)


@dataclass(frozen=True, slots=True)
class _File:
    """A file of rows, of which ``num_before`` rows stand in other files before it."""

    source: Source
    num_before: int

    def row(self, value: JSON, index: int, line: int | None) -> Row:
        position = index + 1 if self.num_before and line is None else None
        if not isinstance(value, dict):
            row = Row({}, self.source, self.num_before + index + 1, line, position=position)
            raise row.error(f"found {describe(value)}, expected a mapping of columns")
        return Row(value, self.source, self.num_before + index + 1, line, position=position)

    def text(self) -> str:
        return read_text(self.source, max_bytes=MAX_DATA_BYTES, too_large="split it")


def _read_yaml(file: _File, key: str | None, of_ids: bool) -> Iterator[Row]:
    document = read_yaml(file.source, max_bytes=MAX_YAML_DATA_BYTES, too_large="write it as JSONL")
    key = _EACH if of_ids and key is None and isinstance(document.value, dict) else key
    for index, (value, keys) in enumerate(_rows_at(file, document.value, key)):
        yield file.row(value, index, document.line(keys))


def _read_json(
    file: _File,
    key: str | None,
    or_one_row: bool,
    of_ids: bool,
    is_row: Callable[[Mapping[str, JSON]], bool] | None,
) -> Iterator[Row]:
    value = parse_json(file.source, file.text(), None)
    key = _EACH if of_ids and key is None and isinstance(value, dict) else key
    if key is None and is_row is not None and len(keys := list(_keys_of_rows(value, is_row))) == 1:
        key = keys[0]
    if or_one_row and key is None and isinstance(value, dict):
        yield file.row(value, 0, 1)
    else:
        for index, (row, _) in enumerate(_rows_at(file, value, key)):
            yield file.row(row, index, None)


def _read_text(file: _File) -> Iterator[Row]:
    yield file.row({"text": file.text()}, 0, 1)


def _read_parquet(file: _File) -> Iterator[Row]:
    if (compression := compression_of(file.source.path)) is not None:
        raise file.source.error(f"is Parquet in {compression}, but Parquet is compressed inside; decompress it")
    for index, columns in enumerate(read_parquet(file.source, max_bytes=MAX_DATA_BYTES)):
        yield file.row(columns, index, None)


def _rows_at(file: _File, value: JSON, key: str | None) -> Iterator[tuple[JSON, Keys]]:
    """Return each row to which ``key`` leads in the file's ``value``, and where it stands.

    ``*`` in ``key`` goes through a list, or through a mapping: where its values are the rows, they have its keys as
    ``id``, and those that are no mappings are the column ``value``. A row has the columns of the mappings on its way
    from there on, without the keys that lead on; of columns of the same name the innermost counts.
    """
    return _nested_rows(file.source, value, key.split(".") if key else [], (), None)


def _nested_rows(
    source: Source, value: JSON, parts: Sequence[str], above: Keys, inherited: Mapping[str, JSON] | None
) -> Iterator[tuple[JSON, Keys]]:
    """Yield the rows below ``value``. ``above`` are its keys, ``parts`` those of ``key`` that are left, ``inherited``
    what rows get.
    """
    if not parts:
        for index, row in enumerate(_list_of_rows(source, value, above)):
            yield {**inherited, **row} if inherited and isinstance(row, dict) else row, (*above, index)
        return
    part, *rest = parts
    if isinstance(value, dict) and part in value:
        if inherited is not None:
            inherited = {**inherited, **{name: column for name, column in value.items() if name != part}}
        yield from _nested_rows(source, value[part], rest, (*above, part), inherited)
    elif part == _EACH and isinstance(value, dict):
        leads_on = bool(rest) or _holds_lists_of_rows(value)
        for name, item in value.items():
            if leads_on:
                yield from _nested_rows(source, item, rest, (*above, name), inherited or {})
            else:
                row = item if isinstance(item, dict) else {_VALUE: item}
                yield {**(inherited or {}), _ID: name, **row}, (*above, name)
    elif part == _EACH:
        if not isinstance(value, list):
            raise source.error(
                f"found {describe(value)}{_at(above)}, expected a list or mapping, which '*' of 'key' goes through"
            )
        for index, item in enumerate(value):
            yield from _nested_rows(source, item, rest, (*above, index), inherited or {})
    else:
        raise source.error(_no_key(part, value, above))


def _holds_lists_of_rows(value: Mapping[str, JSON]) -> bool:
    """Return whether each value of a mapping is a list of mappings; some may be empty, and not all."""
    lists = [one for one in value.values() if isinstance(one, list) and all(isinstance(row, dict) for row in one)]
    return any(lists) and len(lists) == len(value)


def _keys_of_rows(
    value: JSON, is_row: Callable[[Mapping[str, JSON]], bool], above: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield the keys that lead, from mapping to mapping, to a list with such a row."""
    for name, part in value.items() if isinstance(value, dict) and len(above) < _MAX_LEVELS else ():
        if "." in name:  # no key can name it
            continue
        if isinstance(part, list) and any(isinstance(row, dict) and is_row(row) for row in part):
            yield ".".join((*above, name))
        yield from _keys_of_rows(part, is_row, (*above, name))


def _list_of_rows(source: Source, value: JSON, above: Keys) -> list[JSON]:
    if isinstance(value, list):
        return value
    lists = [name for name, part in value.items() if isinstance(part, list)] if isinstance(value, dict) else []
    advice = ", ".join(_as_key((*above, name)) for name in lists)
    of_rows = isinstance(value, dict) and value and all(isinstance(part, dict) for part in value.values())
    raise source.error(
        f"found {describe(value)}{_at(above, 'the key ')}, expected a list of rows"
        + (f"; 'key' names the list: expected one of {advice}" if lists else "")
        + (f"; for a mapping of ids to rows write key: '{_as_key((*above, 0))}'" if of_rows else "")
    )


def _no_key(part: str, value: JSON, above: Keys) -> str:
    if isinstance(value, dict):
        where = f" in {quoted(dotted(above))}" if above else ""
        return f"there is no key {quoted(part)}{where}, which 'key' names{expected_one_of(part, value)}"
    message = f"found {describe(value)}{_at(above)}, expected a mapping with the key {quoted(part)}"
    if isinstance(value, list):
        message += f"; did you mean {_as_key((*above, 0, part))}?" if above else ", which 'key' names"
        message += "" if above else "; where these are the rows themselves, write key: null"
    return message


def _at(above: Keys, what: str = "") -> str:
    return f" at {what}{quoted(dotted(above))}" if above else ""


def _as_key(keys: Keys) -> str:
    return ".".join(_EACH if isinstance(key, int) else str(key) for key in keys)


class _JSONProblem(ValueError):
    pass


def _no_duplicates(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    # Each line's decoder makes the names of the columns anew: interned, all rows share them.
    mapping = {sys.intern(name): value for name, value in pairs}
    if len(mapping) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _JSONProblem(f"found the key {quoted(twice)} twice; remove one")
    return mapping


def _no_constant(name: str) -> JSON:
    raise _JSONProblem(f"found {name}, which is not JSON; expected a number or null")


JSON_DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_no_constant)


def parse_json(source: Source, text: str, line: int | None) -> JSON:
    """Return the value of a JSON text. ``line`` is that of a JSONL row; None for a whole file, whose errors then have
    lines of their own.
    """
    try:
        value: JSON = JSON_DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise source.error(
            f"is not JSON: {error.msg} (column {error.colno}), near {quoted(_near(text, error.pos))}",
            line or error.lineno,
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


def _near(text: str, position: int) -> str:
    """Return what stands around a position, without secrets: they are looked for before the text is cut."""
    start = max(position - _READ, 0)
    safe = redact(text[start : position + _READ])
    middle = len(redact(text[start:position]))
    return safe[max(middle - _EXCERPT // 2, 0) : middle + _EXCERPT // 2]


def _read_jsonl(file: _File) -> Iterator[Row]:
    index = 0
    with open_bytes(file.source, max_bytes=MAX_DATA_BYTES, too_large="split it") as lines:
        for number, data in enumerate(lines, 1):
            line = decode(file.source, data, number)
            if line and not line.isspace():
                yield file.row(parse_json(file.source, line.rstrip("\n"), number), index, number)
                index += 1


def _read_csv(file: _File, separator: str | None, columns: Sequence[str] | None, *, usual: str | None) -> Iterator[Row]:
    source = file.source
    header = None if columns is None else [*columns]
    index = 0
    start = 1
    try:
        with io.TextIOWrapper(
            open_bytes(source, max_bytes=MAX_DATA_BYTES, too_large="split it"), encoding="utf-8-sig", newline=""
        ) as text:
            begin = [text.readline()]
            if (said := _SAID.fullmatch(begin[0].strip("\r\n"))) is not None:
                begin = ["\n", text.readline()]  # no row, and a line that counts
                separator = separator or said["separator"]
            while begin[-1] and not begin[-1].strip("\r\n"):
                begin.append(text.readline())
            first = begin[-1]
            separator = separator or usual or _separator(first, 2 if columns is None else len(columns))
            reader = csv.reader(chain(begin, text), delimiter=separator, strict=True)
            while (cells := _next_cells(reader)) is not None:
                if not cells:
                    pass
                elif header is None:
                    header = _header(source, cells, start)
                elif len(cells) != len(header):
                    expected = "as in the header" if columns is None else "as dataset.columns names"
                    name = _NAMES.get(separator, quoted(separator))
                    found = f"{len(cells)} value{'' if len(cells) == 1 else 's'}"
                    hint = _other(first, separator) or (_other(cells[0], separator) if len(cells) == 1 else "")
                    raise source.error(
                        f"found {found}, expected {len(header)} {expected}; quote a value that holds {name}, a quote "
                        f"or a line break{hint}",
                        start,
                    )
                else:
                    row: dict[str, JSON] = dict(zip(header, cells, strict=True))
                    row.pop("", None)
                    yield file.row(row, index, start)
                    index += 1
                start = reader.line_num + 1
    except csv.Error as error:
        kind = "TSV" if separator == "\t" else "CSV"
        raise source.error(f"is not {kind}: {error}", start) from None
    except UnicodeDecodeError:
        file.text()  # raises with the line, which the reader does not know
        raise


_NAMES = {"\t": "a tab", ",": "a comma", ";": "a semicolon"}


def _separator(first: str, at_least: int) -> str:
    """Return the separator of a file that begins with this line: a comma, unless only another one fits."""
    if _num_cells(first, ",") < at_least:
        return next((other for other in _SEPARATORS if _num_cells(first, other) >= at_least), ",")
    return ","


def _num_cells(line: str, separator: str) -> int:
    try:
        return len(next(csv.reader([line], delimiter=separator), []))
    except csv.Error:  # explained where the file is read
        return 0


def _other(line: str, separator: str) -> str:
    """Return a hint at the separator by which a line has more values, or an empty text."""
    found = max((",", *_SEPARATORS), key=lambda other: _num_cells(line, other))
    if _num_cells(line, found) <= _num_cells(line, separator):
        return ""
    return f"; or say what separates the values, such as dataset.separator: {quoted(found)}"


def _next_cells(reader: Any) -> list[str] | None:
    """Return the next line's values; None at the end. Python's bound of 131,072 characters for a value is lifted
    meanwhile.
    """
    bound = csv.field_size_limit(_MAX_CELL)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(bound)


def _header(source: Source, cells: list[str], line: int) -> list[str]:
    """Return the names of the columns; a first one without a name is the index that pandas writes, ``index``.

    It is the empty name, which is left out of the rows, where another column has that name.
    """
    if not cells[0].strip() and len(cells) > 1:
        cells = ["" if _INDEX in cells else _INDEX, *cells[1:]]
    seen: set[str] = set()
    for position, name in enumerate(cells, 1):
        if not name.strip() and (position > 1 or len(cells) == 1):
            raise source.error(f"column {position} of the header has no name", line)
        if name in seen:
            raise source.error(f"found the column {quoted(name)} twice in the header; rename one", line)
        seen.add(name)
    return [sys.intern(name) for name in cells]
