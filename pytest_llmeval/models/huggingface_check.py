"""Is the tree right for this model? Its scores are compared with plain ones, before anybody reads them."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.models.huggingface_engine import Engine, Outcome

__all__ = ["Comparison", "compare", "self_check"]

_TOLERANCE = 1e-4
"""In float32. The largest difference found among 40 architectures is below 1e-5."""
_LONGEST_CHECK = 256
"""Tokens: a window or a switch beyond them is left to the audit, whose texts are a suite's own."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The largest difference (nats) between the tree and the plain path, over ``num_requests``."""

    largest_difference: float
    tolerance: float
    num_requests: int

    @property
    def is_close(self) -> bool:
        """Whether the tree may be used."""
        return self.largest_difference <= self.tolerance


def compare(engine: Engine, pairs: Mapping[int, EncodedPair], dtype: torch.dtype) -> Comparison:
    """Score ``pairs`` by the tree and plain.

    In float32 the two may differ by 1e-4, by a hundred-thousandth of a long text's loglikelihood where that is more.
    In coarser dtypes padding alone makes a difference, and the tree may make three times as much.
    """
    by_tree = engine.score(pairs)
    plain = engine.score(pairs, plain=True)
    tolerance = max(_TOLERANCE, 1e-5 * max(map(_size, plain.values()), default=0.0))
    if dtype != torch.float32:
        alone = engine.score(pairs, plain=True, alone=True)
        tolerance = max(tolerance, 3 * _largest_difference(plain, alone), _rounding(dtype, alone))
        plain = alone
    return Comparison(_largest_difference(by_tree, plain), tolerance, len(pairs))


def _rounding(dtype: torch.dtype, outcomes: Mapping[int, Outcome | RequestError]) -> float:
    """What one rounding of every logprob can add up to: padding may by chance make no difference at all."""
    return float(torch.finfo(dtype).eps) * max(map(_size, outcomes.values()), default=0.0)


def _size(outcome: Outcome | RequestError) -> float:
    if isinstance(outcome, RequestError) or not math.isfinite(outcome.loglikelihood):
        return 0.0
    return abs(outcome.loglikelihood)


def _largest_difference(
    some: Mapping[int, Outcome | RequestError], others: Mapping[int, Outcome | RequestError]
) -> float:
    return max((_difference(some[key], others[key]) for key in some), default=0.0)


def _difference(one: Outcome | RequestError, other: Outcome | RequestError) -> float:
    if isinstance(one, RequestError) or isinstance(other, RequestError):
        return 0.0  # it gets no number on either path
    a, b = one.loglikelihood, other.loglikelihood
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    difference = abs(a - b)
    return math.inf if math.isnan(difference) else difference


def self_check(engine: Engine, model: Any, *, max_length: int | None) -> str | None:
    """Why the tree is not to be used for this model; None if a small tree of random tokens is right.

    The tree reaches beyond a window or a chunk that is short enough; a longer one is the audit's.
    """
    vocabulary = getattr(model.config.get_text_config(), "vocab_size", None) or 2
    window = engine.attention.window
    depth = 40 if window is None or 2 * window.size + 8 > _LONGEST_CHECK else max(40, 2 * window.size + 8)
    depth = min(depth, max_length or depth, engine.attention.max_positions or depth)
    if depth < 8:
        return None
    try:
        found = compare(engine, _random_pairs(vocabulary, depth), model.dtype)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError, NotImplementedError) as error:
        return f"the tree cannot be run on it ({type(error).__name__})"
    if not found.is_close:
        return f"a check at loading found the tree off by {found.largest_difference:.1e}"
    return None


def _random_pairs(vocabulary: int, depth: int) -> dict[int, EncodedPair]:
    """A header, three questions, three choices each, of random tokens; the deepest reaches ``depth``."""
    draw = random.Random(0)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(vocabulary) for _ in range(count))

    header = tokens(depth // 2)
    pairs: list[EncodedPair] = []
    for question_length in (1, depth // 8, depth - depth // 2 - 4):
        question = tokens(max(1, question_length))
        choices: Sequence[tuple[int, ...]] = [tokens(1), tokens(4), tokens(2)]
        pairs += [EncodedPair(header + question, choice) for choice in choices]
    return dict(enumerate(pairs))
