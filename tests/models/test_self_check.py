"""What the check at loading makes of a model that runs out of memory, or whose numbers are none."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.models.findings import Findings
from pytest_llmeval.models.huggingface.forward import Outcome
from pytest_llmeval.models.huggingface.kind import Folder, load_backend
from pytest_llmeval.models.huggingface.self_check import compare, self_check
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelSpec
from tests.tiny_models import make_checkpoint

Value = float | None
"""The loglikelihood of a request; None: too little memory."""


class StandIn:
    """An engine with the numbers that it is given: by the way of scoring, and the number of the request."""

    attention = SimpleNamespace(window=None, max_positions=None)

    def __init__(self, value: Callable[[str, int], Value]) -> None:
        self._value = value
        self._small = ""

    @contextlib.contextmanager
    def in_small_steps(self, max_tokens: int) -> Iterator[None]:
        """As ``Engine`` does."""
        assert max_tokens >= 8
        self._small = "small "
        yield
        self._small = ""

    def score(
        self, pairs: Mapping[int, EncodedPair], *, plain: bool = False, alone: bool = False
    ) -> dict[int, Outcome | RequestError]:
        """As ``Engine`` does."""
        is_math = alone and not torch.backends.cuda.flash_sdp_enabled()  # type: ignore[no-untyped-call]
        way = "math" if is_math else "alone" if alone else "plain" if plain else f"{self._small}tree"
        found = {key: self._value(way, key) for key in pairs}
        return {
            key: RequestError("too little memory") if value is None else Outcome(value, False, 0.0)
            for key, value in found.items()
        }


def problem(value: Callable[[str, int], Value], dtype: torch.dtype = torch.float32) -> str | None:
    """What the check says."""
    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=99))
    engine: Any = StandIn(value)
    return self_check(engine, SimpleNamespace(config=config, dtype=dtype), max_length=64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tree_that_agrees_is_right(dtype: torch.dtype) -> None:
    assert problem(lambda way, key: -1.0 - key, dtype) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("missing", [range(6), range(1)])
def test_what_was_not_compared_is_not_right(missing: range, dtype: torch.dtype) -> None:
    """Both ways ran out of memory, for all requests or for one."""
    expected = "in a check at loading, the device had too little memory for a small tree"
    assert problem(lambda way, key: None if key in missing else -1.0, dtype) == expected


def test_a_tree_that_alone_needs_too_much_memory_is_not_right() -> None:
    for way in ("tree", "small tree"):
        found = problem(lambda one, key, way=way: None if one == way else -1.0)  # type: ignore[misc]
        assert found == "in a check at loading, the tree differed by inf"


@pytest.mark.parametrize("lost", [math.nan, None])
@pytest.mark.parametrize("way", ["plain", "alone"])
def test_a_number_that_padding_loses_allows_no_difference(way: str, lost: Value) -> None:
    """In half precision the tree may differ three times as much as padding makes: not without end."""

    def value(one: str, key: int) -> Value:
        if one == way and key == 0:
            return lost
        return -5.0 if one == "tree" and key == 1 else -1.0

    pairs = {key: EncodedPair((1,), (2,)) for key in range(3)}
    engine: Any = StandIn(value)
    assert not compare(engine, pairs, torch.bfloat16).is_close
    engine = StandIn(lambda one, key: lost if one == "plain" and key == 0 else -1.0)
    found = compare(engine, pairs, torch.bfloat16)
    assert (found.is_close, math.isfinite(found.tolerance)) == (True, True)


def test_in_half_precision_the_tree_may_differ_as_attention_by_other_code_does() -> None:
    """A card gave the same numbers with and without padding, and others by another kernel."""
    pairs = {key: EncodedPair((1,), (2,)) for key in range(3)}
    for off, is_close in ((0.5, True), (0.7, False)):
        values = {"tree": -1.0 - off, "math": -1.2}
        engine: Any = StandIn(lambda way, key, values=values: values.get(way, -1.0))  # type: ignore[misc]
        assert compare(engine, pairs, torch.bfloat16).is_close == is_close
        assert not compare(engine, pairs, torch.float32).is_close


def test_in_half_precision_one_noisy_request_allows_the_others_little() -> None:
    """The tree is off at every request; other code for attention changes one, as a long text."""
    pairs = {key: EncodedPair((1,), (2,)) for key in range(50)}

    def value(way: str, key: int) -> float:
        return -1.0 - {"math": 0.6 * (key == 0), "tree": 1.5}.get(way, 0.0)

    engine: Any = StandIn(value)
    assert not compare(engine, pairs, torch.bfloat16).is_close


def test_a_file_that_cannot_be_hashed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*files: object, **settings: object) -> str:
        raise OSError(5, "Input/output error")

    make_checkpoint(tmp_path / "model")
    monkeypatch.setattr("pytest_llmeval.models.huggingface.model.fingerprint_files", fail)
    spec = ModelSpec(name="tiny", kind=Folder(), location=str(tmp_path / "model"))
    with pytest.raises(ModelError, match="Input/output error") as raised:
        load_backend(spec, ModelSettings(device="cpu", findings=Findings()))
    assert "\n" not in str(raised.value)
