"""Presets: published benchmarks by name, as defaults for a suite. Data only: one YAML file for each family.

A file holds ``preset`` (the name), ``description``, ``source``, ``formula`` (whose number it gives, and how),
``questions`` (how many there are), ``needs`` (what has to be done before the data set can be read), ``reference`` (a
published number), ``checked`` (what the requests and numbers were compared with), ``files`` (the names of local copies)
and ``suite`` (the defaults, in the suite format). ``variants`` names further presets, ``<preset>-<variant>``, each with
defaults that are merged over those of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from pytest_llmeval.data.files import Source
from pytest_llmeval.data.yaml_reader import parse_yaml
from pytest_llmeval.text.wording import Keys, expected_one_of, nearest, quoted
from pytest_llmeval.types import JSON

__all__ = ["Preset", "PresetError", "all_presets", "is_merged", "load_preset", "with_preset"]

_MERGED: tuple[Keys, ...] = (
    (),
    ("dataset",),
    ("dataset", "fields"),
    ("dataset", "join"),
    ("prompt",),
    ("prompt", "fewshot"),
    ("prompt", "fewshot", "fields"),
    ("generate",),
)
"""The keys at which a suite adds to what its preset says; at all others it replaces it."""

_EITHER = ("choices", "target", "category", "cluster", "human")
"""Fields that a suite may also say at its top."""

_OF_SAMPLER = ("spare", "seed")
_OF_EXAMPLES = ("revision", "config")
"""Keys that a suite gives for a hub data set, and that then hold for examples from the same data set."""

_DEPENDENT = {("yes_no", "by"): ("rule", "tie_is_no")}
"""Settings of a preset's scorer that mean nothing once the suite gives another value for a setting: the key is the
scorer and that setting."""

_NEW_SOURCE = ("path", "samples", "hub")
_OF_HUB = ("hub", "config", "split", "revision", "streaming")
_OF_FILES = {"key": (".json",), "columns": (".csv", ".tsv")}
"""Keys that a preset gives for the files as published, each with the suffixes of the files that it holds for."""


class PresetError(ValueError):
    """A preset that does not exist, or that does not fit the suite. ``keys`` say where in the suite."""

    def __init__(self, message: str, keys: Keys = ("preset",)) -> None:
        self.keys = keys
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A benchmark that the field knows.

    ``family`` is the name of the preset that it is a variant of, or its own. ``source`` says who published the
    benchmark, ``formula`` whose number a suite gives and by which metric. ``questions`` is how many there are, None if
    they are the user's own. ``needs`` says what has to be done before the data set can be read, ``reference`` is a
    published number, ``checked`` what requests and numbers were compared with; each is "" where there is nothing.
    ``files`` names local copies for ``dataset``, ``join`` and ``fewshot``, as paths and patterns within a folder of
    data, ``{config}`` standing for ``dataset.config``. ``defaults`` are in the suite format.
    """

    name: str
    family: str
    description: str
    source: str
    formula: str
    questions: int | None = None
    needs: str = ""
    reference: str = ""
    checked: str = ""
    files: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    defaults: Mapping[str, Any] = field(repr=False)

    def has(self, keys: Keys) -> bool:
        """Tell whether the preset says something at these keys of a suite."""
        return not keys or keys[-1] in _mapping(self.defaults, *keys[:-1])


def all_presets() -> Iterator[Preset]:
    """Yield every preset, by name; a family's variants after it."""
    for name in _file_names():
        yield from _family(name).values()


def load_preset(name: str) -> Preset:
    """Return the preset of this name. Raises ``PresetError``."""
    for family in sorted(_file_names(), key=len, reverse=True):
        if (name == family or name.startswith(f"{family}-")) and name in _family(family):
            return _family(family)[name]
    expected = _family_members(name)
    if expected is not None:
        raise PresetError(f"preset: {quoted(name)} is a family of presets, expected {expected}")
    raise PresetError(f"preset: there is no preset {quoted(name)}{_advice(name)} (`llmeval presets` lists them)")


def with_preset(value: dict[str, JSON]) -> tuple[dict[str, JSON], Preset | None]:
    """Return a suite's YAML value with the defaults of the preset that it names, and that preset. Raises
    ``PresetError``.

    A suite's own keys win. A source of rows (``path``, another ``hub`` or ``samples``) replaces all that the preset
    says of the source. Revision and config of the preset's own hub data set hold for examples from it, too.
    """
    name = value.get("preset")
    if not isinstance(name, str):  # none, or of a wrong type, which the schema says
        return value, None
    preset = load_preset(name)
    defaults = _without_what_the_suite_says(preset.defaults, value)
    merged = _without_removed(_merged(defaults, value, ()), preset)
    dataset, hub = _mapping(value, "dataset"), _mapping(preset.defaults, "dataset").get("hub")
    is_inline = value.get("samples") is not None
    is_presets_hub = hub is not None and dataset.get("hub") == hub
    is_own_source = is_inline or (_has_source(dataset) and not is_presets_hub)
    if is_inline and isinstance(merged.get("dataset"), dict):
        merged["dataset"] = {key: part for key, part in merged["dataset"].items() if key not in (*_OF_HUB, *_OF_FILES)}
    examples = _mapping(merged, "prompt", "fewshot")
    if not is_own_source and hub is not None and examples.get("hub") == hub:
        own = _mapping(value, "prompt", "fewshot")
        said = {key: dataset[key] for key in _OF_EXAMPLES if dataset.get(key) is not None and key not in own}
        merged["prompt"] = {**merged["prompt"], "fewshot": {**examples, **said}}
    _check_examples(name, value, merged, is_own_source)
    return merged, preset


def _mapping(value: Mapping[str, Any], *keys: str | int) -> Mapping[str, Any]:
    """Return what stands at ``keys``; empty if that is no mapping."""
    inside: Any = value
    for key in keys:
        inside = inside.get(key) if isinstance(inside, Mapping) else None
    return inside if isinstance(inside, Mapping) else {}


def _without_what_the_suite_says(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults without fields that the suite says itself, at its top or in ``dataset.fields``: they are one
    key.
    """
    fields = _mapping(own, "dataset", "fields")
    said = [name for name in _EITHER if name in fields or name in own]
    kept = {name: part for name, part in defaults.items() if name not in said}
    if _mapping(kept, "dataset", "fields"):
        of_fields = {name: rule for name, rule in kept["dataset"]["fields"].items() if name not in said}
        kept["dataset"] = {**kept["dataset"], "fields": of_fields}
    return kept


def _without_removed(merged: dict[str, Any], preset: Preset) -> dict[str, Any]:
    """Return ``merged`` without the fields of the preset that the suite says to be null."""
    for above in (("dataset", "fields"), ("prompt", "fewshot", "fields")):
        fields = _mapping(merged, *above)

        def is_presets(name: str, above: tuple[str, ...] = above) -> bool:
            return preset.has((*above, name)) or (above[0] == "dataset" and name in _EITHER and preset.has((name,)))

        kept = {name: rule for name, rule in fields.items() if rule is not None or not is_presets(name)}
        if len(kept) < len(fields):
            merged = _with(merged, above, kept)
    return merged


def _with(mapping: Mapping[str, Any], keys: tuple[str, ...], part: Any) -> dict[str, Any]:
    first, *rest = keys
    return {**mapping, first: _with(mapping[first], tuple(rest), part) if rest else part}


def is_merged(keys: Keys) -> bool:
    """Tell whether a suite adds to the mapping at ``keys`` of its preset; else what it says there replaces it."""
    return keys in _MERGED


def _check_examples(name: str, value: dict[str, JSON], merged: dict[str, Any], has_own_source: bool) -> None:
    """Refuse rows from the suite's own source with examples from the hub: they would be two editions of one
    benchmark.
    """
    examples = _mapping(merged, "prompt", "fewshot")
    if not has_own_source or not examples.get("count") or "hub" not in examples:
        return
    if _has_source(_mapping(value, "prompt", "fewshot")):
        return
    count, split = examples["count"], examples.get("split")
    where = f"of the split {split!r} " if split else ""
    raise PresetError(
        f"preset {name}: shows {count} examples {where}before each question, and the suite's own data has none: "
        "name their file with prompt.fewshot.path, or write prompt.fewshot.count: 0",
        ("dataset",) if "dataset" in value else ("samples",),
    )


def _has_source(part: Mapping[str, Any]) -> bool:
    return any(part.get(key) is not None for key in _NEW_SOURCE)


def _merged(defaults: dict[str, Any], own: dict[str, Any], at: Keys, *, is_variant: bool = False) -> dict[str, Any]:
    if at in (("dataset",), ("prompt", "fewshot")) and not is_variant:
        defaults = {key: part for key, part in defaults.items() if _holds_for(key, own, defaults)}
        if own.get("sampler") not in (None, defaults.get("sampler")):
            defaults = {key: part for key, part in defaults.items() if key not in _OF_SAMPLER}
    merged = {**defaults, **own}
    if "score" in own and "score" in defaults and not at and not is_variant:
        merged["score"] = _merged_score(defaults["score"], own["score"])
    for key, default in defaults.items():
        part = own.get(key, {})  # without a source of its own, the suite takes what holds for the hub's rows
        if (*at, key) in _MERGED and isinstance(part, dict) and isinstance(default, dict):
            merged[key] = _merged(default, part, (*at, key), is_variant=is_variant)
    return merged


def _merged_score(defaults: JSON, own: JSON) -> JSON:
    """Return the suite's scorer, with those settings of the preset's, if it is the same, that the suite does not
    give.
    """
    (name, presets), (own_name, given) = _named_scorer(defaults), _named_scorer(own)
    if name is None or name != own_name or not isinstance(presets, dict) or not isinstance(given, dict):
        return own
    dropped = [key for setting in given for key in _DEPENDENT.get((name, setting), ())]
    return {name: {**{key: part for key, part in presets.items() if key not in dropped}, **given}}


def _named_scorer(score: JSON) -> tuple[str | None, JSON]:
    """Return the name of a scorer, None if that is wrong, and its settings."""
    if isinstance(score, str):
        return score, {}
    if isinstance(score, dict) and len(score) == 1:
        ((name, settings),) = score.items()
        return name, {} if settings is None else settings
    return None, None


def _holds_for(key: str, own: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    """Tell whether what a preset says at ``key`` of the source of rows holds for the source that the suite names."""
    if key in _OF_FILES:
        path = own.get("path")
        if not isinstance(path, str):
            return False
        name = path.lower().removesuffix(".gz").removesuffix(".zst")
        return name.endswith(_OF_FILES[key])
    if key in _OF_HUB:
        return not _has_source(own) or (own.get("hub") == defaults.get("hub") and own.get("hub") is not None)
    return key != "samples" or not _has_source(own)


def _family_members(name: str) -> str | None:
    """Return the presets whose names begin with ``name-``, in the words of a message; None if there are none."""
    families: dict[str, list[str]] = {}
    for preset in all_presets():
        if preset.name.startswith(f"{name}-"):
            families.setdefault(preset.family, []).append(preset.name)
    if len(families) > 1 and sum(map(len, families.values())) > _MANY:
        return " or ".join(f"{family}-<task>" for family in families)
    members = [member for family in families.values() for member in family]
    if len(members) > _MANY:
        return f"one of {', '.join(members[:3])}, … ({len(members)}; `llmeval presets {name}`)"
    return f"one of {', '.join(members)}" if members else None


def _advice(name: str) -> str:
    """Return what was probably meant by a name that no preset has; names of lm-eval's tasks lead to ours."""
    ours = name.casefold().replace("_", "-")
    for theirs, preset in _LM_EVAL_NAMES.items():
        if ours == theirs or ours.startswith(f"{theirs}-"):
            ours = preset + ours.removeprefix(theirs) if preset in _PREFIXES else preset
            break
    names = [preset.name for preset in all_presets()]
    if ours in names:
        return f"; did you mean {quoted(ours)}?"
    if (members := _family_members(ours)) is not None:
        return f"; expected {f'{ours}-<task>' if ours in _PREFIXES else members}"
    near = nearest(ours, names)
    if near is not None:
        return f"; did you mean {quoted(near)}?"
    return expected_one_of(name, [family if family in _family(family) else f"{family}-…" for family in _file_names()])


_MANY = 8
"""A message names all presets that begin alike up to this number, and only some of more."""

_PREFIXES = ("bbh-cot", "bbh-direct")
_LM_EVAL_NAMES: Mapping[str, str] = {
    "bbh-cot-fewshot": "bbh-cot",
    "bbh-fewshot": "bbh-direct",
    "commonsense-qa": "csqa",
    "commonsenseqa": "csqa",
    "gpqa-diamond-zeroshot": "gpqa-diamond-lm-eval",
    "hendrycks-math": "math-hendrycks",
    "hendrycks-math500": "math-500-hendrycks",
    "mgsm-cot-native": "mgsm-native-cot",
    "minerva-math": "math-minerva",
    "minerva-math500": "math-500-minerva",
    "mmlu-pro": "mmlu-pro",
    "mmlu": "mmlu",
    "siqa": "social-iqa",
}
"""lm-eval's tasks of other names than our presets', and the beginnings of such names, with ``-`` for ``_``."""


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
    optional = [key for key in ("questions", "needs", "reference", "checked", "files") if key in data]
    said = {key: data[key] for key in ("description", "source", "formula", *optional)}
    return Preset(name=name, family=family, defaults=defaults, **said)
