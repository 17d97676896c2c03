"""The ``llmeval`` command: what can be done without running a suite."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_llmeval.errors import LLMEvalError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code: 0, 1 for what cannot be done, 2 for a wrong call."""
    parser = argparse.ArgumentParser(
        prog="llmeval", description="LLM benchmarks as pytest suites: what can be done without running one."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    presets = commands.add_parser("presets", help="list the published benchmarks that `preset:` knows, or show one")
    presets.add_argument("name", nargs="?", help="a preset, or the beginning of several names")
    presets.add_argument("--json", action="store_true", help="as JSON; of a preset that is named, with its defaults")
    commands.add_parser("schema", help="print the JSON Schema of a suite file, for editors")
    convert = commands.add_parser(
        "convert",
        help="write an lm-eval task file as a suite of our own format",
        description="Write an lm-eval task file as a suite of our own format. Data files are named as seen from the "
        "folder of the suite file; on standard output, from the task file's folder: put the suite there.",
    )
    convert.add_argument("task", type=Path, help="lm-eval's task file (.yaml)")
    convert.add_argument("-o", "--output", type=Path, help="the suite file; without it, standard output")
    options = parser.parse_args(arguments)
    try:
        match options.command:
            case "presets":
                text = _presets(options.name, as_json=options.json)
            case "schema":
                text = _schema()
            case _:
                text = _convert(options.task, options.output)
        _write(text, getattr(options, "output", None))
    except LLMEvalError as error:
        sys.stderr.write(f"llmeval {options.command}: {error}\n")
        return 1
    return 0


def _write(text: str, path: Path | None) -> None:
    if path is None:
        _print(text)
        return
    if path.exists():
        raise LLMEvalError(f"{path} exists already; remove it, or name another file with --output")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LLMEvalError(f"cannot write {path}: {error.strerror}") from None


def _print(text: str) -> None:
    if sys.stdout is None:
        raise LLMEvalError("there is no standard output to write to")
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        # What is in the buffer cannot be written, and Python would try once more at its end.
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # `llmeval presets | head`
            raise LLMEvalError(f"cannot write to standard output: {error.strerror}") from None


def _schema() -> str:
    from pytest_llmeval.suites.schema import json_schema

    return json.dumps(json_schema(), indent=2) + "\n"


def _convert(task: Path, output: Path | None) -> str:
    from pytest_llmeval.suites.lm_eval import convert

    return convert(task, None if output is None else output.parent)


def _presets(name: str | None, *, as_json: bool) -> str:
    from pytest_llmeval.suites.presets import PresetError, all_presets, load_preset

    presets = list(all_presets())
    if name is not None:
        chosen = [preset for preset in presets if preset.name == name]
        if not chosen:
            chosen = [preset for preset in presets if preset.name.startswith(f"{name}-")]
        if not chosen:
            try:
                chosen = [load_preset(name)]
            except PresetError as error:
                raise LLMEvalError(str(error)) from None
        if len(chosen) == 1 and not as_json:
            return _described(chosen[0])
        presets = chosen
    if as_json:
        listed: list[dict[str, Any]] = [
            {"name": preset.name, "description": preset.description, "source": preset.source, "formula": preset.formula}
            | ({"defaults": preset.defaults} if name is not None else {})
            for preset in presets
        ]
        return json.dumps(listed, indent=2) + "\n"
    rows: list[tuple[str, str]] = []
    for family, group in itertools.groupby(presets, key=lambda preset: preset.family):
        members = list(group)
        if name is None and len(members) > _MANY:
            rows.append(
                (f"{family}-…", f"{members[0].description} {len(members)} of them: `llmeval presets {family}`.")
            )
        else:
            rows += [(preset.name, preset.description) for preset in members]
    width = max(len(left) for left, _ in rows)
    return "".join(f"{left:<{width}}  {right}\n" for left, right in rows)


_MANY = 8
"""Variants of one family beyond which the list names the family only."""


def _described(preset: Any) -> str:
    import yaml

    def paragraph(label: str, text: str) -> str:
        return textwrap.fill(f"{label}: {text}", 100, subsequent_indent="  ") + "\n"

    head = paragraph("preset", preset.name) + paragraph("description", preset.description)
    head += paragraph("source", preset.source) + paragraph("formula", preset.formula)
    has_hub = "hub" in preset.defaults.get("dataset", {})
    use = f"suite: my_{preset.name.replace('-', '_')}\npreset: {preset.name}\n"
    use += "" if has_hub else "dataset: {path: YOUR_FILE.jsonl}\n"

    class Dumper(yaml.SafeDumper):
        """Text of several lines as a block, and nothing as an alias."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"' if "\n" in value else None)

    Dumper.add_representer(str, text)
    defaults = yaml.dump(dict(preset.defaults), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    return f"{head}\nuse:\n{textwrap.indent(use, '  ')}\ndefaults:\n{textwrap.indent(defaults, '  ')}"
