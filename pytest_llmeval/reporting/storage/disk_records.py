"""Records that lie in a file, each on a line, and are read when they are asked for."""

from __future__ import annotations

import json
import os
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import MISSING, Field, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NoReturn, TypeAlias, TypeVar, get_args, get_origin, get_type_hints, overload

from pydantic_core import CoreSchema, SchemaValidator, ValidationError, core_schema

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.records import ANY_JSON_FIELDS, Record, remove_texts, without_texts
from pytest_llmeval.reporting.storage.json_form import plain_schema, record_from_json, record_from_text, record_to_json

__all__ = ["DECODER", "RECORD_PREFIX", "DiskRecords", "file_state", "records_at", "records_of_block"]


def records_of_block(block: bytes) -> Sequence[Record] | None:
    """Read many lines of a report at once, and return their records as ``without_texts`` leaves them.

    This takes half the time. Each line but the last ends in a comma. Returns None if a line has anything unusual (an
    error, null for a number or a mapping, NaN or infinity, the form of a journal): then each line has to be read alone.
    """
    if b"NaN" in block or b"Infinity" in block:
        return None
    try:
        found: list[Record] = _validator().validate_json(b"[%b]" % block.strip().removesuffix(b","))
    except ValidationError:
        return None
    for record in found:
        remove_texts(record)
    return found


_ANY_MAPPING = core_schema.typed_dict_schema({}, extra_behavior="ignore")
"""Takes any mapping, and gives an empty one: members are not made."""


@cache
def _validator() -> SchemaValidator:
    """Make the validator of ``records_of_block``.

    It lets pass less than ``json_form`` does, and its errors are not worded. It does not look at fields that may hold
    any JSON and are not kept.
    """
    hints = get_type_hints(Record)
    members = [
        core_schema.dataclass_field(field.name, _with_default(field, _schema(field.name, hints)), kw_only=True)
        for field in fields(Record)
        if field.name not in ANY_JSON_FIELDS
    ]
    own = core_schema.dataclass_args_schema(Record.__name__, members)
    names = [field.name for field in fields(Record) if field.name not in ANY_JSON_FIELDS]
    return SchemaValidator(core_schema.list_schema(core_schema.dataclass_schema(Record, own, names, slots=True)))


def _with_default(field: Field[Any], schema: CoreSchema) -> CoreSchema:
    if field.default_factory is not MISSING:
        return core_schema.with_default_schema(schema, default_factory=field.default_factory)
    return schema if field.default is MISSING else core_schema.with_default_schema(schema, default=field.default)


_OWN: Mapping[str, CoreSchema] = MappingProxyType({"details": _ANY_MAPPING})


def _schema(name: str, hints: Mapping[str, Any]) -> CoreSchema:
    return _OWN[name] if name in _OWN else _of_type(hints[name])


def _of_type(hint: Any) -> CoreSchema:
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple:
        return core_schema.tuple_variable_schema(_of_type(args[0]))
    if origin is Mapping:
        return core_schema.dict_schema(core_schema.str_schema(), _of_type(args[1]))
    return plain_schema(hint)


FileState: TypeAlias = tuple[int, int, int]
"""Inode, size, and time of change in nanoseconds: if they are the same, a file is still the one that was read."""

RECORD_PREFIX = b'{"record": '
"""Stands before a record on its line of a journal."""

_BUFFER_BYTES = 1 << 18
_AT_ONCE = 32
"""The number of records that are read together. More leave the processor's cache, and take longer."""

T = TypeVar("T")


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


DECODER = json.JSONDecoder(parse_constant=_refuse)


class DiskRecords(Sequence[Record]):
    """The records whose lines begin at ``offsets`` (bytes) in a file; only those at ``places`` if these are given.

    A record is read anew whenever it is asked for; 16 bytes for each stay in memory. ``kept`` are records that are not
    in the file, by place. While ``file`` is open, it is read, and not the path, which may be gone. Reading raises
    ``ReportError`` for a line that holds no record, and for a file that is not in the ``state`` in which it was (if
    ``state`` is given). ``checksums`` are those of the lines as this process wrote them. With ``are_together`` nothing
    stands between the lines of the records, as in a report; in a journal there are other lines, and records that were
    replaced. ``what`` is the word for the file in messages.
    """

    def __init__(
        self,
        path: Path,
        offsets: Sequence[int],
        *,
        places: Sequence[int] | None = None,
        kept: Mapping[int, Record] | None = None,
        checksums: Sequence[int] = (),
        state: FileState | None = None,
        file: BinaryIO | None = None,
        are_together: bool = False,
        what: str = "report",
    ) -> None:
        self._path = path
        self._offsets = offsets
        self._places = range(len(offsets)) if places is None else places
        self._kept = {} if kept is None else kept
        self._checksums = checksums
        self._state = state
        self._file = file
        self._are_together = are_together
        self._what = what

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> Record: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Record]: ...

    def __getitem__(self, place: int | slice) -> Record | Sequence[Record]:
        if isinstance(place, slice):
            return self._of(self._places[place])
        return next(iter(self.at([place])))

    def at(self, places: Sequence[int]) -> Sequence[Record]:
        """Return the records at these places, in this order."""
        return self._of(array("Q", map(self._places.__getitem__, places)))

    def __iter__(self) -> Iterator[Record]:
        return self._each(lambda record: record, self._read)

    def without_texts(self) -> Iterator[Record]:
        """Yield each record as ``records.without_texts`` leaves it. All records of a report are read many at a time."""
        if not self._are_together or self._kept or self._places != range(len(self._offsets)):
            yield from map(without_texts, self)
            return
        with self._reading() as file:
            for start in range(0, len(self._offsets), _AT_ONCE):
                places = self._places[start : start + _AT_ONCE]
                found: Iterable[Record] | None
                found = records_of_block(self._block(file, places))
                if found is None or len(found) != len(places):  # two on one line, which is refused
                    found = (without_texts(self._read(file, place)) for place in places)
                yield from found

    def _block(self, file: BinaryIO, places: Sequence[int]) -> bytes:
        """Return all lines from the first to the last of these places."""
        first, after = places[0], places[-1] + 1
        file.seek(self._offsets[first])
        if after == len(self._offsets):
            return b"".join(file.readline() for _ in places)
        return file.read(self._offsets[after] - self._offsets[first])

    def texts(self) -> Iterator[bytes]:
        """Yield the JSON of each record.

        A line whose checksum is right is copied, not read and encoded: it holds what this process wrote.
        """

        def text(file: BinaryIO, place: int) -> bytes:
            file.seek(self._offsets[place])
            line = file.readline() if self._checksums else b""
            if line and zlib.crc32(line) == self._checksums[place]:
                return _record_text(line)
            return _encoded(self._read(file, place))

        return self._each(_encoded, text)

    def _each(self, of_kept: Callable[[Record], T], of_line: Callable[[BinaryIO, int], T]) -> Iterator[T]:
        with self._reading() as file:
            for place in self._places:
                yield of_kept(self._kept[place]) if place in self._kept else of_line(file, place)

    @contextmanager
    def _reading(self) -> Iterator[BinaryIO]:
        try:
            with self._opened() as file:
                if self._state is not None and file_state(file.fileno()) != self._state:
                    raise ReportError(f"the {self._what} {self._path} was changed while it was in use: read it again")
                yield file
        except OSError as error:
            raise ReportError(f"cannot read the {self._what} {self._path}: {error.strerror or error}") from None

    def _opened(self) -> AbstractContextManager[BinaryIO]:
        if self._file is not None and not self._file.closed:
            return nullcontext(self._file)
        return self._path.open("rb", buffering=_BUFFER_BYTES)

    def _of(self, places: Sequence[int]) -> DiskRecords:
        found = copy(self)
        found._places = places
        return found

    def _read(self, file: BinaryIO, place: int) -> Record:
        offset = self._offsets[place]
        file.seek(offset)
        try:
            return record_from_line(file.readline())
        except (ValueError, RecursionError) as error:
            number = _line_number(self._path, offset)
            raise ReportError(f"cannot read the {self._what} {self._path}:{number}: {error}") from None


def record_from_line(line: bytes) -> Record:
    """Return the record on a line of a report or of a journal. Raises ``ValueError`` and ``RecursionError``."""
    text = _record_text(line)
    if (found := record_from_text(text)) is not None:
        return found
    return record_from_json(DECODER.decode(text.decode()))


def _record_text(line: bytes) -> bytes:
    """Return the JSON of a record without what stands around it on its line."""
    text = line.strip()
    if text.startswith(RECORD_PREFIX):
        return text[len(RECORD_PREFIX) : -1]
    return text.removesuffix(b",")


def _encoded(record: Record) -> bytes:
    return record_to_json(record).encode("ascii")


def record_texts(records: Sequence[Record]) -> Iterator[bytes]:
    """Yield the JSON of each record, read or made when it is its turn."""
    return records.texts() if isinstance(records, DiskRecords) else map(_encoded, records)


def records_at(records: Sequence[Record], places: Sequence[int]) -> Iterable[Record]:
    """Return the records at these places, each read when it is its turn."""
    return records.at(places) if isinstance(records, DiskRecords) else map(records.__getitem__, places)


def file_state(file: int | Path) -> FileState:
    """Return the state of an open file, or of the file at a path. Raises ``OSError``."""
    found = os.stat(file)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _line_number(path: Path, offset: int) -> int:
    number, left = 1, offset
    with path.open("rb") as file:
        while left > 0 and (part := file.read(min(left, _BUFFER_BYTES))):
            number += part.count(b"\n")
            left -= len(part)
    return number
