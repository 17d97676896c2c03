"""The time that a model takes to load belongs to no test: the timer of pytest-timeout is stopped meanwhile.

pytest-timeout starts its timer before the fixtures of a test are set up. The first sample would be out of time while
its model loads, and as pytest keeps what a session's fixture has raised, every other sample would fail with it.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pytest_llmeval.roles import MODEL_FIXTURES

__all__ = ["LoadingTime"]

_FIXTURES = frozenset((*MODEL_FIXTURES, "llm_device"))
"""Fixtures that take long: the weights, and the import of torch. Also a project's own of these names."""


class LoadingTime:
    """Follows pytest-timeout by the hooks that it has for plugins, and starts its timer anew after a fixture of ours.

    With ``timeout_func_only`` the timer starts after all fixtures, and there is nothing to do.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._hook = config.pluginmanager.hook
        self._running: tuple[pytest.Item, object] | None = None

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: object) -> None:
        """Remember the timer that is started; another plugin starts it."""
        self._running = (item, settings)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_cancel_timer(self) -> None:
        self._running = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        """Stop the timer while a model loads, and give the test its full time after that."""
        running = self._running
        if fixturedef.argname not in _FIXTURES or running is None:
            return (yield)
        item, settings = running
        self._hook.pytest_timeout_cancel_timer(item=item)
        try:
            return (yield)
        finally:
            self._hook.pytest_timeout_set_timer(item=item, settings=settings)
