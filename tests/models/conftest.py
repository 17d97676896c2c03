"""Checkpoints that several tests load, made once; one thread, so that tests that run beside each other do not
compete.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from tests.models.support import load
from tests.tiny_models import CHAT_TEMPLATE, make_checkpoint


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def gpt2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 without BOS."""
    return make_checkpoint(tmp_path_factory.mktemp("gpt2"), "gpt2")


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama whose tokenizer adds BOS, with a chat template."""
    return make_checkpoint(tmp_path_factory.mktemp("llama"), "llama", chat_template=CHAT_TEMPLATE)


@pytest.fixture(scope="session")
def bloom_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BLOOM: ALiBi, so no position ids and no limit of length."""
    return make_checkpoint(tmp_path_factory.mktemp("bloom"), "bloom")


@pytest.fixture(scope="session")
def gpt2(gpt2_folder: Path) -> HuggingFaceModel:
    """The GPT-2 on the CPU."""
    return load(gpt2_folder)


@pytest.fixture(scope="session")
def llama(llama_folder: Path) -> HuggingFaceModel:
    """The Llama on the CPU."""
    return load(llama_folder)


@pytest.fixture(scope="session")
def bloom(bloom_folder: Path) -> HuggingFaceModel:
    """The BLOOM on the CPU."""
    return load(bloom_folder)


@pytest.fixture(params=["gpt2", "llama", "bloom"])
def any_model(request: pytest.FixtureRequest) -> HuggingFaceModel:
    """Each of the three."""
    model: HuggingFaceModel = request.getfixturevalue(request.param)
    return model


@pytest.fixture
def rows_of_passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(rows, columns) of every forward pass of the loop, as it goes."""
    from pytest_llmeval.models.huggingface.generation import RowsWriter

    found: list[tuple[int, int]] = []
    forward: Callable[..., Any] = RowsWriter.forward

    def recorded(self: RowsWriter, input_ids: Any, *arguments: Any) -> Any:
        found.append((input_ids.shape[0], input_ids.shape[1]))
        return forward(self, input_ids, *arguments)

    monkeypatch.setattr(RowsWriter, "forward", recorded)
    return found
