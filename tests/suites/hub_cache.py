"""Data sets in the two caches of this machine, as a download and ``datasets`` would have left them there."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

__all__ = ["as_jsonl", "as_parquet", "cache_files", "cache_tables", "configs_card"]


def cache_files(home: Path, name: str, commit: str, files: Mapping[str, bytes], *, branch: str = "main") -> Path:
    """The hub's cache: ``blobs`` by their hash, ``snapshots`` of links to them, ``refs`` to the commits."""
    folder = home / "hub" / f"datasets--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    for path, data in files.items():
        blob = folder / "blobs" / hashlib.sha256(data).hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        link = snapshot / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / branch).write_text(commit, encoding="ascii")
    return snapshot


def cache_tables(home: Path, name: str, commit: str, config: str, prepared: Path) -> None:
    """The cache of ``datasets``: the tables in ``prepared``, made of files, as those of a data set of the hub."""
    namespace, _, repository = name.partition("/")
    folder = home / "datasets" / f"{namespace}___{repository}" / config / "0.0.0" / commit
    shutil.copytree(prepared, folder)
    info = json.loads((folder / "dataset_info.json").read_text(encoding="utf-8"))
    old = info["dataset_name"]
    info |= {"dataset_name": repository, "config_name": config}
    for split in info["splits"].values():
        split["dataset_name"] = repository
    (folder / "dataset_info.json").write_text(json.dumps(info), encoding="utf-8")
    for path in folder.glob("*.arrow"):
        path.rename(path.with_name(path.name.replace(old, repository)))


def configs_card(files: Mapping[str, Mapping[str, str]]) -> bytes:
    """A README.md that says which files belong to which split of which config."""
    configs = [
        {"config_name": config, "data_files": [{"split": split, "path": path} for split, path in splits.items()]}
        for config, splits in files.items()
    ]
    return f"---\n{json.dumps({'configs': configs})}\n---\n# A data set\n".encode()


def as_jsonl(rows: list[dict[str, Any]]) -> bytes:
    """The rows as JSONL."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    """The rows as Parquet."""
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file.getvalue()
