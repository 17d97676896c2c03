"""Writes figures: as SVG inside a page, and as files (SVG, PDF, PNG), where the title stands above the drawing."""

from __future__ import annotations

import io
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.transforms import Bbox

from pytest_llmeval.reporting.figures.report_figure import ReportFigure, label
from pytest_llmeval.reporting.figures.style import GRID, INK, MUTED, SIZE, Sheet, drawing
from pytest_llmeval.reporting.storage.atomic_write import atomic_path, atomic_write

__all__ = [
    "ON_ANY_PAGE",
    "svg_document",
    "svg_text",
    "write_figure",
    "write_pdf",
]


_SIZE, _LINE, _SIDE, _ABOVE, _BELOW = SIZE + 1.0, 0.19, 0.05, 0.04, 0.08
"""Points of the letters; inches of a line, and left and right of it, above and below all."""
_LIMIT = 240
"""The most characters of a title. Ours are shorter, since the names in them have a limit."""


@contextmanager
def _drawing_to_write(figure: ReportFigure, *, has_title: bool, **settings: Any) -> Iterator[dict[str, Any]]:
    """Yield settings with which ``savefig`` writes the figure; with ``has_title`` its title stands above it.

    The title's lines are no wider than the figure. Afterwards the figure is as it was.
    """
    title: AbstractContextManager[dict[str, Any]] = _title(figure) if has_title else nullcontext({})
    with drawing(**settings), title as options:
        yield options


@contextmanager
def _title(figure: ReportFigure) -> Iterator[dict[str, Any]]:
    drawn = figure.figure
    width, height = map(float, drawn.get_size_inches())
    lines = _lines(label(figure.title, limit=_LIMIT), width - 2 * _SIDE)
    written = []
    for place, line in enumerate(reversed(lines)):
        y = 1 + (_BELOW + (place + 0.5) * _LINE) / height
        written.append(drawn.text(_SIDE / width, y, line, va="center_baseline", fontsize=_SIZE))
    try:
        yield {"bbox_inches": Bbox.from_bounds(0, 0, width, height + _BELOW + len(lines) * _LINE + _ABOVE)}
    finally:
        for text in written:
            text.remove()


def _lines(text: str, width: float) -> list[str]:
    """Wrap a text to this width. Break words that are longer."""
    lines, line = [], ""
    for word in text.split():
        if Sheet.width_of([f"{line} {word}"], _SIZE) <= width:
            line = f"{line} {word}".lstrip()
            continue
        if line:
            lines.append(line)
        while (most := _num_fitting(word, width)) < len(word):
            lines.append(word[:most])
            word = word[most:]
        line = word
    return [*lines, line]


def _num_fitting(word: str, width: float) -> int:
    """Return how many characters of a text fit, at least one."""
    counts = range(1, len(word) + 1)
    return max(1, bisect_right(counts, width, key=lambda count: Sheet.width_of([word[:count]], _SIZE)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """Replacements for the colours of texts and axes, of notes, and of lines behind the data."""

    ink: str
    muted: str
    grid: str


INLINE = Palette(ink="var(--figure-ink, #222)", muted="var(--figure-muted, #666)", grid="var(--figure-grid, #d5d5d5)")
"""The colours inside a page, whose CSS sets them for its dark mode."""
ON_ANY_PAGE = Palette(ink="#767676", muted="#767676", grid="#9a9a9a")
"""Colours that are legible on white and on black: an image in Markdown does not know what it stands on."""
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
    """Return one ``<svg …>…</svg>`` for a page, the same bytes each time; ids begin with the figure's name.

    Its texts are texts, in the page's own fonts. Colours of texts and axes follow ``--figure-ink``, ``--figure-muted``
    and ``--figure-grid`` of the page's CSS if it sets them. With ``has_title`` the title is drawn too; a page has a
    caption instead.
    """
    root = ElementTree.fromstring(_drawn(figure, has_title=has_title))
    marks = {f"#{node.get('id')}": dict(node.attrib) for node in root.iter() if _local(node.tag) == "path"}
    _clean(root, marks, {INK: palette.ink, MUTED: palette.muted, GRID: palette.grid})
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
    """Return an SVG file in ASCII with the comment at its start."""
    text = svg_text(figure, palette=palette, has_title=has_title).encode("ascii", "xmlcharrefreplace").decode("ascii")
    said = f"<!-- {comment} -->\n" if comment else ""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{said}{text}\n'


def _drawn(figure: ReportFigure, *, has_title: bool) -> str:
    file = io.StringIO()
    salt = {"svg.hashsalt": f"pytest-llmeval {figure.name}"}
    with _drawing_to_write(figure, has_title=has_title, **salt) as options:
        FigureCanvasSVG(figure.figure)
        figure.figure.savefig(file, format="svg", metadata={"Date": None}, **options)
    return file.getvalue()


def _clean(node: ElementTree.Element, marks: Mapping[str, Mapping[str, str]], colours: Mapping[str, str]) -> None:
    """Keep only elements and attributes of plain SVG, and write shared elements out where they are used."""
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
    """Return the path that a ``use`` element refers to, at its place."""
    path = marks[use.get(_LINK, "")]
    style = ";".join(filter(None, (path.get("style"), use.get("style"))))
    moved = f"translate({use.get('x', '0')} {use.get('y', '0')})"
    return ElementTree.Element("path", {"d": path.get("d", ""), "transform": moved, "style": style})


def _presentation(node: ElementTree.Element) -> Iterator[tuple[str, str]]:
    """Return the declarations of a style as attributes, without fonts, which the page chooses."""
    style = node.attrib.pop("style", "")
    for declaration in style.split(";"):
        name, colon, value = declaration.partition(":")
        if colon and name.strip() != "font-family":
            yield name.strip(), value.strip()
    for name in ("fill", "stroke"):
        if name in node.attrib:
            yield name, node.attrib[name]


def _rename_ids(root: ElementTree.Element, name: str) -> None:
    """Keep the ids that something refers to, and begin them with the figure's name."""
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


_DPI = 200


def write_figure(
    figure: ReportFigure, path: Path, *, palette: Palette = PRINT, comment: str = "", has_title: bool = True
) -> None:
    """Write the figure in the form of the suffix: ``.svg``, ``.pdf`` or ``.png``, the same bytes each time.

    With ``has_title`` the title stands above it. PNG has 200 dots per inch on white; the others have no background.
    SVG has the palette and the comment. Raise ``ReportError``.
    """
    suffix = path.suffix.lower()
    if suffix == ".svg":
        text = svg_document(figure, palette=palette, comment=comment, has_title=has_title)
        with atomic_write(path, encoding="ascii") as file:
            file.write(text)
    elif suffix == ".pdf":
        write_pdf([figure], path, title=figure.title, has_titles=has_title)
    else:
        written: dict[str, Any] = {"format": "png", "dpi": _DPI, "facecolor": "white", "metadata": {"Software": None}}
        with atomic_path(path, suffix=".png") as temporary, _drawing_to_write(figure, has_title=has_title) as options:
            figure.figure.savefig(temporary, **written, **options)


def write_pdf(
    figures: Iterable[ReportFigure], path: Path, *, title: str | None = None, has_titles: bool = True
) -> None:
    """Write the figures, at least one, as the pages of a PDF, with its fonts as TrueType. Raise ``ReportError``.

    Each figure is written before the next is drawn. ``title`` is the document's.
    """
    named = None if title is None else title.encode("ascii", "backslashreplace").decode("ascii")
    metadata = {"CreationDate": None, "Creator": None, "Producer": None, "Title": named}
    with atomic_path(path, suffix=".pdf") as temporary, drawing(), PdfPages(temporary, metadata=metadata) as pages:
        for figure in figures:
            with _drawing_to_write(figure, has_title=has_titles) as options:
                pages.savefig(figure.figure, **options)
