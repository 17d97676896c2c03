"""A verdict on the tree holds for the conditions that it was found under, and for no others."""

from __future__ import annotations

import importlib.metadata
import inspect
import operator
import platform
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_llmeval.models import encoding
from pytest_llmeval.models.huggingface import self_check as conditions
from pytest_llmeval.models.settings import ModelSettings


def backend(name: str) -> Any:
    """The part of torch.backends of this name; None where this torch does not have it."""
    try:
        return operator.attrgetter(name)(torch.backends) if name else torch.backends
    except AttributeError:
        return None


@pytest.fixture
def precision() -> Iterator[None]:
    """The precision of torch's backends is as it was afterwards. ``set_float32_matmul_precision`` sets several."""
    names = ["", "cuda.matmul", "cudnn", "cudnn.conv", "cudnn.rnn"]
    names += ["mkldnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn"]
    legacy = torch.get_float32_matmul_precision()
    places = [place for name in names if hasattr(place := backend(name), "fp32_precision")]
    before = [(place, place.fp32_precision) for place in places]
    try:
        yield
    finally:
        for place, value in before:
            place.fp32_precision = value
        torch.set_float32_matmul_precision(legacy)
        for place, value in before:
            place.fp32_precision = value


def key(settings: ModelSettings | None = None, *, fingerprint: str | None = "weights", **changes: Any) -> str | None:
    """The key of a model of which these attributes differ."""
    attention = changes.pop("attention", "sdpa")
    max_length = changes.pop("max_length", 64)
    config = SimpleNamespace(_attn_implementation=attention)
    known = {"device": torch.device("cpu"), "dtype": torch.float32, "config": config}
    found = conditions.self_check_key(
        SimpleNamespace(**(known | changes)), fingerprint, max_length, settings or ModelSettings()
    )
    assert found is None or isinstance(found, str)
    return found


@pytest.mark.usefixtures("precision")
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
    assert len(keys) == 14


@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize("place", ["", "mkldnn.matmul", "cudnn", "cuda.matmul"])
def test_the_newer_settings_of_precision_count(place: str) -> None:
    """Once one is set, torch's older getters may raise RuntimeError."""
    module = backend(place)
    if not hasattr(module, "fp32_precision"):
        pytest.skip("torch before 2.9")
    first = key()
    module.fp32_precision = "bf16" if place == "mkldnn.matmul" else "tf32"
    assert key() not in (first, None)


def test_settings_of_older_versions_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "_PRECISIONS", ("cuda.matmul.of_no_version", "cuda.matmul.fp32_precision"))
    setting = conditions._setting
    monkeypatch.setattr(conditions, "_setting", lambda name: None if "fp32" in name else setting(name))
    keys = set()
    for precision in ("highest", "high"):
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda it=precision: it)
        keys.add(key())
    assert len(keys - {None}) == 2


@pytest.mark.parametrize("name", ["ONEDNN_DEFAULT_FPMATH_MODE", "NVIDIA_TF32_OVERRIDE", "MKL_ENABLE_INSTRUCTIONS"])
def test_variables_of_the_environment_count(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(name, raising=False)
    first = key()
    monkeypatch.setenv(name, "1")
    assert key() not in (first, None)


@pytest.mark.parametrize("package", ["torchao", "gptqmodel", "triton"])
def test_packages_that_compute_count(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, version = key(), importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0" if name == package else version(name))
    assert key() not in (first, None)


def test_the_machine_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its system, and the name that a device other than CUDA's gives itself."""
    keys = {key(), key(device=torch.device("mps"))}
    for chip in ("one", "another"):
        monkeypatch.setattr(torch.mps, "get_device_name", lambda device, it=chip: it, raising=False)
        keys.add(key(device=torch.device("mps")))
    monkeypatch.setattr(platform, "platform", lambda: "another system")
    keys.add(key())
    assert len(keys - {None}) == 5


@pytest.mark.parametrize("name", ["allow_fp16_reduced_precision_reduction", "allow_fp16_accumulation"])
def test_how_cuda_adds_up_counts(name: str) -> None:
    place, first = torch.backends.cuda.matmul, key()
    before = getattr(place, name, None)
    if before is None:
        pytest.skip("this torch has no such setting")
    try:
        setattr(place, name, not before)
        assert key() not in (first, None)
    finally:
        setattr(place, name, before)


def test_the_code_of_the_model_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformers may be edited in place."""
    keys, source = {key()}, tmp_path / "modeling.py"
    monkeypatch.setattr(inspect, "getsourcefile", lambda _: str(source))
    for content in ("one", "two"):
        source.write_text(content, encoding="utf-8")
        keys.add(key())
    assert len(keys - {None}) == 3


def test_the_code_of_encoding_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = conditions._own_code.__wrapped__()
    changed = tmp_path / "encoding.py"
    changed.write_text("", encoding="utf-8")
    monkeypatch.setattr(encoding, "__file__", str(changed))
    assert conditions._own_code.__wrapped__() != first


@pytest.mark.parametrize("error", [RuntimeError("mix of the legacy and new APIs"), AssertionError("no CUDA")])
def test_a_condition_that_cannot_be_read_ends_nothing(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", fail)
    assert key() is None


def test_what_is_not_known_is_not_remembered() -> None:
    assert key(fingerprint=None) is None
    assert key(ModelSettings(trust_remote_code=True)) is None
