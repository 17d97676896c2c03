"""An embedder without a model: a text's vector counts its words, each in the place that its checksum says.

Texts that share words are close. What words mean it does not know: "fell" and "fall" are as far apart as any two.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

from pytest_llmeval.types import EmbeddingRequest, EmbeddingResponse, ModelIdentity

__all__ = ["WordCounts"]

_LENGTH = 256


class WordCounts:
    """As ``--llm-embedder`` would be asked."""

    identity = ModelIdentity(name="word counts", backend="embedder.py", fingerprint="word counts, version 1")
    answers_one_by_one = True

    def embed(self, requests: Sequence[EmbeddingRequest]) -> list[EmbeddingResponse]:
        """A vector for each request."""
        return [EmbeddingResponse(vector=_counts(request.text)) for request in requests]


def _counts(text: str) -> tuple[float, ...]:
    counts = [0.0] * _LENGTH
    for word in re.findall(r"\w+", text.lower()):
        counts[zlib.crc32(word.encode()) % _LENGTH] += 1
    return tuple(counts)
