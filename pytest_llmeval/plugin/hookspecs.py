"""Hooks that a conftest.py or a plugin can implement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def pytest_llmeval_scorers() -> Mapping[str, Callable[..., Any]]:  # type: ignore[empty-body]
    """Scorers by the names under which suites can use them: ``score: my_scorer``.

    A scorer is a function of ``reply``, ``target`` and ``sample`` (as many of them as it names) and of settings with
    defaults, which returns True or False, None where the reply holds no answer, a number, a mapping of metrics, or a
    ``Score``; or a class of the Scorer Protocol. A conftest.py's are there for the suites of its folder.
    """
