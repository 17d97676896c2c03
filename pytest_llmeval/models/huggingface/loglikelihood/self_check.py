"""Is the tree right for this model? Its scores are compared with plain ones before they are used."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.models.huggingface.loglikelihood.engine import Engine, Outcome

__all__ = ["SelfCheckComparison", "compare", "self_check"]

_TOLERANCE = 1e-4
"""The bound in float32: the largest difference found among 40 architectures is below 1e-5."""
_LONGEST_CHECK = 256
"""Tokens: a window or a switch beyond them is left to the audit, whose texts are a suite's own."""


@dataclass(frozen=True, slots=True)
class SelfCheckComparison:
    """The largest difference (nats) between the tree and the plain path, over ``num_requests`` that were compared.

    ``tolerance`` is that of the request with the largest difference; ``is_close``: each keeps to its own.
    """

    largest_difference: float
    tolerance: float
    num_requests: int
    is_close: bool


def compare(
    engine: Engine,
    pairs: Mapping[int, EncodedPair],
    dtype: torch.dtype,
    plain: Mapping[int, Outcome | RequestError] | None = None,
) -> SelfCheckComparison:
    """Score ``pairs`` by the tree and, unless that is known, plain.

    In float32 the two may differ by 1e-4, by a hundred-thousandth of a long text's loglikelihood where that is more.
    In coarser dtypes padding alone makes a difference, and the tree may make three times as much, or as much as one
    rounding of every logprob: padding may by chance make no difference at all. A request that has a number on one path
    alone is as far off as can be, and says nothing of what padding makes; one that has none on either is not compared.
    """
    by_tree = engine.score(pairs)
    plain = engine.score(pairs, plain=True) if plain is None else plain
    noise, rounding = 0.0, 1e-5
    if dtype != torch.float32:
        alone = engine.score(pairs, plain=True, alone=True)
        gaps = (_difference(plain[key], alone[key]) for key in plain)
        noise = 3 * max((gap for gap in gaps if math.isfinite(gap)), default=0.0)
        rounding = max(rounding, float(torch.finfo(dtype).eps))
        plain = alone
    found = [
        (_difference(by_tree[key], plain[key]), max(_TOLERANCE, noise, rounding * _size(plain[key])))
        for key in pairs
        if not (isinstance(by_tree[key], RequestError) and isinstance(plain[key], RequestError))
    ]
    largest, tolerance = max(found, default=(0.0, _TOLERANCE))
    return SelfCheckComparison(largest, tolerance, len(found), all(one <= allowed for one, allowed in found))


def _size(outcome: Outcome | RequestError) -> float:
    if isinstance(outcome, RequestError) or not math.isfinite(outcome.loglikelihood):
        return 0.0
    return abs(outcome.loglikelihood)


def _difference(one: Outcome | RequestError, other: Outcome | RequestError) -> float:
    if isinstance(one, RequestError) or isinstance(other, RequestError):
        return 0.0 if isinstance(one, RequestError) and isinstance(other, RequestError) else math.inf
    a, b = one.loglikelihood, other.loglikelihood
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    difference = abs(a - b)
    return math.inf if math.isnan(difference) else difference


def self_check(engine: Engine, model: Any, *, max_length: int | None) -> str | None:
    """Return why the tree is not to be used for this model; None if a small tree of random tokens is right.

    The tree reaches beyond a window or a chunk that is short enough; a longer one is the audit's.
    """
    vocabulary = getattr(model.config.get_text_config(), "vocab_size", None) or 2
    window = engine.attention.window
    depth = 24 if window is None or 2 * window.size + 8 > _LONGEST_CHECK else max(24, 2 * window.size + 8)
    depth = min(depth, max_length or depth, engine.attention.max_positions or depth)
    if depth < 8:
        return None
    pairs = _random_pairs(vocabulary, depth)
    try:
        plain = engine.score(pairs, plain=True)
        found = compare(engine, pairs, model.dtype, plain)
        if found.is_close and found.num_requests == len(pairs):
            # once more as in a large call, where a header is cached and attention comes in blocks
            with engine.in_small_steps(max(8, depth // 2 - 2)):
                found = compare(engine, pairs, model.dtype, plain)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError, NotImplementedError) as error:
        return f"the tree cannot be run on it ({type(error).__name__})"
    if found.is_close and found.num_requests < len(pairs):
        return "in a check at loading, the device had too little memory for a small tree"
    if not found.is_close:
        return f"in a check at loading, the tree differed by {found.largest_difference:.1e}"
    return None


def _random_pairs(vocabulary: int, depth: int) -> dict[int, EncodedPair]:
    """Return a header, three questions, two choices each, of random tokens; the deepest reaches ``depth``."""
    draw = random.Random(0)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(vocabulary) for _ in range(count))

    header = tokens(depth // 2)
    pairs: list[EncodedPair] = []
    for question_length in (1, depth // 8, depth - depth // 2 - 4):
        question = tokens(max(1, question_length))
        choices: Sequence[tuple[int, ...]] = [tokens(1), tokens(4)]
        pairs += [EncodedPair(header + question, choice) for choice in choices]
    return dict(enumerate(pairs))
