"""``--llm-model python:MODULE:NAME``: a function, class or object of the user's own."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import unquote

from pytest_llmeval.errors import ModelError, OptionError
from pytest_llmeval.models.base import Model
from pytest_llmeval.models.python.importing import (
    METHODS,
    NO_TOOLS,
    OWN_ARGUMENTS,
    TOOLS,
    concurrency_of,
    find_object,
    is_factory,
    missing_module,
    offered_settings,
    signature_of,
    split_target,
    timeout_of,
)
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelKind, ModelSpec, hide_secrets, split_arguments
from pytest_llmeval.roles import ROLES
from pytest_llmeval.text.names import PYTHON_OPERATION
from pytest_llmeval.text.redaction import is_secret_name, model_error
from pytest_llmeval.types import JSON

__all__ = ["PythonCode"]


_LONGEST_NUMBER = 15
"""The most characters of a number that may be shown: a longer one may be a key."""

_OF_FUNCTIONS = [role.method for role in ROLES.values()]
"""The methods that a function can stand for: it writes a text, or gives the embeddings of texts."""


class PythonCode(ModelKind):
    """The location is ``module:name`` or ``file.py:name``; the arguments are the function's, the class's or ours."""

    name = "python"
    usage = "python:MODULE:NAME"
    needs_location = False  # split_target says what is expected
    operation = PYTHON_OPERATION
    model_args = ("max_connections", "timeout", "price_in", "price_out")
    shares_limits = True
    budgeting = "kept"
    takes_replicas = True
    imports_from_project = True
    shows_methods = True

    def hides(self, argument: str, value: JSON) -> bool:
        """Return True for any text, and a number as long as a key: what a function takes is not known."""
        if argument in OWN_ARGUMENTS:
            return False
        return is_secret_name(argument) or isinstance(value, str) or len(str(value)) > _LONGEST_NUMBER

    def how_to_show(self, arguments: Collection[str]) -> str:
        names = [name for name in arguments if not is_secret_name(name)]
        return f": write shown={','.join(names)} in both if it is no secret" if names else ""

    def parse(self, text: str) -> ModelSpec:
        shown = _shown(text)
        spec = self.parsed(text, shown=shown)
        for name in shown:
            if name not in spec.arguments:
                raise OptionError(f"--llm-model {spec.name}: shown: there is no argument {name!r}")
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
            method = ROLES[spec.role].method
            if self.lacks_method(spec, method):
                raise model_error(
                    spec.name, f"has no method {method}(requests), by which a scorer asks the {spec.role}"
                )

    def load(self, spec: ModelSpec, settings: ModelSettings) -> Model:
        from pytest_llmeval.models.python.calls import CallBounds
        from pytest_llmeval.models.python.model import load_python

        given: Mapping[str, Any] = settings.model_args
        target = split_target(spec.location, spec.name)
        bounds = CallBounds(
            concurrency=concurrency_of(spec.arguments, spec.name),
            most=given.get("max_connections"),
            timeout_s=timeout_of(spec.arguments, spec.name) or given.get("timeout"),
            folder=settings.shared_folder,
        )
        prices = {name: given[name] for name in ("price_in", "price_out") if name in given}
        return load_python(
            spec.name,
            *target,
            spec.arguments,
            bounds=bounds,
            prices=prices,
            embeds=spec.embeds,
            budget=settings.budget,
        )

    def describe(self, spec: ModelSpec, settings: ModelSettings) -> str:
        return "Python code"

    def lacks_method(self, spec: ModelSpec, method: str) -> bool:
        """See ``ModelKind``.

        The module is imported and nothing of it is called, so that the product of a factory or ``__init__`` is not
        known. A module that cannot be imported is refused when it is loaded.
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

    def refuses_tools(self, spec: ModelSpec, settings: ModelSettings) -> str | None:
        """See ``ModelKind``. Known of a function alone: what a factory or a class makes is not."""
        if TOOLS in spec.arguments:
            return None
        try:
            found = find_object(*split_target(spec.location, spec.name), spec.name)
        except ModelError:
            return None
        if inspect.isclass(found) or any(callable(getattr(found, name, None)) for name in METHODS):
            return None
        signature = signature_of(found) if callable(found) else None
        if signature is None or is_factory(signature, spec.arguments):
            return None
        return None if TOOLS in offered_settings(signature, spec.arguments) else NO_TOOLS


def _shown(text: str) -> list[str]:
    """Return the arguments that ``shown`` names: ``f?mode=fast&k=3&shown=mode``. Raises ``OptionError``."""
    parts = split_arguments(text)[1].split("&")
    named = [unquote(part.removeprefix("shown=")) for part in parts if part.startswith("shown=")]
    names = [name.strip() for part in named for name in part.split(",")]
    if secret := next(filter(is_secret_name, names), None):
        raise OptionError(
            f"--llm-model {hide_secrets(text, lambda *_: True)}: shown: {secret!r} is the name of a secret, which "
            "nothing shows"
        )
    return names


def _may_have(kind: type[Any], method: str) -> bool:
    """Tell whether objects of a class may have the method, or are asked by sample and need none."""
    if any(callable(getattr(kind, name, None)) for name in (method, "answer_samples")):
        return True
    if hasattr(kind, "__getattr__") or method in _names_set(kind) or "answer_samples" in _names_set(kind):
        return True
    is_function = not any(callable(getattr(kind, name, None)) for name in METHODS)  # its objects can be called, then
    return is_function and method in _OF_FUNCTIONS


def _names_set(kind: type[Any]) -> tuple[str, ...]:
    """Return the attributes that ``__init__`` mentions."""
    code = getattr(kind.__init__, "__code__", None)
    return () if code is None else code.co_names
