"""Rows of Parquet files and other Arrow tables, as Python values that templates and scorers know."""

from __future__ import annotations

import datetime
import importlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytest_llmeval.data.files import Source, check_ratio, import_arrow, open_bytes
from pytest_llmeval.errors import RefusedError
from pytest_llmeval.text.wording import quoted

__all__ = ["Binary", "read_parquet", "rows_of_batch"]

_BATCH_ROWS = 64
"""Few, as a batch is in memory as a whole, and a value that is in the file once can be that of every row."""
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
