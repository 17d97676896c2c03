"""Names of models: without what decides no reply, and short ones for node ids and tables."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from urllib.parse import unquote

__all__ = ["PYTHON_OPERATION", "plain_name", "plain_server_name", "short_names", "without_arguments"]

_SERVER_OPERATION = ("timeout", "max_connections", "price_in", "price_out", "api_key_env")
PYTHON_OPERATION = ("concurrency", "timeout", "shown", "max_connections", "price_in", "price_out")
"""Arguments that say how a model is asked or shown, and decide none of its replies."""

_SEPARATOR = re.compile(r"[/\\]")
_URL = re.compile(r"https?://(?:[^/?#@]*@)?([^/?#]+)", re.IGNORECASE)


def plain_name(name: str) -> str:
    """Return a model's name without the arguments that decide no reply: what versions before this one wrote with
    them.
    """
    if name.startswith("python:"):
        return without_arguments(name, PYTHON_OPERATION)
    is_server = _URL.match(name) is not None or name.startswith(("openai:", "anthropic:", "ollama:"))
    return plain_server_name(name) if is_server else name


def without_arguments(text: str, names: Collection[str]) -> str:
    """``LOCATION?a=1&b=2`` without the arguments of these names."""
    location, _, arguments = text.partition("?")
    kept = [part for part in arguments.split("&") if _argument(part) not in names]
    return "?".join(filter(None, (location, "&".join(kept))))


def plain_server_name(text: str) -> str:
    """Return the text that names a model behind servers: how it is asked is left out, and further servers that share
    the work.

    A URL may have the model's name behind ``#``.
    """
    is_url = _URL.match(text) is not None
    location, _, rest = text.partition("?")
    arguments, sharp, model = rest.partition("#") if is_url else (rest, "", "")
    kept = "&".join(_deciding(arguments.split("&"), has_url=is_url))
    return f"{'?'.join(filter(None, (location, kept)))}{sharp}{model}"


def _deciding(arguments: Sequence[str], *, has_url: bool) -> Iterator[str]:
    for part in arguments:
        name = _argument(part)
        if name == "base_url":
            if not has_url:
                yield part.partition(",")[0]  # without the server's own key and number of connections
            has_url = True
        elif name not in _SERVER_OPERATION:
            yield part


def _argument(part: str) -> str:
    return unquote(part.partition("=")[0]).strip()


def short_names(models: Sequence[str]) -> tuple[str, ...]:
    """Return a name for each of ``models``, all different: the last part of its id or path, and the parts before it
    that are needed to distinguish it from the others.

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
