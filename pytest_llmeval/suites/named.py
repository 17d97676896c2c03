"""Suites that are run by name, without a file: presets, families of presets, and groups of them.

``groups.yml`` beside the presets holds the groups, such as a leaderboard: each names its suites, and what they change
in their presets. Rows come from a folder of local copies (``--llm-data``) that has the files as they were published,
else from the hub.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from glob import escape, glob
from importlib import resources
from pathlib import Path
from typing import Any

from pytest_llmeval.data.files import Source
from pytest_llmeval.data.rows import Row
from pytest_llmeval.data.yaml_reader import Document, parse_yaml
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.format.overrides import Override
from pytest_llmeval.suites.format.rows_spec import RowsSpec
from pytest_llmeval.suites.loading.loader import suite_of
from pytest_llmeval.suites.loading.sources import rows_of
from pytest_llmeval.suites.loading.suite import NO_SCORERS, Origin, Suite
from pytest_llmeval.suites.presets import PresetError, all_presets, load_preset
from pytest_llmeval.text.wording import Keys, nearest, quoted
from pytest_llmeval.types import JSON

__all__ = ["NamedSuite", "SuiteGroup", "all_groups", "is_suite_name", "load_named_suite", "suites_named"]


@dataclass(frozen=True, slots=True)
class NamedSuite:
    """A suite called ``name``: a preset with ``changes``, which are keys of a suite file."""

    name: str
    preset: str
    changes: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SuiteGroup:
    """Suites that are run by one name. ``source`` says who has put them together."""

    name: str
    description: str
    source: str
    suites: tuple[NamedSuite, ...]


@cache
def all_groups() -> tuple[SuiteGroup, ...]:
    """Return the groups of ``groups.yml``, in their order."""
    text = resources.files("pytest_llmeval.suites.presets").joinpath("groups.yml").read_text(encoding="utf-8")
    data: Any = parse_yaml(text, Source(Path("groups.yml"), "groups.yml")).value
    return tuple(
        SuiteGroup(name, group["description"], group["source"], tuple(_members(group["suites"])))
        for name, group in data.items()
    )


def _members(suites: Mapping[str, Mapping[str, Any]]) -> Iterator[NamedSuite]:
    for name, changes in suites.items():
        yield NamedSuite(
            name, changes.get("preset", name), {key: one for key, one in changes.items() if key != "preset"}
        )


def suites_named(name: str) -> tuple[NamedSuite, ...]:
    """Return the suites of a group, of a family of presets, or of one preset.

    ``LookupError`` says in one line that there is no such name, with the nearest spelling, or that the preset has no
    data of its own.
    """
    groups = {group.name: group for group in all_groups()}
    if name in groups:
        return groups[name].suites
    if name in (
        members := {one.name: one for group in groups.values() for one in group.suites if one.preset != one.name}
    ):
        return (members[name],)
    try:
        found = [load_preset(name)]
    except PresetError as error:
        found = [preset for preset in all_presets() if preset.family == name]
        if not found:
            ours = {**groups, **members}
            near = nearest(name.casefold().replace("_", "-"), [*ours, *(preset.name for preset in all_presets())])
            why = str(error)
            if near is not None and near in ours:
                why = f"there is no preset {quoted(name)}; did you mean {quoted(near)}?"
            raise LookupError(why.removeprefix("preset: ")) from None
    for preset in found:
        if not preset.has(("dataset", "hub")) and not preset.files:
            raise LookupError(
                f"the preset {quoted(preset.name)} has no data of its own: write a suite with preset: {preset.name} "
                "and dataset: {path: FILE}"
            )
    return tuple(NamedSuite(preset.name, preset.name) for preset in found)


def is_suite_name(name: str) -> bool:
    """Tell whether there is a group, a family or a preset of this name."""
    known = {name for group in all_groups() for name in (group.name, *(one.name for one in group.suites))}
    return name in known or any(name in (preset.name, preset.family) for preset in all_presets())


def load_named_suite(
    named: NamedSuite,
    path: Path,
    data: Source | None = None,
    *,
    overrides: Sequence[Override] = (),
    scorers: Mapping[str, Callable[..., Any]] = NO_SCORERS,
) -> Suite:
    """Return the suite with its rows, as ``load_suite`` returns that of a file.

    ``path`` stands for the file that there is not: paths of rows are shown from its folder. ``data`` is the folder of
    local copies. Raises ``SuiteError``; where rows can be had from nowhere, it says which file to put where.
    """
    preset = load_preset(named.preset)
    value: dict[str, Any] = {"suite": named.name, "preset": named.preset, **named.changes}
    config = {**preset.defaults["dataset"], **value.get("dataset", {})}.get("config")
    files = {part: [file.format(config=config) for file in names] for part, names in preset.files.items()}
    is_elsewhere = any(_names_rows(override) for override in overrides if override.matches(named.name))
    found = None if data is None or is_elsewhere else _found(data, files.get("dataset", ()))
    if found is None and not is_elsewhere and not preset.has(("dataset", "hub")):
        raise SuiteError(f"has no data on the hub; {_advice(files, data)}", path=named.name)
    if data is not None and found is not None:
        of_hub = ("config", "split", "revision")
        kept = {key: part for key, part in value.get("dataset", {}).items() if key not in of_hub}
        value["dataset"] = {**kept, "path": found}
        if "join" in files:  # if the file is not there, the error names it
            joined = _found(data, files["join"]) or os.path.join(data.path, files["join"][0])
            value["dataset"]["join"] = {"path": joined}
        if preset.has(("prompt", "fewshot", "hub")):  # if the file is not there, the error names it
            examples = _found(data, files["fewshot"]) or os.path.join(data.path, files["fewshot"][0])
            prompt = value.get("prompt", {})
            value["prompt"] = {**prompt, "fewshot": {**prompt.get("fewshot", {}), "path": examples}}

    def read_rows(spec: RowsSpec, keys: Keys, origin: Origin) -> Iterator[Row]:
        rows = rows_of(spec, keys, origin)
        try:
            first = next(rows)
        except SuiteError as error:
            if spec.hub is None or "dataset" not in files:
                raise
            hub = spec.hub if spec.config is None else f"{spec.hub}, {spec.config}"
            why = error.message.removesuffix(", or name files with path")  # there is no suite file to name them in
            advice = _advice(files, data, f" ({hub})")
            raise SuiteError(f"{why}, or {advice}", path=error.path, line=error.line) from None
        yield first
        yield from rows

    document = Document(Source(path, named.name), value, {})
    return suite_of(document, overrides=overrides, scorers=scorers, read_rows=read_rows)


def _advice(files: Mapping[str, Sequence[str]], data: Source | None, edition: str = "") -> str:
    """Say where the files of a preset belong, so that they are found."""
    folder = "a folder and give that by --llm-data" if data is None else f"{data.shown} (--llm-data)"
    return f"put {' and '.join(names[0] for names in files.values())}, as published{edition}, into {folder}"


def _names_rows(override: Override) -> bool:
    """Tell whether an override says where the rows come from."""
    return override.keys in (("dataset",), ("samples",)) or override.keys[:2] in [
        ("dataset", key) for key in ("path", "hub", "config", "split", "revision")
    ]


def _found(data: Source, names: Sequence[str]) -> str | None:
    """Return the path of the first of these files, patterns and folders that is in the folder; None if none is."""
    for name in names:
        path = os.path.join(data.path, name)
        if os.path.exists(path):
            return path
        pattern = os.path.join(escape(os.fspath(data.path)), name)
        if glob(pattern):
            return pattern
    return None
