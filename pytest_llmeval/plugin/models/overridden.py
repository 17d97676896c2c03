"""Whether a project's own fixtures take the place of ours."""

from __future__ import annotations

import pytest

__all__ = ["is_overridden"]

_OURS = "pytest_llmeval.plugin.models.fixtures"


def is_overridden(node: pytest.Collector | pytest.Item) -> bool:
    """Whether what pytest gives to the tests at ``node`` as ``llm_model`` is not ours.

    It may be that of a conftest.py, of a plugin that is loaded after ours, of the module or of the class. An
    ``llm_model`` that takes ``llm_model`` wraps what there is, and replaces nothing.
    """
    # pytest has no public way to ask for the fixtures of a node.
    definitions = node.session._fixturemanager.getfixturedefs("llm_model", node) or ()
    found = next((one for one in reversed(definitions) if "llm_model" not in one.argnames), None)
    return found is not None and getattr(found.func, "__module__", None) != _OURS
