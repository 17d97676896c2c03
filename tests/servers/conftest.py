"""Fixtures of the tests of servers: the demo model in this process, and models behind stub servers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from pytest_llmeval.models.registry import load_model, parse_model_spec
from pytest_llmeval.models.servers import client
from pytest_llmeval.models.settings import ModelSettings
from tests.servers.stub import StubServer

Connect: TypeAlias = Callable[..., Any]


@pytest.fixture(scope="session")
def demo() -> Any:
    """The demo model, in this process."""
    return load_model(parse_model_spec("demo"), ModelSettings(device="cpu"))


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes models: ``connect(stub, "tokenizer=…", …)`` or ``connect(url)``. They are closed behind the test."""
    with contextlib.ExitStack() as stack:

        def load(server: StubServer | str, *arguments: str) -> Any:
            url = server if isinstance(server, str) else server.url
            spec = "?".join([url, "&".join(arguments)] if arguments else [url])
            model = load_model(parse_model_spec(spec), ModelSettings())
            stack.callback(getattr(model, "close"))  # noqa: B009
            return model

        yield load


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait a fiftieth of a second before a request is tried again, in sessions of this process. Not in workers."""
    monkeypatch.setattr(client, "_BASE_DELAY_S", 0.02)


@pytest.fixture
def no_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine rests between two requests, the server is not asked again what it is.

    That would be one more of the requests that tests count. Tests of the question set the time themselves.
    """
    monkeypatch.setattr(client, "_SHORTEST_RESTART_S", math.inf)
