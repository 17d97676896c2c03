"""GGUF files without a model that can be run: a header, and as many bytes of tensors as it promises."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["gguf_bytes"]


def gguf_bytes(
    keys: Mapping[str, Any] | None = None,
    *,
    version: int = 3,
    tensors: Mapping[str, Sequence[int]] | None = None,
    after: bytes = b"",
) -> bytes:
    """Return a file with these keys, and float32 tensors of these shapes; ``after`` stands at its end."""
    keys = {"general.architecture": "llama"} if keys is None else keys
    tensors = {"token_embd.weight": (4, 2)} if tensors is None else tensors
    parts = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(keys))]
    parts += [_text(name) + _value(value) for name, value in keys.items()]
    offset = 0
    for name, shape in tensors.items():
        parts.append(_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset))
        offset += 4 * (shape[0] if len(shape) == 1 else shape[0] * shape[1])
    header = b"".join(parts)
    return header + b"\0" * (-len(header) % 32) + b"\1" * offset + after


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: object) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    assert isinstance(value, Sequence)
    is_text = isinstance(value[0], str)
    items = b"".join(_text(item) if is_text else struct.pack("<i", item) for item in value)
    return struct.pack("<IIQ", 9, 8 if is_text else 5, len(value)) + items
