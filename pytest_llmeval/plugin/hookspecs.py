"""Hooks that a conftest.py or a plugin can implement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_llmeval.models.specs import ModelKind


def pytest_llmeval_scorers() -> Mapping[str, Callable[..., Any]]:  # type: ignore[empty-body]
    """Return scorers by the names under which suites can use them: ``score: my_scorer``.

    A scorer is a function of ``reply``, ``target`` and ``sample`` (as many of them as it names) and of settings with
    defaults. It returns True or False, None if the reply holds no answer, a number, a mapping of metrics, or a
    ``Score``. A class that derives from ``Scorer`` is a scorer, too. Scorers of a conftest.py are there for the suites
    of its folder.
    """


def pytest_llmeval_models() -> Iterable[ModelKind]:  # type: ignore[empty-body]
    """Return kinds of models, instances of ``pytest_llmeval.ModelKind``: ``--llm-model NAME:LOCATION?argument=value``.

    The hook is called when options are read: in plugins, and in a conftest.py that pytest loads at its start (in the
    rootdir, or in a folder named on the command line). The name of a kind that exists is refused.
    """
