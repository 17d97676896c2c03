"""Reads a suite: its YAML, overrides, validation, rows, samples and few-shot examples. The one way in."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from pytest_llmeval.data.files import Source
from pytest_llmeval.data.rows import Row
from pytest_llmeval.data.yaml_reader import Document, read_yaml
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.scoring.base import ScorerSettings
from pytest_llmeval.suites.format.overrides import Override, OverrideError, apply_overrides
from pytest_llmeval.suites.format.prompt_spec import FewshotSpec
from pytest_llmeval.suites.format.pydantic_errors import keys_of, sentence
from pytest_llmeval.suites.format.rows_spec import RowsSpec
from pytest_llmeval.suites.format.schema import SuiteSpec
from pytest_llmeval.suites.format.variants import Variant
from pytest_llmeval.suites.loading.fewshot import FewshotError, Shots, contradiction, draw_shots
from pytest_llmeval.suites.loading.mapping import CLUSTER, HUMAN, FieldMap, Ids, Mapped, make_sample
from pytest_llmeval.suites.loading.sources import check_rows_spec, rows_of, shown_source
from pytest_llmeval.suites.loading.suite import NO_SCORERS, Origin, Suite
from pytest_llmeval.suites.presets import Preset, PresetError, is_merged, with_preset
from pytest_llmeval.templates.templates import TemplateError, Templates
from pytest_llmeval.text.wording import MAX_LISTED, Keys, describe, dotted, quoted
from pytest_llmeval.types import JSON, Sample

__all__ = ["RowReader", "Suite", "load_suite", "suite_of"]

RowReader: TypeAlias = Callable[[RowsSpec, Keys, Origin], Iterable[Row]]
"""A function that gives the rows of the part of a suite that stands at the keys."""

_TOO_LARGE = "put the rows in a data set file and name it with dataset.path"
_MAX_ERRORS = 10
_SHORTHANDS = ("choices", "target", "category", CLUSTER, HUMAN)
_MIN_CLUSTERS = 10


def load_suite(
    path: Path,
    *,
    overrides: Sequence[Override] = (),
    shown_path: str | None = None,
    scorers: Mapping[str, Callable[..., Any]] = NO_SCORERS,
) -> Suite:
    """Read a suite and its data. Prompts are not rendered.

    Overrides whose suite matches are applied before validation. ``shown_path`` is how the file is named in errors.
    ``scorers`` are those registered from Python, by name. Rows are read, mapped, filtered by ``where``, shuffled,
    limited. Raises ``SuiteError``.
    """
    source = Source(path, os.fspath(path) if shown_path is None else shown_path)
    document = read_yaml(source, too_large=_TOO_LARGE)
    if not isinstance(document.value, dict):
        raise Origin(document).error(f"found {describe(document.value)}, expected a mapping with the keys of a suite")
    return suite_of(document, overrides=overrides, scorers=scorers)


def suite_of(
    document: Document,
    *,
    overrides: Sequence[Override] = (),
    origin_of: Callable[..., Origin] = Origin,
    scorers: Mapping[str, Callable[..., Any]] = NO_SCORERS,
    read_rows: RowReader = rows_of,
) -> Suite:
    """Return the suite of a mapping that was read, or made of another format, as ``load_suite`` makes it.

    ``origin_of`` makes the ``Origin``, by which errors say where a key stands. ``read_rows`` gives the rows that
    ``dataset`` and ``prompt.fewshot`` name.
    """
    value = document.value
    if not isinstance(value, dict):
        raise TypeError(f"a suite is a mapping, found {describe(value)}")
    given = value.get("suite")
    name = given if isinstance(given, str) else ""

    def made(variant: Variant | None, like: Suite | None) -> Suite:
        matching = [override for override in overrides if override.matches(name)]
        if variant is not None:
            matching += variant.overrides
            matching += (override for override in overrides if override.suite == f"{name}@{variant.name}")
        try:
            merged, preset = _whole(value, matching)
        except OverrideError as error:
            line = None if error.at is None else document.line(error.at)
            raise document.source.error(str(error), line) from None
        except PresetError as error:
            raise origin_of(document, tuple(matching)).error(str(error), error.keys) from None
        origin = origin_of(document, tuple(matching), preset)
        spec = _validated(merged, origin, scorers)
        templates = Templates(python_values=spec.dataset is not None and spec.dataset.python_values)
        reading = _Reading(spec, origin, templates, read_rows)
        read = reading.suite() if like is None else reading.like(like)
        named = read.name if variant is None else f"{read.name}@{variant.name}"
        return replace(read, name=named, scorers=scorers, varied=lambda other: made(other, read))

    return made(None, None)


def _whole(value: dict[str, JSON], overrides: Sequence[Override]) -> tuple[dict[str, JSON], Preset | None]:
    """Return a suite's YAML value with the overrides and the defaults of its preset, and that preset.

    An override of what the suite would say beside its preset is one of the suite's own keys: with a path the preset's
    source of rows goes. One of a part of what the suite would replace as a whole changes the preset's. Raises
    ``OverrideError`` and ``PresetError``.
    """
    in_force = [
        override
        for place, override in enumerate(overrides)
        if not any(later.keys == override.keys[: len(later.keys)] for later in overrides[place + 1 :])
    ]
    of_own_keys = [override for override in in_force if is_merged(override.keys[:-1])]
    merged, preset = with_preset(apply_overrides(value, of_own_keys))
    if preset is None:
        return apply_overrides(value, overrides), None
    # A copy: the defaults of a preset are read once for all suites.
    of_parts = [override for override in in_force if override not in of_own_keys]
    return apply_overrides(merged, of_parts), preset


def _validated(value: dict[str, JSON], origin: Origin, scorers: Mapping[str, Callable[..., Any]]) -> SuiteSpec:
    try:
        spec = SuiteSpec.model_validate(value, context={"scorers": scorers})
    except ValidationError as error:
        # A sentence names the nearest spelling, which takes time: it is made for those that are shown.
        places = nsmallest(
            _MAX_ERRORS, error.errors(include_url=False), key=lambda one: origin.error("", keys_of(one)).line or 0
        )
        first, *others = [origin.error(sentence(one), keys_of(one)) for one in places]
        more = error.error_count() - len(places)
        lines = [first.message, *map(str, others), *([f"and {more:,} more errors"] if more else [])]
        raise SuiteError("\n".join(lines), path=first.path, line=first.line) from None
    dataset = spec.dataset
    has_source = dataset is not None and (origin.preset is None or (dataset.path or dataset.hub) is not None)
    if spec.samples is not None and has_source:
        raise origin.error("found both samples and dataset, expected one of them", ("dataset",))
    if spec.samples is None and spec.dataset is None:
        raise origin.error("found neither samples nor dataset, expected one of them", ("suite",))
    if (problem := contradiction(spec.prompt)) is not None:
        raise origin.error_at(problem[1], problem[0])
    fewshot = spec.prompt.fewshot
    if fewshot is not None:
        keys: Keys = ("prompt", "fewshot")
        if fewshot.samples is not None and (fewshot.path is not None or fewshot.hub is not None):
            other = "hub" if fewshot.path is None else "path"
            message = f"prompt.fewshot: found both samples and {other}, expected one of them"
            raise origin.error(message, (*keys, "samples"))
        check_rows_spec(fewshot, keys, origin)
    if spec.dataset is not None:
        check_rows_spec(spec.dataset, ("dataset",), origin)
        _check_streaming(spec, origin)
    return spec


def _check_streaming(spec: SuiteSpec, origin: Origin) -> None:
    """Raise ``SuiteError`` for keys that need all rows of a data set if only some are read."""
    dataset, fewshot = spec.dataset, spec.prompt.fewshot
    if dataset is None or not dataset.streaming:
        return
    if dataset.shuffle_seed is not None:
        keys: Keys = ("dataset", "shuffle_seed")
        raise origin.error_at(keys, "needs all rows, which dataset.streaming does not read; remove one")
    is_own = fewshot is not None and fewshot.samples is None and fewshot.path is None and fewshot.hub is None
    if is_own and dataset.limit is not None and fewshot is not None and fewshot.count and fewshot.sampler != "first_n":
        keys = ("prompt", "fewshot", "sampler")
        advice = "write sampler: first_n, or name other examples with prompt.fewshot.hub and split"
        message = "draws from all rows, which dataset.streaming with a limit does not read"
        raise origin.error_at(keys, f"{message}; {advice}")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _as_template(where: str) -> str:
    return where if "{{" in where else "{{ " + where + " }}"


def _unmapped(row: Row) -> Mapped:
    """Return a row as ``where`` sees it that needs no field."""
    return Mapped(row, {}, {**row.columns, "row": row.columns})


_ASKS = (
    *("prompt", "filters", "generate", "epochs", "description", "tags", "gates", "interval", "variants"),
    *("min_measurable", "not_measurable", "primary_metric"),
)
"""Keys of a suite of which its samples are not made, apart from the examples in ``prompt``."""


def _not_varied(variant: Variant) -> Suite:
    raise NotImplementedError(variant.name)  # ``suite_of`` replaces it


class _Reading:
    """One reading of a validated suite."""

    def __init__(self, spec: SuiteSpec, origin: Origin, templates: Templates, read_rows: RowReader = rows_of) -> None:
        self.spec = spec
        self.read_rows = read_rows
        self.origin = origin
        self.templates = templates
        dataset = spec.dataset
        self.field_map = FieldMap(
            self._rules(),
            origin,
            templates,
            columns_first=dataset is not None and dataset.columns_first,
            first_id=None if dataset is None else dataset.first_id,
            optional=frozenset(self._optional()),
        )
        self.warnings: list[str] = []

    def like(self, other: Suite) -> Suite:
        """Return the suite with the samples and examples of ``other`` if they come from the same rows in the same way.

        Variants usually differ in what is not read here, and share them then.
        """
        own, others = self.spec, other.spec
        read = [name for name in SuiteSpec.model_fields if name not in _ASKS]
        is_alike = all(getattr(own, name) == getattr(others, name) for name in read)
        shown = [self.templates.names(spec.prompt.template or "") for spec in (own, others)]
        if not is_alike or own.prompt.fewshot != others.prompt.fewshot or shown[0] != shown[1]:
            return self.suite()
        self._check_prompt_templates()
        overridden = self._overridden()
        return replace(other, spec=own, overridden=overridden, origin=self.origin, templates=self.templates)

    def _overridden(self) -> tuple[str, ...]:
        return tuple(override.text for override in self.origin.overrides if override.at is None)

    def suite(self) -> Suite:
        document = self.origin.document
        self._check_prompt_templates()
        all_samples, rows = self._samples()
        samples = [*all_samples]
        dataset = self.spec.dataset
        if dataset is not None and dataset.shuffle_seed is not None:
            random.Random(dataset.shuffle_seed).shuffle(samples)
        if dataset is not None and dataset.limit is not None:
            samples = samples[: dataset.limit]
        self._check_clusters(samples)
        self._check_labels(samples)
        shots = self._shots(rows, all_samples, samples)
        return Suite(
            name=self.spec.suite,
            path=document.source.path,
            line=document.line(("suite",)) or 1,
            spec=self.spec,
            samples=tuple(samples),
            overridden=self._overridden(),
            shots=shots,
            warnings=tuple(self.warnings),
            origin=self.origin,
            templates=self.templates,
            varied=_not_varied,
        )

    def _optional(self) -> Iterator[str]:
        """Yield the names of fields that a row need not have: what needs them is not measurable without."""
        for settings, _ in self._settings:
            yield from settings.optional_columns
        yield from () if self._needs_reply else ("response",)
        yield from () if any(settings.needs_target for settings, _ in self._settings) else ("target",)

    def _with_absent(self, samples: list[Sample], rows_differ: bool) -> list[Sample]:
        """Return the samples with null for a column that others have and that the scorer can do without.

        Raises ``SuiteError`` for a field whose column no row has where all rows have the same columns: it is
        misspelt. Where they differ, it is a warning.
        """
        for problem in filter(None, self.field_map.absent.values()):
            if not rows_differ:
                raise problem
            self.warnings.append(str(problem))
        names = [name for settings, _ in self._settings for name in settings.optional_columns]
        names = [name for name in names if any(name in sample.variables for sample in samples)]
        for place, sample in enumerate(samples):
            if missing := [name for name in names if name not in sample.variables]:
                samples[place] = replace(sample, variables={**sample.variables, **dict.fromkeys(missing)})
        if not self._needs_reply and any(sample.response is not None for sample in samples):
            samples = [replace(sample, response="") if sample.response is None else sample for sample in samples]
        return samples

    @property
    def _settings(self) -> list[tuple[ScorerSettings, Keys]]:
        return [*self.spec.score.each()]

    @property
    def _needs_reply(self) -> bool:
        return any(settings.needs_reply for settings, _ in self._settings)

    def _check_clusters(self, samples: Sequence[Sample]) -> None:
        """Raise ``SuiteError`` for samples of so few clusters that these say nothing of the others there could be."""
        if CLUSTER not in self.field_map.rules:
            return
        keys, _ = self.field_map.rules[CLUSTER]
        num_clusters = len({sample.cluster for sample in samples})
        if num_clusters < _MIN_CLUSTERS:
            raise self.origin.error_at(
                keys,
                f"found {_counted(num_clusters, 'cluster')} in {_counted(len(samples), 'sample')}, expected at least "
                f"{_MIN_CLUSTERS}: a standard error over fewer would be far too small; remove the key to take samples "
                "as independent, or name a finer one",
            )

    def _check_labels(self, samples: Sequence[Sample]) -> None:
        """Raise ``SuiteError`` where no sample has a label by people: the column may be misspelt."""
        rule = self.spec.human
        if rule is None or not samples or any(sample.human not in (None, "") for sample in samples):
            return
        row = samples[0].variables.get("row")
        columns = ", ".join(map(str, list(row)[:MAX_LISTED])) if isinstance(row, dict) else ""
        found = f"found no label by people in {_counted(len(samples), 'sample')}, expected the column that has them"
        raise self.origin.error_at((HUMAN,), found + (f"; there are {columns}" if columns else ""))

    def _rules(self) -> dict[str, tuple[Keys, object]]:
        rules: dict[str, tuple[Keys, object]] = {}
        if self.spec.dataset is not None:
            for name, rule in self.spec.dataset.fields.items():
                rules[name] = (self._field_keys(("dataset", "fields"), name), rule)
        for name in _SHORTHANDS:
            rule = getattr(self.spec, name)
            if rule is None:
                continue
            if name in rules:
                raise self.origin.error_at((name,), f"found it also as dataset.fields.{name}, expected one of them")
            rules[name] = ((name,), rule)
        return rules

    def _check_prompt_templates(self) -> None:
        prompt = self.spec.prompt
        above: Keys = ("prompt",)
        places: list[tuple[object, Keys]] = [(prompt, (*above, name)) for name in ("template", "system", "prefix")]
        places += [(prompt.fewshot, (*above, "fewshot", name)) for name in ("template", "answer", "prefix")]
        texts = [(keys, getattr(part, str(keys[-1]), None) or "") for part, keys in places]
        for keys, text in [*texts, *prompt.message_templates()]:
            if text.startswith("file://"):  # promptfoo's way; it would be sent as it stands
                message = f"found {quoted(text)}, expected the text itself: a template stands in the suite file"
                raise self.origin.error_at(keys, message)
            try:
                self.templates.check(text)
            except TemplateError as error:
                raise self.origin.error_at(keys, str(error)) from None

    def _samples(self) -> tuple[list[Sample], list[Row]]:
        """Return all samples before shuffle and limit, and their rows if few-shot examples are to be made of those
        anew.
        """
        dataset, fewshot = self.spec.dataset, self.spec.prompt.fewshot
        if dataset is None or self.spec.samples is not None:  # a preset's dataset says what the columns mean
            all_rows: Iterable[Row] = self._inline_rows(self.spec.samples or (), ("samples",))
        else:
            all_rows = self.read_rows(dataset, ("dataset",), self.origin)
        limit = dataset.limit if dataset is not None and dataset.streaming else None
        is_kept = self._where()
        needs_no_field = self._needs_no_field()
        ids = Ids()
        samples: list[Sample] = []
        rows: list[Row] = []
        num_rows = 0
        columns: Collection[str] = ()
        rows_differ = False
        for row in all_rows:
            num_rows += 1
            if is_kept is not None and needs_no_field and not is_kept(_unmapped(row)):
                continue
            mapped = self.field_map.apply(row)
            if is_kept is not None and not needs_no_field and not is_kept(mapped):
                continue
            samples.append(self._sample(mapped, ids.of(mapped), ("samples",)))
            rows_differ = rows_differ or (bool(columns) and row.columns.keys() != columns)
            columns = columns or row.columns.keys()
            if fewshot is not None and fewshot.fields:
                rows.append(row)
            if len(samples) == limit:
                break
        if not samples:
            message = f"found it false for all {num_rows} rows, expected some to be left"
            raise self.origin.error_at(("dataset", "where"), message)
        return self._with_absent(samples, rows_differ), rows

    def _inline_rows(self, samples: Sequence[dict[str, Any]], keys: Keys) -> list[Row]:
        if not samples:
            raise self.origin.error_at(keys, "found an empty list, expected samples")
        document = self.origin.document
        return [
            Row(columns, document.source, number, document.line((*keys, number - 1)), inline=True)
            for number, columns in enumerate(samples, 1)
        ]

    def _needs_no_field(self) -> bool:
        """Tell whether ``where`` uses columns only, so that fields are made only for the rows that it keeps."""
        where = self.spec.dataset.where if self.spec.dataset is not None else None
        names = set() if where is None else self.templates.names(_as_template(where))
        has_numbers = self.field_map.first_id is not None and "id" in names
        return not names & self.field_map.rules.keys() and not has_numbers

    def _where(self) -> Callable[[Mapped], bool] | None:
        where = self.spec.dataset.where if self.spec.dataset is not None else None
        if where is None:
            return None
        keys: Keys = ("dataset", "where")
        source = _as_template(where)
        try:
            self.templates.check(source)
        except TemplateError as error:
            raise self.origin.error_at(keys, str(error)) from None

        def is_kept(mapped: Mapped) -> bool:
            try:
                value = self.templates.value(source, mapped.variables)
            except TemplateError as error:
                raise self.origin.error_at(keys, f"{mapped.row.place}: {error}") from None
            if value not in (True, False):
                message = f"{mapped.row.place}: found {describe(value)}, expected true or false"
                raise self.origin.error_at(keys, message)
            return bool(value)

        return is_kept

    def _shots(self, rows: list[Row], samples: list[Sample], left: list[Sample]) -> Shots:
        """Return the examples that the samples are shown. ``left`` are the samples that shuffle and limit leave."""
        fewshot = self.spec.prompt.fewshot
        if fewshot is None or fewshot.count == 0:
            return Shots()
        keys: Keys = ("prompt", "fewshot")
        is_own = False
        if fewshot.samples is not None:
            pool = self._pool(fewshot, self._inline_rows(fewshot.samples, (*keys, "samples")))
            holder = "prompt.fewshot.samples holds"
        elif fewshot.path is not None or fewshot.hub is not None:
            examples: Iterable[Row] = self.read_rows(fewshot, keys, self.origin)
            if fewshot.streaming and fewshot.sampler == "first_n" and fewshot.match is None:
                examples = islice(examples, fewshot.count + 1)  # one may be the sample itself
            pool = self._pool(fewshot, examples)
            holder = f"{shown_source(fewshot, self.origin)} holds"
        else:
            is_own = True
            pool = self._pool(fewshot, rows) if fewshot.fields else samples
            holder = "the data set itself, from which a sample is never shown to itself, holds"
        shown = sorted(self.templates.names(self.spec.prompt.template or ""))
        try:
            return draw_shots(fewshot, pool, samples, is_own=is_own, holder=holder, left=left, shown=shown)
        except FewshotError as error:
            of = error.sample
            kind = "example" if error.is_example else "sample"
            where = f"{kind} {quoted(of.id)} ({self.origin.place(of)}): " if of is not None else ""
            raise self.origin.error_at(error.keys, f"{where}{error}") from None

    def _pool(self, fewshot: FewshotSpec, rows: Iterable[Row]) -> list[Sample]:
        rules = dict(self.field_map.rules)
        for name, rule in fewshot.fields.items():
            rules[name] = (self._field_keys(("prompt", "fewshot", "fields"), name), rule)
        field_map = replace(self.field_map, rules=rules)
        keys: Keys = ("prompt", "fewshot", "samples")
        return [self._sample(field_map.apply(row, shot=True), str(row.number), keys) for row in rows]

    def _sample(self, mapped: Mapped, id_: str, inline: Keys) -> Sample:
        """Return the sample of a row. ``inline`` are the keys of the row if it stands in the suite file."""
        try:
            has_calls = any(settings.expects_calls for settings, _ in self.spec.score.each())
            return make_sample(mapped, id_, has_calls=has_calls)
        except SuiteError as error:
            if mapped.row.inline and self.origin.overrides:
                raise self.origin.error(error.message, (*inline, mapped.row.number - 1)) from None
            raise

    def _field_keys(self, above: Keys, name: str) -> Keys:
        """Return the keys of a rule. Raises ``SuiteError`` for a name that no template could use."""
        keys = (*above, name)
        if not name.isidentifier() or name == "row":
            expected = "letters, digits and '_', and not 'row'"
            raise self.origin.error(f"{dotted(above)}: found the name {quoted(name)}, expected {expected}", keys)
        return keys
