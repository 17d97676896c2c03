"""Node ids of samples, written and read.

``suites/boolq.yaml::q17``, and where several models are given ``suites/boolq.yaml::gpt2::q17``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmeval.text.model_names import short_names

__all__ = ["SampleNode", "escape_id", "escape_text", "model_nodes", "split_file", "unescape_id"]

_UNSAFE = re.compile(r"%|\[|\]|:(?=:)|(?<=:):|[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_FILE = re.compile(r"(.*?\.(?:yaml|yml|py))(?:::(.*))?", re.DOTALL)


def split_file(nodeid: str) -> tuple[str, str]:
    """Return the file of a node id, and what stands behind it. A folder may have two colons in its name."""
    match = _FILE.fullmatch(nodeid)
    if match is None:
        file, _, levels = nodeid.partition("::")
        return file, levels
    return match[1], match[2] or ""


def escape_id(sample_id: str) -> str:
    """Return the sample's node name: what pytest gives a meaning to in a node id is percent-encoded, also ``%`` itself.

    So is ``@``: under ``--dist loadgroup`` pytest-xdist writes a group behind it, and reads it from there.
    """
    if sample_id.isascii() and sample_id.isalnum():
        return sample_id  # as nearly all are
    return escape_text(sample_id).replace("@", "%40")


def escape_text(text: str) -> str:
    """A text that stands in brackets in a node id."""
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
    """Return the node name of each of the models of ``--llm-model``: its short name, escaped. None ends with a
    colon.
    """
    names = (escape_id(name) for name in short_names(models))
    return {model: re.sub(r"^:|:$", _percent, name) for model, name in zip(models, names, strict=True)}


@dataclass(frozen=True, slots=True)
class SampleNode:
    """A sample's node id, taken apart.

    ``path`` is the suite's: that of its file, or ``file.py::Class``. ``model`` is the name of the level between them.
    """

    path: str
    model: str | None
    sample_id: str

    @classmethod
    def parse(cls, nodeid: str) -> SampleNode:
        """Take the node id of a sample apart: in no part of it two colons stand together.

        A group that pytest-xdist has written behind it is left out.
        """
        path, rest = split_file(nodeid)
        rest = rest.partition("@")[0]
        levels = rest.split("::") if rest else []
        if path.endswith(".py") and len(levels) > 1:
            path, *levels = f"{path}::{levels[0]}", *levels[1:]
        return cls(path, levels[0] if len(levels) == 2 else None, unescape_id(levels[-1] if levels else ""))
