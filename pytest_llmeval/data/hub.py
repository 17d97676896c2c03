"""Rows of a data set of the Hugging Face hub, read by the library ``datasets``, without a network from local caches.

Two caches may hold a data set. The hub's has the files of a commit, as they were downloaded; ``datasets`` has its own
with the tables that it made of them. Without a network ``datasets`` looks into its own alone, and takes whatever
revision is there; so the hub's is searched first here, and another revision than the one asked for is an error.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from pytest_llmeval.data.files import DISTRIBUTION, Source
from pytest_llmeval.data.rows import Row, rows_of_batch
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.text.wording import expected_one_of, quoted

__all__ = ["HubDataset", "load_split", "read_hub", "table_of"]

HubError: TypeAlias = Callable[[str, str], SuiteError]
"""Makes the error of a message and the key that it is about: ``hub``, ``config``, ``split``, ``revision``."""
_REACH_TIMEOUT_S = 5.0
"""The hub's own libraries retry for half a minute."""
_BATCH_ROWS = 1000
_STREAMED_ROWS = 32
_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SCRIPT = re.compile(r"scripts are no longer supported, but found (\S+)")
_CONFIGS = re.compile(r"(?:available configs:|Available:) (\[.*\])")


@dataclass(frozen=True, slots=True)
class HubDataset:
    """A data set of the hub, or another that ``datasets.load_dataset`` loads.

    ``arguments`` are further arguments of ``load_dataset``, such as ``data_files`` and ``data_dir``. With ``is_local``
    ``name`` may also be a folder, or a loader of ``datasets`` for files (``json``, ``parquet``).
    """

    name: str
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    streaming: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)
    is_local: bool = False

    @property
    def shown(self) -> str:
        """Return ``org/name (config, split)``."""
        parts = ", ".join(part for part in (self.config, self.split) if part is not None)
        return f"{self.name} ({parts})" if parts else self.name


def read_hub(dataset: HubDataset, error: HubError) -> Iterator[Row]:
    """Yield the rows of one split, one by one; with ``streaming`` no more are read than are asked for.

    Values are as ``rows_of_batch`` makes them: images and sounds are not decoded, and class labels are numbers. Raises
    what ``error`` makes for a data set that cannot be had, or several configs or splits where none is named.
    """
    table = load_split(dataset, error)
    try:
        import datasets

        split, config = getattr(table, "split", None), getattr(table, "config_name", None)
        dataset = replace(
            dataset,
            split=dataset.split or (None if split is None else str(split)),
            config=dataset.config or (None if config == "default" else config),
        )
        source = Source(Path(dataset.shown), dataset.shown)
        decoders = {name: decode for name, kind in (table.features or {}).items() if (decode := _decoder(kind))}
        if isinstance(table, datasets.IterableDataset) and table.features is not None:
            table = table.decode(False)
        number = 0
        for batch in table.with_format("arrow").iter(_STREAMED_ROWS if dataset.streaming else _BATCH_ROWS):
            for columns in rows_of_batch(source, batch):
                for name, decode in decoders.items():
                    columns[name] = decode(columns[name])
                number += 1
                yield Row(columns, source, number, None)
    except SuiteError:
        raise
    except Exception as problem:
        raise _explained(dataset, problem, error) from None


def load_split(dataset: HubDataset, error: HubError) -> Any:
    """Return one split as ``datasets`` has it, for code that works on such a table. Raises what ``read_hub`` raises."""
    if not dataset.is_local and _NAME.fullmatch(dataset.name) is None:
        raise error(f"found {quoted(dataset.name)}, expected the name of a data set as org/name", "hub")
    try:
        import datasets
    except ImportError:
        raise error(f"needs the package datasets: pip install '{DISTRIBUTION}[datasets]'", "hub") from None
    loaders = getattr(datasets.packaged_modules, "_PACKAGED_DATASETS_MODULES", ())
    if not dataset.is_local and dataset.name in loaders:  # it would read what lies in the current folder
        raise error(f"{dataset.name} reads files; name them with path", "hub")
    is_here = dataset.is_local and (dataset.name in loaders or os.path.exists(dataset.name))
    try:
        with nullcontext() if is_here else _offline_where_unreachable():
            return _split(dataset, _load(dataset, error), error)
    except SuiteError:
        raise
    except Exception as problem:
        raise _explained(dataset, problem, error) from None


def table_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as ``datasets`` has them, for code that works on such a table; a column that a row lacks is None
    there.

    Raises ``ValueError`` for a column whose values are of different types, and without the package ``datasets``.
    """
    try:
        import datasets
        import pyarrow
    except ImportError:
        raise ValueError(f"needs the package datasets: pip install '{DISTRIBUTION}[datasets]'") from None
    names = dict.fromkeys(name for row in rows for name in row)
    try:
        return datasets.Dataset.from_dict({name: [row.get(name) for row in rows] for name in names})
    except (pyarrow.ArrowException, TypeError) as problem:
        raise ValueError(_first_line(problem)) from None


def _split(dataset: HubDataset, loaded: Any, error: HubError) -> Any:
    if not isinstance(loaded, Mapping):
        return loaded
    names = [str(name) for name in loaded]
    if dataset.split is None:
        if len(names) == 1:
            return loaded[names[0]]
        raise error(f"{dataset.shown} has several splits, expected one of {', '.join(names)}", "split")
    if dataset.split in names:
        return loaded[dataset.split]
    if re.search(r"[\[+]", dataset.split):
        return _load(dataset, error, split=dataset.split)
    known = expected_one_of(dataset.split, names)
    raise error(f"{replace(dataset, split=None).shown} has no split {quoted(dataset.split)}{known}", "split")


def _load(dataset: HubDataset, error: HubError, **more: Any) -> Any:
    """Return what ``load_dataset`` gives: without a network from the commit's files, if the hub's cache holds them."""
    import datasets

    arguments: dict[str, Any] = {**dataset.arguments, **more}
    if dataset.config is not None:
        arguments["name"] = dataset.config
    if dataset.streaming:
        arguments["streaming"] = True
    is_offline = bool(datasets.config.HF_HUB_OFFLINE)
    files = _cached_files(dataset) if is_offline else None
    if files is not None:
        script = files / f"{dataset.name.rpartition('/')[2]}.py"
        if script.is_file():
            raise _script_error(dataset, script.name, error)
        try:
            return datasets.load_dataset(os.fspath(files), **arguments)
        except datasets.exceptions.DataFilesNotFoundError:
            pass  # the files of another config; what is needed may be in the other cache
    if dataset.revision is not None:
        arguments["revision"] = dataset.revision
    if is_offline and dataset.revision is not None and dataset.streaming:
        raise _not_cached(dataset, error)
    hides = not dataset.is_local and os.path.isdir(dataset.name)  # a folder here that is called as the data set is
    loaded = datasets.load_dataset(f"hf://datasets/{dataset.name}" if hides else dataset.name, **arguments)
    if is_offline and dataset.config is None and not dataset.is_local:
        configs = {getattr(table, "config_name", None) for table in _tables(loaded)}
        for config in configs - {None, "default"}:  # the only one that was ever loaded, of an unknown number
            raise error(f"the local cache holds {dataset.name} ({config}) in part; name the config", "config")
    wanted = dataset.revision if files is None else files.name  # a branch's commit is known from the hub's cache
    if wanted is not None and (is_offline or _COMMIT.fullmatch(wanted) is not None):
        _check_commit(dataset, loaded, wanted, error)
    return loaded


def _check_commit(dataset: HubDataset, loaded: Any, wanted: str, error: HubError) -> None:
    """Raise for tables of ``datasets``' own cache, whose folders are called as the commit, that are of another one."""
    for table in _tables(loaded):
        for file in getattr(table, "cache_files", None) or ():
            commit = Path(file["filename"]).parent.name
            if _COMMIT.fullmatch(commit) is not None and commit != wanted and dataset.revision is not None:
                raise error(
                    f"the hub cannot be reached, and the local cache holds {dataset.name} at the commit {commit}, "
                    f"expected {dataset.revision}",
                    "revision",
                )


def _tables(loaded: Any) -> list[Any]:
    return [*loaded.values()] if isinstance(loaded, Mapping) else [loaded]


def _cached_files(dataset: HubDataset) -> Path | None:
    """Return the folder in the hub's cache that holds the files of the data set's commit."""
    import huggingface_hub

    if dataset.is_local and ("/" not in dataset.name or os.path.exists(dataset.name)):
        return None
    try:
        folder = huggingface_hub.snapshot_download(
            dataset.name, repo_type="dataset", revision=dataset.revision, local_files_only=True
        )
    except (OSError, ValueError):  # not there, or no name of a data set
        return None
    return Path(folder)


def _decoder(kind: Any) -> Callable[[Any], Any] | None:
    """Return a function that makes JSON values of what the feature ``kind`` stores as text; None if it stores none."""
    import json

    name = type(kind).__name__
    if name == "Json":
        return lambda value: json.loads(value) if isinstance(value, str) else value
    if isinstance(kind, dict):
        inner = {key: decode for key, part in kind.items() if (decode := _decoder(part)) is not None}
        if not inner:
            return None
        return lambda value: value and {**value, **{key: decode(value[key]) for key, decode in inner.items()}}
    if name in ("List", "LargeList") and (of_one := _decoder(kind.feature)) is not None:
        return lambda value: value and [of_one(part) for part in value]
    return None


def _explained(dataset: HubDataset, problem: Exception, error: HubError) -> SuiteError:
    text = str(problem)
    if (found := _SCRIPT.search(text)) is not None:
        return _script_error(dataset, found.group(1), error)
    if (found := _CONFIGS.search(text)) is not None:
        try:
            names = [str(name) for name in ast.literal_eval(found.group(1))]
        except (ValueError, SyntaxError):
            names = []
        if dataset.config is None:
            return error(f"{dataset.name} has several configs, expected one of {', '.join(names)}", "config")
        known = expected_one_of(dataset.config, names)
        return error(f"{dataset.name} has no config {quoted(dataset.config)}{known}", "config")
    if isinstance(problem, ConnectionError):
        return _not_cached(dataset, error)
    reason = _first_line(problem)
    if problem.__cause__ is not None:
        reason += f": {_first_line(problem.__cause__)}"
    key = "revision" if reason.startswith("Revision ") else "hub"
    return error(f"{dataset.shown} cannot be loaded: {reason}", key)


def _first_line(problem: BaseException) -> str:
    return " ".join(str(problem).strip().partition("\n")[0].split()).rstrip(".") or type(problem).__name__


def _not_cached(dataset: HubDataset, error: HubError) -> SuiteError:
    import datasets

    is_switched_off = datasets.config.HF_HUB_OFFLINE and not _is_known_unreachable()
    why = "HF_HUB_OFFLINE is set" if is_switched_off else "the hub cannot be reached"
    revision = "" if dataset.revision is None else f" at the revision {quoted(dataset.revision)}"
    return error(
        f"{why}, and the local cache does not hold {dataset.shown}{revision}; load it once with a network, or name "
        "files with path",
        "hub",
    )


def _script_error(dataset: HubDataset, script: str, error: HubError) -> SuiteError:
    return error(
        f"{dataset.name} is made by a script, {script}, and no code of a data set is run; use a copy in data files "
        "(many have one at revision: refs/convert/parquet)",
        "hub",
    )


def answers(endpoint: str, timeout_s: float) -> bool:
    """Tell whether a server answers at all, through the proxies of the environment, within ``timeout_s``."""
    import huggingface_hub

    found: list[bool] = []

    def ask() -> None:
        try:
            huggingface_hub.get_session().head(endpoint, timeout=timeout_s)
        except Exception:  # an error of the HTTP library, whichever huggingface_hub uses
            return
        found.append(True)

    # A thread, since a name server that does not answer knows no timeout.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout_s)
    return bool(found)


@functools.cache
def hub_answers() -> bool:
    """Tell whether the hub answers; asked once in a process."""
    from huggingface_hub import constants

    return answers(constants.ENDPOINT, _REACH_TIMEOUT_S)


def _is_known_unreachable() -> bool:
    """Tell whether the hub was asked and did not answer."""
    return hub_answers.cache_info().currsize > 0 and not hub_answers()


@contextmanager
def _offline_where_unreachable() -> Iterator[None]:
    """Work as with ``HF_HUB_OFFLINE`` where the hub does not answer: what is in the caches is read, and nothing
    waits.
    """
    import datasets
    from huggingface_hub import constants

    if datasets.config.HF_HUB_OFFLINE or constants.HF_HUB_OFFLINE or hub_answers():
        yield
        return
    before = datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before
