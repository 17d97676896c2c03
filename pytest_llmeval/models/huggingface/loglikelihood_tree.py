"""The fast path for log-likelihoods: every distinct position of a call is computed once, under a tree of tokens.

The steps are planned without tensors (``prefix_tree.py``); here each becomes one forward pass. Its tokens stand
in one row without padding, with positions of their own, and an additive mask lets each see its ancestors alone: a mask
of booleans is silently wrong under eager attention, and one mask for layers with and without a window is silently wrong
as well.

The subtrees that a step packs side by side see the path above them and nothing of each other. Attention over the whole
row would compute what the mask then throws away. Here each block of neighbours is a call of its own, over the path, the
block's ancestors and itself. The function stands in transformers' interface for attention functions, so that
projections, rotary angles and scaling stay the model's own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from pytest_llmeval.models.huggingface.batches import BatchRow
from pytest_llmeval.models.huggingface.checkpoint import Attention
from pytest_llmeval.models.huggingface.forward import Logprobs, Runner, logprobs_of
from pytest_llmeval.models.huggingface.prefix_tree import Block, Step, StepBudget, common_length, plan_steps

__all__ = [
    "PathCache",
    "TreeScorer",
    "attend_in_blocks",
]


_ATTENTION = "llmeval_tree"


def _without_cudnn() -> AbstractContextManager[None]:
    """Leave out cuDNN's attention, which prepares itself for each shape anew (steps have many), and fails on some
    masks: an H100 raised "Expected mha_graph.execute(...).is_good() to be true".
    """
    cuda: Any = torch.backends.cuda
    enabled = [
        *([SDPBackend.FLASH_ATTENTION] if cuda.flash_sdp_enabled() else []),
        *([SDPBackend.EFFICIENT_ATTENTION] if cuda.mem_efficient_sdp_enabled() else []),
        *([SDPBackend.MATH] if cuda.math_sdp_enabled() else []),
    ]
    return sdpa_kernel(enabled) if enabled else nullcontext()


def attend_in_blocks(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    tree_blocks: Sequence[Block] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Return what sdpa gives for ``query`` (1, heads, tokens, width) under an additive mask (1, 1, tokens, cached +
    tokens).

    Each of the ``tree_blocks``, which together are all tokens, is a call over the keys and values that it may see.
    None, or a single one: all is one call. Returns (1, tokens, heads, width).
    """
    if attention_mask is None or not tree_blocks or len(tree_blocks) == 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    num_cached = key.shape[2] - query.shape[2]
    parts = []
    for block in tree_blocks:
        seen = [(0, num_cached + block.end)]
        if block.start:
            spans = (*block.before, (block.start, block.end))
            seen = [(0, num_cached), *((num_cached + start, num_cached + end) for start, end in spans)]
        mask = attention_mask[:, :, block.start : block.end]
        # A copy, whose rows begin where CUDA's kernels look for them: those of a slice may begin elsewhere.
        mask = torch.cat([mask[..., start:end] for start, end in seen], dim=3)
        parts.append(
            sdpa_attention_forward(
                module,
                query[:, :, block.start : block.end],
                _picked(key, seen),
                _picked(value, seen),
                mask,
                dropout,
                scaling,
                **kwargs,
            )[0]
        )
    return torch.cat(parts, dim=1), None


def _picked(tensor: torch.Tensor, spans: Sequence[tuple[int, int]]) -> torch.Tensor:
    """Return keys or values (1, heads, tokens, width) of the spans, behind each other; a single one is not copied."""
    parts = [tensor[:, :, start:end] for start, end in spans if end > start]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


_MOST_KEPT = 64
_WORTH_KEEPING = 32
"""The fewest tokens that are kept: fewer are sooner computed again than looked up."""


class PathCache:
    """Keys and values of the path that is being worked on, and of paths that were left and may come back.

    ``max_bytes`` bounds the memory of the latter; the one that was not used for longest goes first. Every layer keeps
    all tokens, also one that reads a window of them: the mask says what it may read.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._path: tuple[int, ...] = ()
        self._cache: Any = DynamicCache()
        self._left: OrderedDict[tuple[int, ...], Any] = OrderedDict()

    @property
    def paths(self) -> list[tuple[int, ...]]:
        """Return all paths at hand."""
        return [path for path in (self._path, *self._left) if path]

    def longest(self, path: tuple[int, ...]) -> int:
        """Return how many tokens of ``path`` are at hand."""
        return max((common_length(known, path) for known in self.paths), default=0)

    def at(self, path: tuple[int, ...]) -> Any:
        """Return the cache that holds the longest part of ``path`` at hand; what is computed on top of it extends
        it.
        """
        here = common_length(self._path, path)
        if here < len(path):
            best = max(self._left, key=lambda known: common_length(known, path), default=())
            there = common_length(best, path)
            if there > here:
                self._left.move_to_end(best)
                cache = _copied(self._left[best], there)
                self._leave()
                self._path, self._cache = path[:there], cache
                return self._cache
        if len(self._path) - here >= _WORTH_KEEPING:
            cache = _copied(self._cache, here)
            self._leave()
            self._path, self._cache = self._path[:here], cache
        else:
            self.forget(len(self._path) - here)
        return self._cache

    def _leave(self) -> None:
        """Keep what was computed for a later visit."""
        path, cache = self._path, self._cache
        if len(path) < _WORTH_KEEPING or any(known[: len(path)] == path for known in self._left):
            return
        for known in [known for known in self._left if path[: len(known)] == known]:
            del self._left[known]  # what this one holds as well
        # A copy: a cropped cache is a view of all that was ever in it.
        self._left[path] = _copied(cache, len(path))
        total = sum(map(_num_bytes, self._left.values()))
        while self._left and (total > self._max_bytes or len(self._left) > _MOST_KEPT):
            total -= _num_bytes(self._left.popitem(last=False)[1])

    def grew(self, tokens: Sequence[int]) -> None:
        """Note that these tokens were computed on top of the path, and stay."""
        self._path = (*self._path, *tokens)

    def forget(self, num_tokens: int) -> None:
        """Drop the last tokens of the path."""
        if num_tokens:
            self._path = self._path[: len(self._path) - num_tokens]
            self.drop(num_tokens)

    def drop(self, num_tokens: int) -> None:
        """Drop tokens that were computed on top of the path."""
        if self._path or self._cache.get_seq_length() > num_tokens:
            self._cache.crop(-num_tokens)
        else:
            self._cache = DynamicCache()

    def clear(self) -> None:
        """Forget everything."""
        self._path, self._cache = (), DynamicCache()
        self._left.clear()


def _copied(cache: Any, num_tokens: int) -> Any:
    copy: Any = DynamicCache()
    if num_tokens:
        for index, layer in enumerate(cache.layers):
            copy.update(layer.keys[..., :num_tokens, :], layer.values[..., :num_tokens, :], index)
    return copy


def _num_bytes(cache: Any) -> int:
    return sum(
        tensor.numel() * tensor.element_size()
        for layer in cache.layers
        if layer.keys is not None
        for tensor in (layer.keys, layer.values)
    )


class TreeScorer:
    """Scores rows of one model whose attention is known (``checkpoint.py``).

    The beginnings that samples of a suite share are kept between calls, in at most ``kept_bytes`` of memory.
    """

    def __init__(self, runner: Runner, attention: Attention, *, kept_bytes: int) -> None:
        self._runner = runner
        self._model = runner.model
        self._attention = attention
        self._paths = PathCache(kept_bytes)
        self._in_blocks = runner.takes_attention

    def steps(self, rows: Sequence[BatchRow], budget: StepBudget) -> list[Step]:
        """Return what is to be run for these rows, given what is at hand."""
        return plan_steps(rows, budget, self._paths.paths)

    def clear(self) -> None:
        """Give the memory of everything that was kept back."""
        self._paths.clear()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let ``run`` be called, for many steps, in this context.

        In it the model's attention follows the ``tree_blocks`` that its forward pass is given. A model that does not
        pass them on attends to the whole row under the mask, which is as right.
        """
        in_blocks = self._runner.attending(_ATTENTION, attend_in_blocks) if self._in_blocks else nullcontext()
        kernels = _without_cudnn() if self._model.device.type == "cuda" else nullcontext()
        with kernels, in_blocks:
            yield

    def run(self, step: Step) -> Logprobs:
        """Run one forward pass, and return the logprob of each of ``step.wanted_tokens``, and whether it is the
        likeliest there.
        """
        try:
            cache = self._paths.at(step.path)
            known = self._paths.longest(step.path)
            if known < len(step.path):  # it was evicted
                cache = self._recompute(step.path, known, size=max(len(step.tokens), _WORTH_KEEPING))
            logprobs = self._forward(step, cache)
            if step.stays:
                self._paths.grew(step.tokens)
            elif step.path:
                self._paths.drop(len(step.tokens))
        except BaseException:
            self._paths.clear()  # layers may hold unlike numbers of tokens now
            raise
        return logprobs

    def _recompute(self, path: tuple[int, ...], known: int, size: int) -> Any:
        for start in range(known, len(path), size):
            tokens = path[start : start + size]
            step = Step(path[:start], stays=True)
            step.tokens = list(tokens)
            step.positions = list(range(start, start + len(tokens)))
            step.ends = [len(tokens)] * len(tokens)
            step.blocks = [Block(0, len(tokens))]
            self._forward(step, self._paths.at(step.path))
            self._paths.grew(tokens)
        return self._paths.at(path)

    def _forward(self, step: Step, cache: Any) -> Logprobs:
        device = self._model.device
        scored = sorted(set(step.wanted_at)) or [len(step.tokens) - 1]
        needs_cache = step.stays or bool(step.path)
        logits = self._model(
            input_ids=torch.tensor([step.tokens], device=device),
            attention_mask=self._masks(step),
            position_ids=torch.tensor([step.positions], device=device),
            logits_to_keep=torch.tensor(scored, device=device),
            use_cache=needs_cache,
            **({"tree_blocks": step.blocks} if self._in_blocks else {}),
            **({self._runner.cache_name: cache} if needs_cache else {}),
        ).logits[0]
        if not step.wanted_at:
            return Logprobs([], [])
        place = {at: i for i, at in enumerate(scored)}
        return logprobs_of(logits, [place[at] for at in step.wanted_at], step.wanted_tokens)

    def _masks(self, step: Step) -> Any:
        device = self._model.device
        num_cached, num_tokens = len(step.path), len(step.tokens)
        index = torch.arange(num_tokens, device=device)
        ends = torch.tensor(step.ends, device=device)
        sees = torch.ones((num_tokens, num_cached + num_tokens), dtype=torch.bool, device=device)
        sees[:, num_cached:] = (index[None, :] <= index[:, None]) & (index[:, None] < ends[None, :])
        window = self._attention.window
        if window is None:
            windowed = sees
        else:
            at = torch.tensor(step.positions, device=device)
            keys_at = torch.cat([torch.arange(num_cached, device=device), at])
            if window.kind == "sliding":
                windowed = sees & (at[:, None] - keys_at[None, :] < window.size)
            else:
                windowed = sees & (at[:, None] // window.size == keys_at[None, :] // window.size)
        if not self._attention.layer_types:
            return self._additive(windowed)
        return {
            kind: self._additive(sees if kind == "full_attention" else windowed) for kind in self._attention.layer_types
        }

    def _additive(self, sees: torch.Tensor) -> torch.Tensor:
        dtype = self._model.dtype
        mask = torch.zeros(sees.shape, dtype=dtype, device=sees.device)
        return mask.masked_fill_(~sees, torch.finfo(dtype).min)[None, None]
