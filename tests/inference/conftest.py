"""Stores of tests are closed behind them: a file that is left open is a warning, and so an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pytest_llmeval.inference.store import Store


@pytest.fixture(autouse=True)
def closed_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close each store that the test has made."""
    made: list[Store] = []
    init = Store.__init__

    def noted(self: Store, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(Store, "__init__", noted)
    yield
    for store in made:
        store.close()
