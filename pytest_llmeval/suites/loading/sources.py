"""The sources of a suite's rows: one file, the files of a pattern or folder, or a data set of the hub."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_llmeval.data.files import COMPRESSIONS, Source, read_text
from pytest_llmeval.data.hub import HubDataset, read_hub
from pytest_llmeval.data.rows import FORMATS, Row, data_suffix, format_of, read_rows
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.format.rows_spec import JoinSpec, RowsSpec
from pytest_llmeval.suites.loading.suite import Origin
from pytest_llmeval.text.wording import MAX_LISTED, Keys, describe, dotted, nearest, quoted

__all__ = ["HubDataset", "check_rows_spec", "natural_order", "read_hub", "rows_of", "shown_source"]

_OF_HUB = ("config", "split", "revision", "streaming")
_OF_FILES = ("format", "key", "columns", "separator")
_MAGIC = re.compile(r"[*?[]")
_DIGITS = re.compile(r"(\d+)")
_MAX_ENTRIES = 200_000
"""The most files and folders that are searched for those of a data set; ``/`` holds more."""


def check_rows_spec(spec: RowsSpec, keys: Keys, origin: Origin) -> None:
    """Raise ``SuiteError`` for keys of ``spec`` that contradict each other. ``keys`` is where ``spec`` stands."""
    if spec.path is not None and spec.hub is not None:
        raise origin.error(f"{dotted(keys)}: found both path and hub, expected one of them", (*keys, "hub"))
    for source, names in (("path", _OF_FILES), ("hub", _OF_HUB)):
        for name in names:
            if getattr(spec, source) is None and getattr(spec, name) not in (None, False):
                where = (*keys, name)
                raise origin.error(f"{dotted(where)}: requires {dotted((*keys, source))}", where)
    where = (*keys, "columns")
    columns = spec.columns or ()
    if spec.columns == ():
        raise origin.error(f"{dotted(where)}: found an empty list, expected the columns' names", where)
    for name in columns:
        if not name.strip():
            raise origin.error(f"{dotted(where)}: found an empty name, expected text", where)
        if columns.count(name) > 1:
            raise origin.error(f"{dotted(where)}: found {quoted(name)} twice, expected names that differ", where)


def rows_of(spec: RowsSpec, keys: Keys, origin: Origin) -> Iterator[Row]:
    """Yield the rows that ``spec`` names, one by one. Raises ``SuiteError``, for a broken row when it is reached.

    Rows are numbered through all files. ``keys`` is where ``spec`` stands in the suite.
    """
    if spec.hub is not None:
        dataset = HubDataset(
            spec.hub, config=spec.config, split=spec.split, revision=spec.revision, streaming=spec.streaming
        )
        rows = read_hub(dataset, lambda message, key: origin.error(f"{dotted((*keys, key))}: {message}", (*keys, key)))
    elif spec.path is not None:
        rows = _rows_of_files(spec, keys, origin)
    else:
        raise origin.error(f"{dotted(keys)}: found neither path nor hub, expected one of them", keys)
    if spec.join is not None:
        rows = _joined(rows, spec.join, (*keys, "join"), origin)
    number = 0
    for row in rows:
        number = row.number
        yield row
    if number == 0:
        where = (*keys, "path" if spec.hub is None else "hub")
        raise origin.error(f"{dotted(where)}: {shown_source(spec, origin)} holds no rows, expected at least one", where)


def _joined(rows: Iterable[Row], join: JoinSpec, keys: Keys, origin: Origin) -> Iterator[Row]:
    """Yield the rows with the columns of the row of the joined file that has the same value in the column ``on``.

    Values are compared as text, as ids are. Raises ``SuiteError`` for a row without its counterpart or with several,
    and for a column that both have with different values.
    """
    file = RowsSpec(path=join.path, format=join.format, key=join.key, separator=join.separator)
    others: dict[str, Row] = {}
    for other in _rows_of_files(file, keys, origin, of_ids=True):
        name = _value_of(other, join.on)
        if name in others:
            raise other.error(f"found the {join.on} {quoted(name)} twice, first in {others[name].place}")
        others[name] = other
    shown = origin.source.beside(join.path).shown
    for row in rows:
        name = _value_of(row, join.on)
        if name not in others:
            raise row.error(f"{shown}, which {dotted(keys)} names, has no row whose {join.on} is {quoted(name)}")
        added = {column: value for column, value in others[name].columns.items() if column != join.on}
        for column, value in added.items():
            if column in row.columns and row.columns[column] != value:
                raise row.error(
                    f"found the column {quoted(column)} here and in {others[name].place}, with other values; "
                    "leave it out of one"
                )
        yield replace(row, columns={**row.columns, **added})


def _value_of(row: Row, column: str) -> str:
    value = row.columns.get(column)
    if value is None or isinstance(value, list | dict | float | bool):
        found = "no value" if value is None else describe(value)
        raise row.error(
            f"found {found} in the column {quoted(column)}, on which rows are joined, expected text or a whole number"
        )
    return str(value)


def shown_source(spec: RowsSpec, origin: Origin) -> str:
    """Return what ``spec`` names, as errors name it."""
    if spec.hub is not None:
        return HubDataset(spec.hub, config=spec.config, split=spec.split).shown
    return origin.source.beside(spec.path or "").shown


def natural_order(path: str) -> list[list[str | int]]:
    """Return a key that sorts ``2.json`` before ``10.json``, folder by folder."""
    return [
        [int(part) if number % 2 else part for number, part in enumerate(_DIGITS.split(name))]
        for name in Path(path).parts
    ]


def _rows_of_files(spec: RowsSpec, keys: Keys, origin: Origin, *, of_ids: bool = False) -> Iterator[Row]:
    """Yield the rows of the files that ``spec`` names. ``of_ids``: a JSON or YAML file that holds a mapping, and no key
    is given, is one of ids to rows.
    """
    path_keys = (*keys, "path")
    named = origin.source.beside(spec.path or "")

    def error(message: str) -> SuiteError:
        return origin.error(f"{dotted(path_keys)}: {message}", path_keys)

    # os.path's questions, and not Path's, which raise for a name that is too long.
    is_folder = os.path.isdir(named.path)
    is_pattern = not is_folder and not os.path.exists(named.path) and _MAGIC.search(spec.path or "") is not None
    if is_folder:
        files = _files_of_folder(named, spec, error)
    elif is_pattern:
        files = _files_of_pattern(named, error)
    else:
        files = [named]
        if not os.path.isfile(named.path):
            try:
                read_text(named, max_bytes=0, too_large="")
            except SuiteError as problem:
                raise error(str(problem)) from None
    formats = [spec.format or format_of(file.path) for file in files]
    for file, format_ in zip(files, formats, strict=True):
        if format_ is None:
            which = f" of {file.shown}" if len(files) > 1 else ""
            raise error(
                f"found the suffix {quoted(data_suffix(file.path))}{which}, expected one of {', '.join(FORMATS)}"
                f" (or one of them before {' or '.join(COMPRESSIONS)}); or say what it is with {dotted(keys)}.format"
            )
    number = 0
    for file, format_ in zip(files, formats, strict=True):
        rows = read_rows(
            file,
            format_ or "",
            spec.key,
            spec.columns,
            separator=spec.separator,
            num_before=number,
            or_one_row=is_folder or is_pattern,
            of_ids=of_ids,
        )
        for row in rows:
            number = row.number
            if is_folder and row.line is None:
                raise file.error(
                    "found a list, expected one JSON object as in each file of the folder; for files that hold lists "
                    f"write a pattern, {dotted(path_keys)}: {_pattern(spec.path or '', '*.json')}"
                )
            yield row


def _files_of_pattern(named: Source, error: Callable[[str], SuiteError]) -> list[Source]:
    if "**" in named.path.parts:
        _check_extent(named, _base(named)[0], error)
    try:
        found = glob.glob(os.fspath(named.path), recursive=True)
    except (OSError, ValueError, re.error) as problem:
        raise error(f"{named.shown}: cannot be searched for: {problem}") from None
    files = [path for path in found if os.path.isfile(path)]
    if files:
        return _sources(named, files)
    if found:
        raise error(f"{named.shown}: matches only folders; add a pattern for their files, such as /*.jsonl")
    raise error(f"{named.shown}: matches no file{_what_is_there(named)}")


def _files_of_folder(named: Source, spec: RowsSpec, error: Callable[[str], SuiteError]) -> list[Source]:
    """Return one JSON object, or with ``format: text`` one text, in each file of the folder and the folders in it."""
    _check_extent(named, named.path, error)
    found = [
        path
        for path in glob.glob(os.path.join(glob.escape(os.fspath(named.path)), "**"), recursive=True)
        if os.path.isfile(path)
    ]
    if spec.format == "text":
        files = found
    else:
        data = [path for path in found if format_of(Path(path)) is not None]
        others = [path for path in data if format_of(Path(path)) != "json"]
        if others or spec.format not in (None, "json") or spec.key is not None:
            suffix = data_suffix(Path(others[0])) if others else f".{spec.format or 'json'}"
            raise error(
                f"{named.shown}: is a folder, which is read as one JSON object in each file; for files of rows write a "
                f"pattern, {_pattern(spec.path or '', '*' + suffix)}"
            )
        files = data
    if not files:
        kind = "file" if spec.format == "text" else ".json file"
        raise error(f"{named.shown}: is a folder without a {kind}, expected one for each row")
    return _sources(named, files)


def _check_extent(named: Source, folder: Path, error: Callable[[str], SuiteError]) -> None:
    """Raise an error for a folder that is not searched to its end: ``/``, or one that a link leads back to."""
    num_entries, folders = 0, [os.fspath(folder)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    num_entries += 1
                    if num_entries > _MAX_ENTRIES:
                        raise error(
                            f"{named.shown}: holds more than {_MAX_ENTRIES:,} files and folders; name the folder "
                            "of the data set itself"
                        )
                    if not entry.name.startswith(".") and entry.is_dir():  # as the module glob goes on
                        folders.append(entry.path)
        except OSError:
            continue


def _base(named: Source) -> tuple[Path, Path]:
    """Return the folder that a pattern begins at, and how the user names it."""
    base, shown = named.path, Path(named.shown)
    while _MAGIC.search(os.fspath(base)) and base != base.parent and not base.is_dir():
        base, shown = base.parent, shown.parent
    return base, shown


def _sources(named: Source, paths: Sequence[str]) -> list[Source]:
    """Return the files in natural order, each shown as the user would name it."""
    base, shown = _base(named)
    return [
        Source(Path(path), os.path.normpath(os.path.join(shown, os.path.relpath(path, base))))
        for path in sorted(paths, key=natural_order)
    ]


def _pattern(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"


def _what_is_there(named: Source) -> str:
    folder, wanted = named.path, ""
    while _MAGIC.search(os.fspath(folder)) and folder != folder.parent and not folder.is_dir():
        folder, wanted = folder.parent, folder.name
    try:
        names = sorted(os.listdir(folder), key=natural_order)
    except (OSError, ValueError):
        return f": there is no folder {folder.name!r} either"
    near = nearest(_MAGIC.sub("", wanted), names)
    if near is not None:
        return f"; did you mean {quoted(near)}?"
    listed = ", ".join(names[:MAX_LISTED]) + (", …" if len(names) > MAX_LISTED else "")
    return f"; the folder holds {listed}" if names else "; the folder is empty"
