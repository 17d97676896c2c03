"""Reads what a user's function returned: a text, or a mapping with a text and what he says beside it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from pytest_llmeval.models.base import ended_at_limit
from pytest_llmeval.text.contexts import context_texts
from pytest_llmeval.text.documents import found_documents
from pytest_llmeval.text.traces import trace_steps
from pytest_llmeval.text.wording import describe, nearest, quoted
from pytest_llmeval.types import as_builtin, finite_number

__all__ = ["read_reply"]

_OF_TEXT = ("raw", "text", "content", "output", "final_output", "answer")
"""Under these names the results of frameworks hold their text."""


def read_reply(returned: object) -> tuple[str, dict[str, Any]]:
    """Return the text, and what the function says beside it, by the names of the fields of ``GenerateResponse``.

    Documents alone need no text. ``ValueError`` says what it has returned instead.
    """
    beside: dict[str, Any] = {}
    if hasattr(returned, "tolist"):  # numpy's and torch's
        returned = returned.tolist()
    if isinstance(returned, Mapping) and not _are_scores(returned):
        returned, beside = _with_more(returned)
    elif isinstance(returned, list | tuple | Mapping):
        try:
            returned, beside = "", {"documents": found_documents(returned), "has_text": False}
        except ValueError as error:
            what = "a mapping" if isinstance(returned, Mapping) else "a list"
            raise ValueError(f"{what}: {error}") from None
    if not isinstance(returned, str):
        raise ValueError(_no_text(returned))
    return str(returned), beside


def _are_scores(returned: Mapping[Any, object]) -> bool:
    """Tell whether it maps documents' ids to scores."""
    known = ("text", *_BESIDE, "trace")
    return not any(key in known for key in returned) and all(
        isinstance(score, float | int) or hasattr(score, "item") for score in returned.values()
    )


def _with_more(returned: Mapping[Any, object]) -> tuple[object, dict[str, Any]]:
    known = ("text", *_BESIDE, "trace")
    unknown = [str(key) for key in returned if key not in known]
    if unknown or returned.keys().isdisjoint(("text", "documents")):
        keys = ", ".join(quoted(str(key)) for key in list(returned)[:3]) or "none"
        near = nearest(unknown[0], known) if unknown else None
        hint = f"; did you mean {near}?" if near else ""
        raise ValueError(f"a mapping with the keys {keys}, expected a str, or a mapping with text and {_MORE}{hint}")
    beside: dict[str, Any] = {}
    for name, value in returned.items():
        try:
            if name == "trace":
                beside[name] = trace_steps(value)
            elif name != "text":
                beside[name] = _BESIDE[name](value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if "text" not in returned:
        beside["has_text"] = False
    return returned.get("text", ""), beside


def _count(value: object) -> int:
    """Return a number of tokens; 0, for not known, where it is None, as libraries give it where a server did not
    count.
    """
    if value is None:
        return 0
    plain = as_builtin(value)
    if isinstance(plain, float) and plain.is_integer():  # a sum of numpy's or pandas'
        plain = int(plain)
    try:
        count = -1 if isinstance(plain, bool) else operator.index(plain)  # type: ignore[arg-type]
    except TypeError:
        count = -1
    if count < 0:
        raise ValueError(f"found {describe(plain)}, expected a whole number, 0 or more")
    return count


def _cost(value: object) -> float | None:
    if value is None:
        return None
    cost = None if isinstance(value, bool | str) else finite_number(value)
    if cost is None or cost < 0:
        raise ValueError(f"found {describe(as_builtin(value))}, expected a finite number, 0 or more")
    return cost


def _reasoning(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    raise ValueError(f"found {describe(as_builtin(value))}, expected text")


def _finish_reason(value: object) -> str:
    """Return ``length`` for a reply that was cut, by the words of several APIs, and ``stop`` for any other reason."""
    if value is None or isinstance(value, str):
        return "length" if value and ended_at_limit(value) else "stop"
    raise ValueError(f"found {describe(as_builtin(value))}, expected text such as stop or length")


_BESIDE: Mapping[str, Callable[[object], object]] = {
    "contexts": context_texts,
    "documents": found_documents,
    "num_prompt_tokens": _count,
    "num_tokens": _count,
    "cost": _cost,
    "reasoning": _reasoning,
    "finish_reason": _finish_reason,
}
"""What a function can say beside its text, and how that is read."""
_MORE = f"{', '.join(_BESIDE)} or trace"


def _no_text(returned: object) -> str:
    """Return what was returned, and where an object of a framework has its text."""
    shown = repr(returned)
    found = "None" if returned is None else f"{shown if len(shown) <= 60 else shown[:59] + '…'} "
    found += "" if returned is None else f"({type(returned).__name__})"
    name = next((name for name in _OF_TEXT if isinstance(_attribute(returned, name), str)), None)
    documents = " (or the ids of documents, where they are judged)" if returned is None else ""
    return f"{found}, expected a str{documents}{f': return its .{name}' if name else ''}"


def _attribute(value: object, name: str) -> object:
    try:
        return getattr(value, name, None)
    except Exception:  # of a property of the user's
        return None
