"""docs/reference.md says what the suite format, the options, presets and commands are."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from markdown_it import MarkdownIt
from pydantic import BaseModel, Field

from pytest_llmeval.cli import COMMANDS
from pytest_llmeval.plugin.settings import OPTIONS
from pytest_llmeval.scorers import SCORERS
from pytest_llmeval.scoring.filters import FILTERS
from pytest_llmeval.scoring.metrics.definitions import METRICS
from pytest_llmeval.suites.format.schema import json_schema
from pytest_llmeval.suites.presets import all_presets
from tests.tools.reference import COMMAND, PATH, reference, settings_table


def test_the_page_is_what_the_code_says() -> None:
    assert PATH.read_text("utf-8") == reference(), f"run: {COMMAND}"


def _keys(part: Mapping[str, Any]) -> Iterator[str]:
    yield from part.get("properties", {})
    for model in part.get("$defs", {}).values():
        yield from _keys(model)


def test_everything_has_a_row_or_a_heading_of_its_own() -> None:
    page = reference()
    rows = set(re.findall(r"^\| `([^`]+)`", page, re.MULTILINE))
    headings = set(re.findall(r"^### `([^`]+)`", page, re.MULTILINE))
    keys = set(_keys(json_schema())) - {"remove"}  # a step of normalize
    assert not keys - rows
    assert not SCORERS.keys() - headings
    assert not FILTERS.keys() - headings - rows
    assert not METRICS.keys() - rows
    assert {option.flag for option in OPTIONS} == {row.split()[0] for row in rows if row.startswith("--llm-")}
    commands = argparse.ArgumentParser().add_subparsers()
    for module in COMMANDS:
        module.add_parsers(commands)
    assert {f"llmeval {name}" for name in commands.choices} <= headings
    for preset in all_presets():
        assert f"`{preset.name}`" in page or f"`{preset.name.removeprefix(preset.family)}`" in page


def test_every_table_is_read_as_one() -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(reference())
    cells = 0
    for token in tokens:
        cells = 0 if token.type == "tr_open" else cells + (token.type in ("th_open", "td_open"))
        if token.type == "th_open":
            width = cells
        if token.type == "tr_close":
            assert cells == width
    inner = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in inner} <= {
        "text",
        "text_special",
        "code_inline",
        "link_open",
        "link_close",
        "softbreak",
    }
    lines = reference().splitlines()
    assert sum(token.type == "tr_open" for token in tokens) == sum(
        line.startswith("| ") for line in lines
    )  # no line of a table fell out of it


def test_links_lead_to_headings_of_the_page() -> None:
    page = reference()
    anchors = {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", page, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= anchors


def test_a_key_without_a_description_is_an_error() -> None:
    class Settings(BaseModel):
        told: int = Field(1, description="Told.")
        untold: int = 1

    with pytest.raises(ValueError, match=re.escape("Settings.untold has no description")):
        list(settings_table(Settings))
