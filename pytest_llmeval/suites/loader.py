"""Reads a suite: its YAML, overrides, validation, rows, samples and few-shot examples. The one way in."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.explain import explain
from pytest_llmeval.suites.files import Source, read_text
from pytest_llmeval.suites.mapping import FieldMap, Mapped, make_sample, make_samples
from pytest_llmeval.suites.overrides import Override, OverrideError, apply_overrides
from pytest_llmeval.suites.rows import FORMATS, Row, format_of, read_rows
from pytest_llmeval.suites.schema import DatasetSpec, FewshotSpec, SuiteSpec
from pytest_llmeval.suites.suite import Origin, Suite
from pytest_llmeval.suites.templates import TemplateError, Templates
from pytest_llmeval.suites.wording import Keys, describe, dotted, quoted
from pytest_llmeval.suites.yaml_lines import MAX_YAML_BYTES, read_yaml
from pytest_llmeval.types import JSON, Sample

__all__ = ["Suite", "load_suite", "read_suite_name"]

_TOO_LARGE = "put the rows in a data set file and name it with dataset.path"
_MAX_ERRORS = 10
_SHORTHANDS = ("choices", "target", "category")


def load_suite(path: Path, *, overrides: Sequence[Override] = (), shown_path: str | None = None) -> Suite:
    """Read a suite and its data. Prompts are not rendered.

    Overrides whose suite matches are applied before validation. ``shown_path`` is how the file is named in errors. Rows
    are read, mapped, filtered by ``where``, shuffled, limited. Raises ``SuiteError``.
    """
    source = Source(path, os.fspath(path) if shown_path is None else shown_path)
    document = read_yaml(source, too_large=_TOO_LARGE)
    origin = Origin(document)
    if not isinstance(document.value, dict):
        raise origin.error(f"found {describe(document.value)}, expected a mapping with the keys of a suite")
    name = document.value.get("suite")
    matching = tuple(override for override in overrides if override.matches(name if isinstance(name, str) else ""))
    try:
        value = apply_overrides(document.value, matching)
    except OverrideError as error:
        raise source.error(str(error)) from None
    origin = Origin(document, matching)
    spec = _validated(value, origin)
    return _Reading(spec, origin, Templates()).suite()


def read_suite_name(path: Path) -> str:
    """The value of the key ``suite``; the rest is read only where it does not come first. Raises ``SuiteError``."""
    source = Source(path, os.fspath(path))
    text = read_text(source, max_bytes=MAX_YAML_BYTES, too_large=_TOO_LARGE)
    try:
        events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        scalars = [
            event.value for event, _ in zip(events, range(5), strict=False) if isinstance(event, yaml.ScalarEvent)
        ]
    except yaml.YAMLError:
        scalars = []
    if len(scalars) == 2 and scalars[0] == "suite":
        return str(scalars[1])
    document = read_yaml(source, too_large=_TOO_LARGE)
    name = document.value.get("suite") if isinstance(document.value, dict) else None
    if not isinstance(name, str):
        raise source.error(f"suite: found {describe(name)}, expected the suite's name", document.line(("suite",)))
    return name


def _validated(value: dict[str, JSON], origin: Origin) -> SuiteSpec:
    try:
        spec = SuiteSpec.model_validate(value)
    except ValidationError as error:
        problems = [origin.error(message, keys) for message, keys in explain(error)]
        problems.sort(key=lambda problem: problem.line or 0)
        first, *others = problems[:_MAX_ERRORS]
        if not others:
            raise first from None
        raise SuiteError("\n".join([first.message, *map(str, others)]), path=first.path, line=first.line) from None
    if spec.samples is not None and spec.dataset is not None:
        raise origin.error("found both samples and dataset, expected one of them", ("dataset",))
    if spec.samples is None and spec.dataset is None:
        raise origin.error("found neither samples nor dataset, expected one of them", ("suite",))
    fewshot = spec.prompt.fewshot
    if fewshot is not None and fewshot.samples is not None and fewshot.path is not None:
        raise origin.error(
            "prompt.fewshot: found both samples and path, expected one of them", ("prompt", "fewshot", "samples")
        )
    if fewshot is not None and fewshot.key is not None and fewshot.path is None:
        raise origin.error(
            "prompt.fewshot.key: found no prompt.fewshot.path that it could lead into", ("prompt", "fewshot", "key")
        )
    return spec


class _Reading:
    """One reading of a validated suite."""

    def __init__(self, spec: SuiteSpec, origin: Origin, templates: Templates) -> None:
        self.spec = spec
        self.origin = origin
        self.templates = templates
        self.field_map = FieldMap(self._rules(), origin, templates)

    def suite(self) -> Suite:
        document = self.origin.document
        self._check_prompt_templates()
        kept = self._where([self.field_map.apply(row) for row in self._rows()])
        samples = make_samples(kept)
        shots = self._shots(samples)
        dataset = self.spec.dataset
        if dataset is not None and dataset.shuffle_seed is not None:
            random.Random(dataset.shuffle_seed).shuffle(samples)
        if dataset is not None and dataset.limit is not None:
            samples = samples[: dataset.limit]
        return Suite(
            name=self.spec.suite,
            path=document.source.path,
            line=document.line(("suite",)) or 1,
            spec=self.spec,
            samples=tuple(samples),
            overridden=tuple(override.text for override in self.origin.overrides),
            shots=shots,
            origin=self.origin,
            templates=self.templates,
        )

    def _rules(self) -> dict[str, tuple[Keys, object]]:
        rules: dict[str, tuple[Keys, object]] = {}
        if self.spec.dataset is not None:
            for name, rule in self.spec.dataset.fields.items():
                keys: Keys = ("dataset", "fields", name)
                if not name.isidentifier() or name == "row":
                    expected = "letters, digits and '_', and not 'row'"
                    raise self.origin.error(f"dataset.fields: found the name {quoted(name)}, expected {expected}", keys)
                rules[name] = (keys, rule)
        for name in _SHORTHANDS:
            rule = getattr(self.spec, name)
            if rule is None:
                continue
            if name in rules:
                raise self.origin.error(
                    f"{name}: found it also as dataset.fields.{name}, expected one of them", (name,)
                )
            rules[name] = ((name,), rule)
        return rules

    def _check_prompt_templates(self) -> None:
        prompt = self.spec.prompt
        sources: list[tuple[Keys, str | None]] = [
            (("prompt", "template"), prompt.template),
            (("prompt", "system"), prompt.system),
            (("prompt", "fewshot", "answer"), prompt.fewshot.answer if prompt.fewshot else None),
        ]
        for keys, source in sources:
            try:
                self.templates.check(source or "")
            except TemplateError as error:
                raise self.origin.error(f"{dotted(keys)}: {error}", keys) from None

    def _rows(self) -> list[Row]:
        dataset = self.spec.dataset
        if dataset is None:
            return self._inline_rows(self.spec.samples or (), ("samples",))
        return self._file_rows(dataset, ("dataset",))

    def _inline_rows(self, samples: Sequence[dict[str, Any]], keys: Keys) -> list[Row]:
        if not samples:
            raise self.origin.error(f"{dotted(keys)}: found an empty list, expected samples", keys)
        document = self.origin.document
        return [
            Row(columns, document.source, number, document.line((*keys, number - 1)), inline=True)
            for number, columns in enumerate(samples, 1)
        ]

    def _file_rows(self, spec: DatasetSpec | FewshotSpec, keys: Keys) -> list[Row]:
        file = self.origin.source.beside(spec.path or "")
        path_keys = (*keys, "path")
        format_ = (spec.format if isinstance(spec, DatasetSpec) else None) or format_of(file)
        if format_ is None:
            advice = "; or say what it is with dataset.format" if isinstance(spec, DatasetSpec) else ""
            raise self.origin.error(
                f"{dotted(path_keys)}: found the suffix {quoted(file.path.suffix)}, expected one of "
                f"{', '.join(FORMATS)}{advice}",
                path_keys,
            )
        if not file.path.is_file():
            try:
                read_text(file, max_bytes=0, too_large="")
            except SuiteError as error:
                raise self.origin.error(f"{dotted(path_keys)}: {error}", path_keys) from None
        rows = read_rows(file, format_, spec.key)
        if not rows:
            raise self.origin.error(
                f"{dotted(path_keys)}: {file.shown} holds no rows, expected at least one", path_keys
            )
        return rows

    def _where(self, rows: list[Mapped]) -> list[Mapped]:
        where = self.spec.dataset.where if self.spec.dataset is not None else None
        if where is None:
            return rows
        keys: Keys = ("dataset", "where")
        source = where if "{{" in where else "{{ " + where + " }}"
        try:
            self.templates.check(source)
        except TemplateError as error:
            raise self.origin.error(f"dataset.where: {error}", keys) from None
        kept: list[Mapped] = []
        for mapped in rows:
            try:
                value = self.templates.value(source, mapped.variables)
            except TemplateError as error:
                raise self.origin.error(f"dataset.where: {mapped.row.place}: {error}", keys) from None
            if value not in (True, False):
                raise self.origin.error(
                    f"dataset.where: {mapped.row.place}: found {describe(value)}, expected true or false", keys
                )
            if value:
                kept.append(mapped)
        if not kept:
            raise self.origin.error(
                f"dataset.where: found it false for all {len(rows)} rows, expected some to be left", keys
            )
        return kept

    def _shots(self, samples: list[Sample]) -> tuple[Sample, ...]:
        fewshot = self.spec.prompt.fewshot
        if fewshot is None or fewshot.count == 0:
            return ()
        keys: Keys = ("prompt", "fewshot")
        needed = fewshot.count
        if fewshot.samples is not None:
            pool = self._pool(self._inline_rows(fewshot.samples, (*keys, "samples")))
            where = "prompt.fewshot.samples holds"
        elif fewshot.path is not None:
            pool = self._pool(self._file_rows(fewshot, keys))
            where = f"{self.origin.source.beside(fewshot.path).shown} holds"
        else:
            pool = list(samples)
            needed += 1
            where = "the data set itself, from which a sample is never shown to itself, holds"
        if len(pool) < needed:
            raise self.origin.error(
                f"prompt.fewshot.count: {where} {len(pool)} examples, expected at least {needed}", (*keys, "count")
            )
        if fewshot.sampler == "first_n":
            return tuple(pool)
        return tuple(random.Random(fewshot.seed).sample(pool, len(pool)))

    def _pool(self, rows: list[Row]) -> list[Sample]:
        return [make_sample(self.field_map.apply(row, shot=True), str(row.number)) for row in rows]
