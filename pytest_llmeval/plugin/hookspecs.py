"""Hooks that a conftest.py or a plugin can implement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_llmeval.models.specs import ModelKind


def pytest_llmeval_scorers() -> Mapping[str, Callable[..., Any]]:  # type: ignore[empty-body]
    """Scorers by the names under which suites can use them: ``score: my_scorer``.

    A scorer is a function of ``reply``, ``target`` and ``sample`` (as many of them as it names) and of settings with
    defaults, which returns True or False, None where the reply holds no answer, a number, a mapping of metrics, or a
    ``Score``; or a class of the Scorer Protocol. A conftest.py's are there for the suites of its folder.
    """


def pytest_llmeval_models() -> Iterable[ModelKind]:  # type: ignore[empty-body]
    """Kinds of models, instances of ``pytest_llmeval.ModelKind``: ``--llm-model NAME:LOCATION?argument=value``.

    They are asked for when options are read: from plugins, and from a conftest.py that pytest loads at its start (in
    the rootdir, or in a folder named on the command line). The name of a kind that exists is refused.
    """
