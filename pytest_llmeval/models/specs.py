"""What ``--llm-model`` means: one spec for each text."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from pytest_llmeval.errors import OptionError
from pytest_llmeval.models.python.importing import concurrency_of, split_target
from pytest_llmeval.models.spec_arguments import check_names, hide_secrets, parse_arguments, split_arguments
from pytest_llmeval.text.redaction import one_line
from pytest_llmeval.types import JSON

__all__ = ["ModelSpec", "demo_folder", "parse_model_spec"]

_RESERVED = ("openai",)

_GUESSING = ("random", "majority")

_EXPECTED = (
    "expected demo, a Hugging Face id (org/name), a checkpoint folder, replay:FILE, python:MODULE:NAME, random "
    "or majority"
)

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?", re.ASCII)

_LONGEST_HUB_ID = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model as the user named it.

    ``name`` is the text that the user gave, without secrets, and the key of the model's records. ``location`` is the
    folder, absolute, for ``kind`` folder; the repository's id for ``hub``; the file for ``replay``; ``module:name`` for
    ``python``; ``random`` or ``majority`` for ``guessing``. ``arguments`` are what stands after ``?``.
    """

    name: str
    kind: Literal["folder", "hub", "replay", "python", "guessing"]
    location: str
    arguments: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def runs_here(self) -> bool:
        """Whether it is a checkpoint that a device of this machine runs."""
        return self.kind in ("folder", "hub")


def demo_folder() -> Path:
    """The folder of the checkpoint that ships in the package, which ``demo`` means."""
    return Path(__file__).resolve().parent.parent / "demo_model"


def parse_model_spec(text: str) -> ModelSpec:
    """What ``--llm-model TEXT`` means.

    ``demo``, ``replay:FILE``, ``python:MODULE:NAME``, ``random``, ``majority``, a folder, or a hub id ``org/name`` or
    ``name``.

    A text that names an existing folder, or is written as a path (``./x``, ``/x``, ``~/x``, two separators), is a
    folder; whether it can be loaded is ``check_model``'s to say. Raises ``OptionError`` for anything else that no hub
    id can be.
    """
    name = text.strip()
    if not name:
        raise OptionError(f"--llm-model is empty: {_EXPECTED}")
    if name == "demo":
        return ModelSpec(name=name, kind="folder", location=str(demo_folder()))
    prefix, colon, rest = name.partition(":")
    if colon and prefix in ("replay", "python"):
        return _with_arguments(name, cast("Literal['replay', 'python']", prefix), rest.strip())
    if split_arguments(name)[0] in _GUESSING:
        return _guessing(name)
    if colon and prefix in _RESERVED:
        raise OptionError(f"--llm-model {one_line(name)}: {prefix}: models are not available in this version")
    if _is_path(name):
        return ModelSpec(name=name, kind="folder", location=os.path.abspath(os.path.expanduser(name)))
    if not _HUB_ID.fullmatch(name) or len(name) > _LONGEST_HUB_ID or "--" in name or ".." in name:
        raise OptionError(f"--llm-model {one_line(name)!r}: {_EXPECTED}")
    return ModelSpec(name=name, kind="hub", location=name)


def _with_arguments(text: str, kind: Literal["replay", "python"], rest: str) -> ModelSpec:
    name = hide_secrets(text)
    location, after = split_arguments(rest)
    arguments = parse_arguments(after, text)
    if kind == "python":
        split_target(location, name)
        concurrency_of(arguments, name)
    else:
        if not location:
            raise OptionError(f"--llm-model {name}: expected replay:FILE, such as replay:outputs.jsonl")
        from pytest_llmeval.models.replay.file import ReplayArguments

        ReplayArguments.of(arguments, name)
    return ModelSpec(name=name, kind=kind, location=location, arguments=arguments)


def _guessing(name: str) -> ModelSpec:
    kind, after = split_arguments(name)
    arguments = parse_arguments(after, name)
    check_names(arguments, ("seed",) if kind == "random" else (), name)
    seed = arguments.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise OptionError(f"--llm-model {name}: seed is {seed!r}, expected a whole number")
    return ModelSpec(name=name, kind="guessing", location=kind, arguments={"seed": seed})


def _is_path(name: str) -> bool:
    separators = {os.sep, os.altsep or os.sep}
    if name in {".", ".."} or name[0] in {"~", *separators}:
        return True
    if "://" in name:
        return False
    if any(name.startswith((f".{s}", f"..{s}")) or name.endswith(s) for s in separators):
        return True
    if sum(name.count(s) for s in separators) > 1:
        return True
    return os.path.exists(name)
