"""Rows whose tokens are read together: rows leave when they are done, and others take their places.

Their keys and values are kept here too: one copy of the header that rows share, and a place for each row's own.

All rows end in the same column, and padding comes before a row's beginning, so that every row writes its next token
into one column. Columns that no row needs any longer are not read; when the last column is reached, what is needed
moves back to the first ones.

``RowsCall`` gives rows to the texts of one call until all are written.

transformers' ``DynamicCache`` copies everything at every token, and holds a header once for every row. Here the rows'
own part lies in buffers that are written in place. The header is read by ``attend``, an attention function in
transformers' interface for such functions: the scores over the header, of all rows at once, and those over a row's own
tokens go into one softmax (the decomposition is that of Hydragen, arXiv:2402.05099).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers.cache_utils import Cache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from pytest_llmeval.models.huggingface.forward import Runner, padded
from pytest_llmeval.models.huggingface.generation_writer import Generated, Seconds, Writer, choose_tokens

__all__ = ["Header", "Reader", "Rows", "RowsCache", "RowsCall", "UnsupportedHeader", "num_columns", "reading_headers"]


_ATTENTION = "llmeval_shared_header"


class UnsupportedHeader(Exception):
    """The model's code does not pass on what reading a header needs."""


@dataclass(frozen=True, slots=True)
class Header:
    """The tokens that rows begin with, and their keys and values: for each layer (1, heads, tokens, width)."""

    tokens: tuple[int, ...]
    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]

    @property
    def num_bytes(self) -> int:
        """Return the bytes that it takes."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (*self.keys, *self.values))

    def cut(self, num_tokens: int) -> Header:
        """Return the header's beginning, a view of it."""
        if num_tokens == len(self.tokens):
            return self
        return Header(
            self.tokens[:num_tokens],
            tuple(keys[:, :, :num_tokens] for keys in self.keys),
            tuple(values[:, :, :num_tokens] for values in self.values),
        )


@dataclass(slots=True)
class _Store:
    """One layer's buffers (rows, heads, capacity, width), made when the first keys and values come."""

    num_rows: int
    capacity: int
    keys: torch.Tensor | None = None
    values: torch.Tensor | None = None

    def write(
        self, rows: slice, columns: slice, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Put ``keys`` and ``values`` there, and return the buffers."""
        if self.keys is None or self.values is None:
            self.keys = self._empty(keys)
            self.values = self._empty(values)
        self.keys[rows, :, columns] = keys
        self.values[rows, :, columns] = values
        return self.keys, self.values

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        return like.new_empty((self.num_rows, like.shape[1], self.capacity, like.shape[3]))


class RowsCache:
    """Room for ``capacity`` tokens in each of ``num_rows`` rows, after a header of ``num_header_tokens``."""

    def __init__(self, num_rows: int, capacity: int, num_header_tokens: int = 0) -> None:
        self._num_rows = num_rows
        self._capacity = capacity
        self._num_header_tokens = num_header_tokens
        self._stores: list[_Store] = []

    def view(self, rows: slice, first_column: int, num_tokens: int) -> Cache:
        """Return the cache of a forward pass: ``rows`` from ``first_column`` on, with ``num_tokens`` read."""
        made = 0

        def next_layer() -> _Layer:
            nonlocal made
            if made == len(self._stores):
                self._stores.append(_Store(self._num_rows, self._capacity))
            made += 1
            return _Layer(self._stores[made - 1], rows, first_column, num_tokens, self._num_header_tokens)

        create: Any = Cache
        if self._stores:
            cache: Cache = create(layers=[next_layer() for _ in range(len(self._stores))])
        else:
            cache = create(layer_class_to_replicate=next_layer)
        return cache

    def fill(self, header: Header) -> None:
        """Begin the only row with a header's keys and values."""
        for keys, values in zip(header.keys, header.values, strict=True):
            self._stores.append(_Store(self._num_rows, self._capacity))
            self._stores[-1].write(slice(0, 1), slice(0, len(header.tokens)), keys, values)

    def clear(self, rows: slice, columns: slice) -> None:
        """Write zeros where a row has nothing: masked, they must still be numbers."""
        for keys, values in self._buffers():
            keys[rows, :, columns] = 0
            values[rows, :, columns] = 0

    def move(self, source: int, target: int, columns: slice) -> None:
        """Put row ``source`` in the place of row ``target``."""
        for keys, values in self._buffers():
            keys[target, :, columns] = keys[source, :, columns]
            values[target, :, columns] = values[source, :, columns]

    def move_back(self, rows: slice, columns: slice, num_columns: int) -> None:
        """Put ``columns`` in the place of those ``num_columns`` before them."""
        target = slice(columns.start - num_columns, columns.stop - num_columns)
        for pair in self._buffers():
            for buffer in pair:
                buffer[rows, :, target] = buffer[rows, :, columns].clone()  # the two may overlap

    def header(self, tokens: tuple[int, ...]) -> Header:
        """Return the only row as a header."""
        buffers = self._buffers()
        return Header(tokens, tuple(keys for keys, _ in buffers), tuple(values for _, values in buffers))

    def _buffers(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(s.keys, s.values) for s in self._stores if s.keys is not None and s.values is not None]


class _Layer(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer of a view."""

    is_croppable = False

    def __init__(self, store: _Store, rows: slice, first_column: int, num_tokens: int, num_header_tokens: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_initialized = True
        self._store = store
        self._rows = rows
        self._first_column = first_column
        self._num_tokens = num_tokens
        self._num_header_tokens = num_header_tokens

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append, and return the rows' own keys and values, without the header's."""
        begin = self._first_column + self._num_tokens
        self._num_tokens += key_states.shape[-2]
        end = self._first_column + self._num_tokens
        keys, values = self._store.write(self._rows, slice(begin, end), key_states, value_states)
        own = slice(self._first_column, end)
        return keys[self._rows, :, own], values[self._rows, :, own]

    def get_seq_length(self) -> int:
        """Return how many tokens were read so far, the header's included."""
        return self._num_header_tokens + self._num_tokens

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length and the offset of what the queries attend to."""
        return self.get_seq_length() + query_length, 0


def reading_headers(runner: Runner) -> AbstractContextManager[None]:
    """Return a context in which the model's attention reads the ``shared_header`` that its forward pass is given."""
    return runner.attending(_ATTENTION, attend)


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    shared_header: Header | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Return attention over a header and each row's own tokens.

    ``query`` (rows, heads, queries, width), ``key`` and ``value`` (rows, key heads, own tokens, width). With several
    queries ``attention_mask`` is boolean over header and own tokens, with one it is additive over own tokens alone, or
    None. Raises ``UnsupportedHeader`` where the model wants more of its attention than that.
    """
    if shared_header is None:
        raise UnsupportedHeader(f"{type(module).__name__} does not pass the header on")
    if unknown := [name for name in ("softcap", "s_aux", "position_bias", "sinks") if kwargs.get(name) is not None]:
        raise UnsupportedHeader(f"{type(module).__name__} uses {unknown[0]}")
    header_key, header_value = shared_header.keys[module.layer_idx], shared_header.values[module.layer_idx]
    if header_key.shape[1] != key.shape[1] or header_key.shape[3] != key.shape[3]:
        raise UnsupportedHeader(f"{type(module).__name__} caches other things than keys and values")
    if query.shape[2] > 1:
        key = torch.cat([header_key.expand(len(key), -1, -1, -1), key], dim=2)
        value = torch.cat([header_value.expand(len(value), -1, -1, -1), value], dim=2)
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return _attend_one(query[:, :, 0] * scale, key, value, attention_mask, header_key[0], header_value[0]), None


def _attend_one(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    header_key: torch.Tensor,
    header_value: torch.Tensor,
) -> torch.Tensor:
    """Attend by one query (rows, heads, width) for each row. Returns (rows, 1, heads, width of values)."""
    num_rows, num_heads, width = query.shape
    num_key_heads, num_header_tokens, _ = header_key.shape
    group = num_heads // num_key_heads
    grouped = query.view(num_rows, num_key_heads, group, width)
    own = grouped @ key.transpose(-1, -2)
    if mask is not None:
        own = own + mask
    # All rows are queries of one product with the header, which is read once and not once for each row.
    together = grouped.transpose(0, 1).reshape(num_key_heads, num_rows * group, width)
    shared = (together @ header_key.transpose(-1, -2)).view(num_key_heads, num_rows, group, num_header_tokens)
    scores = torch.cat([shared.transpose(0, 1), own], dim=-1)
    weights = scores.softmax(-1, dtype=torch.float32).to(value.dtype)
    on_header = weights[..., :num_header_tokens].transpose(0, 1).reshape(num_key_heads, num_rows * group, -1)
    from_header = (on_header @ header_value).view(num_key_heads, num_rows, group, -1).transpose(0, 1)
    out = weights[..., num_header_tokens:] @ value + from_header
    return out.reshape(num_rows, 1, num_heads, -1)


_ATTENDED_TO_READ = 16
"""The most keys that are attended to at once, for each token that may be read at once."""


class Reader(Protocol):
    """The model as rows need it. ``max_prefill``: tokens of prompts that are read at once."""

    runner: Runner
    max_prefill: int

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        cache: Any,
        mask: torch.Tensor | None,
        header: Header | None = None,
    ) -> torch.Tensor:
        """Return the logits after the last column, (rows, vocabulary)."""


def num_columns(longest: int, *, refilled: bool) -> int:
    """Return the number of columns for rows of up to ``longest`` tokens, prompt and text.

    Rows that are refilled get an eighth more, so that what is needed moves back once in so many tokens.
    """
    return longest + max(8, longest // 8) if refilled else longest


class Rows:
    """Up to ``num_rows`` rows of ``num_columns`` tokens after ``header``; prompts have up to ``longest_prompt``.

    ``longest_to_come`` is the length of the longest prompt that is still to be added.
    """

    def __init__(
        self, reader: Reader, header: Header | None, *, num_rows: int, num_columns: int, longest_prompt: int
    ) -> None:
        self._reader = reader
        self._header = header
        self._num_header = len(header.tokens) if header is not None else 0
        self._num_columns = num_columns
        self.longest_to_come = longest_prompt
        self._cache = RowsCache(num_rows, num_columns, self._num_header)
        self._starts: list[int] = []
        """The first column of each row."""
        self._begin = self._end = longest_prompt
        """The columns that are read: from the first one of any row to the last that was written."""
        model = reader.runner.model
        self._device, self._dtype = model.device, model.dtype
        self._mask: torch.Tensor | None = None
        self._view: Any = None

    def add(self, prompts: Sequence[tuple[int, ...]]) -> torch.Tensor:
        """Return logits after each of ``prompts`` (without the header), which are rows from now on.

        They are to be in order of length, so that those read at once are padded little.
        """
        num_before = len(self._starts)
        first_start = self._end - len(prompts[-1])
        if first_start < self._begin:
            self._cache.clear(slice(0, num_before), slice(first_start, self._begin))
            self._begin = first_start
        found = []
        first = 0
        while first < len(prompts):
            last = first + 1
            while last < len(prompts) and self._may_be_read_at_once(last + 1 - first, len(prompts[last])):
                last += 1
            found.append(self._read_prompts(prompts[first:last]))
            first = last
        self._settle()
        return torch.cat(found)

    def _may_be_read_at_once(self, num_rows: int, width: int) -> bool:
        """Tell whether both the tokens that are computed and the keys that one layer attends to stay few."""
        most = self._reader.max_prefill
        return num_rows * width <= most and num_rows * (self._num_header + width) <= _ATTENDED_TO_READ * most

    def _read_prompts(self, prompts: Sequence[tuple[int, ...]]) -> torch.Tensor:
        input_ids, is_real = padded(prompts, self._reader.runner.pad_token, on_left=True)
        num_rows, width = input_ids.shape
        positions = (is_real.cumsum(-1) - 1).clamp(min=0) + self._num_header
        mask: torch.Tensor | None = None
        if self._header is not None and width > 1:  # a row of one token attends to all there is
            own = is_real[:, None].bool() & torch.ones(width, width, dtype=torch.bool).tril()
            mask = torch.cat([own.new_ones((num_rows, width, self._num_header)), own], dim=-1)[:, None]
        elif not bool(is_real.all()):
            mask = is_real
        rows = slice(len(self._starts), len(self._starts) + num_rows)
        view = self._cache.view(rows, self._end - width, 0)
        logits = self._reader.forward(
            input_ids, positions, view, None if mask is None else mask.to(self._device), self._header
        )
        self._cache.clear(rows, slice(self._begin, self._end - width))
        self._starts += [self._end - len(prompt) for prompt in prompts]
        return logits

    def drop(self, places: Sequence[int]) -> None:
        """Take rows out, the last place first; each time the last row takes the place."""
        for place in places:
            last = len(self._starts) - 1
            if place != last:
                self._cache.move(last, place, slice(self._begin, self._end))
                self._starts[place] = self._starts[last]
            self._starts.pop()
        self._settle()

    def read(self, tokens: Sequence[int]) -> torch.Tensor:
        """Return logits after one more token of each row."""
        if self._end == self._num_columns:
            self._move_back()
        if self._view is None:
            self._view = self._cache.view(slice(0, len(tokens)), self._begin, self._end - self._begin)
        positions = torch.tensor([self._end - start + self._num_header for start in self._starts])[:, None]
        self._end += 1
        mask = None
        if self._mask is not None:
            mask = self._mask[:, : self._end - self._begin]
            mask = mask[:, None, None] if self._header is not None else mask
        return self._reader.forward(torch.tensor(tokens)[:, None], positions, self._view, mask, self._header)

    def _move_back(self) -> None:
        """Free the last columns: prompts that are still to come fit before the new end."""
        end = max(self._end - self._begin, self.longest_to_come)
        moved = self._end - end
        self._cache.move_back(slice(0, len(self._starts)), slice(self._begin, self._end), moved)
        self._starts = [start - moved for start in self._starts]
        self._end = end
        self._settle()

    def _settle(self) -> None:
        """Compute what follows from the rows' beginnings."""
        self._view = self._mask = None
        self._begin = min(self._starts, default=self._end)
        starts = torch.tensor(self._starts)[:, None]
        if not bool((starts > self._begin).any()):
            return
        is_real = (torch.arange(self._begin, self._num_columns) >= starts).to(self._device)
        if self._header is None:
            self._mask = is_real.long()
        else:
            # Made once: what transformers makes of a mask at every token is this.
            self._mask = torch.zeros(is_real.shape, dtype=self._dtype, device=self._device)
            self._mask.masked_fill_(~is_real, torch.finfo(self._dtype).min)


_REFILLED_PART = 8
"""Free rows are refilled once they are an eighth of all: until then, empty rows cost about what reading prompts one by
one would (with R rows and texts of L tokens, the least of both is where R * sqrt(2 / L) rows are free)."""


class RowsCall:
    """The texts of one call, by their indices: which wait, which have a row, and what those that ended say.

    ``owns`` are their prompts after the header.
    """

    def __init__(
        self,
        rows: Rows,
        owns: Sequence[tuple[int, ...]],
        writers: Sequence[Writer],
        *,
        num_rows: int,
        seconds: Seconds,
        on_finished: Callable[[int, Generated], None] | None,
    ) -> None:
        self.results: dict[int, Generated] = {}
        self._rows = rows
        self._owns = owns
        self._writers = writers
        self._num_rows = num_rows
        self._seconds = seconds
        self._on_finished = on_finished
        self._waiting = deque(range(len(owns)))
        self._written: list[int] = []
        """The text that each row writes."""
        self._tokens: list[int] = []
        """The next token of each row."""

    @property
    def has_more(self) -> bool:
        """Return whether a text is waited for."""
        return bool(self._waiting or self._written)

    def step(self) -> None:
        """Write one token for each row; or, where enough rows are free, the first one of those that get them."""
        num_free = self._num_rows - len(self._written)
        least_free = max(1, self._num_rows // _REFILLED_PART)
        if self._waiting and num_free >= min(least_free, len(self._waiting)):
            self._begin(min(num_free, len(self._waiting)))
        else:
            self._tokens = self._choose(self._rows.read(self._tokens), self._written)
        self._end()

    def _begin(self, num_newcomers: int) -> None:
        self._seconds.write()
        newcomers = [self._waiting.popleft() for _ in range(num_newcomers)]
        newcomers.sort(key=lambda i: len(self._owns[i]))
        tokens = self._choose(self._rows.add([self._owns[i] for i in newcomers]), newcomers)
        self._seconds.read(newcomers)  # tokens are numbers: the device has done what it was asked to do
        self._rows.longest_to_come = max((len(self._owns[i]) for i in self._waiting), default=0)
        self._written += newcomers
        self._tokens += tokens

    def _choose(self, logits: torch.Tensor, members: Sequence[int]) -> list[int]:
        writers = [self._writers[i] for i in members]
        tokens = choose_tokens(logits, writers)
        for writer, token in zip(writers, tokens, strict=True):
            writer.add(token)
        return tokens

    def _end(self) -> None:
        """Take texts that are done out of their rows; the last row takes the place of each, as ``Rows.drop`` does
        it.
        """
        places = [place for place in reversed(range(len(self._written))) if self._writers[self._written[place]].is_done]
        for place in places:
            i = self._written[place]
            self.results[i] = self._writers[i].result(*self._seconds.end(i))
            if self._on_finished is not None:
                self._on_finished(i, self.results[i])
            self._written[place], self._tokens[place] = self._written[-1], self._tokens[-1]
            self._written.pop()
            self._tokens.pop()
        if places:
            self._rows.drop(places)
