"""A cluster that is not there, or has no room, is told in one line."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_llmeval.errors import ModelError, OptionError
from pytest_llmeval.models.ray import model
from pytest_llmeval.models.ray.cluster import Needs


def test_auto_without_a_cluster_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    from pytest_llmeval.models.ray.actors import Cluster

    def init(**options: Any) -> None:
        # As Ray 2.60 says it.
        raise ConnectionError(
            "Could not find any running Ray instance. Please specify the one to connect to by setting"
        )

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ModelError) as caught:
        Cluster("auto")
    assert str(caught.value) == (
        "--llm-ray auto: no Ray cluster runs on this machine; start one with `ray start --head`, or give --llm-ray "
        "local or the address of another machine's"
    )


def test_what_a_cluster_says_has_no_full_stop_before_the_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    from pytest_llmeval.models.ray.actors import Cluster

    def init(**options: Any) -> None:
        raise RuntimeError("No.")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(ModelError, match="cannot use this cluster: RuntimeError: No; if the cluster has a token, set"):
        Cluster("auto")


def test_gpus_that_this_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "this_machine", lambda: {"CPU": 2, "GPU": 1})
    with pytest.raises(OptionError) as caught:
        model._check_room(Needs(count=3, cpus=1, gpus=0.5))
    assert str(caught.value) == (
        "--llm-ray local: GPUs needed: 1.5 (replicas: 3, GPUs of each: 0.5), on this machine: 1"
    )
    model._check_room(Needs(count=2, cpus=1, gpus=0.5))
