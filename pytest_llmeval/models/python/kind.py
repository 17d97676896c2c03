"""``--llm-model python:MODULE:NAME``: a function, class or object of the user's own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.base import ROLE_METHODS, Model
from pytest_llmeval.models.python.importing import (
    METHODS,
    OWN_ARGUMENTS,
    concurrency_of,
    find_object,
    is_factory,
    missing_module,
    signature_of,
    split_target,
    timeout_of,
)
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelKind, ModelSpec
from pytest_llmeval.text.redaction import model_error

__all__ = ["PythonCode"]


_OF_FUNCTIONS = ROLE_METHODS.values()
"""What a function does: it writes a text, or gives the embeddings of texts."""


class PythonCode(ModelKind):
    """The location is ``module:name`` or ``file.py:name``; the arguments are the function's, the class's or ours."""

    name = "python"
    usage = "python:MODULE:NAME"
    needs_location = False  # split_target says what is expected
    operation = OWN_ARGUMENTS
    model_args = ("max_connections", "timeout")
    shares_limits = True
    takes_replicas = True
    imports_from_project = True
    shows_methods = True

    def parse(self, text: str) -> ModelSpec:
        spec = super().parse(text)
        split_target(spec.location, spec.name)
        concurrency_of(spec.arguments, spec.name)
        timeout_of(spec.arguments, spec.name)
        return spec

    def check(self, spec: ModelSpec, settings: ModelSettings) -> None:
        """See ``ModelKind``. The module is looked for, and not imported; but for one that has a role.

        No suite says when it is collected which method it needs of that one.
        """
        target = split_target(spec.location, spec.name)
        problem = missing_module(target[0])
        if problem is not None:
            raise model_error(spec.name, problem)
        if spec.role is not None:
            find_object(*target, spec.name)
            method = ROLE_METHODS[spec.role]
            if self.lacks_method(spec, method):
                raise model_error(
                    spec.name, f"has no method {method}(requests), by which a scorer asks the {spec.role}"
                )

    def load(self, spec: ModelSpec, settings: ModelSettings) -> Model:
        from pytest_llmeval.models.python.calls import Bounds
        from pytest_llmeval.models.python.model import load_python

        given: Mapping[str, Any] = settings.model_args
        target = split_target(spec.location, spec.name)
        bounds = Bounds(
            concurrency=concurrency_of(spec.arguments, spec.name),
            most=given.get("max_connections"),
            timeout_s=timeout_of(spec.arguments, spec.name) or given.get("timeout"),
            folder=settings.shared_folder,
        )
        return load_python(spec.name, *target, spec.arguments, bounds=bounds, embeds=spec.role == "embedder")

    def describe(self, spec: ModelSpec, settings: ModelSettings) -> str:
        return "Python code"

    def lacks_method(self, spec: ModelSpec, method: str) -> bool:
        """See ``ModelKind``.

        The module is imported and nothing of it is called: what a factory or ``__init__`` makes is not known. A module
        that cannot be imported is for the loading to refuse.
        """
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
        return method not in _OF_FUNCTIONS


def _may_have(kind: type[Any], method: str) -> bool:
    """Whether objects of a class may have the method, or are asked by sample and need none."""
    if any(callable(getattr(kind, name, None)) for name in (method, "answer_samples")):
        return True
    if hasattr(kind, "__getattr__") or method in _names_set(kind) or "answer_samples" in _names_set(kind):
        return True
    is_function = not any(callable(getattr(kind, name, None)) for name in METHODS)  # its objects can be called, then
    return is_function and method in _OF_FUNCTIONS


def _names_set(kind: type[Any]) -> tuple[str, ...]:
    """Attributes that ``__init__`` mentions."""
    code = getattr(kind.__init__, "__code__", None)
    return () if code is None else code.co_names
