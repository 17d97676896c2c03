"""A verdict on the tree holds for the conditions that it was found under, and for no others."""

from __future__ import annotations

import importlib.metadata
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_llmeval.models.huggingface.loglikelihood import conditions
from pytest_llmeval.models.settings import ModelSettings


def key(settings: ModelSettings | None = None, *, fingerprint: str | None = "weights", **changes: Any) -> str | None:
    """The key of a model of which these attributes differ."""
    attention = changes.pop("attention", "sdpa")
    max_length = changes.pop("max_length", 64)
    config = SimpleNamespace(_attn_implementation=attention)
    known = {"device": torch.device("cpu"), "dtype": torch.float32, "config": config}
    found = conditions.conditions_of_verdict(
        SimpleNamespace(**(known | changes)), fingerprint, max_length, settings or ModelSettings()
    )
    assert found is None or isinstance(found, str)
    return found


def test_each_condition_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    first = key()
    assert first is not None
    assert key() == first
    keys = {
        first,
        key(fingerprint="others"),
        key(dtype=torch.bfloat16),
        key(device=torch.device("meta")),
        key(attention="eager"),
        key(max_length=65),
        key(ModelSettings(batch_size=2)),
    }
    version = importlib.metadata.version
    for changed in ("transformers", "pytest-llmeval-suites", "peft"):
        with monkeypatch.context() as patch:
            patch.setattr(importlib.metadata, "version", lambda name, it=changed: "0" if name == it else version(name))
            keys.add(key())
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "0")
        keys.add(key())
    with monkeypatch.context() as patch:
        patch.setattr(conditions, "_own_code", lambda: "changed")
        keys.add(key())
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "none")
        keys.add(key())
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if before != "medium" else "high")
    keys.add(key())
    torch.set_float32_matmul_precision(before)
    assert len(keys) == 14


def test_what_is_not_known_is_not_remembered() -> None:
    assert key(fingerprint=None) is None
    assert key(ModelSettings(trust_remote_code=True)) is None
