"""Makes text of models and data safe for a terminal, Markdown or a spreadsheet, and plain for comparisons.

The JSON report holds the texts as they came.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

__all__ = [
    "csv_text",
    "encodable",
    "first_line",
    "json_without_commands",
    "markdown_text",
    "plain_characters",
    "printable",
    "shortened",
    "unusable_character",
    "without_commands",
]


# C0 and C1 controls, line and paragraph separators, bidirectional overrides, lone surrogates: what can move the cursor,
# change colours, reorder what a reader sees, or fail to encode.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")

_MARKDOWN = {
    **{character: f"\\{character}" for character in "\\`*_[]~#"},
    # A backslash does not protect a pipe from every reader of tables, nor a dollar sign from GitHub's formulas.
    **{character: f"&#{ord(character)};" for character in "|$"},
    "&": "&amp;",
    "<": "&lt;",
}
# A lone bracket is harmless, as nothing that is written here defines what it could refer to; an underscore inside of a
# word, and "&" before a space, are too. The fewer escapes, the more readable is the source.
_MARKDOWN_SPECIAL = re.compile(
    r"[\\`*~#|$<]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|\[(?=[\[^])|\](?=[(\[:\]])|&(?=[#A-Za-z])"
)

# GitHub looks for these in the rendered text, where no escape is left: only a character in between keeps them apart.
_LINKED = re.compile(
    r"(?<=@)(?=\w)"  # @somebody, mail addresses
    r"|(?<=#)(?=[0-9])"  # #12
    r"|(?<=GH-)(?=[0-9])"
    r"|(?<=:)(?=//)"  # https://…
    r"|(?<=www)(?=\.)"
    r"|(?<=:)(?-i:(?=100:|1234:|[+-]1:|[0-9_+-]*[a-z][a-z0-9_+-]*:))",  # :tada:, and not 12:30:15
    re.IGNORECASE,
)
_MARKDOWN_TOUCHED = re.compile(r"[\\`*_\[\]~#|$&<@:\u200b]|GH-|www", re.IGNORECASE)
_BETWEEN = "\u200b"
_BETWEEN_WRITTEN = "&#8203;"

# What the runner of GitHub Actions takes for a command in a step's output (actions/runner, ActionCommand.cs): the new
# form at the beginning of a line, white space aside, and the old one anywhere.
_COMMAND = re.compile(r"^[^\S\n]*:(?=:)|#(?=#\[)", re.MULTILINE)

_FORMULA = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def printable(text: str, *, keep: str = "") -> str:
    """Return ``text`` with every character that a terminal would act on shown as an escape; those in ``keep`` stay."""
    if text.isprintable():  # fast, and false of all that is unsafe
        return text
    return _UNSAFE.sub(lambda match: match[0].translate(_escapes(keep)), text)


def first_line(text: str, *, limit: int = 300) -> str:
    """Return the first line that is not blank, cut to ``limit`` characters."""
    return shortened(next((line.strip() for line in text.splitlines() if line.strip()), ""), limit=limit)


def shortened(text: str, *, limit: int) -> str:
    """Return ``text`` cut to ``limit`` characters, with an ellipsis for the rest."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def markdown_text(text: str) -> str:
    """Return ``text`` as Markdown that shows it and does nothing, inside a line or a cell of a table.

    Characters that mean something to CommonMark, to GitHub's tables or to HTML are escaped; what GitHub would make a
    link of (a mention, a number of an issue, an address) has an invisible space in it. Not for the beginning of a line,
    where a digit or a dash can begin a list.
    """
    shown = printable(text)
    if shown.isalnum() or not _MARKDOWN_TOUCHED.search(shown):  # most cells
        return shown
    parted = _LINKED.sub(_BETWEEN, shown)
    escaped = _MARKDOWN_SPECIAL.sub(lambda match: _MARKDOWN[match[0]], parted)
    return escaped.replace(_BETWEEN, _BETWEEN_WRITTEN)


def without_commands(text: str) -> str:
    """Return ``text`` with a space in what GitHub Actions would take for a command.

    ``::error::`` becomes ``: :error::``.
    """
    return _COMMAND.sub(lambda match: f"{match[0]} ", text)


def json_without_commands(text: str) -> str:
    """Return JSON with an escape in what GitHub Actions would take for a command; it means the same."""
    return text.replace("##[", "#\\u0023[")


def encodable(text: str) -> str:
    """Return ``text`` with its lone surrogates as escapes: without them it has a UTF-8 form."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def csv_text(text: str) -> str:
    """Return ``text`` so that a spreadsheet does not take its cell for a formula.

    What begins with ``=``, ``+``, ``-``, ``@``, a tab or a line break gets an apostrophe before it, as OWASP advises
    ("CSV Injection"), unless it is a number. Controls other than tabs and line breaks are shown as escapes.
    """
    shown = printable(text, keep="\t\r\n")
    if shown[:1] in _FORMULA and shown and not _NUMBER.fullmatch(shown):
        return f"'{shown}"
    return shown


class _Escapes(dict[int, str]):
    """A table for ``translate`` that shows unsafe characters by their codes, but for those in ``keep``.

    A table, since a reply can be megabytes of them; filled as they come, since most sessions see few.
    """

    def __init__(self, keep: str) -> None:
        super().__init__({ord(character): character for character in keep})

    def __missing__(self, code: int) -> str:
        self[code] = _escape(chr(code))
        return self[code]


_escapes = cache(_Escapes)


def _escape(character: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    code = ord(character)
    return named.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


_UNUSABLE = re.compile("[\x00\ud800-\udfff]")
_STYLED = re.compile(r"(?![0-9])\d|[Ａ-Ｚａ-ｚ𝐀-𝚣]")


def plain_characters(text: str) -> str:
    """Return the text with ASCII for digits of any script and for full-width and mathematical letters.

    ``٣`` is 3, ``Ａ`` is A, ``𝐁`` is B. The number of characters stays the same.
    """
    return text if text.isascii() else _STYLED.sub(_plain, text)


def _plain(found: re.Match[str]) -> str:
    digit = unicodedata.decimal(found[0], None)
    return unicodedata.normalize("NFKC", found[0]) if digit is None else str(digit)


def unusable_character(text: str) -> str | None:
    """Return a message about a NUL or a lone surrogate in the text, or None if it has neither."""
    if text.isascii() and "\0" not in text:
        return None
    found = _UNUSABLE.search(text)
    if found is None:
        return None
    code = ord(found.group())
    name = "NUL" if code == 0 else "a lone surrogate"
    return f"found {name} (U+{code:04X}) at character {found.start() + 1}, expected text"
