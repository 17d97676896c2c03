r"""Answers in ``\boxed{}``, as solutions in LaTeX give them."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["MAX_ANSWER", "last_box"]

MAX_ANSWER = 10_000
"""Characters of an answer. What is longer is not one."""


# A run of backslashes is looked at from its start only: from each of its characters it would take quadratic time.
_BOX_OR_BRACE = re.compile(r"(?<!\\)\\+(?:boxed|fbox)(?![A-Za-z])[ \t]*|\\.|[{}]", re.DOTALL)


_BARE_BOX = re.compile(r"[^$\n]*")


_BETWEEN_BOXES = re.compile(
    r"\$?\s*(?:,|;|,?\s*and|,?\s*or|,?\s*\\text\s*\{\s*(?:and|or)\s*\}|,?\s*\\(?:quad|qquad))\s*(?:\\quad)?\s*\$?"
)


_MAX_BETWEEN = 40


def last_box(text: str) -> str | None:
    r"""Return what the last complete ``\boxed{}`` or ``\fbox{}`` holds; None where there is none."""
    boxes = sorted(_boxes(text))
    if not boxes:
        return None
    contents = [boxes[-1][1]]
    start = boxes[-1][0]
    for earlier_start, content, end in reversed(boxes[:-1]):
        if not (end <= start <= end + _MAX_BETWEEN and _BETWEEN_BOXES.fullmatch(text, end, start)):
            break
        contents.append(content)
        start = earlier_start
    return ", ".join(reversed(contents))


def _boxes(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield the start, the content and the end of every complete box."""
    open_braces: list[tuple[int, int] | None] = []  # where a box and its content begin; None for any other brace
    box: tuple[int, int] | None = None
    for token in _BOX_OR_BRACE.finditer(text):
        if token[0].endswith("{"):
            if token[0] == "{":
                open_braces.append(box if box is not None and box[1] == token.end() else None)
        elif token[0] == "}":
            opened = open_braces.pop() if open_braces else None
            if opened is not None and token.start() - opened[1] <= MAX_ANSWER:
                yield opened[0], text[opened[1] : token.start()].strip(), token.end()
        elif token[0].lstrip("\\")[:4] in ("boxe", "fbox"):
            box = (token.start(), token.end() + 1)
            if not text.startswith("{", token.end()):
                bare = _BARE_BOX.match(text, token.end(), token.end() + MAX_ANSWER)
                content = "" if bare is None else re.split(r"\\[\])]", bare[0])[0].strip().rstrip(".,;")
                if content:
                    yield token.start(), content, token.end() + len(content)
