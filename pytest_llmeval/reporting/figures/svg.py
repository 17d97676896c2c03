"""A figure as SVG that can stand in a page: no style, no script, no reference to anything outside, own ids."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from xml.etree import ElementTree

from matplotlib.backends.backend_svg import FigureCanvasSVG

from pytest_llmeval.reporting.figures.report_figure import ReportFigure
from pytest_llmeval.reporting.figures.style import GRID, INK, MUTED, label
from pytest_llmeval.reporting.figures.titles import drawing_to_write

__all__ = ["INLINE", "ON_ANY_PAGE", "PRINT", "Palette", "svg_document", "svg_text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """What takes the place of the colours of texts, of what is said beside, and of lines behind the data."""

    ink: str
    muted: str
    grid: str


INLINE = Palette(ink="var(--figure-ink, #222)", muted="var(--figure-muted, #666)", grid="var(--figure-grid, #d5d5d5)")
"""A page's CSS sets these for its dark mode."""
ON_ANY_PAGE = Palette(ink="#767676", muted="#767676", grid="#9a9a9a")
"""Legible on white and on black: an image in Markdown does not know what it stands on."""
PRINT = Palette(ink="#222222", muted="#666666", grid="#d5d5d5")

_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', 'Noto Sans', Arial, sans-serif"
_NAMESPACE = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
_DROPPED = {"metadata", "style"}
_TEXT_LIMIT = 2000
_REFERENCE = re.compile(r"url\(#([^)]*)\)")
_INHERITED: Mapping[str, str] = MappingProxyType(
    {"stroke-linejoin": "round", "stroke-linecap": "butt", "direction": "ltr", "font-family": _FONTS}
)


def svg_text(figure: ReportFigure, *, palette: Palette = INLINE, has_title: bool = False) -> str:
    """One ``<svg …>…</svg>`` for a page, the same bytes each time; ids begin with the figure's name.

    Its texts are texts, in the page's own fonts. Colours of texts and axes follow ``--figure-ink``, ``--figure-muted``
    and ``--figure-grid`` of the page's CSS where it sets them. Where it ``has_title``, that is drawn too: a page has a
    caption instead.
    """
    root = ElementTree.fromstring(_drawn(figure, has_title=has_title))
    marks = {f"#{node.get('id')}": dict(node.attrib) for node in root.iter() if _local(node.tag) == "path"}
    _clean(root, marks, _replacements(palette))
    _rename_ids(root, figure.name)
    found = ElementTree.Element("svg", {"xmlns": _NAMESPACE, **_INHERITED})
    found.attrib.update({name: root.attrib[name] for name in ("width", "height", "viewBox") if name in root.attrib})
    found.attrib.update({"role": "img", "aria-labelledby": f"{figure.name}-title {figure.name}-desc"})
    for tag, text in (("title", figure.title), ("desc", figure.description)):
        said = ElementTree.SubElement(found, tag, {"id": f"{figure.name}-{tag}"})
        said.text = label(text, limit=_TEXT_LIMIT)
    found.extend(list(root))
    return ElementTree.tostring(found, encoding="unicode")


def svg_document(figure: ReportFigure, *, palette: Palette = PRINT, comment: str = "", has_title: bool = True) -> str:
    """A file of its own, ASCII, with the comment at its start."""
    text = svg_text(figure, palette=palette, has_title=has_title).encode("ascii", "xmlcharrefreplace").decode("ascii")
    said = f"<!-- {comment} -->\n" if comment else ""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{said}{text}\n'


def _drawn(figure: ReportFigure, *, has_title: bool) -> str:
    file = io.StringIO()
    salt = {"svg.hashsalt": f"pytest-llmeval {figure.name}"}
    with drawing_to_write(figure, has_title=has_title, **salt) as options:
        FigureCanvasSVG(figure.figure)
        figure.figure.savefig(file, format="svg", metadata={"Date": None}, **options)
    return file.getvalue()


def _replacements(palette: Palette) -> Mapping[str, str]:
    return {INK: palette.ink, MUTED: palette.muted, GRID: palette.grid}


def _clean(node: ElementTree.Element, marks: Mapping[str, Mapping[str, str]], colours: Mapping[str, str]) -> None:
    """Leave elements and attributes of plain SVG: what is used several times stands where it is used."""
    children = []
    for found in list(node):
        name = _local(found.tag)
        if name in _DROPPED:
            continue
        child = _used(found, marks) if name == "use" else found
        _clean(child, marks, colours)
        if name == "defs":
            child[:] = [one for one in child if one.tag != "path"]
        if name != "defs" or len(child):
            children.append(child)
    node[:] = children
    node.tag = _local(node.tag)
    node.tail = None
    for key, value in list(_presentation(node)):
        node.set(key, colours.get(value, value))


def _used(use: ElementTree.Element, marks: Mapping[str, Mapping[str, str]]) -> ElementTree.Element:
    """The path that it refers to, in its place."""
    path = marks[use.get(_LINK, "")]
    style = ";".join(filter(None, (path.get("style"), use.get("style"))))
    moved = f"translate({use.get('x', '0')} {use.get('y', '0')})"
    return ElementTree.Element("path", {"d": path.get("d", ""), "transform": moved, "style": style})


def _presentation(node: ElementTree.Element) -> Iterator[tuple[str, str]]:
    """The declarations of a style as attributes; the page chooses the fonts."""
    style = node.attrib.pop("style", "")
    for declaration in style.split(";"):
        name, colon, value = declaration.partition(":")
        if colon and name.strip() != "font-family":
            yield name.strip(), value.strip()
    for name in ("fill", "stroke"):
        if name in node.attrib:
            yield name, node.attrib[name]


def _rename_ids(root: ElementTree.Element, name: str) -> None:
    """Keep the ids that something refers to, under the figure's name."""
    used = {found for node in root.iter() for value in node.attrib.values() for found in _REFERENCE.findall(value)}
    ids = {old: f"{name}-part-{place}" for place, old in enumerate(sorted(used), start=1)}
    for node in root.iter():
        own = node.attrib.pop("id", None)
        if own in ids:
            node.set("id", ids[own])
        for key, value in node.attrib.items():
            node.set(key, _REFERENCE.sub(lambda found: f"url(#{ids[found[1]]})", value))


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]
