"""What a worker of pytest-xdist has collected, on its way to the controller, which collects nothing.

pytest-xdist sends node ids only, and ends a worker that sends an event which it does not know. So the controller opens
a channel to each worker and puts it into the worker's input. Both use one connection, and a worker sends before
pytest-xdist sends its node ids: the message is there when they arrive.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from pytest_llmeval.reporting.report.records import SuiteInfo
from pytest_llmeval.types import Role

__all__ = ["Collected", "Inbox", "send"]

_CHANNEL = "llmeval_collected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The samples and suites among the tests of a session.

    ``samples`` are the places of samples among the tests that are to run; ``suites`` those with such samples,
    ``absent`` those that were collected without. ``num_deselected`` tests were left out. ``unanswered`` is the file of
    the first suite that has neither a model nor replies of its own, None if there is none, ``lacking`` that of the
    first whose scorer asks a model in a role, for each role that has none, and ``without_baseline`` that of the first
    whose replies are to be compared with those of a baseline that there is not. ``has_model``: there is a model, be it
    that of a conftest.py. ``categories`` are those of each suite's samples. ``may_have_others``: there may be more
    suites, of hand-written tests or in files that could not be collected.
    """

    samples: Sequence[int]
    suites: Sequence[SuiteInfo]
    absent: Sequence[SuiteInfo]
    num_deselected: int
    unanswered: str | None
    lacking: Mapping[Role, str]
    without_baseline: str | None
    has_model: bool
    categories: Mapping[str, Sequence[str]]
    may_have_others: bool

    def encode(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def decode(cls, text: str) -> Collected:
        found = json.loads(text)
        infos = {name: list(map(SuiteInfo.from_dict, found[name])) for name in ("suites", "absent")}
        return cls(**{**found, **infos})


def send(config: pytest.Config, collected: Collected) -> None:
    """Send to the controller of this worker, if the plugin is loaded there."""
    channel = config.workerinput.get(_CHANNEL)  # type: ignore[attr-defined]
    if channel is not None:
        channel.send(collected.encode())


class Inbox:
    """The messages of one worker. It is made before the worker starts."""

    def __init__(self, node: Any) -> None:
        self._texts: list[str] = []
        channel = node.workerinput[_CHANNEL] = node.gateway.newchannel()
        channel.setcallback(self._texts.append)

    def take(self) -> Collected | None:
        """Return what the worker has collected; None if it has no suite, has not sent it, or it was taken before."""
        return Collected.decode(self._texts.pop()) if self._texts else None
