"""``--llm-strict``."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from pytest_llmeval.plugin.stash import recorder_key

if TYPE_CHECKING:
    from pytest_llmeval.plugin.running.recording import Recorder

__all__ = ["Strict"]


class Strict:
    """``--llm-strict`` for hand-written tests: they fail at their end, when all samples are recorded."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        result = yield
        recorder: Recorder | None = item.stash.get(recorder_key, None)
        if recorder is not None:
            recorder.raise_if_wrong()
        return result
