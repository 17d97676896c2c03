"""What the model had answered ahead when the session was stopped: it is scored and recorded, not discarded.

pytest ends a session at once for Ctrl-C, and does not come to run the tests of samples whose replies are waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from pytest_llmeval.inference.batcher import Batcher
from pytest_llmeval.plugin.recording import payload_of
from pytest_llmeval.plugin.sample_item import SampleItem
from pytest_llmeval.plugin.stash import llm_session_key
from pytest_llmeval.reporting.report.records import Payload

__all__ = ["HandOver", "from_worker"]

_KEY = "llmeval_handed_over"


class HandOver:
    """Registered where samples run: in the only process, or in a worker of pytest-xdist."""

    def __init__(self, session: pytest.Session, batcher: Batcher) -> None:
        self._session = session
        self._batcher = batcher

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Record what is waiting: in the session's report, or in what a worker tells at its end.

        Who presses Ctrl-C again does without what is left of it.
        """
        config = self._session.config
        worker: dict[str, Any] | None = getattr(config, "workeroutput", None)
        with suppress(KeyboardInterrupt):
            self._batcher.stop()
            for payload in self._payloads():
                if worker is None:
                    config.stash[llm_session_key].take_over(payload)
                else:
                    worker.setdefault(_KEY, []).append(payload.encode())

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Take back what ``-x`` has left with the model."""
        self._batcher.stop()

    def _payloads(self) -> Iterator[Payload]:
        for item in self._session.items:
            if isinstance(item, SampleItem) and self._batcher.has_answered(item.key):
                record = item.record_waiting(self._batcher)
                if record is not None:
                    yield payload_of(item, record, self._batcher.model)


def from_worker(output: dict[str, Any]) -> Iterator[Payload]:
    """Return what a worker hands over in its ``workeroutput``; once, though pytest-xdist may tell of its end twice."""
    return map(Payload.decode, output.pop(_KEY, ()))
