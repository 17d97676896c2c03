"""GPUs, counted from the machine's device files and the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmeval.models.hardware import device_in_turn, is_device_lost, num_visible_gpus


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, 4),
        ("0,1", 2),
        ("3", 1),
        ("1, 2", 2),
        ("", 0),
        ("-1", 0),
        ("0,-1,1", 1),
        ("0,7,1", 1),
        ("GPU-8932f937,GPU-aa", 2),
        ("MIG-GPU-8932f937/1/2", 1),
    ],
)
def test_visible_devices(visible: str | None, expected: int, tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert num_visible_gpus(environment, tmp_path) == expected


def test_a_machine_without_gpus(tmp_path: Path) -> None:
    assert num_visible_gpus({"CUDA_VISIBLE_DEVICES": "0"}, tmp_path) == 0
    assert num_visible_gpus({}, tmp_path / "missing") == 0


def test_devices_in_turn() -> None:
    assert [device_in_turn("cuda", slot, 3) for slot in range(4)] == ["cuda:0", "cuda:1", "cuda:2", "cuda:0"]
    assert device_in_turn("cuda", 5, 1) == "cuda"
    assert device_in_turn("cuda:1", 0, 4) == "cuda:1"
    assert device_in_turn("cpu", 3, 4) == "cpu"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA`"), True),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), True),
        (RuntimeError("CUDA error: out of memory"), False),
        (RuntimeError("CUDA error: no kernel image is available for execution on the device"), False),
        (ValueError("a question on the device-side assert of a kernel"), False),
    ],
)
def test_a_lost_device_is_known_by_its_error(error: Exception, expected: bool) -> None:
    assert is_device_lost(error) == expected
