from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from pytest_llmeval.errors import ModelError
from pytest_llmeval.plugin.models import ModelPool


class Thing:
    """A model that can be watched."""

    def loglikelihood(self, requests: Any) -> Any: ...

    def generate(self, requests: Any) -> Any: ...


def loader(error: Exception | None = None) -> tuple[Callable[[], Thing], list[int]]:
    calls: list[int] = []

    def load() -> Thing:
        calls.append(1)
        if error is not None:
            raise error
        return Thing()

    return load, calls


def test_a_model_is_loaded_once_while_it_is_held() -> None:
    pool = ModelPool(release=lambda: None)
    load, calls = loader()
    assert pool.get("a", load) is pool.get("a", load)
    assert len(calls) == 1


def test_a_model_is_let_go_before_the_next_is_loaded() -> None:
    events: list[str] = []
    pool = ModelPool(release=lambda: events.append("release"))
    held = weakref.ref(pool.get("a", Thing))

    def load() -> Thing:
        gc.collect()
        events.append("gone" if held() is None else "alive")
        return Thing()

    pool.get("b", load)
    assert events == ["release", "gone"]


def test_a_model_that_made_room_is_loaded_again() -> None:
    pool = ModelPool(release=lambda: None)
    load, calls = loader()
    for key in ("a", "b", "a"):
        pool.get(key, load if key == "a" else Thing)
    assert len(calls) == 2


def test_loading_that_failed_is_not_tried_again() -> None:
    released: list[int] = []
    pool = ModelPool(release=lambda: released.append(1))
    load, calls = loader(ModelError("model a: no weights"))
    for _ in range(3):
        with pytest.raises(ModelError, match=r"^model a: no weights$"):
            pool.get("a", load)
    assert (len(calls), released) == (1, [])
    assert isinstance(pool.get("b", Thing), Thing)


def test_a_defect_shows_itself_once() -> None:
    pool = ModelPool(release=lambda: None)
    load, calls = loader(KeyError("layer"))
    with pytest.raises(KeyError):
        pool.get("a", load)
    with pytest.raises(ModelError, match=r"^the model could not be loaded: KeyError: 'layer'$"):
        pool.get("a", load)
    assert len(calls) == 1


def test_a_failure_leaves_the_room_empty() -> None:
    """What was held is gone, for the model that failed needed its place; it is loaded anew."""
    pool = ModelPool(release=lambda: None)
    load, calls = loader()
    failing, _ = loader(ModelError("no"))
    pool.get("a", load)
    with pytest.raises(ModelError):
        pool.get("b", failing)
    pool.get("a", load)
    assert len(calls) == 2
