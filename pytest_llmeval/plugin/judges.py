"""Which model judges, or embeds for a scorer: what a report says of it, and what a number depends on of it."""

from __future__ import annotations

import hashlib
import json

from pytest_llmeval.data.code_version import SOURCE, hash_of_sources, version_of_class, version_of_function
from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.base import identify
from pytest_llmeval.roles import ROLES, Role
from pytest_llmeval.text.redaction import redact

__all__ = ["described_judge", "judges_of"]

_DECIDING = ("server", "version", "model", "build", "extra_body", "json")
"""What is told of a model whose weights are not known and may decide its verdicts; the same in every process."""


def judges_of(role: Role, given: object) -> tuple[object, ...]:
    """Return the models that a fixture gives for a role: one, or of judges a list of several, a panel.

    Raises ``ModelError`` for none, for too many, and for what cannot be asked.
    """
    models = tuple(given) if isinstance(given, list | tuple) else (given,)
    method, most = ROLES[role].method, ROLES[role].most
    if not 1 <= len(models) <= most:
        expected = f"1 to {most}" if most > 1 else "one"
        raise ModelError(f"the fixture llm_{role} gave a list of {len(models)} models, expected {expected}")
    for model in models:
        if not callable(getattr(model, method, None)):
            found = "None" if model is None else f"a {type(model).__name__}"
            raise ModelError(f"the fixture llm_{role} gave {found}, expected an object with the method {method}")
    return models


def described_judge(judge: object) -> tuple[str, str]:
    """Return the judge in a few words, and a SHA-256 (hex) of what is known of it.

    That is its fingerprint (a server's has the way it is held to JSON), revision and dtype. Of a model without a
    fingerprint it is its name, what its server says of itself, and the version of its Python code: what a hosted name
    stands for may change unseen. The project's own code, of which a judge in Python is made, is known of all. Arguments
    that the name hides are in neither, since a hash would give a short secret away.
    """
    found = identify(judge)
    known: list[object] = [found.fingerprint or found.name, found.backend, found.revision, found.dtype]
    if not found.fingerprint:
        known += [{name: found.details[name] for name in _DECIDING if name in found.details}, _code_version(judge)]
    if (source := found.details.get(SOURCE) or hash_of_sources(type(_innermost(judge)))) is not None:
        known.append(source)
    digest = hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()
    model = found.details.get("model") if "server" in found.details else None  # which its address does not say
    own = None if str(model) in found.name else model
    parts = (found.backend, own, found.revision, found.dtype, found.details.get("json"), digest[:8])
    shown = [str(part) for part in parts if part is not None]
    return f"{redact(found.name)} ({', '.join(shown)})", digest


def _innermost(model: object) -> object:
    """Return what answers, without what stands around it: a store, the user's name."""
    while (inner := vars(model).get("_model") if hasattr(model, "__dict__") else None) is not None:
        model = inner
    return model


def _code_version(judge: object) -> int:
    """Return a checksum of the sources of a function or class that a user wrote."""
    judge = _innermost(judge)
    from pytest_llmeval.models.python.model import CallableModel  # with asyncio, which a suite without a judge spares

    return version_of_function(judge.function) if isinstance(judge, CallableModel) else version_of_class(type(judge))
