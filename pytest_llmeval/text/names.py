"""The names of models, written out and short, and the node ids of samples.

A node id is ``suites/boolq.yaml::q17``; with several models it is ``suites/boolq.yaml::gpt2::q17``, and with variants
``suites/boolq.yaml::polite::q17`` or ``suites/boolq.yaml::gpt2::polite::q17``.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

__all__ = [
    "PYTHON_OPERATION",
    "SampleNode",
    "escape_id",
    "escape_text",
    "model_nodes",
    "plain_name",
    "plain_server_name",
    "short_names",
    "split_file",
    "unescape_id",
    "without_arguments",
]


_SERVER_OPERATION = (
    *("timeout", "max_connections", "requests_per_minute", "price_in", "price_out", "api_key_env"),
    *("launch.command", "launch.timeout"),
)
PYTHON_OPERATION = ("concurrency", "timeout", "shown", "max_connections", "price_in", "price_out")
"""Arguments that say how a model is asked or shown, and decide none of its replies."""

_SERVER_KINDS = ("openai:", "anthropic:", "ollama:", "vllm:", "llama-cpp:")
_SEPARATOR = re.compile(r"[/\\]")
_URL = re.compile(r"https?://(?:[^/?#@]*@)?([^/?#]+)", re.IGNORECASE)


def plain_name(name: str) -> str:
    """Return a model's name without the arguments that decide no reply, which earlier versions wrote with it."""
    if name.startswith("python:"):
        return without_arguments(name, PYTHON_OPERATION)
    is_server = _URL.match(name) is not None or name.startswith(_SERVER_KINDS)
    return plain_server_name(name) if is_server else name


def without_arguments(text: str, names: Collection[str]) -> str:
    """Return ``LOCATION?a=1&b=2`` without the arguments of these names."""
    location, _, arguments = text.partition("?")
    kept = [part for part in arguments.split("&") if _argument(part) not in names]
    return "?".join(filter(None, (location, "&".join(kept))))


def plain_server_name(text: str) -> str:
    """Return the text that names a model behind servers, without how it is asked and without further servers.

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
    """Return a different name for each model: the last part of its id or path, and more parts where two are alike.

    ``org/llama`` is ``llama``; beside ``mine/llama`` both keep two parts. A server has its model's name if the user
    gave one, else its host and port. Arguments after ``?`` stay whole. Models that still have the same name (``llama``
    and ``./llama``) are numbered.
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


_UNSAFE = re.compile(r"%|\[|\]|:(?=:)|(?<=:):|[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_FILE = re.compile(r"(.*?\.(?:yaml|yml|py))(?:::(.*))?", re.DOTALL)


def split_file(nodeid: str) -> tuple[str, str]:
    """Return the file of a node id, and the text behind it. A folder may have two colons in its name."""
    match = _FILE.fullmatch(nodeid)
    if match is None:
        file, _, levels = nodeid.partition("::")
        return file, levels
    return match[1], match[2] or ""


def escape_id(sample_id: str) -> str:
    """Return the sample's node name. Characters with a meaning in node ids are percent-encoded, and so is ``%``.

    ``@`` is one of them: under ``--dist loadgroup`` pytest-xdist writes a group behind it, and reads it from there.
    """
    if sample_id.isascii() and sample_id.isalnum():
        return sample_id  # as most are
    return escape_text(sample_id).replace("@", "%40")


def escape_text(text: str) -> str:
    """Return a text as it stands in brackets in a node id."""
    return _UNSAFE.sub(_percent, unicodedata.normalize("NFC", text))


def unescape_id(name: str) -> str:
    """Return the opposite of ``escape_id``."""
    return re.sub(
        r"(?:%[0-9A-F]{2})+",
        lambda match: bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "surrogatepass"),
        name,
    )


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def model_nodes(models: Sequence[str]) -> dict[str, str]:
    """Return the node name of each model of ``--llm-model``: its short name, escaped, without a colon at either end."""
    names = (escape_id(name) for name in short_names(models))
    return {model: re.sub(r"^:|:$", _percent, name) for model, name in zip(models, names, strict=True)}


@dataclass(frozen=True, slots=True)
class SampleNode:
    """A sample's node id, taken apart.

    ``path`` is the suite's, its file or ``file.py::Class``. ``levels`` are the names between it and the sample: of the
    model if there are several, then of the variant if there are any.
    """

    path: str
    levels: tuple[str, ...]
    sample_id: str

    @classmethod
    def parse(cls, nodeid: str) -> SampleNode:
        """Take the node id of a sample apart. No part of it has two colons side by side.

        A group that pytest-xdist has written behind it is left out.
        """
        path, rest = split_file(nodeid)
        rest = rest.partition("@")[0]
        levels = rest.split("::") if rest else []
        if path.endswith(".py") and len(levels) > 1:
            path, *levels = f"{path}::{levels[0]}", *levels[1:]
        return cls(path, tuple(levels[:-1]), unescape_id(levels[-1] if levels else ""))

    def suite_and_model(self, paths: Collection[str | None]) -> tuple[str, str | None]:
        """Return the path of the suite, or of its variant, and the name of the level of the model, if there is one.

        ``paths`` are those of the session's suites and variants.
        """
        variant = f"{self.path}::{self.levels[-1]}" if self.levels else self.path
        if variant in paths:
            return variant, self.levels[0] if len(self.levels) > 1 else None
        return self.path, self.levels[0] if self.levels else None
