"""Presets: published benchmarks by name, as defaults for a suite. Data only: one YAML file for each family.

A file holds ``preset`` (the name), ``description``, ``source``, ``formula`` (whose number it gives, and how) and
``suite`` (the defaults, in the suite format). ``variants`` names further presets, ``<preset>-<variant>``, each with
defaults that are merged over those of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from pytest_llmeval.suites.files import Source
from pytest_llmeval.suites.wording import Keys, expected_one_of, nearest, quoted
from pytest_llmeval.suites.yaml_lines import parse_yaml
from pytest_llmeval.types import JSON

__all__ = ["Preset", "PresetError", "all_presets", "load_preset", "with_preset"]

_MERGED: tuple[Keys, ...] = (
    (),
    ("dataset",),
    ("dataset", "fields"),
    ("prompt",),
    ("prompt", "fewshot"),
    ("prompt", "fewshot", "fields"),
    ("generate",),
)
"""Where a suite adds to what its preset says; everywhere else it replaces it."""

_NEW_SOURCE = ("path", "samples", "hub")
_OF_HUB = ("hub", "config", "split", "revision", "streaming")
_OF_FILES = {"key": (".json",), "columns": (".csv", ".tsv")}
"""What a preset says of the files as published, and the files that it holds for."""


class PresetError(ValueError):
    """A preset that does not exist, or that does not fit the suite. ``keys`` say where in the suite."""

    def __init__(self, message: str, keys: Keys = ("preset",)) -> None:
        self.keys = keys
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A benchmark that the field knows.

    ``family`` is the name of the preset that it is a variant of, or its own. ``source`` says who published the
    benchmark, ``formula`` whose number a suite gives and by which metric. ``defaults`` are in the suite format.
    """

    name: str
    family: str
    description: str
    source: str
    formula: str
    defaults: Mapping[str, Any] = field(repr=False)

    def has(self, keys: Keys) -> bool:
        """Whether the preset says something at these keys of a suite."""
        inside: Any = self.defaults
        for key in keys:
            if not isinstance(inside, Mapping) or key not in inside:
                return False
            inside = inside[key]
        return True


def all_presets() -> Iterator[Preset]:
    """Every preset, by name; a family's variants after it."""
    for name in _file_names():
        yield from _family(name).values()


def load_preset(name: str) -> Preset:
    """The preset of this name. Raises ``PresetError``."""
    for family in sorted(_file_names(), key=len, reverse=True):
        if (name == family or name.startswith(f"{family}-")) and name in _family(family):
            return _family(family)[name]
    variants = [preset.name for preset in all_presets() if preset.family == name]
    if variants:
        raise PresetError(f"preset: {quoted(name)} is a family of presets, expected one of {', '.join(variants)}")
    near = nearest(name, [preset.name for preset in all_presets()])
    message = expected_one_of(name, _file_names()) if near is None else f"; did you mean {quoted(near)}?"
    raise PresetError(f"preset: there is no preset {quoted(name)}{message} (`llmeval presets` lists them)")


def with_preset(value: dict[str, JSON]) -> tuple[dict[str, JSON], Preset | None]:
    """A suite's YAML value with the defaults of the preset that it names, and that preset. Raises ``PresetError``.

    A suite's own keys win. A source of rows (``path``, ``hub`` or ``samples``) replaces all that the preset says of
    the source.
    """
    name = value.get("preset")
    if not isinstance(name, str):  # none, or of a wrong type, which the schema says
        return value, None
    preset = load_preset(name)
    merged = _merged(dict(preset.defaults), value, ())
    has_own_source = _has_source(value.get("dataset")) or value.get("samples") is not None
    if value.get("samples") is not None and isinstance(merged.get("dataset"), dict):
        merged["dataset"] = {key: part for key, part in merged["dataset"].items() if key not in (*_OF_HUB, *_OF_FILES)}
    _check_examples(name, value, merged, has_own_source)
    return merged, preset


def _check_examples(name: str, value: dict[str, JSON], merged: dict[str, Any], has_own_source: bool) -> None:
    """Rows from the suite's own source and examples from the hub would be two editions of one benchmark."""
    examples = (merged.get("prompt") or {}).get("fewshot") if isinstance(merged.get("prompt"), dict) else None
    if not has_own_source or not isinstance(examples, dict) or not examples.get("count") or "hub" not in examples:
        return
    prompt = value.get("prompt")
    own = prompt.get("fewshot") if isinstance(prompt, dict) else None
    if _has_source(own):
        return
    count, split = examples["count"], examples.get("split")
    where = f"of the split {split!r} " if split else ""
    raise PresetError(
        f"preset {name}: shows {count} examples {where}before each question, and the suite's own data has none: "
        "name their file with prompt.fewshot.path, or write prompt.fewshot.count: 0",
        ("dataset",) if "dataset" in value else ("samples",),
    )


def _has_source(part: object) -> bool:
    return isinstance(part, Mapping) and any(part.get(key) is not None for key in _NEW_SOURCE)


def _merged(defaults: dict[str, Any], own: dict[str, Any], at: Keys, *, is_variant: bool = False) -> dict[str, Any]:
    if at in (("dataset",), ("prompt", "fewshot")) and not is_variant:
        defaults = {key: part for key, part in defaults.items() if _holds_for(key, own, defaults)}
    merged = {**defaults, **own}
    for key, part in own.items():
        if (*at, key) in _MERGED and isinstance(part, dict) and isinstance(defaults.get(key), dict):
            merged[key] = _merged(defaults[key], part, (*at, key), is_variant=is_variant)
    return merged


def _holds_for(key: str, own: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    """Whether what a preset says at ``key`` of the source of rows holds for the source that the suite names."""
    if key in _OF_FILES:
        path = own.get("path")
        if not isinstance(path, str):
            return False
        name = path.lower().removesuffix(".gz").removesuffix(".zst")
        return name.endswith(_OF_FILES[key])
    if key in _OF_HUB:
        return not _has_source(own) or (own.get("hub") == defaults.get("hub") and own.get("hub") is not None)
    return key != "samples" or not _has_source(own)


def _file_names() -> list[str]:
    folder = resources.files(__package__)
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


@lru_cache(maxsize=64)  # read once in a process: a hundred suites may share a preset
def _family(name: str) -> dict[str, Preset]:
    text = resources.files(__package__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    data: Any = parse_yaml(text, Source(Path(f"{name}.yaml"), f"preset {name}")).value
    presets = {}
    if "suite" in data:
        presets[name] = _preset(name, name, data, data["suite"])
    for variant, own in data.get("variants", {}).items():
        defaults = _merged(dict(data.get("suite") or data["shared"]), own.get("suite", {}), (), is_variant=True)
        presets[f"{name}-{variant}"] = _preset(f"{name}-{variant}", name, {**data, **own}, defaults)
    return presets


def _preset(name: str, family: str, data: Mapping[str, Any], defaults: Mapping[str, Any]) -> Preset:
    return Preset(
        name=name,
        family=family,
        description=data["description"],
        source=data["source"],
        formula=data["formula"],
        defaults=defaults,
    )
