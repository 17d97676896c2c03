"""Pages of these tests have no figures, which take a tenth of a second each; ``test_page_figures.py`` has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from pytest_llmeval.reporting.figures.catalogue import FiguresUnavailable
from pytest_llmeval.reporting.writers.html import page


def unavailable(*_: Any, **__: Any) -> NoReturn:
    raise FiguresUnavailable


@pytest.fixture(scope="module", autouse=True)
def without_figures(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.module.__name__.endswith("test_page_figures"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "figures_of", unavailable)
        yield
