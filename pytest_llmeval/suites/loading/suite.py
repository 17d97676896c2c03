"""A suite that was read: its settings, its samples, and the line at which each part stands."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pytest_llmeval.data.files import Source, read_text
from pytest_llmeval.data.rows import NoColumnError, column_value
from pytest_llmeval.data.yaml_reader import Document, read_yaml
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.format.overrides import Override
from pytest_llmeval.suites.format.schema import SuiteSpec
from pytest_llmeval.suites.format.variants import Variant
from pytest_llmeval.suites.loading.fewshot import FewshotError, Shots
from pytest_llmeval.suites.presets import Preset
from pytest_llmeval.templates.templates import Templates
from pytest_llmeval.text.wording import MAX_LISTED, Keys, dotted, expected_one_of, quoted
from pytest_llmeval.types import JSON, Sample

__all__ = ["NO_SCORERS", "Origin", "ScoreFiles", "Suite"]


_RESPONSE = re.compile(r"\bresponse\b")

NO_SCORERS: Mapping[str, Callable[..., Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a suite's keys: lines of its file, its preset, or overrides."""

    document: Document
    overrides: tuple[Override, ...] = ()
    preset: Preset | None = None

    @property
    def source(self) -> Source:
        """Return the suite file."""
        return self.document.source

    def error(self, message: str, keys: Keys = ()) -> SuiteError:
        """Return a ``SuiteError`` at the line of ``keys``, or one that names the override that set them."""
        for override in reversed(self.overrides):
            is_inside = override.keys == keys[: len(override.keys)]
            is_made = keys == override.keys[: len(keys)] and keys not in self.document.lines
            if keys and (is_inside or is_made):
                line = None if override.at is None else self.document.line(override.at)
                return self.source.error(f"{override.where}: {message}", line)
        if self.preset is not None and keys and keys not in self.document.lines and self.preset.has(keys):
            return self.source.error(f"preset {self.preset.name}: {message}", self.document.line(("preset",)))
        return self.source.error(message, self.document.line(keys))

    def error_at(self, keys: Keys, problem: str) -> SuiteError:
        """Return ``error`` at ``keys``, which the message names."""
        return self.error(f"{dotted(keys)}: {problem}", keys)

    def place(self, sample: Sample) -> str:
        """Return ``file:line`` of the sample, the file as the user knows it."""
        shown = self.shown(sample.path)
        return shown if sample.line is None else f"{shown}:{sample.line}"

    def shown(self, path: str) -> str:
        """Return a file beside the suite, as the user knows it."""
        source = self.source
        if path == os.fspath(source.path):
            return source.shown
        try:
            relative = os.path.relpath(path, source.path.parent)
        except ValueError:  # on another drive
            return path
        return source.beside(relative).shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite and its selected samples, in order.

    ``line`` is that of the key ``suite``. ``overridden`` are the texts of the overrides that changed it,
    ``warnings`` lines on what was read and may not be meant. ``varied`` makes the suite of one of its variants.
    """

    name: str
    path: Path
    line: int
    spec: SuiteSpec
    samples: tuple[Sample, ...]
    overridden: tuple[str, ...] = ()
    shots: Shots = field(default_factory=Shots)
    warnings: tuple[str, ...] = ()
    scorers: Mapping[str, Callable[..., Any]] = field(default_factory=lambda: NO_SCORERS, repr=False, compare=False)
    varied: Callable[[Variant], Suite] = field(repr=False, compare=False)
    origin: Origin = field(repr=False, compare=False)
    templates: Templates = field(repr=False, compare=False)

    @property
    def cluster(self) -> str | None:
        """Return the column or template by which samples belong together."""
        of_fields = self.spec.dataset.fields.get("cluster") if self.spec.dataset is not None else None
        rule = of_fields if self.spec.cluster is None else self.spec.cluster
        return None if rule is None else str(rule)

    @property
    def leaves_out_delimiter(self) -> bool:
        """Tell whether ``prompt.delimiter`` is left out before white space: nobody has chosen it.

        A suite has chosen one that it says, and a preset stands for prompts as they were published, to the character.
        """
        return self.origin.preset is None and "delimiter" not in self.spec.prompt.model_fields_set

    def shots_for(self, sample: Sample) -> tuple[Sample, ...]:
        """Return the few-shot examples of this sample's prompt, never its own row. Raises ``SuiteError`` if too few."""
        try:
            return self.shots.of(sample)
        except FewshotError as error:
            raise self.error(str(error), sample, error.keys) from None

    def place(self, sample: Sample) -> str:
        """Return ``file:line`` of the sample, the file as the user knows it."""
        return self.origin.place(sample)

    def error(self, message: str, sample: Sample | None = None, keys: Sequence[str | int] = ()) -> SuiteError:
        """Return a ``SuiteError`` at the line of ``keys`` if they are given, else at the sample's own, else at the
        suite's.

        The message names the sample, and the keys.
        """
        if not keys:
            if sample is None:
                return self.origin.error(message, ("suite",))
            shown = self.origin.shown(sample.path)
            return SuiteError(f"sample {quoted(sample.id)}: {message}", path=shown, line=sample.line)
        where = f"sample {quoted(sample.id)} ({self.place(sample)}): " if sample is not None else ""
        return self.origin.error(f"{dotted(tuple(keys))}: {where}{message}", tuple(keys))

    def column(self, sample: Sample, name: str, keys: Keys) -> Any:
        """Return a sample's value of a column that ``keys`` name. Raise ``SuiteError`` if there is none."""
        try:
            return column_value(sample.variables, name)
        except NoColumnError:
            row = sample.variables.get("row")
            known = expected_one_of(name, map(str, row)) if isinstance(row, Mapping) else ""
            raise self.error(f"there is no column {quoted(name)}{known}", sample, keys) from None

    def unmapped(self, sample: Sample) -> str | None:
        """Return a line on what the suite leaves unsaid of its data set: where the options are, or what is right. None
        if it says both.

        It is asked when a scorer has found that it cannot judge the sample.
        """
        spec, row = self.spec, sample.variables.get("row")
        if spec.dataset is None or spec.samples is not None or not isinstance(row, dict):
            return None
        needs_target = any(settings.needs_target for settings, _ in spec.score.each())
        is_missing = {
            "target": needs_target and sample.target is None,
            "choices": not sample.choices and spec.score.needs_options,
        }
        for name in ("choices", "target"):
            said = name in spec.dataset.fields or getattr(spec, name) is not None
            if is_missing[name] and not said and name not in row:
                columns = ", ".join(map(str, list(row)[:MAX_LISTED])) + (", …" if len(row) > MAX_LISTED else "")
                return (
                    f"no column {name!r} in {self.origin.shown(sample.path)}, and no dataset.fields.{name} to replace "
                    f"it (a column or a template); found the columns {columns}"
                )
        return None

    @property
    def has_own_responses(self) -> bool:
        """Tell whether the suite's data have a reply to score: the field ``response``, or a column of that name.

        A column from which the suite makes something else, a target or a part of the prompt, is not a reply.
        """
        if all(sample.response is None for sample in self.samples):
            return False
        dataset = self.spec.dataset
        if dataset is not None and "response" in dataset.fields:
            return True
        return not any(_RESPONSE.search(text) for text in _texts(self.spec))


def _texts(spec: SuiteSpec) -> Iterator[str]:
    """Yield the columns and templates that a suite names."""
    fewshot = spec.prompt.fewshot
    rules = [spec.choices, spec.target, spec.category, spec.prompt.template, spec.prompt.system, spec.prompt.prefix]
    rules += [message.column for message in spec.prompt.messages or ()]
    rules += [text for _, text in spec.prompt.message_templates()]
    rules.append(spec.prompt.column_of_turns)
    rules += list(spec.dataset.fields.values()) if spec.dataset is not None else []
    rules += [fewshot.template, fewshot.answer, *fewshot.fields.values()] if fewshot is not None else []
    for rule in rules:
        for part in rule if isinstance(rule, tuple) else (rule,):
            if isinstance(part, str):
                yield part


_T = TypeVar("_T")

_MAX_TEMPLATE_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class ScoreFiles:
    """Reads the files that a suite's ``score`` names; what is wrong with one is said at the line that names it."""

    suite: Suite

    def text(self, path: str, keys: Keys) -> str:
        return self.read(
            lambda source: read_text(source, max_bytes=_MAX_TEMPLATE_BYTES, too_large="check that it is a template"),
            path,
            keys,
        )

    def value(self, path: str, keys: Keys) -> JSON:
        return self.read(lambda source: read_yaml(source, too_large="check that it is a schema").value, path, keys)

    def read(self, read: Callable[[Source], _T], path: str, keys: Keys) -> _T:
        try:
            return read(self.suite.origin.source.beside(path))
        except SuiteError as error:
            raise self.suite.error(str(error), keys=keys) from None
