"""Reads the header of a GGUF file: quantisation, context length, and whether there is a chat template.

The format is described at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The package ``gguf`` reads it too,
but makes an array of each token of the vocabulary, and brings four other packages.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from pytest_llmeval.text.wording import quoted

__all__ = ["GGUFHeader", "read_gguf"]

_VERSIONS = (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_QUANTISATIONS = (
    *("F32", "F16", "Q4_0", "Q4_1", None, None, None, "Q8_0", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L"),
    *("Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS", "IQ1_S"),
    *("IQ4_NL", "IQ3_S", "IQ3_M", "IQ2_S", "IQ2_M", "IQ4_XS", "IQ1_M", "BF16", None, None, None, "TQ1_0", "TQ2_0"),
    *("MXFP4_MOE", "NVFP4", "Q1_0", "Q2_0"),
)
"""The names that llama.cpp gives to types of files, from 0 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFHeader:
    """The part of a file's header that describes its model; None for what it does not say."""

    quantisation: str | None
    context_length: int | None
    has_chat_template: bool


class _Reader:
    """Reads one value of the file after the other. Raises ``ValueError`` at the file's end."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data, self.place = data, 0

    def number(self, kind: str) -> int:
        start = self.skip(struct.calcsize(f"<{kind}"))
        (value,) = struct.unpack_from(f"<{kind}", self._data, start)
        return value  # type: ignore[no-any-return]

    def text(self) -> str:
        length = self.number("Q")
        start = self.skip(length)
        return self._data[start : start + length].decode("utf-8", "replace")

    def skip(self, number: int) -> int:
        """Go on by a number of bytes, and return where they begin."""
        start, self.place = self.place, self.place + number
        if self.place > len(self._data):
            raise ValueError("it is cut off within its header")
        return start

    def value(self) -> int | str | None:
        """Return a value; None for an array, such as the vocabulary, which is passed over."""
        kind = self.number("I")
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.number(self._number_kind(kind))
        kind, number = self.number("I"), self.number("Q")
        if kind != _STRING:
            self.skip(number * struct.calcsize(self._number_kind(kind)))
        else:
            for _ in range(number):
                self.skip(self.number("Q"))
        return None

    def _number_kind(self, kind: int) -> str:
        if kind not in _NUMBERS:
            raise ValueError(f"its header is damaged before byte {self.place}: there is no type {kind}")
        return _NUMBERS[kind]


def read_gguf(path: Path) -> GGUFHeader:
    """Return what a file says. Raises ``OSError``, and ``ValueError`` for a file that llama.cpp could not run alone."""
    with path.open("rb") as file:
        start = file.read(4)
        if start != b"GGUF":
            raise ValueError("it is no GGUF file: it does not begin with the word GGUF")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(_Reader(data), len(data))


def _read(reader: _Reader, size: int) -> GGUFHeader:
    reader.skip(4)
    if (version := reader.number("I")) not in _VERSIONS:
        raise ValueError(f"it has version {version} of the format GGUF, expected 2 or 3")
    num_tensors, num_keys = reader.number("Q"), reader.number("Q")
    found = {reader.text(): reader.value() for _ in range(num_keys)}
    num_parts = found.get("split.count")
    if isinstance(num_parts, int) and num_parts > 1:
        raise ValueError(f"it is one of {num_parts} parts; llama-gguf-split --merge makes one file of them")
    farthest, name = 0, ""
    for _ in range(num_tensors):
        tensor = reader.text()
        reader.skip(8 * reader.number("I") + 4)  # its axes and its type
        farthest, name = max((farthest, name), (reader.number("Q"), tensor))
    alignment = found.get("general.alignment")
    step = alignment if isinstance(alignment, int) and alignment > 0 else 32
    if num_tensors and -(-reader.place // step) * step + farthest >= size:
        raise ValueError(f"it is cut off: it has {size} bytes, and the tensor {quoted(name)} begins behind them")
    file_type, length = found.get("general.file_type"), found.get(f"{found.get('general.architecture')}.context_length")
    return GGUFHeader(
        quantisation=dict(enumerate(_QUANTISATIONS)).get(file_type) if isinstance(file_type, int) else None,
        context_length=length if isinstance(length, int) else None,
        has_chat_template="tokenizer.chat_template" in found,
    )
