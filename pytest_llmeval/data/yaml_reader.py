"""YAML as data: the JSON types only, a line number for every key, and bounds on what a file can use up.

Plain scalars are resolved as YAML 1.2's core schema says: ``yes``, ``no``, ``on``, ``off``, ``12:30``, ``2020-01-01``
are text, since in a benchmark they are answers. Only PyYAML's events are used: they come one by one, so what is nested
too deeply is refused before it is read.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import yaml

from pytest_llmeval.data.files import Source, check_characters, read_text
from pytest_llmeval.text.wording import Keys, describe, quoted
from pytest_llmeval.types import JSON

__all__ = ["MAX_DEPTH", "MAX_YAML_BYTES", "Document", "YamlBuilder", "parse_yaml", "read_yaml"]

MAX_YAML_BYTES = 10_000_000
MAX_DEPTH = 100
_TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep; flatten it"
MAX_ALIASED_NODES = 100_000
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_BASED_INT = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = {_TAG + name: name for name in ("str", "int", "float", "bool", "null")}
_MERGE = object()
_NO_BREAKS = "\x85\u2028\u2029"
_PRIVATE = range(0xE000, 0xF8FF)
_BRACES = re.compile(r"\{[{%]")
_CONTENT = re.compile(r"\s*[^\s#]")
_WRONG_INDENTATION = ("mapping values are not allowed", "expected key", "'-' indicator", "<block end>")
"""Parts of PyYAML's messages on a line that begins in the wrong column."""


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed YAML file: its value, and the line (1-based) of every key and list entry."""

    source: Source
    value: JSON
    lines: Mapping[Keys, int]

    def line(self, keys: Keys) -> int | None:
        """Return the line of ``keys``, or of the innermost part of it that has one (an alias has none of its own
        inside).
        """
        for length in range(len(keys), -1, -1):
            line = self.lines.get(keys[:length])
            if line is not None:
                return line
        return None


def read_yaml(source: Source, *, max_bytes: int = MAX_YAML_BYTES, too_large: str) -> Document:
    """Read and parse a YAML file. Raises ``SuiteError`` with the line for whatever cannot be used."""
    return parse_yaml(read_text(source, max_bytes=max_bytes, too_large=too_large), source)


def parse_yaml(text: str, source: Source, builder: type[YamlBuilder] | None = None) -> Document:
    """Parse ``text``, which stands in ``source``. Raises ``SuiteError`` with the line for whatever cannot be used.

    ``builder`` makes the values, where another format than that of suites is read.
    """
    check_characters(source, text)
    # YAML 1.2 ends no line at these, and PyYAML does: others stand for them. lm-eval's files are read as it reads them.
    found = [character for character in _NO_BREAKS if character in text] if builder is None else []
    free = (chr(code) for code in _PRIVATE if chr(code) not in text)
    stand_ins = dict(zip(found, free, strict=False))
    text = text.translate({ord(character): other for character, other in stand_ins.items()})
    loader = _LOADER(text)
    try:
        made = (builder or YamlBuilder)(source, loader)
        made.restored = {ord(other): character for character, other in stand_ins.items()}
        return made.document()
    except yaml.MarkedYAMLError as error:
        at_end = "end of stream" in (error.problem or "")
        mark = (error.context_mark if at_end else None) or error.problem_mark or error.context_mark
        raise source.error(_syntax_message(text, mark, error), None if mark is None else mark.line + 1) from None
    except yaml.YAMLError as error:
        raise source.error(f"is not YAML: {str(error).splitlines()[0]}") from None
    finally:
        loader.dispose()


def _syntax_message(text: str, mark: yaml.Mark | None, error: yaml.MarkedYAMLError) -> str:
    lines = text.split("\n")
    if mark is not None and mark.line < len(lines):
        line = lines[mark.line]
        if "\t" in line[: len(line) - len(line.lstrip())] or line[mark.column : mark.column + 1] == "\t":
            return "is not YAML: found a tab, expected spaces; tabs cannot indent YAML"
    if "nesting depth" in (error.problem or ""):  # of libyaml's own limit, which its event is behind
        return _TOO_DEEP
    if "end of stream" in (error.problem or "") and "quoted" in (error.context or ""):
        return "is not YAML: found a quote that is never closed"
    problem = (error.problem or "it cannot be parsed").replace("did not find expected", "expected")
    hint = ""
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    before = line[: mark.column] if mark is not None else ""
    if "mapping values are not allowed" in problem and ": " in before:
        hint = f"; quote {'the template' if _BRACES.search(line) else 'a text'} that holds ': '"
    elif mark is not None and line and any(part in problem for part in _WRONG_INDENTATION):
        hint = _indentation_hint(lines, mark.line)
    elif "cannot start any token" in problem and mark is not None:
        hint = "; quote the template" if before.endswith("{") else "; quote the text"
        problem = f"found {quoted(line[mark.column : mark.column + 1])} at the start of a value"
    column = "" if mark is None else f" (column {mark.column + 1})"
    return f"is not YAML: {problem}{column}{hint}"


def _indentation_hint(lines: list[str], number: int) -> str:
    """Return ``; is line 4 indented like its neighbours? It begins with 3 spaces, line 3 with 2``; lines count from 0
    here.
    """
    above = next((place for place in range(number - 1, -1, -1) if _CONTENT.match(lines[place])), None)
    own = _num_spaces(lines[number])
    if above is None or own == _num_spaces(lines[above]):
        return ""
    shown = "1 space" if own == 1 else f"{own} spaces"
    return f"; the line begins with {shown}, line {above + 1} with {_num_spaces(lines[above])}: check the indentation"


def _num_spaces(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


@dataclass(slots=True)
class YamlBuilder:
    """Makes values of PyYAML's events, one by one. A key that stands twice is an error, unless the ``last_wins``."""

    source: Source
    loader: Any
    lines: dict[Keys, int] = field(default_factory=dict)
    anchors: dict[str, tuple[JSON, int]] = field(default_factory=dict)
    num_nodes: int = 0
    num_aliased: int = 0
    restored: Mapping[int, str] = field(default_factory=dict)
    """Characters of texts, by the stand-ins that PyYAML reads in their place."""
    last_wins: ClassVar[bool] = False

    def document(self) -> Document:
        self.loader.get_event()
        if self.loader.check_event(yaml.StreamEndEvent):
            return Document(self.source, None, {(): 1})
        self.loader.get_event()
        event = self.loader.get_event()
        self.lines[()] = event.start_mark.line + 1
        value = self.node(event, ())
        self.loader.get_event()
        event = self.loader.get_event()
        if not isinstance(event, yaml.StreamEndEvent):
            raise self.source.error(
                "found a second YAML document ('---'), expected one; put it in a file of its own",
                event.start_mark.line + 1,
            )
        return Document(self.source, value, self.lines)

    def node(self, event: Any, keys: Keys) -> JSON:
        line = event.start_mark.line + 1
        if len(keys) > MAX_DEPTH:
            raise self.source.error(_TOO_DEEP, line)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(str(event.anchor), line)
        before = self.num_nodes + self.num_aliased
        self.num_nodes += 1
        value: JSON
        if isinstance(event, yaml.ScalarEvent):
            value = self.scalar(event, line)
        elif isinstance(event, yaml.SequenceStartEvent):
            self.check_tag(event, "seq", line)
            value = self.sequence(keys)
        else:
            self.check_tag(event, "map", line)
            value = self.mapping(keys, line)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.num_nodes + self.num_aliased - before)
        return value

    def alias(self, name: str, line: int) -> JSON:
        if name not in self.anchors:
            raise self.source.error(f"the alias *{name} has no anchor &{name} that ends before it", line)
        value, size = self.anchors[name]
        self.num_aliased += size
        if self.num_aliased > MAX_ALIASED_NODES:
            raise self.source.error(
                f"its aliases expand to more than {MAX_ALIASED_NODES:,} values; put rows in a data set file",
                line,
            )
        return value

    def check_tag(self, event: Any, expected: str, line: int) -> None:
        if event.tag is not None and event.tag not in ("!", _TAG + expected):
            raise self.tag_error(event.tag, line)

    def tag_error(self, tag: str, line: int) -> Exception:
        shown = tag.replace(_TAG, "!!")
        return self.source.error(
            f"found the tag {quoted(shown)}, expected none; a suite is data, no code runs from it", line
        )

    def sequence(self, keys: Keys) -> list[JSON]:
        values: list[JSON] = []
        while not isinstance(event := self.loader.get_event(), yaml.SequenceEndEvent):
            inner = (*keys, len(values))
            self.lines[inner] = event.start_mark.line + 1
            values.append(self.node(event, inner))
        return values

    def mapping(self, keys: Keys, start: int) -> dict[str, JSON]:
        values: dict[str, JSON] = {}
        merged: list[dict[str, JSON]] = []
        seen: dict[object, int] = {}
        while not isinstance(event := self.loader.get_event(), yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            key = self.key(event, line)
            if key in seen and not self.last_wins:
                shown = "<<" if key is _MERGE else str(key)
                raise self.source.error(
                    f"found the key {quoted(shown)} twice, first in line {seen[key]}; remove one", line
                )
            seen[key] = line
            if isinstance(key, str):
                inner = (*keys, key)
                self.lines[inner] = line
                values[key] = self.node(self.loader.get_event(), inner)
            else:
                merged = self.merge(self.node(self.loader.get_event(), (*keys, "<<")), line)
        for mapping in merged:
            for name, value in mapping.items():
                if name not in values:
                    values[name] = value
                    self.lines[(*keys, name)] = seen[_MERGE]
        return values

    def key(self, event: Any, line: int) -> object:
        if isinstance(event, yaml.AliasEvent):
            key = self.alias(str(event.anchor), line)
        elif isinstance(event, yaml.ScalarEvent):
            if event.implicit[0] and event.value == "<<":
                return _MERGE
            key = self.scalar(event, line)
        else:
            found = "a mapping" if isinstance(event, yaml.MappingStartEvent) else "a list"
            raise self.source.error(
                f"found {found} as a key, expected text; quote the template: "
                "'{{ question }}', not {{ question }}",
                line,
            )
        if not isinstance(key, str):
            raise self.source.error(f"found {describe(key)} as a key, expected text; put it in quotes", line)
        return key

    def merge(self, value: JSON, line: int) -> list[dict[str, JSON]]:
        values = value if isinstance(value, list) else [value]
        merged = [part for part in values if isinstance(part, dict)]
        if len(merged) != len(values):
            raise self.source.error(
                "'<<' merges mappings only; expected an alias of a mapping, or a list of them", line
            )
        return merged

    def scalar(self, event: Any, line: int) -> JSON:
        text: str = event.value.translate(self.restored)
        tag = event.tag
        if tag is not None and tag != "!":
            if tag not in _SCALAR_TAGS:
                raise self.tag_error(tag, line)
            return self.tagged(text, _SCALAR_TAGS[tag], line)
        return self.resolved(text, line) if event.implicit[0] and tag is None else text

    def resolved(self, text: str, line: int) -> JSON:
        try:
            return _resolve(text)
        except ValueError:  # Python converts no more digits, since that takes quadratic time
            digits = f"{sys.get_int_max_str_digits():,}"
            message = f"found {quoted(text)}, expected a number of at most {digits} digits; put it in quotes"
            raise self.source.error(message, line) from None

    def tagged(self, text: str, name: str, line: int) -> JSON:
        value = text if name == "str" else self.resolved(text, line)
        if name == "float" and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if type(value).__name__.replace("NoneType", "null") != name:
            article = "an" if name == "int" else "a"
            raise self.source.error(f"found {quoted(text)}, expected {article} {name} as its tag says", line)
        return value


def _resolve(text: str) -> JSON:
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text)
    if _BASED_INT.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _SPECIAL_FLOAT.fullmatch(text):
        return float(text.replace(".", ""))
    return text
