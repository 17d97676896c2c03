"""What is around Ray's own part of a session; real clusters are in ``test_sessions.py``."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

pytest.importorskip("ray")

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.ray import actors
from pytest_llmeval.models.ray.cluster import Needs
from pytest_llmeval.models.ray.replica import ReplicaLost


class FakeRay:
    """Notes what is asked of Ray. ``during`` happens while it begins."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, during: Callable[[], Any]) -> None:
        self.during = during
        self.calls: list[str] = []
        self.options: dict[str, Any] = {}
        monkeypatch.setattr(ray, "init", self.init)
        monkeypatch.setattr(ray, "shutdown", lambda: self.calls.append("shutdown"))
        monkeypatch.setattr(ray, "is_initialized", lambda: self.calls.count("init") > self.calls.count("shutdown"))

    def init(self, **options: Any) -> None:
        self.options = options
        self.during()
        self.calls.append("init")


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_waits_until_ray_has_begun_and_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay(monkeypatch, interrupt)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        actors.Cluster("local", num_cpus=1)
    assert fake.calls == ["init", "shutdown"]
    assert signal.getsignal(signal.SIGINT) is before


def test_the_second_ctrl_c_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice() -> None:
        interrupt()
        interrupt()

    fake = FakeRay(monkeypatch, twice)
    with pytest.raises(KeyboardInterrupt):
        actors.Cluster("local", num_cpus=1)
    assert fake.calls == []


def test_ray_s_signal_handlers_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    FakeRay(monkeypatch, lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))
    actors.Cluster("local", num_cpus=1)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_cluster_of_somebody_else_is_neither_begun_nor_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay(monkeypatch, lambda: None)
    fake.calls.append("init")
    actors.Cluster("local", num_cpus=1).close()
    assert fake.calls == ["init"]


def test_what_ray_says_of_a_cluster_is_one_line_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ConnectionError("no\ncluster, token=abcdefgh12345678")

    FakeRay(monkeypatch, fail)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(ModelError) as caught:
        actors.Cluster("auto")
    assert str(caught.value) == (
        "--llm-ray auto: cannot use this cluster: ConnectionError: no cluster, token=***; if the cluster has a token, "
        "set RAY_AUTH_MODE=token"
    )


def test_nothing_is_told_to_ray_s_makers() -> None:
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_ray_repeats_and_restarts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeRay(monkeypatch, lambda: None)
    asked: dict[str, Any] = {}

    def remote(**options: Any) -> Any:
        asked.update(options)
        return lambda kind: type("Made", (), {"remote": staticmethod(lambda *arguments: None)})

    cluster = actors.Cluster("local", num_cpus=1)
    monkeypatch.setattr(ray, "remote", remote)
    loading: Any = None
    cluster.start(loading, Needs(1, 3, 0.5))
    assert (asked["max_restarts"], asked["max_task_retries"]) == (0, 0)
    assert (asked["num_cpus"], asked["num_gpus"]) == (3, 0.5)


class Reference:
    def __init__(self, error: Exception) -> None:
        self._future: Future[Any] = Future()
        self._future.set_exception(error)

    def future(self) -> Future[Any]:
        return self._future


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RayActorError(), ReplicaLost("The actor experienced an error before finishing this task")),
        (RayError("one\ntwo api_key=abcdefgh12345678"), ReplicaLost("one")),
        (
            RayError("it died in its creation task\nModuleNotFoundError: x token=abcdefgh12345678"),
            ReplicaLost("ModuleNotFoundError: x token=***"),
        ),
        (RayTaskError("load", "trace\nback", ModelError("model m: gone")), ModelError("model m: gone")),
        (RayTaskError("load", "trace\nback", ValueError("bad\nthing")), ModelError("ValueError: bad thing")),
    ],
)
def test_what_ends_a_call_is_one_line(error: Exception, expected: Exception) -> None:
    found = actors._translated(Reference(error)).exception(timeout=30)
    assert (type(found), str(found)) == (type(expected), str(expected))
