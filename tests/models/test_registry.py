"""From ``--llm-model`` to a folder or a hub id, and what is refused before anything heavy is imported."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch

from pytest_llmeval.errors import LLMEvalError, ModelError, OptionError
from pytest_llmeval.models.huggingface.kind import demo_folder
from pytest_llmeval.models.registry import check_model, parse_model_spec
from pytest_llmeval.models.settings import ModelSettings
from tests.models.support import one_line_of
from tests.tiny_models import make_checkpoint, make_hub_cache


def check(spec: str | Path, **settings: Any) -> None:
    """Parse and check."""
    check_model(parse_model_spec(str(spec)), ModelSettings(**settings))


def refusal(spec: str | Path, **settings: Any) -> str:
    """The one line with which a model is refused."""
    with pytest.raises(LLMEvalError) as caught:
        check(spec, **settings)
    return one_line_of(caught.value)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A sound checkpoint that a test may break."""
    return make_checkpoint(tmp_path / "checkpoint", "gpt2")


@pytest.mark.parametrize("text", ["gpt2", "org/name", "org/name-1.5_x", "Qwen2.5", "a/b"])
def test_hub_ids(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = parse_model_spec(text)
    assert (spec.name, spec.kind.name, spec.location) == (text, "hub", text)


@pytest.mark.parametrize("text", ["./x", "../x", ".", "x/", "a/b/c", "here"])
def test_folders(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    spec = parse_model_spec(text)
    assert (spec.name, spec.kind.name, spec.location) == (text, "folder", str((tmp_path / text).resolve()))


def test_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_model_spec("~/x").location == str(tmp_path / "x")


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model that ships is meant even where a folder of that name stands."""
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse_model_spec("demo").location == str(demo_folder())
    assert demo_folder().parent.name == "pytest_llmeval"
    assert parse_model_spec("./demo").location == str(tmp_path / "demo")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("openai:", "expected openai:NAME, such as openai:gpt-5-mini"),
        ("replay:", "expected replay:FILE"),
        ("replay:x.jsonl?respones=a", "there is no argument 'respones'; did you mean 'response'?"),
        ("replay:x.jsonl?partial=maybe", "partial: found 'maybe' (text), expected true or false"),
        ("replay:x.jsonl?partial", "found 'partial' after '?', expected name=value"),
        ("replay:x.jsonl?id=a&id=b", "found 'id' twice after '?'"),
        ("python:module", "expected python:MODULE:NAME"),
        ("python:my-module:f", "'my-module' is neither a module (my_package.my_module) nor a file"),
        ("random?seed=x", "seed is 'x', expected a whole number"),
        ("random?sed=1", "there is no argument 'sed'; did you mean 'seed'?"),
        ("majority?seed=1", "there is no argument 'seed'"),
        ("llama.cpp:m.gguf", "there is no kind 'llama.cpp'; did you mean llama-cpp:m.gguf?"),
        ("VLLM:org/name?launch.max_num_seqs=8", "did you mean vllm:org/name?launch.max_num_seqs=8?"),
        ("two words", "expected demo, a Hugging Face id"),
        ("org/name--x", "expected demo"),
        ("https://user:password1@host/org/name", "https://host/org/name: the URL holds a user name or a password"),
        ("a\nb", "'a b'"),
        ("x" * 97, "expected demo"),
    ],
)
def test_parse_refuses(text: str, words: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_model_spec(text)
    assert words in one_line_of(caught.value)
    assert "password1" not in str(caught.value)


def test_sound_checkpoints_pass(checkpoint: Path) -> None:
    check(checkpoint)
    check(checkpoint.parent, model_args={"subfolder": "checkpoint"})


def test_check_reads_little_and_imports_nothing_heavy(checkpoint: Path) -> None:
    code = (
        "import sys; from pytest_llmeval.models.registry import check_model, parse_model_spec\n"
        "from pytest_llmeval.models.specs import ModelSettings\n"
        f"check_model(parse_model_spec({str(checkpoint)!r}), ModelSettings())\n"
        "print([m for m in ('torch', 'transformers', 'numpy', 'huggingface_hub', 'safetensors') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _delete(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def _write(name: str, content: bytes | str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def _config(**changes: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))

    return change


def _truncate(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-10])


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")


def _sharded(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


@pytest.mark.parametrize(
    ("breakage", "words"),
    [
        (_delete("config.json"), "has no config.json; it holds"),
        (_write("config.json", "{"), "is not valid JSON"),
        (_write("config.json", "[]"), "JSON mapping, but contains a list"),
        (_write("config.json", b"\xff\xfe"), "cannot read"),
        (_write("config.json", LFS), "git-lfs pointer"),
        (_config(model_type="mine", auto_map={"AutoModelForCausalLM": "m.M"}), "--llm-trust-remote-code"),
        (_config(model_type="mine", auto_map={"AutoModelForSeq2SeqLM": "m.M"}), "--llm-trust-remote-code"),
        (_delete("tokenizer.json"), "--llm-model-arg tokenizer="),
        (_delete("model.safetensors"), "has no weights (model.safetensors)"),
        (_pickled, "--llm-allow-pickle"),
        (_sharded, "1 of 2 weight files"),
        (_write("model.safetensors", b""), "0 bytes long"),
        (_write("model.safetensors", LFS), "git lfs pull"),
        (_write("model.safetensors", b"x" * 500), "is not a safetensors file"),
        (_write("model.safetensors", struct.pack("<Q", 900) + b"{}"), "is truncated"),
        (_write("model.safetensors", struct.pack("<Q", 2) + b"[]"), "broken safetensors header"),
        (_write("model.safetensors", struct.pack("<Q", 2) + b"{}."), "longer than its header says"),
        (_truncate, "is truncated"),
    ],
)
def test_broken_checkpoints(checkpoint: Path, breakage: Callable[[Path], object], words: str) -> None:
    breakage(checkpoint)
    message = refusal(checkpoint)
    assert words in message
    assert message.startswith(f"model {checkpoint}: ")


def test_no_folder(tmp_path: Path) -> None:
    assert "there is no folder" in refusal(tmp_path / "nowhere")


def test_a_file(checkpoint: Path) -> None:
    assert refusal(checkpoint / "model.safetensors").endswith(
        "is a file; --llm-model takes the folder that holds config.json"
    )
    gguf = checkpoint / "m.gguf"
    gguf.touch()
    assert refusal(gguf).endswith(f"; llama.cpp runs it: --llm-model llama-cpp:{gguf}")


def test_an_empty_folder(tmp_path: Path) -> None:
    assert "it holds nothing" in refusal(tmp_path)


def test_a_folder_of_checkpoints(checkpoint: Path) -> None:
    assert f"did you mean {checkpoint}?" in refusal(checkpoint.parent)


def test_an_adapter(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "org/base"}))
    message = refusal(tmp_path)
    assert f"--llm-model org/base --llm-model-arg peft={tmp_path}" in message


def test_permissions_that_settings_give(checkpoint: Path) -> None:
    _config(model_type="mine", auto_map={"AutoModelForCausalLM": "m.M"})(checkpoint)
    check(checkpoint, trust_remote_code=True)
    _config(model_type="gpt2", auto_map={"AutoModelForCausalLM": "m.M"})(checkpoint)
    check(checkpoint)
    (checkpoint / "tokenizer.json").unlink()
    check(checkpoint, model_args={"tokenizer": "gpt2"})
    _pickled(checkpoint)
    check(checkpoint, allow_pickle=True, model_args={"tokenizer": "gpt2"})


def test_leftovers_of_training_are_no_weights(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").rename(checkpoint / "optimizer.pt")
    assert "has no weights" in refusal(checkpoint)


def test_bad_adapters(checkpoint: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    settings = {"model_args": {"peft": str(adapter)}}
    assert "there is no such folder" in refusal(checkpoint, **settings)
    adapter.mkdir()
    assert "no adapter_config.json there" in refusal(checkpoint, **settings)
    (adapter / "adapter_config.json").write_text("{}")
    assert "has no adapter_model.safetensors" in refusal(checkpoint, **settings)
    (adapter / "adapter_model.bin").write_bytes(b"")
    assert "--llm-allow-pickle" in refusal(checkpoint, **settings)


def test_revision_of_a_folder(checkpoint: Path) -> None:
    assert "only models on the hub have revisions" in refusal(checkpoint, revision="main")


def test_offline(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    check("org/name")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE" in refusal("org/name")
    snapshot = make_hub_cache(tmp_path / "cache", "org/name", checkpoint, revision="v1")
    check("org/name", revision="v1")
    check("org/name", revision="0" * 40)
    assert "at revision v2" in refusal("org/name", revision="v2")
    (snapshot / "model.safetensors").unlink()
    assert "has no weights" in refusal("org/name", revision="v1")


def test_settings_are_checked_first(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--llm-device"):
        check(tmp_path / "nowhere", device="gpu")
    with pytest.raises(ModelError):
        check(tmp_path / "nowhere")
