"""Reads a page as a browser does, as far as tests need it: its elements, its columns, its samples."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.writers.html.page import write_html

__all__ = ["Page", "page_of", "read_page"]

_VOID = {"meta", "link", "input", "br", "img", "hr"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    text: str = ""


@dataclass
class Page:
    """``elements`` in the order in which they begin; ``text`` is what a reader sees, without scripts."""

    source: str
    elements: list[Element] = field(default_factory=list)
    text: str = ""

    def all(self, tag: str) -> list[Element]:
        return [one for one in self.elements if one.tag == tag]

    def by_id(self, name: str) -> Element:
        (found,) = [one for one in self.elements if one.attributes.get("id") == name]
        return found

    @property
    def names(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(base64.b64decode(self.by_id("samples").attributes["data-names"] or ""))
        return found

    @property
    def columns(self) -> dict[str, list[Any]]:
        found = [one for one in self.all("script") if one.attributes.get("class") == "column"]
        return {str(one.attributes["data-name"]): unpacked(one.text) for one in found}

    @property
    def chunks(self) -> list[list[Any]]:
        found = [one for one in self.all("script") if (one.attributes.get("id") or "").startswith("chunk-")]
        return [unpacked(one.text) for one in found]

    @property
    def samples(self) -> list[dict[str, Any]]:
        """Each sample of the index by the names of its columns; ``shown`` is what an opened one shows, or None."""
        columns = self.columns
        texts = iter(record for chunk in self.chunks for record in chunk)
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        for row in rows:
            row["shown"] = next(texts) if row["kept"] else None
        assert next(texts, None) is None
        return rows


def unpacked(text: str) -> list[Any]:
    def refuse(constant: str) -> None:
        raise ValueError(f"a browser does not read {constant}")

    found: list[Any] = json.loads(zlib.decompress(base64.b64decode(text)), parse_constant=refuse)
    return found


class _Reader(HTMLParser):
    def __init__(self, page: Page) -> None:
        super().__init__(convert_charrefs=True)
        self.page = page
        self.open: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self.page.elements.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.open[-1].text += data
        if not any(one.tag in ("script", "style", "title") for one in self.open):
            self.page.text += data


def read_page(path: Path) -> Page:
    page = Page(path.read_text(encoding="utf-8"))
    reader = _Reader(page)
    reader.feed(page.source)
    reader.close()
    assert not reader.open
    return page


def page_of(report: Report, folder: Path, **options: int) -> Page:
    path = folder / "page.html"
    write_html(report, path, **options)
    return read_page(path)
