"""Loading for real: folders, the hub's cache, dtypes, adapters; and every failure in one line."""

from __future__ import annotations

import json
import logging
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pytest_llmeval.errors import LLMEvalError, ModelError
from pytest_llmeval.models.huggingface import loading as huggingface_load
from pytest_llmeval.models.huggingface.kind import Folder, load_backend
from pytest_llmeval.models.huggingface.model import HuggingFaceModel, resolve_max_length
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelSpec
from tests.models.support import load, one_line_of
from tests.tiny_models import make_checkpoint, make_hub_cache, make_tokenizer


def refusal(folder: Path | str, **settings: Any) -> str:
    """The one line with which loading fails."""
    with pytest.raises(LLMEvalError) as caught:
        load(folder, **settings)
    return one_line_of(caught.value)


def refusal_unchecked(folder: Path, **settings: Any) -> str:
    """The same, when only transformers looks at the folder, as it does for a model of the hub."""
    spec = ModelSpec(name="x", kind=Folder(), location=str(folder))
    with pytest.raises(ModelError) as caught:
        load_backend(spec, ModelSettings(device="cpu", **settings))
    return one_line_of(caught.value)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A sound checkpoint that a test may break."""
    return make_checkpoint(tmp_path / "checkpoint", "gpt2")


def test_identity(gpt2: HuggingFaceModel, gpt2_folder: Path) -> None:
    identity = gpt2.identity
    assert (identity.name, identity.backend) == (str(gpt2_folder), "huggingface")
    assert (identity.dtype, identity.device, identity.revision) == ("float32", "cpu", None)
    assert identity.details["class"] == "GPT2LMHeadModel"
    assert identity.details["num_parameters"] == sum(p.numel() for p in gpt2.model.parameters())
    assert identity.details["max_length"] == 128
    assert identity.details["torch"] == torch.__version__
    json.dumps(identity.details)


def test_fingerprint(tmp_path: Path, gpt2: HuggingFaceModel) -> None:
    """The same content elsewhere is the same model; other weights, dtype, tokenizer or BOS are not."""
    assert load(make_checkpoint(tmp_path / "same", "gpt2")).identity.fingerprint == gpt2.identity.fingerprint
    others = {
        load(make_checkpoint(tmp_path / "seed", "gpt2", seed=1)).identity.fingerprint,
        load(tmp_path / "same", dtype="bfloat16").identity.fingerprint,
        load(tmp_path / "same", model_args={"add_bos": False}).identity.fingerprint,
        load(make_checkpoint(tmp_path / "bos", "gpt2", adds_bos=True)).identity.fingerprint,
    }
    assert None not in others
    assert len(others | {gpt2.identity.fingerprint}) == 5


@pytest.mark.parametrize(
    ("stored", "asked", "expected"),
    [
        ("float16", None, "float32"),
        ("bfloat16", "auto", "bfloat16"),
        ("float32", "bfloat16", "bfloat16"),
        ("bfloat16", "float32", "float32"),
    ],
)
def test_dtype(tmp_path: Path, stored: str, asked: str | None, expected: str) -> None:
    model = load(make_checkpoint(tmp_path, "llama", dtype=stored), dtype=asked)
    assert model.identity.dtype == expected
    assert {p.dtype for p in model.model.parameters()} == {getattr(torch, expected)}
    assert model.loglikelihood("The capital of France is", " Paris").loglikelihood < 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_where_there_is_none(gpt2_folder: Path) -> None:
    message = refusal(gpt2_folder, device="cuda:1")
    assert "--llm-device cuda:1" in message
    assert "this machine has cpu" in message


@pytest.mark.slow
def test_hub_cache(tmp_path: Path, checkpoint: Path) -> None:
    """Offline, by id and by revision, in a process of its own: the hub's library reads its environment at import."""
    import subprocess
    import sys

    cache = tmp_path / "cache"
    make_hub_cache(cache, "org/name", checkpoint, commit="a" * 40)
    make_hub_cache(cache, "org/name", make_checkpoint(tmp_path / "other", seed=1), revision="v1", commit="b" * 40)
    code = (
        "from tests.models.support import load\n"
        "for revision in (None, 'v1', 'a' * 40, 'main'):\n"
        "    m = load('org/name', revision=revision)\n"
        "    print(m.identity.revision, m.identity.fingerprint)\n"
        "from pytest_llmeval.errors import ModelError\n"
        "from pytest_llmeval.models.huggingface.kind import load_backend\n"
        "from pytest_llmeval.models.huggingface.kind import Hub\n"
        "from pytest_llmeval.models.specs import ModelSpec\n"
        "from pytest_llmeval.models.specs import ModelSettings\n"
        "for name in ('org/none', 'org/bad'):\n"
        "    try:\n"
        "        load_backend(ModelSpec(name=name, kind=Hub(), location=name), ModelSettings(device='cpu'))\n"
        "    except ModelError as error:\n"
        "        print(error)\n"
    )
    (checkpoint / "model.safetensors").unlink()
    torch.save({}, checkpoint / "pytorch_model.bin")
    make_hub_cache(cache, "org/bad", checkpoint, commit="c" * 40)
    environment = {**os.environ, "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1", "HF_TOKEN": "hf_" + "s" * 30}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    *loaded, missing, pickled = done.stdout.splitlines()
    revisions, fingerprints = zip(*(line.split() for line in loaded), strict=True)
    assert revisions == ("a" * 40, "b" * 40, "a" * 40, "a" * 40)
    assert fingerprints[0] == fingerprints[2] == fingerprints[3] != fingerprints[1]
    assert "model org/none: not in the hub's cache at revision main" in missing
    assert "--llm-allow-pickle" in pickled or "not in the hub's cache" in pickled
    assert "s" * 30 not in done.stdout + done.stderr
    assert done.stderr == ""


def test_pickles(checkpoint: Path, gpt2: HuggingFaceModel) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    torch.save(weights, checkpoint / "pytorch_model.bin")
    assert "--llm-allow-pickle" in refusal(checkpoint)
    assert "--llm-allow-pickle" in refusal_unchecked(checkpoint)
    model = load(checkpoint, allow_pickle=True)
    assert model.loglikelihood("a", "b").loglikelihood == pytest.approx(gpt2.loglikelihood("a", "b").loglikelihood)
    assert model.identity.fingerprint != gpt2.identity.fingerprint


def _edit_weights(folder: Path, edit: Any) -> None:
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_missing_weights_are_an_error(checkpoint: Path) -> None:
    _edit_weights(checkpoint, lambda weights: weights.pop("lm_head.weight"))
    message = refusal(checkpoint)
    assert "lacks 1 of the model's weights" in message
    assert "lm_head.weight" in message


def test_tied_weights_are_not_missing(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, "gpt2", tie_word_embeddings=True)
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    assert load(folder).loglikelihood("a", "b").loglikelihood < 0


def test_mismatched_weights(checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({**config, "n_positions": 64}))
    assert "shape" in refusal(checkpoint)


def test_remote_code(checkpoint: Path, tmp_path: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.C", "AutoModelForCausalLM": "mine.M"}}
    (checkpoint / "config.json").write_text(json.dumps(config))
    (checkpoint / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert "--llm-trust-remote-code" in refusal(checkpoint)
    assert "--llm-trust-remote-code" in refusal_unchecked(checkpoint)
    assert not (tmp_path / "ran").exists()


def test_unknown_model_type(checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({**config, "model_type": "mine"}))
    assert "transformers does not know it" in refusal(checkpoint)
    (checkpoint / "config.json").write_text("{}")
    assert "model_type" in refusal(checkpoint)


def test_no_tokenizer(checkpoint: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (checkpoint / name).unlink()
    assert "--llm-model-arg tokenizer=" in refusal_unchecked(checkpoint)
    (checkpoint / "tokenizer.json").write_text("{}")
    assert "--llm-model-arg tokenizer=" in refusal(checkpoint)


def test_tokenizer_from_elsewhere(checkpoint: Path, tmp_path: Path, gpt2: HuggingFaceModel) -> None:
    make_tokenizer(adds_bos=True).save_pretrained(tmp_path / "other")
    (checkpoint / "tokenizer.json").unlink()
    model = load(checkpoint, model_args={"tokenizer": str(tmp_path / "other")})
    assert model.tokenizer.bos_token == "<s>"
    assert model.identity.fingerprint != gpt2.identity.fingerprint


def test_models_that_do_not_continue_text(tmp_path: Path) -> None:
    import transformers

    transformers.WhisperConfig().save_pretrained(tmp_path / "whisper")
    assert "whisper is an encoder-decoder model, but not from text to text" in refusal_unchecked(tmp_path / "whisper")
    bert = transformers.BertConfig(architectures=["BertForMaskedLM"])
    bert.save_pretrained(tmp_path / "bert")
    assert "bert is a masked language model" in refusal_unchecked(tmp_path / "bert")


def test_garbage_weights_unchecked(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").write_bytes(b"garbage" * 100)
    assert "model x: cannot be loaded" in refusal_unchecked(checkpoint)


def test_out_of_memory(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.\nhf_" + "x" * 30)

    monkeypatch.setattr(huggingface_load, "_load_weights", full)
    assert "does not fit into memory" in refusal(checkpoint)


@pytest.mark.parametrize(
    ("argument", "package", "extra"),
    [
        ({"peft": "."}, "peft", "peft"),
        ({"quantization_config": {"load_in_4bit": True}}, "bitsandbytes", "quantization"),
        ({"device_map": "auto"}, "accelerate", "accelerate"),
    ],
)
def test_missing_extras(
    argument: dict[str, Any], package: str, extra: str, gpt2_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    message = refusal_unchecked(gpt2_folder, model_args=argument)
    assert f"pip install 'pytest-llmeval-suites[{extra}]'" in message


def test_bad_quantization(gpt2_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_load, "_need_extras", lambda *_: None)
    message = refusal(gpt2_folder, model_args={"quantization_config": {"load_in_4bits": True}})
    assert "unknown key 'load_in_4bits'" in message


@pytest.mark.filterwarnings("default")  # peft's own
def test_adapter(checkpoint: Path, tmp_path: Path, gpt2: HuggingFaceModel) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed: pip install 'pytest-llmeval-suites[peft]'")
    base = load(checkpoint)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = peft.LoraConfig(r=2, target_modules=["c_attn"], init_lora_weights=False, fan_in_fan_out=True)
        adapted = peft.get_peft_model(base.model, config)
    adapted.save_pretrained(tmp_path / "adapter")
    tokens = torch.tensor([base.tokenizer.encode("The capital of")])
    with torch.no_grad():
        expected = adapted(tokens).logits
    model = load(checkpoint, model_args={"peft": str(tmp_path / "adapter")})
    with torch.no_grad():
        assert torch.allclose(model.model(tokens).logits, expected, atol=1e-6)
    assert model.identity.fingerprint != gpt2.identity.fingerprint
    assert model.loglikelihood("a", "b").loglikelihood != gpt2.loglikelihood("a", "b").loglikelihood
    assert model.generate("a", max_tokens=3).num_tokens == 3
    _edit_adapter(tmp_path / "adapter")
    assert "does not fit the model" in refusal(checkpoint, model_args={"peft": str(tmp_path / "adapter")})


def test_adapter_of_the_hub(gpt2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def nowhere(repo: str, **_: object) -> str:
        raise ConnectionError("no route\nto the hub")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", nowhere)
    message = refusal(gpt2_folder, model_args={"peft": "org/adapter"})
    assert "the adapter org/adapter is neither a folder here nor available on the hub" in message
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.bin").write_bytes(b"")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path))
    assert "--llm-allow-pickle" in refusal(gpt2_folder, model_args={"peft": "org/adapter"})


def _edit_adapter(folder: Path) -> None:
    weights = load_file(folder / "adapter_model.safetensors")
    del weights[sorted(weights)[0]]
    save_file(weights, folder / "adapter_model.safetensors")


def test_max_length(tmp_path: Path, llama_folder: Path, gpt2_folder: Path) -> None:
    assert load(llama_folder, model_args={"max_length": 20}).max_length == 20
    assert load(llama_folder, model_args={"max_length": 999}).max_length == 999
    message = refusal(gpt2_folder, model_args={"max_length": 129})
    assert "more than the 128 positions" in message


def test_max_length_of_a_model_without_positions(bloom: HuggingFaceModel) -> None:
    assert bloom.max_length is None
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = 77
    assert resolve_max_length("x", bloom.model.config, tokenizer, None) == 77


def test_loading_is_quiet_and_leaves_no_trace(checkpoint: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No bar, no log line, no warning; and everybody else's settings stand as before."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled
    from transformers.utils import logging as transformers_logging

    _edit_weights(checkpoint, lambda weights: weights.update(unexpected=torch.zeros(1)))
    before = (transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled())
    bars, environment = are_progress_bars_disabled(), dict(os.environ)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = load(checkpoint)
        model.loglikelihood("a", "b")
        model.generate("a", max_tokens=2, temperature=1.0)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    assert (transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()) == before
    assert (are_progress_bars_disabled(), dict(os.environ)) == (bars, environment)
    assert before[0] != logging.CRITICAL
