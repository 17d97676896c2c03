"""From an option's text to its value.

Each raises ``ValueError`` with what is expected, or with what was found and expected, or ``OptionError`` with the whole
message. Like ``table.py``, this module is imported by every pytest run that has the plugin installed: what few runs
need is imported when its option is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

__all__ = ["SampleLimit", "Shard"]


@dataclass(frozen=True, slots=True)
class SampleLimit:
    """The number of samples of each suite that run: ``count`` of them, the first or a random choice by ``seed``."""

    count: int
    first: bool = False
    seed: int = 0

    def __str__(self) -> str:
        return (
            f"first:{self.count}" if self.first else f"{self.count}:seed={self.seed}" if self.seed else str(self.count)
        )


@dataclass(frozen=True, slots=True)
class Shard:
    """Part ``number`` of ``count`` parts of a session, counted from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def text(value: str) -> str:
    if not value.strip():
        raise ValueError("expected some text")
    return value


def model(value: str) -> str:
    return text(value).strip()


def of(name: str) -> Callable[[str], Any]:
    """Return what another module makes of the text, ``module:function``: imported when its option is given."""
    return lambda value: resolve_name(f"pytest_llmeval.{name}")(text(value))


def flag(value: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    try:
        return known[value.strip().lower()]
    except KeyError:
        raise ValueError("expected true or false") from None


def device(value: str) -> str:
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", value):
        raise ValueError("expected cpu, cuda, cuda:N or mps")
    return value


def positive(value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value) or int(value) == 0:
        raise ValueError("expected a whole number above 0")
    return int(value)


def gpus(value: str) -> float:
    if not re.fullmatch(r"[0-9]{1,4}|0?\.[0-9]{1,4}", value):
        raise ValueError("expected a whole number, or a part of one GPU, such as 0.5")
    return float(value)


def address(value: str) -> str:
    found = text(value).strip()
    if not re.fullmatch(r"local|auto|[^\s/:]+:[0-9]{1,5}|\[[0-9a-fA-F:]+\]:[0-9]{1,5}", found):
        raise ValueError("expected local, auto or HOST:PORT")
    return found


def limit(value: str) -> SampleLimit:
    found = re.fullmatch(r"(first:)?([0-9]{1,9})|([0-9]{1,9}):seed=([0-9]{1,9})", value)
    if found is None or int(found[2] or found[3]) == 0:
        raise ValueError("expected N, N:seed=S or first:N, with N from 1 to 999,999,999")
    return SampleLimit(int(found[2] or found[3]), first=found[1] is not None, seed=int(found[4] or 0))


def suite(value: str) -> str:
    prefix, colon, names = value.strip().partition(":")
    if prefix != "lm_eval" or not colon or not all(name.removeprefix("lm_eval:").strip() for name in names.split(",")):
        raise ValueError("expected lm_eval:NAME, a task, group or tag of the installed lm_eval package")
    return value.strip()


def optional_path(value: str) -> Path | None:
    """Return a path; ``none`` for no path, though the ini file or the environment gives one."""
    return None if value == "none" else path(value)


def path(value: str) -> Path:
    return Path(text(value))


def one_of(*names: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in names:
            raise ValueError(f"expected {', '.join(names[:-1])} or {names[-1]}")
        return value

    return parse


def count(value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise ValueError("expected a whole number, 0 or more")
    return int(value)


def shard(value: str) -> Shard:
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", value.strip())
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ValueError("expected I/N with I from 1 to N, such as 2/5")
    return Shard(int(found[1]), int(found[2]))
