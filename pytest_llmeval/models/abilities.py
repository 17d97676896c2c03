"""What a model that is not loaded yet cannot answer, as far as its code shows."""

from __future__ import annotations

import inspect
from typing import Any

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.python.importing import METHODS, find_object, is_factory, signature_of, split_target
from pytest_llmeval.models.specs import ModelSpec

__all__ = ["lacks_method"]


def lacks_method(spec: ModelSpec, method: str) -> bool:
    """Whether a model that ``python:MODULE:NAME`` names is known to have no method ``loglikelihood``, ``generate``, ….

    The module is imported and nothing of it is called: what a factory or ``__init__`` makes is not known. A module that
    cannot be imported is for the loading to refuse.
    """
    if spec.kind != "python":
        return False
    try:
        found = find_object(*split_target(spec.location, spec.name), spec.name)
    except ModelError:
        return False
    if inspect.isclass(found):
        return not _may_have(found, method)
    if any(callable(getattr(found, name, None)) for name in METHODS):
        return not callable(getattr(found, method, None)) and not callable(getattr(found, "answer_samples", None))
    signature = signature_of(found) if callable(found) else None
    if signature is None or is_factory(signature, spec.arguments):
        return False
    return method != "generate"  # a function writes a text


def _may_have(kind: type[Any], method: str) -> bool:
    """Whether objects of a class may have the method, or are asked by sample and need none."""
    if any(callable(getattr(kind, name, None)) for name in (method, "answer_samples")):
        return True
    if hasattr(kind, "__getattr__") or method in _names_set(kind) or "answer_samples" in _names_set(kind):
        return True
    is_function = not any(callable(getattr(kind, name, None)) for name in METHODS)  # its objects can be called, then
    return is_function and method == "generate"


def _names_set(kind: type[Any]) -> tuple[str, ...]:
    """Attributes that ``__init__`` mentions."""
    code = getattr(kind.__init__, "__code__", None)
    return () if code is None else code.co_names
