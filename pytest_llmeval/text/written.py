"""Reads lists and mappings that are written as text in a CSV: as JSON, or as Python shows them."""

from __future__ import annotations

import ast
import io
import json
import tokenize
import warnings
from contextlib import suppress
from itertools import pairwise

from pytest_llmeval.text.wording import quoted

__all__ = ["written_value"]

_BEGINNINGS = ("['", '["', "[{", "{'", '{"')
_PYTHON_ERRORS = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)


def written_value(text: str) -> list[object] | dict[object, object] | None:
    """Return the list or mapping that the text is, in JSON or as Python shows it; None for any other text.

    ``ValueError`` for a text that begins and ends as a list or mapping of texts does and is none, and for a list as
    numpy shows it, in which no commas stand: Python would read ``['a' 'b']`` as one text.
    """
    text = text.strip()
    if text[:1] + text[-1:] not in ("[]", "{}"):
        return None
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        return found if isinstance(found, list | dict) else None
    if not text.startswith(_BEGINNINGS):
        return None
    what = "list" if text[0] == "[" else "mapping"
    try:
        with warnings.catch_warnings():  # a text such as "[\d]" is data, not a program
            warnings.simplefilter("ignore")
            found = ast.literal_eval(text)
        has_commas = _has_commas(text)
    except (*_PYTHON_ERRORS, tokenize.TokenError):
        raise ValueError(
            f"found {quoted(text)}, which is written as a {what} and is none in JSON or in Python; write it as JSON"
        ) from None
    if not has_commas:
        raise ValueError(
            f"found {quoted(text)}, a list without commas between its texts, as numpy shows arrays; write it as JSON"
        )
    return found if isinstance(found, list | dict) else None


def _has_commas(text: str) -> bool:
    """Tell whether no two texts stand side by side. Python would join them."""
    ignored = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT)
    kinds = [token.type for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in ignored]
    return not any(first == second == tokenize.STRING for first, second in pairwise(kinds))
