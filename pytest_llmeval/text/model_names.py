"""Short names of models, for node ids and tables: what a user wrote after ``--llm-model`` can be a long path."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

__all__ = ["short_names"]

_SEPARATOR = re.compile(r"[/\\]")
_URL = re.compile(r"https?://(?:[^/?#@]*@)?([^/?#]+)", re.IGNORECASE)


def short_names(models: Sequence[str]) -> tuple[str, ...]:
    """A name for each of ``models``, all different: the last part of its id or path, and the parts before it that are
    needed to distinguish it from the others.

    ``org/llama`` is ``llama``; beside ``mine/llama`` both keep two parts. A server is its model's name where the user
    gave one, else its host and port. Arguments of other kinds after ``?`` stay whole. What cannot be told apart by its
    parts (``llama`` and ``./llama``) is numbered.
    """
    parts = [_parts(model) for model in models]
    depths = [1] * len(parts)
    while True:
        names = ["/".join(own[-depth:]) for own, depth in zip(parts, depths, strict=True)]
        short = [
            place for place, name in enumerate(names) if names.count(name) > 1 and depths[place] < len(parts[place])
        ]
        if not short:
            return _numbered(names)
        for place in short:
            depths[place] += 1


def _parts(model: str) -> list[str]:
    if match := _URL.match(model):
        rest = model[match.end() :]
        name = re.search(r"#([^?]+)|[?&]model=([^&#]+)", rest)
        return [match[1], *filter(None, (name[1] or name[2]).split("/"))] if name else [match[1]]
    location, mark, arguments = model.partition("?")
    if mark:
        *above, last = _parts(location) if location else [""]
        return [*above, f"{last}?{arguments}"]
    parts = [part for part in _SEPARATOR.split(model) if part not in ("", ".")]
    if not parts or parts[-1] in ("..", "~"):  # a folder that is written without its name
        parts = [part for part in _SEPARATOR.split(os.path.abspath(os.path.expanduser(model))) if part]
    return parts or [model]


def _numbered(names: Sequence[str]) -> tuple[str, ...]:
    taken: set[str] = set()
    unique = []
    for name in names:
        number, candidate = 1, name
        while candidate in taken or (number > 1 and candidate in names):
            number += 1
            candidate = f"{name}-{number}"
        taken.add(candidate)
        unique.append(candidate)
    return tuple(unique)
