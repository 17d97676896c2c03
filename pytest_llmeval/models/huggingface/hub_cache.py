"""Where the hub's cache keeps a model on disk, read without the hub's library and without a network.

The layout is ``CACHE/models--ORG--NAME/{refs/REVISION, snapshots/COMMIT/}``; a ref's file holds the commit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["cached_snapshot", "hub_cache_folder", "is_offline"]

_TRUE = {"1", "ON", "YES", "TRUE"}
_COMMIT = re.compile(r"[0-9a-f]{40}")


def is_offline(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment tells the hub's library to stay off the network."""
    return any(environ.get(name, "").upper() in _TRUE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def hub_cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the hub's cache, by the environment variables that the hub's library reads."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(name):
            return Path(environ[name]).expanduser()
    home = environ.get("HF_HOME")
    if not home:
        home = os.path.join(environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(home).expanduser() / "hub"


def cached_snapshot(repo: str, revision: str | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The cached folder of ``repo`` at ``revision`` (``main`` for None; a branch, tag or commit), or None."""
    root = hub_cache_folder(environ) / ("models--" + repo.replace("/", "--"))
    revision = revision or "main"
    if not _COMMIT.fullmatch(revision):
        try:
            revision = (root / "refs" / revision).read_text("utf-8").strip()
        except OSError:
            return None
    snapshot = root / "snapshots" / revision
    return snapshot if snapshot.is_dir() else None
