"""A suite that was read: what it says, its samples, and where each part stands."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.files import Source
from pytest_llmeval.suites.overrides import Override
from pytest_llmeval.suites.schema import SuiteSpec
from pytest_llmeval.suites.templates import Templates
from pytest_llmeval.suites.wording import Keys, dotted, quoted
from pytest_llmeval.suites.yaml_lines import Document
from pytest_llmeval.types import Sample

__all__ = ["Origin", "Suite"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a suite's keys come from: lines of its file, or overrides."""

    document: Document
    overrides: tuple[Override, ...] = ()

    @property
    def source(self) -> Source:
        """The suite file."""
        return self.document.source

    def error(self, message: str, keys: Keys = ()) -> SuiteError:
        """A ``SuiteError`` at the line of ``keys``, or one that names the override that set them."""
        for override in reversed(self.overrides):
            is_inside = override.keys == keys[: len(override.keys)]
            is_made = keys == override.keys[: len(keys)] and keys not in self.document.lines
            if keys and (is_inside or is_made):
                return self.source.error(f"--llm-set {quoted(override.text)}: {message}")
        return self.source.error(message, self.document.line(keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite and its selected samples, in order.

    ``line`` is that of the key ``suite``. ``overridden`` are the texts of the overrides that changed it. ``shots`` are
    all few-shot examples in the order in which they are drawn; a prompt shows the first of them.
    """

    name: str
    path: Path
    line: int
    spec: SuiteSpec
    samples: tuple[Sample, ...]
    overridden: tuple[str, ...] = ()
    shots: tuple[Sample, ...] = ()
    origin: Origin = field(repr=False, compare=False)
    templates: Templates = field(repr=False, compare=False)

    def shots_for(self, sample: Sample) -> tuple[Sample, ...]:
        """The few-shot examples of this sample's prompt: the same for every sample, but never the sample's own row.

        Raises ``SuiteError`` where there are too few.
        """
        fewshot = self.spec.prompt.fewshot
        if fewshot is None or fewshot.count == 0:
            return ()
        row = sample.variables["row"]
        shots = tuple(islice((shot for shot in self.shots if shot.variables["row"] != row), fewshot.count))
        if len(shots) < fewshot.count:
            keys = ("prompt", "fewshot", "count")
            raise self.error(
                f"found {len(shots)} examples beside the sample itself, expected {fewshot.count}", sample, keys
            )
        return shots

    def place(self, sample: Sample) -> str:
        """``file:line`` of the sample, the file as the user knows it."""
        shown = self._shown(sample.path)
        return shown if sample.line is None else f"{shown}:{sample.line}"

    def error(self, message: str, sample: Sample | None = None, keys: Sequence[str | int] = ()) -> SuiteError:
        """A ``SuiteError`` at the line of ``keys`` if they are given, else at the sample's own, else at the suite's.

        The message names the sample, and the keys.
        """
        if not keys:
            if sample is None:
                return self.origin.error(message, ("suite",))
            return SuiteError(f"sample {quoted(sample.id)}: {message}", path=self._shown(sample.path), line=sample.line)
        where = f"sample {quoted(sample.id)} ({self.place(sample)}): " if sample is not None else ""
        return self.origin.error(f"{dotted(tuple(keys))}: {where}{message}", tuple(keys))

    def _shown(self, path: str) -> str:
        source = self.origin.source
        if path == os.fspath(source.path):
            return source.shown
        try:
            relative = os.path.relpath(path, source.path.parent)
        except ValueError:  # on another drive
            return path
        return source.beside(relative).shown
