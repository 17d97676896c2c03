"""Node ids of samples, written and read.

``suites/boolq.yaml::q17``, and where several models are given ``suites/boolq.yaml::gpt2::q17``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmeval.models.names import short_names

__all__ = ["SampleNode", "escape_id", "model_nodes", "unescape_id"]

_UNSAFE = re.compile(r"%|\[|\]|:(?=:)|(?<=:):|[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def escape_id(sample_id: str) -> str:
    """The sample's node name: what pytest gives a meaning to in a node id is percent-encoded, also ``%`` itself."""
    if sample_id.isascii() and sample_id.isalnum():
        return sample_id  # as nearly all are
    return _UNSAFE.sub(_percent, unicodedata.normalize("NFC", sample_id))


def unescape_id(name: str) -> str:
    """The opposite of ``escape_id``."""
    return re.sub(
        r"(?:%[0-9A-F]{2})+",
        lambda match: bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "surrogatepass"),
        name,
    )


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def model_nodes(models: Sequence[str]) -> dict[str, str]:
    """The node name of each of the models of ``--llm-model``: its short name, escaped. None ends with a colon."""
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
        """Take the node id of a sample apart: in no part of it two colons stand together."""
        path, *levels = nodeid.split("::")
        if path.endswith(".py") and len(levels) > 1:
            path, *levels = f"{path}::{levels[0]}", *levels[1:]
        return cls(path, levels[0] if len(levels) == 2 else None, unescape_id(levels[-1] if levels else ""))
