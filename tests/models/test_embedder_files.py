"""What ``--llm-embedder`` says of a folder before anything is loaded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.huggingface.checkpoint import check_embedder, deciding_files
from pytest_llmeval.models.huggingface.kind import demo_folder
from pytest_llmeval.models.registry import check_model, parse_model_spec
from pytest_llmeval.models.settings import ModelSettings

TRANSFORMER = {"type": "sentence_transformers.models.Transformer", "path": ""}
POOLING = {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model whose files are what they are called, and nothing more."""
    for name in (
        *("config.json", "tokenizer.json", "model.safetensors", "pytorch_model.bin", "README.md", "train.json"),
        *("sentence_bert_config.json", "1_Pooling/config.json", "1_Pooling/README.md", "onnx/model.onnx"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "modules.json").write_text(json.dumps([TRANSFORMER, POOLING]))
    return tmp_path


def refusal(folder: Path, *, allow_pickle: bool = False, trust_remote_code: bool = False) -> str:
    with pytest.raises(ModelError) as caught:
        check_embedder("m", folder, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code)
    text = str(caught.value)
    assert text.startswith("model m: ")
    assert "\n" not in text
    return text


def test_the_files_that_decide_are_known(folder: Path) -> None:
    check_embedder("m", folder, allow_pickle=False, trust_remote_code=False)
    assert [name for name, _ in deciding_files("m", folder)] == [
        *("1_Pooling/config.json", "config.json", "model.safetensors", "modules.json"),
        *("sentence_bert_config.json", "tokenizer.json"),
    ]


@pytest.mark.parametrize("text", ["", "{", "5", "null", "[5]", '[{"type": "sentence_transformers.models.Pooling"}]'])
def test_modules_that_cannot_be_read(folder: Path, text: str) -> None:
    (folder / "modules.json").write_text(text)
    assert "modules.json" in refusal(folder)


def test_what_is_no_such_model(folder: Path) -> None:
    (folder / "modules.json").unlink()
    assert refusal(folder).endswith("is no sentence-embedding model: it has no modules.json")
    assert "there is no folder" in refusal(folder / "nowhere")


def test_code_of_the_model_is_not_run_unasked(folder: Path) -> None:
    """The library would trust a folder, and take a snapshot of the hub for one."""
    (folder / "modules.json").write_text(json.dumps([{"type": "custom_st.Transformer", "path": ""}, POOLING]))
    assert "custom_st.Transformer is Python code that comes with the model" in refusal(folder)
    check_embedder("m", folder, allow_pickle=False, trust_remote_code=True)


@pytest.mark.parametrize("part", ["", "1_Pooling"])
def test_pickles_are_not_loaded_unasked(folder: Path, part: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").rename(folder / part / "pytorch_model.bin")
    assert "are pickles (pytorch_model.bin), which can run code" in refusal(folder)
    check_embedder("m", folder, allow_pickle=True, trust_remote_code=False)


def test_without_the_library_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ModelError, match=r"pip install 'pytest-llmeval-suites\[embeddings\]'$"):
        check_model(parse_model_spec(str(folder), role="embedder"), ModelSettings())


def test_a_model_that_writes_is_no_embedder() -> None:
    pytest.importorskip("sentence_transformers")
    with pytest.raises(ModelError, match=r"demo_model is no sentence-embedding model: it has no modules\.json"):
        check_model(parse_model_spec("demo", role="embedder"), ModelSettings())
    check_model(parse_model_spec(str(demo_folder())), ModelSettings())


def test_what_is_not_in_the_cache_is_refused_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="not in the hub's cache, and HF_HUB_OFFLINE forbids downloading it"):
        check_model(parse_model_spec("no-such-embedder", role="embedder"), ModelSettings(revision="abc"))


@pytest.mark.parametrize("path", ["../other", "1_Pooling/../../other", "/other"])
def test_a_part_that_lies_elsewhere(folder: Path, path: str) -> None:
    (folder / "modules.json").write_text(json.dumps([TRANSFORMER, {**POOLING, "path": path}]))
    assert refusal(folder).endswith(f"modules.json: the path '{path}' leads out of the model's folder")
