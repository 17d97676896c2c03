"""Commands about suites: ``llmeval init`` (a first suite), ``presets``, ``schema`` and ``convert``."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shlex
import textwrap
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmeval.commands.output import counted, say, write_new, write_out
from pytest_llmeval.errors import LLMEvalError

if TYPE_CHECKING:
    from pytest_llmeval.data.traces import TraceRows
    from pytest_llmeval.suites.presets import Preset

__all__ = ["add_parsers"]


_FIRST_SUITE = {"first.yaml": "suites/first.yaml"}
_WORKFLOWS = {
    "github": {"github.yml": ".github/workflows/llmeval.yml"},
    "gitlab": {"gitlab.yml": ".gitlab/llmeval.yml", "gitlab-ci.yml": ".gitlab-ci.yml"},
}
"""The files of ``starter/``, and the paths that they are written to."""


def add_parsers(commands: Any) -> None:
    _add_init(commands)
    _add_presets(commands)
    _add_schema(commands)
    _add_convert(commands)


def _add_init(commands: Any) -> None:
    parser = commands.add_parser(
        "init",
        help="write a first suite and a CI workflow",
        description="Write a first suite, and a workflow for GitHub or GitLab that runs the suites of every pull "
        "request, compares them with the baseline of the main branch, and writes a comment. An existing file is never "
        "overwritten.",
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path(), help="project folder; default: this one")
    parser.add_argument("--ci", choices=tuple(_WORKFLOWS), default="github", help="default: github")
    parser.set_defaults(run=_init)


def _init(options: argparse.Namespace) -> int:
    """Run the command and return its exit code, which is 1 if all files exist.

    Raise ``LLMEvalError`` if a file cannot be written, and then none was.
    """
    folder: Path = options.folder
    starter = resources.files("pytest_llmeval.commands") / "starter"
    files = _FIRST_SUITE | _WORKFLOWS[options.ci]
    texts = {folder / place: (starter / name).read_text(encoding="utf-8") for name, place in files.items()}
    existing = [path for path in texts if os.path.lexists(path)]
    for path in existing:
        del texts[path]
    _write_all(texts)
    for path in existing:
        say("init", f"{path} exists already and stays as it is; {_advice(path)}")
    if not texts:
        return 1
    change = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
    suites = "pytest suites --llm-model=demo"
    baseline = "--llm-baseline suites/baseline.json --llm-update-baseline"
    write_out(
        "".join(f"wrote {path}\n" for path in texts) + "\nNext:\n"
        f"  {change}{suites}\n"
        f"  {change}{suites} {baseline}    # what later runs are compared with; commit it\n"
    )
    return 0


def _advice(path: Path) -> str:
    if path.name == ".gitlab-ci.yml":
        return "add 'include: [{local: .gitlab/llmeval.yml}]' to it"
    return "to have the new one, rename it and run this command again"


def _write_all(texts: dict[Path, str]) -> None:
    """Write all files or none. Raise ``LLMEvalError``."""
    made: list[Path] = []
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                made.append(path)
                file.write(text)
        except OSError as error:
            for other in made:
                with contextlib.suppress(OSError):
                    other.unlink()
            raise LLMEvalError(f"cannot write {path}: {error.strerror}; nothing was written") from None


_MANY = 8
"""If a family has more variants than this, the list names the family only."""


def _add_presets(commands: Any) -> None:
    parser = commands.add_parser("presets", help="list the published benchmarks that `preset:` knows, or show one")
    parser.add_argument("name", nargs="?", help="a preset, or the beginning of several names")
    parser.add_argument("--json", action="store_true", help="print JSON; for a named preset, with its defaults")
    parser.set_defaults(run=_presets)


def _presets(options: argparse.Namespace) -> int:
    write_out(_listed_presets(options.name, as_json=options.json), is_json=options.json)
    return 0


def _listed_presets(name: str | None, *, as_json: bool) -> str:
    from pytest_llmeval.suites.named import all_groups
    from pytest_llmeval.suites.presets import PresetError, all_presets, load_preset

    presets = list(all_presets())
    if name is not None:
        groups = {group.name: group for group in all_groups()}
        of_group = {one.preset for one in groups[name].suites} if name in groups else {name}
        chosen = [preset for preset in presets if preset.name in of_group]
        if not chosen:
            chosen = [preset for preset in presets if preset.name.startswith(f"{name}-")]
        if not chosen:
            try:
                chosen = [load_preset(name)]
            except PresetError as error:
                raise LLMEvalError(str(error).removeprefix("preset: ")) from None
        if len(chosen) == 1 and not as_json:
            return _described(chosen[0])
        presets = chosen
    if as_json:
        listed: list[dict[str, Any]] = [
            {key: getattr(preset, key) for key in ("name", "description", "source", "formula", *_FACTS)}
            | {"asks_for": _asks_for(preset)}
            | ({"defaults": _applied(preset)} if name is not None else {})
            for preset in presets
        ]
        return json.dumps(listed, indent=2) + "\n"
    rows: list[tuple[str, ...]] = [("preset", "questions", "asks for", "reference", "checked against", "")]
    for family, group in itertools.groupby(presets, key=lambda preset: preset.family):
        members = list(group)
        if name is None and len(members) > _MANY:
            whole = f"{members[0].description} {len(members)} of them: `llmeval presets {family}`."
            rows.append(
                (f"{family}-…", _number(sum(one.questions or 0 for one in members)), *_facts(members[0]), whole)
            )
        else:
            rows += [(one.name, _number(one.questions), *_facts(one), one.description) for one in members]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = "".join(
        "  ".join(
            cell.rjust(width) if place == 1 else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        + "\n"
        for row in rows
    )
    return text + ("" if name is not None else _listed_groups())


_FACTS = ("questions", "needs", "reference", "checked", "files")


def _asks_for(preset: Preset) -> str:
    """Return what a model has to give for the preset, and which other model is asked."""
    reply = "replies" if "generate" in preset.defaults else "log-likelihoods"
    return f"{reply}, a judge" if preset.defaults["score"] == "equivalence" else reply


def _facts(preset: Preset) -> tuple[str, str, str]:
    """Return what the preset asks for, and the beginnings of its reference and of what it was checked against."""
    checked = preset.checked.partition(",")[0] or "not checked"
    return _asks_for(preset), preset.reference.partition(" ")[0].rstrip(",:") or "-", checked


def _number(questions: int | None) -> str:
    return "your own" if not questions else f"{questions:,}"


def _listed_groups() -> str:
    from pytest_llmeval.suites.named import all_groups

    lines = [
        textwrap.fill(
            f"{group.name}: {', '.join(one.name for one in group.suites)}",
            100,
            initial_indent="  ",
            subsequent_indent="    ",
            break_on_hyphens=False,
        )
        for group in all_groups()
    ]
    return "\n".join(("", "groups, for --llm-suite:", *lines, ""))


def _applied(preset: Preset) -> dict[str, Any]:
    """Return the preset with every setting of its scorer that applies, whether the preset says it or the scorer."""
    from pydantic import TypeAdapter

    from pytest_llmeval.scorers import ScoreSettings
    from pytest_llmeval.scorers.several import SeveralSettings
    from pytest_llmeval.scoring.base import AS_THEY_APPLY

    def scorer(written: Any) -> Any:
        settings: Any = TypeAdapter(ScoreSettings).validate_python(written)
        if isinstance(settings, SeveralSettings):
            own = written["several"]
            parts = {name: {**part, "score": scorer(part["score"])} for name, part in own["scorers"].items()}
            return {"several": {**own, "scorers": parts, "decides": settings.deciding}}
        shown = settings.model_dump(mode="json", exclude={"kind"}, context=AS_THEY_APPLY)
        return {settings.kind: shown} if shown else settings.kind

    return {**preset.defaults, "score": scorer(preset.defaults["score"])}


def _described(preset: Preset) -> str:
    import yaml

    def paragraph(label: str, text: str) -> str:
        return textwrap.fill(f"{label}: {text}", 100, subsequent_indent="  ", break_on_hyphens=False) + "\n"

    head = paragraph("preset", preset.name) + paragraph("description", preset.description)
    head += paragraph("source", preset.source) + paragraph("formula", preset.formula)
    head += paragraph("questions", _number(preset.questions)) + paragraph("asks for", _asks_for(preset))
    head += paragraph("reference", preset.reference or "none") + paragraph("checked", preset.checked or "not checked")
    has_hub = "hub" in preset.defaults.get("dataset", {})
    if has_hub:
        config = preset.defaults["dataset"].get("config")
        files = " and ".join(files[0].format(config=config) for files in preset.files.values())
        head += paragraph("data", f"the hub (the extra `datasets`), or {files} in the folder of --llm-data")
    if preset.needs:
        head += paragraph("needs", preset.needs)
    use = f"suite: my_{preset.name.replace('-', '_')}\npreset: {preset.name}\n"
    use += "" if has_hub else "dataset: {path: YOUR_FILE.jsonl}\n"
    if has_hub:
        head += paragraph("run", f"pytest --llm-model=MODEL --llm-suite={preset.name}")

    class Dumper(yaml.SafeDumper):
        """A dumper of YAML that writes text of several lines as a block, and nothing as an alias."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"' if "\n" in value else None)

    Dumper.add_representer(str, text)
    defaults = yaml.dump(_applied(preset), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    return f"{head}\nuse:\n{textwrap.indent(use, '  ')}\ndefaults:\n{textwrap.indent(defaults, '  ')}"


def _add_schema(commands: Any) -> None:
    parser = commands.add_parser("schema", help="print the JSON Schema of a suite file, for editors")
    parser.set_defaults(run=_schema)


def _schema(options: argparse.Namespace) -> int:
    from pytest_llmeval.suites.format.schema import json_schema

    write_out(json.dumps(json_schema(), indent=2) + "\n", is_json=True)
    return 0


def _add_convert(commands: Any) -> None:
    parser = commands.add_parser(
        "convert",
        help="write an lm-eval task file as a suite of this plugin, or traces as rows of a data set",
        description="Write an lm-eval task file as a suite of this plugin. Paths of data files are relative to the "
        "folder of the suite file; with standard output, to the task file's folder: save the suite there. With --from "
        "otel: write exported traces of OpenTelemetry (OTLP as JSON Lines, or what the Python SDK's console exporters "
        "write) as JSON Lines, a row for each answer of a model.",
    )
    parser.add_argument("file", type=Path, help="lm-eval's task file (.yaml), or a file of traces")
    parser.add_argument(
        "--from", dest="form", choices=("lm_eval", "otel"), default="lm_eval", help="what FILE is; default: lm_eval"
    )
    parser.add_argument("-o", "--output", type=Path, help="the file to write; without it, standard output")
    parser.set_defaults(run=_convert)


def _convert(options: argparse.Namespace) -> int:
    if options.form == "otel":
        return _convert_traces(options)
    from pytest_llmeval.suites.lm_eval.load import convert

    text = convert(options.file, None if options.output is None else options.output.parent)
    write_new(text, options.output)
    return 0


def _convert_traces(options: argparse.Namespace) -> int:
    from pytest_llmeval.data.files import Source
    from pytest_llmeval.data.traces import TraceRows

    output: Path | None = options.output
    if output is not None and output.suffix != ".jsonl":
        raise LLMEvalError(f"--output {output}: traces become rows, expected a name that ends in .jsonl")
    rows = TraceRows(Source(options.file, str(options.file)))

    def lines() -> Iterator[str]:
        for row in rows:
            yield json.dumps(row, ensure_ascii=False) + "\n"
        if not rows.num_rows:
            found = (
                f"found no row in {counted(rows.num_spans, 'span')}{_left_out(rows)}"
                if rows.num_spans
                else ("found no span, expected OTLP as JSON Lines, or what the Python SDK's console exporters write")
            )
            raise rows.source.error(found)

    write_new(lines(), output, is_json=True)
    say("convert", f"{counted(rows.num_rows, 'row')} of {counted(rows.num_spans, 'span')}{_left_out(rows)}")
    return 0


def _left_out(rows: TraceRows) -> str:
    """Return what has no place in the rows, as the end of a sentence."""
    spans = ", ".join(f"{number:,} {reason}" for reason, number in rows.left_out.most_common())
    lost = ", ".join(f"{what} ({number:,})" for what, number in rows.lost.most_common())
    return (f"; spans left out: {spans}" if spans else "") + (f"; also left out: {lost}" if lost else "")
