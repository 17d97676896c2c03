"""What is read from the header of a GGUF file, and files that are refused."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.models.servers.gguf import GGUFHeader, read_gguf
from tests.servers.gguf_files import gguf_bytes
from tests.servers.real import gguf

_KEYS: dict[str, Any] = {
    "general.architecture": "qwen3",
    "general.file_type": 7,
    "tokenizer.ggml.tokens": ["a", "", "ünï", "\n"],
    "tokenizer.ggml.token_type": [1, 1, 3],
    "tokenizer.ggml.add_bos_token": False,
    "qwen3.rope.freq_base": 1e6,
    "llama.context_length": 7,
    "qwen3.context_length": 40960,
    "tokenizer.chat_template": "{% for message in messages %}…{% endfor %}",
}
_TENSORS = {"token_embd.weight": (4, 2), "output_norm.weight": (4,)}


def read(tmp_path: Path, data: bytes) -> GGUFHeader:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    return read_gguf(path)


@pytest.mark.parametrize("version", [2, 3])
def test_header(tmp_path: Path, version: int) -> None:
    data = gguf_bytes(_KEYS, version=version, tensors=_TENSORS)
    assert read(tmp_path, data) == GGUFHeader(quantisation="Q8_0", context_length=40960, has_chat_template=True)
    nothing = GGUFHeader(quantisation=None, context_length=None, has_chat_template=False)
    assert read(tmp_path, gguf_bytes({}, tensors={})) == nothing
    unusual = {"general.architecture": 3, "general.file_type": 999, "3.context_length": "long", "split.count": 1}
    assert read(tmp_path, gguf_bytes(unusual)) == nothing


def test_refused(tmp_path: Path) -> None:
    big_endian = b"GGUF" + struct.pack(">IQQ", 3, 0, 0)
    for data, expected in {
        b"": "it is no GGUF file: it does not begin with",
        b"<html>": "it is no GGUF file: it does not begin with",
        b"GGUF": "it is cut off within its header",
        gguf_bytes(version=1): "it has version 1 of the format GGUF, expected 2 or 3",
        big_endian: "it has version 50331648 of the format GGUF, expected 2 or 3",
        gguf_bytes({"split.count": 2}): "it is one of 2 parts; llama-gguf-split --merge makes one file of them",
        gguf_bytes({"a": 1}, tensors={}).replace(struct.pack("<I", 4), struct.pack("<I", 99), 1): "there is no type 99",
        gguf_bytes({"a": "b" * 9}).replace(b"\x09" + bytes(7), b"\xff" * 8): "it is cut off within its header",
        gguf_bytes(tensors=_TENSORS)[:-16]: "and the tensor 'output_norm.weight' begins behind them",
    }.items():
        with pytest.raises(ValueError, match=r"^it") as caught:
            read(tmp_path, data)
        assert expected in str(caught.value)


@given(data=st.data())
def test_damaged_header_is_refused_or_read(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = gguf_bytes(_KEYS, tensors=_TENSORS)
    place = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.binary(min_size=1, max_size=9))
    damaged = data.draw(st.sampled_from([whole[:place], whole[:place] + other + whole[place + len(other) :]]))
    with contextlib.suppress(ValueError):
        read(tmp_path_factory.mktemp("damaged"), damaged)


@pytest.mark.campaign
def test_real_file() -> None:
    assert read_gguf(gguf()) == GGUFHeader(quantisation="F32", context_length=4096, has_chat_template=True)
