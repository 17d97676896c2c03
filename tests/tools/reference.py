"""Writes docs/reference.md from the suite format's models, the option table, the metrics, presets and commands.

    python -m tests.tools.reference

``tests/test_reference.py`` holds the page to them.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pytest_llmeval.cli import COMMANDS
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.plugin.settings import OPTIONS, Option, Settings
from pytest_llmeval.scorers import SCORERS
from pytest_llmeval.scorers.judging.judged_scorer import OwnPrompt
from pytest_llmeval.scorers.pairwise import AgainstBaseline
from pytest_llmeval.scorers.rubric import Criterion
from pytest_llmeval.scorers.several import PartSettings
from pytest_llmeval.scoring.epochs import EpochsSpec
from pytest_llmeval.scoring.filters import FILTERS
from pytest_llmeval.scoring.metrics.definitions import METRICS, MetricDefinition, definition
from pytest_llmeval.suites.format.gates_spec import PrimaryMetricSpec
from pytest_llmeval.suites.format.prompt_spec import FewshotSpec, MessageSpec, PromptSpec, TurnSpec
from pytest_llmeval.suites.format.rows_spec import DatasetSpec, JoinSpec
from pytest_llmeval.suites.format.schema import SuiteSpec
from pytest_llmeval.suites.presets import Preset, all_presets
from tests.support import REPOSITORY

__all__ = ["COMMAND", "PATH", "cell", "reference", "settings_table", "table_of"]

PATH = REPOSITORY / "docs" / "reference.md"
COMMAND = "python -m tests.tools.reference"

_PARTS: Sequence[tuple[str, type[BaseModel]]] = (
    ("dataset", DatasetSpec),
    ("dataset.join", JoinSpec),
    ("prompt", PromptSpec),
    ("prompt.fewshot", FewshotSpec),
    ("prompt.messages", MessageSpec),
    ("generate", GenerateSpec),
    ("epochs", EpochsSpec),
    ("primary_metric", PrimaryMetricSpec),
)
"""Keys of a suite that hold mappings."""

_TYPES: Mapping[str, str] = {
    "choices": "a column, a template, or a list of values and templates",
    "target": "a column, a template, a value, or a list of these",
    "fields": "mapping of names to columns, templates, values or lists of these",
    "samples": "list of mappings",
    "score": "a [scorer](#scorers), or one with its settings",
    "filters": "list of [filters](#filters)",
    "gates": "list of [rules](#gates)",
    "preset": "a [preset](#presets)",
    "turns": "a column, or list of templates or mappings, see below",
    "reduce": "a reduction, or a list of them: `mean`, `first`, `any`, `all`, `mode`, `mode@k`, `pass@k`, `pass^k`",
    "normalize": "list of steps: ",
    "messages": "a column, or a list of [messages](#promptmessages)",
    "reasoning": "true, false, or a list of names of tags and of pairs `[open, close]`",
}
"""Types that the schema says at length."""

_METRIC_FAMILIES = ("bleu_4", "sentence_bleu_4", "rouge_2", "aspect_clarity", "criterion_polite", "pass@4", "pass^4")
"""An example of each family of metrics with a number in their names."""

_KINDS = {
    "proportion": "proportion",
    "mean": "mean",
    "count": "count",
    "pooled": "ratio of two sums",
    "corpus": "of all samples at once",
}


def reference() -> str:
    """The page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Reference"
    yield ""
    yield "Look up every key, scorer, filter, gate, metric, preset, option and command here."
    yield f"This page is made by `{COMMAND}`: do not edit it by hand."
    yield ""
    yield "[The other pages](README.md) explain how things work together, with examples."
    yield "An empty default means that there is none, or that the meaning gives it."
    yield ""
    yield (
        "[A suite](#a-suite) · [scorers](#scorers) · [filters](#filters) · [gates](#gates) · [metrics](#metrics) · "
        "[presets](#presets) · [options of pytest](#options-of-pytest) · [the command llmeval](#the-command-llmeval)"
    )
    yield from _suite()
    yield from _scorers()
    yield from _filters()
    yield from _gates()
    yield from _metrics()
    yield from _presets()
    yield from _options()
    yield from _commands()


# The suite format


def _suite() -> Iterator[str]:
    yield from ("", "## A suite", "", "The keys of a suite file. `suite` comes first.")
    yield from settings_table(SuiteSpec)
    for name, model in _PARTS:
        yield from ("", f"### `{name}:`", "", _sentence(model))
        if name == "epochs":
            yield from ("", "A whole number alone is its `count`.")
        if name == "primary_metric":
            yield from ("", "A text alone is its `name`.")
        yield from settings_table(model)
        if name == "prompt":
            yield from (
                "",
                "Each of `turns`; a text alone is its `user`, and a text in place of the list its `column`:",
            )
            yield from settings_table(TurnSpec)


def _scorers() -> Iterator[str]:
    yield from ("", "## Scorers", "")
    yield "`score:` is a name, or one name with settings: `score: {choice: {normalize: sum}}`. [More](scoring.md)."
    for name, model in SCORERS.items():
        yield from ("", f"### `{name}`", "", _sentence(model))
        yield from settings_table(model)
        if name == "several":
            yield from ("", "Each of `scorers`:")
            yield from settings_table(PartSettings)
        if name == "rubric":
            yield from ("", "Each of `criteria`; a text alone is its `text`:")
            yield from settings_table(Criterion)
        if name == "pairwise":
            yield from ("", "`against`, if it is not a column:")
            yield from settings_table(AgainstBaseline)
    yield from ("", "`prompt` of a scorer that asks a judge; a text alone is its `template`:")
    yield from settings_table(OwnPrompt)


def _filters() -> Iterator[str]:
    yield from ("", "## Filters", "")
    yield "`filters:` is a list; each is a name, or one name with settings: `[strip, {regex: {pattern: 'is (.*)'}}]`."
    yield "`{after: TEXT}`, `{before: TEXT}`, `{regex: PATTERN}` and `{choice_regex: PATTERN}` are short forms, and"
    yield "so is `{map: {TEXT: TEXT}}`. [More](scoring.md#filters)."
    plain = {name: model for name, model in FILTERS.items() if not _fields(model)}
    yield from table_of(("filter", "what it does"), [(f"`{name}`", _sentence(model)) for name, model in plain.items()])
    for name, model in FILTERS.items():
        if name not in plain:
            yield from ("", f"### `{name}`", "", _sentence(model))
            yield from settings_table(model)


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items() if name != "kind"}


def settings_table(model: type[BaseModel]) -> Iterator[str]:
    """The table of a model's settings; nothing where it has none."""
    schema = model.model_json_schema()
    rows = []
    for name, field in _fields(model).items():
        if not field.description:
            raise ValueError(f"{model.__name__}.{name} has no description")
        default = "required" if field.is_required() else _value(field.get_default(call_default_factory=True))
        rows.append((f"`{name}`", _type(name, schema["properties"][name], schema), default, cell(field.description)))
    if rows:
        yield from table_of(("key", "type", "default", "meaning"), rows)


def _type(name: str, part: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if name in _TYPES and "enum" not in part:
        steps = [*_enum_in(part), "`{remove: PATTERN}`"] if name == "normalize" else []
        return _TYPES[name] + ", ".join(steps)
    return _described(part, schema)


def _enum_in(part: Mapping[str, Any]) -> Iterator[str]:
    found = next(one for one in part["items"]["anyOf"] if "enum" in one)
    return (f"`{value}`" for value in found["enum"])


def _described(part: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """A type of JSON Schema in words."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        found = next((key for key, model in _PARTS if model.__name__ == name), None)
        return f"mapping, see [{found}](#{found.replace('.', '')})" if found else "mapping, see below"
    if "anyOf" in part:
        texts = [_described(one, schema) for one in part["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(texts))
    if "enum" in part:
        return "one of " + ", ".join(f"`{value}`" for value in part["enum"])
    if "const" in part:
        return f"`{part['const']}`"
    kind = part.get("type")
    if isinstance(kind, list):
        return " or ".join(_KIND_WORDS[one] for one in kind)
    if kind == "array":
        items = part.get("items", {})
        return f"list of {_described(items, schema).removeprefix('one of ')}" if items else "list"
    if kind is None:
        return "any value"
    return _KIND_WORDS[kind] + _limits(part)


_KIND_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "mapping",
}


def _limits(part: Mapping[str, Any]) -> str:
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    found = [f"{word} {part[key]:g}" for key, word in words.items() if key in part]
    return f", {', '.join(found)}" if found else ""


def _value(value: object) -> str:
    """A default as YAML's flow style has it; nothing for none."""
    if isinstance(value, BaseModel):
        return ""
    if value is None or value in ((), {}):
        return ""
    plain = list(value) if isinstance(value, tuple) else value
    return _code(json.dumps(plain, ensure_ascii=False))


def _sentence(model: type[BaseModel]) -> str:
    """The first line of a model's docstring, and what else it says."""
    return cell(" ".join((model.__doc__ or "").split()))


# Gates and metrics


def _gates() -> Iterator[str]:
    yield from ("", "## Gates", "")
    yield "A rule is a subject, `>=`, `>`, `<=` or `<`, and a number: `accuracy >= 0.6`. [More](gates.md)."
    subjects = [
        ("`METRIC`", "a [metric](#metrics) of the whole suite"),
        ("`category.NAME.METRIC`", "the metric over the samples of one category"),
        ("`macro.METRIC`", "the mean of the metric over the categories (macro average), which have to be two or more"),
        ("`NAME.METRIC`", "with `score: several`, the metric of the scorer of that name"),
        ("`ci_low(SUBJECT)`, `ci_high(SUBJECT)`", "the lower or upper end of the 95% interval of any of these"),
    ]
    yield from table_of(("subject", "what it is"), subjects)
    yield ""
    yield "On the command line and in the ini file, a suite's name comes before the rule: `boolq: accuracy >= 0.6`."
    yield "Without a name, or with `*`, the rule is for every suite that has the metric."


def _metrics() -> Iterator[str]:
    yield from ("", "## Metrics", "")
    yield "Metrics are reported, gated and compared. A suite has those of its scorer; your own scorers can name others."
    known = [*METRICS.values(), *map(definition, _METRIC_FAMILIES)]
    rows = [(f"`{one.name}`", _KINDS[one.kind], _better(one), _range(one), cell(one.description)) for one in known]
    yield from table_of(("metric", "kind", "better", "from, to", "meaning"), rows)
    yield ""
    yield f"{', '.join(f'`{name}`' for name in _METRIC_FAMILIES)} also exist with other numbers or words."


def _better(metric: MetricDefinition) -> str:
    return {True: "higher", False: "lower", None: ""}[metric.higher_is_better]


def _range(metric: MetricDefinition) -> str:
    if metric.kind == "count":
        return ""
    low, high = (f"{bound:g}" if abs(bound) != float("inf") else "" for bound in (metric.lowest, metric.highest))
    return f"{low}, {high}" if low or high else ""


# Presets


def _presets() -> Iterator[str]:
    yield from ("", "## Presets", "")
    yield "`llmeval presets NAME` shows all of a preset, with its source and the published number that it gives."
    yield "[More](benchmarks.md)."
    rows: list[tuple[str, str, str]] = []
    for family, members in itertools.groupby(all_presets(), key=lambda preset: preset.family):
        rows += _family(family, list(members))
    yield from table_of(("preset", "what it measures", "scored by"), rows)


def _family(family: str, members: Sequence[Preset]) -> Iterator[tuple[str, str, str]]:
    if len(members) <= 8:
        for preset in members:
            yield f"`{preset.name}`", cell(preset.description), _scored_by(preset)
        return
    names = ", ".join(f"`{preset.name.removeprefix(family)}`" for preset in members)
    yield f"`{family}` with {names}", cell(members[0].description), _scored_by(members[0])


def _scored_by(preset: Preset) -> str:
    score = preset.defaults.get("score")
    return f"`{score if isinstance(score, str) else next(iter(score or {}), '')}`"


# Options and commands


def _options() -> Iterator[str]:
    yield from ("", "## Options of pytest", "")
    yield "Each option is also an ini value (`llm_…`) and an environment variable (`PYTEST_LLM_…`), with one value per"
    yield "line if it can be given several times. The command line beats the environment, which beats the ini file."
    defaults = {field.name: field for field in dataclasses.fields(Settings)}
    rows = [
        (
            f"`{option.flag}{_option_value(option)}`",
            f"`{option.ini}`",
            _option_type(option),
            _option_default(defaults[option.field or option.name]),
            cell(option.help),
        )
        for option in OPTIONS
    ]
    yield from table_of(("option", "ini", "type", "default", "meaning"), rows)


def _option_value(option: Option) -> str:
    if option.kind == "flag":
        return ""
    return f" {option.metavar}" if option.without_value is None else f" [{option.metavar}]"


def _option_type(option: Option) -> str:
    return {"flag": "flag", "number": "whole number", "list": "text, several times", "text": "text"}[option.kind]


def _option_default(field: dataclasses.Field[Any]) -> str:
    return "" if field.default in (None, False, (), dataclasses.MISSING) else f"`{field.default}`"


def _commands() -> Iterator[str]:
    yield from ("", "## The command llmeval", "")
    yield "`llmeval` works without running a suite; `llmeval --version` prints the version. [More](reports.md)."
    parser = argparse.ArgumentParser()
    commands: Any = parser.add_subparsers()
    for module in COMMANDS:
        module.add_parsers(commands)
    helps = {action.dest: action.help for action in commands._choices_actions}
    for name, own in commands.choices.items():
        yield from ("", f"### `llmeval {name}`", "", cell(_capitalized(own.description or helps[name] or "")))
        yield from _arguments(own)
        for actions in (action for action in own._actions if isinstance(action, argparse._SubParsersAction)):
            for action, parser_of_action in actions.choices.items():
                yield from ("", f"`llmeval {name} {action}`: {cell(parser_of_action.description or '')}")
                yield from _arguments(parser_of_action)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    rows = [(_argument(action), cell(action.help or "")) for action in parser._actions if _is_reported(action)]
    if rows:
        yield from table_of(("argument", "meaning"), rows)


def _is_reported(action: argparse.Action) -> bool:
    is_plain = not isinstance(action, argparse._SubParsersAction)
    return is_plain and action.dest != "help" and action.help != argparse.SUPPRESS


def _argument(action: argparse.Action) -> str:
    words = "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    metavar = action.metavar if isinstance(action.metavar, str) else words
    if not action.option_strings:
        return f"`{metavar.upper()}`"
    takes = "" if action.nargs == 0 else f" {metavar}"
    name = next(string for string in action.option_strings if string.startswith("--"))
    return _code(f"{name}{takes}")


def _capitalized(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


# Markdown


def table_of(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(headers)} |"
    yield f"|{'---|' * len(headers)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def cell(text: str) -> str:
    """Plain text, in which backticks make code, as Markdown."""
    parts = text.split("`")
    return "`".join(part.replace("|", "\\|") if place % 2 else _escaped(part) for place, part in enumerate(parts))


def _escaped(text: str) -> str:
    text = re.sub(r"([\\*|])", r"\\\1", text)
    return text.replace("<", "&lt;").replace("$", "&#36;")


if __name__ == "__main__":
    PATH.write_text(reference(), encoding="utf-8")
