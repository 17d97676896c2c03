"""Device, dtype and threads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from pytest_llmeval.errors import ModelError, OptionError
from pytest_llmeval.models.huggingface.device import (
    available_cores,
    configure_threads,
    device_of_worker,
    resolve_device,
    resolve_dtype,
)


@pytest.mark.parametrize(
    ("mps", "cuda", "machine", "expected"),
    [
        (True, True, "arm64", "mps"),
        (True, True, "x86_64", "cuda"),
        (False, True, "x86_64", "cuda"),
        (False, False, "arm64", "cpu"),
    ],
)
def test_detection(mps: bool, cuda: bool, machine: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert resolve_device() == resolve_device("auto") == expected


def test_devices_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert [resolve_device(d) for d in ("cpu", "cuda", "cuda:1")] == ["cpu", "cuda", "cuda:1"]
    with pytest.raises(ModelError, match="this machine has cpu, cuda:0, cuda:1"):
        resolve_device("cuda:2")
    with pytest.raises(ModelError, match="no such device"):
        resolve_device("mps")
    with pytest.raises(OptionError, match="--llm-device 'gpu'"):
        resolve_device("gpu")


def test_dtype() -> None:
    assert resolve_dtype(None, "cpu") is torch.float32
    assert resolve_dtype(None, "cuda:1") == resolve_dtype("auto", "cpu") == "auto"
    assert resolve_dtype(None, "cpu", quantized=True) == "auto"
    assert resolve_dtype("float16", "cpu") is torch.float16
    with pytest.raises(OptionError, match="float8"):
        resolve_dtype("float8", "cpu")


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "set_num_threads", found.append)
    monkeypatch.setattr("pytest_llmeval.models.huggingface.device.available_cores", lambda: 8)
    assert [configure_threads(n) for n in (1, 3, 8, 20, 0)] == found == [8, 2, 1, 1, 8]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    configure_threads(1)
    assert len(found) == 5


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 6),
        ({"cpu.max": "max 100000"}, 6),
        ({"cpu.max": "250000 100000"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "9000000 100000"}, 6),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 6),
    ],
)
def test_cores(files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content + "\n")
    assert available_cores(tmp_path) == expected


def test_workers_take_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [device_of_worker("cuda", slot) for slot in range(4)] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert [device_of_worker(device, 1) for device in ("cpu", "mps", "cuda:0")] == ["cpu", "mps", "cuda:0"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert device_of_worker("cuda", 3) == "cuda"
