"""Memory while texts are written: what keys and values take, what is read at once, who is hit where there is none."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.huggingface import generation, generation_rows
from pytest_llmeval.models.huggingface.generation import RowsWriter, Text, TextEngine
from pytest_llmeval.models.huggingface.generation_rows import RowsCache
from pytest_llmeval.models.huggingface.generation_writer import GenerationPlan
from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from pytest_llmeval.types import GenerateRequest
from tests.models.architectures_for_tests import ARCHITECTURES, make_model, tiers
from tests.models.writing_models import HEADER, OTHER_HEADER, QUESTIONS, alone, build, rows_writer, texts

MULTI_QUERY = "falcon"
"""Its heads share one key and value, which its config says in words of its own."""


@pytest.fixture
def caches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(rows, columns) of every buffer for rows' own keys and values, as they are made."""
    made: list[tuple[int, int]] = []
    begin = RowsCache.__init__

    def recorded(self: RowsCache, num_rows: int, capacity: int, num_header_tokens: int = 0) -> None:
        made.append((num_rows, capacity))
        begin(self, num_rows, capacity, num_header_tokens)

    monkeypatch.setattr(RowsCache, "__init__", recorded)
    return made


def small_forward(monkeypatch: pytest.MonkeyPatch, has_room: Callable[[torch.Tensor], bool], passes: list[int]) -> None:
    """A device without room for the forward passes that ``has_room`` refuses; ``passes`` gets the rows of each."""
    forward: Callable[..., torch.Tensor] = RowsWriter.forward

    def small(self: RowsWriter, input_ids: torch.Tensor, *arguments: Any) -> torch.Tensor:
        passes.append(input_ids.shape[0])
        if not has_room(input_ids):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, input_ids, *arguments)

    monkeypatch.setattr(RowsWriter, "forward", small)


@pytest.mark.parametrize("name", [MULTI_QUERY, *tiers(sorted(ARCHITECTURES.keys() - {MULTI_QUERY}))])
def test_memory_of_a_token_is_what_buffers_take(name: str) -> None:
    """Shared and latent keys and values, layers with windows: the engine reckons with what a buffer has."""
    model = make_model(name)
    if model.text_engine.rows_writer is None:
        assert generation._bytes_by_config(model.model) > 0
        return
    header = rows_writer(model)._read_header((1, 2, 3))
    assert generation._bytes_found(model._runner) == header.num_bytes / 3
    assert model.text_engine.max_tokens == (2 << 30) // (header.num_bytes // 3)


def test_without_memory_for_one_token_the_config_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("llama")

    def refuse(**arguments: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(model.model, "forward", refuse)
    assert TextEngine(model._runner, model.engine.attention).max_tokens == (2 << 30) // 256


@pytest.mark.parametrize("batch_size", [None, 6])
@pytest.mark.parametrize("max_tokens", [1, 100, 330])
def test_rows_hold_no_more_than_they_may(
    batch_size: int | None,
    max_tokens: int,
    caches: list[tuple[int, int]],
    rows_of_passes: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch size asks for no more memory than there is; one row is always written."""
    model = build("gpt2", batch_size, eos_token_id=None)
    requests = [GenerateRequest("a " * (n % 9), max_tokens=4 + 3 * n) for n in range(12)]
    requests += [GenerateRequest(HEADER + q, max_tokens=5) for q in QUESTIONS]
    expected = alone(build("gpt2", 1, eos_token_id=None), requests)
    texts(model, requests)  # the first time headers are checked
    rows_writer(model).forget()
    monkeypatch.setattr(model.text_engine, "max_tokens", max_tokens)
    caches.clear()
    rows_of_passes.clear()
    assert texts(model, requests) == expected
    assert all(num_rows * columns <= max_tokens or num_rows == 1 for num_rows, columns in caches)
    most = max(num_rows for num_rows, _ in rows_of_passes)
    assert most == 1 if max_tokens == 1 else 1 < most <= (batch_size or 64)


@pytest.mark.parametrize("batch_size", [None, 3])
def test_only_rows_that_are_refilled_have_columns_to_spare(
    batch_size: int | None, caches: list[tuple[int, int]]
) -> None:
    model = build("gpt2", batch_size, eos_token_id=None)
    requests = [GenerateRequest(str(n), max_tokens=40) for n in range(5)]
    longest = 40 + max(len(model._encoder.prompt(request.prompt)) for request in requests)
    texts(model, requests)
    assert caches == [(5, longest)] if batch_size is None else [(3, longest + 8)]


def test_rows_on_a_cpu_are_limited() -> None:
    model = build("gpt2")
    texts_of_a_call = [Text((1, n), GenerationPlan(4, ())) for n in range(200)]
    assert {batch.num_rows for batch in model.text_engine._batches(texts_of_a_call)} == {64}


def test_buffers_of_a_batch_are_gone_when_the_next_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the collector of cycles, which may come any time later."""
    model = build("gpt2", eos_token_id=None)
    monkeypatch.setattr(model.text_engine, "max_tokens", 330)
    requests = [GenerateRequest(f"{n} " + "a " * 40, max_tokens=20) for n in range(4)]
    requests += [GenerateRequest(str(n), max_tokens=6) for n in range(20)]
    found: list[weakref.ref[RowsCache]] = []
    alive: list[int] = []
    write = RowsWriter.write
    view = RowsCache.view

    def counted(self: RowsWriter, *arguments: Any, **named: Any) -> Any:
        alive.append(sum(one() is not None for one in found))
        return write(self, *arguments, **named)

    def recorded(self: RowsCache, *arguments: Any) -> Any:
        found.append(weakref.ref(self))
        return view(self, *arguments)

    monkeypatch.setattr(RowsWriter, "write", counted)
    monkeypatch.setattr(RowsCache, "view", recorded)
    gc.collect()
    gc.disable()
    try:
        texts(model, requests)
    finally:
        gc.enable()
    assert len(alive) > 1
    assert set(alive) == {0}


@pytest.mark.parametrize("max_prefill", [1, 16, 60])
@pytest.mark.parametrize("header", ["", HEADER])
def test_prompts_are_read_in_parts_of_a_limited_size(
    max_prefill: int, header: str, rows_of_passes: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt's own part is read in one go, alone where it is longer; a header in as many as it takes."""
    model = build("llama", 5, eos_token_id=None)
    requests = [GenerateRequest(header + q + str(n), max_tokens=3) for n in range(3) for q in QUESTIONS]
    expected = alone(build("llama", eos_token_id=None), requests)
    rows_writer(model).forget()
    monkeypatch.setattr(rows_writer(model), "max_prefill", max_prefill)
    rows_of_passes.clear()
    assert texts(model, requests) == expected
    assert all(num_rows * columns <= max_prefill for num_rows, columns in rows_of_passes if num_rows > 1 < columns)
    if header:
        (kept,) = rows_writer(model).kept
        assert rows_of_passes.count((1, max_prefill)) >= len(kept.tokens) // max_prefill


def test_a_long_header_is_spread_over_few_rows_at_once(
    rows_of_passes: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While prompts are read, each row has a copy of the header, in one layer at a time."""
    model = build("gpt2", 8, eos_token_id=None)
    requests = [GenerateRequest(HEADER + OTHER_HEADER + str(n) * 2, max_tokens=2) for n in range(8)]
    expected = texts(model, requests)
    (header, *_) = rows_writer(model).kept
    monkeypatch.setattr(generation_rows, "_ATTENDED_TO_READ", 1)
    monkeypatch.setattr(rows_writer(model), "max_prefill", 3 * (len(header.tokens) + 4))
    rows_of_passes.clear()
    assert texts(model, requests) == expected
    assert {num_rows for num_rows, columns in rows_of_passes if columns > 1} <= {1, 2, 3}
    assert 3 in {num_rows for num_rows, columns in rows_of_passes if columns > 1}


def test_a_text_without_room_does_not_keep_the_others_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("gpt2", 8, eos_token_id=None)
    requests = [GenerateRequest(q + str(n), max_tokens=6) for n in range(4) for q in QUESTIONS]
    long = GenerateRequest("a " * 60, max_tokens=4)
    limit = len(model._encoder.prompt(long.prompt))
    expected = alone(model, requests)
    passes: list[int] = []
    small_forward(monkeypatch, lambda input_ids: input_ids.shape[1] < limit, passes)
    responses = model.generate([*requests, long])
    assert isinstance(responses[-1], RequestError)
    assert [getattr(one, "text", one) for one in responses[:-1]] == expected
    assert sum(num_rows == 8 for num_rows in passes) > 2


def test_without_any_room_every_text_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("gpt2", 4, eos_token_id=None)
    requests = [GenerateRequest(HEADER + q, max_tokens=6) for q in QUESTIONS]
    texts(model, requests)  # the header is checked
    assert rows_writer(model).kept
    passes: list[int] = []
    small_forward(monkeypatch, lambda input_ids: False, passes)
    responses = model.generate(requests)
    assert all("too little memory" in str(one) for one in responses if isinstance(one, RequestError))
    assert [isinstance(one, RequestError) for one in responses] == [True] * len(requests)
    assert not rows_writer(model).kept  # it is let go of, should that be what is needed


def test_no_memory_for_the_check_of_headers_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is not found to disagree with itself by a device that is full."""
    model: HuggingFaceModel = build.__wrapped__("gpt2")
    requests = [GenerateRequest(HEADER + q, max_tokens=3) for q in QUESTIONS]
    with monkeypatch.context() as patch:
        small_forward(patch, lambda input_ids: False, [])
        assert all("too little memory" in str(one) for one in model.generate(requests))
    assert rows_writer(model).shares_headers
    assert texts(model, requests) == texts(build("gpt2"), requests)
    assert rows_writer(model).kept


def test_a_second_header_is_kept_only_where_there_is_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("llama", eos_token_id=None)
    writer = rows_writer(model)
    batches = [[GenerateRequest(header + q, max_tokens=1) for q in QUESTIONS] for header in (HEADER, OTHER_HEADER)]
    sizes = []
    for batch in batches:
        writer.forget()
        texts(model, batch)
        sizes.append(writer.kept[0].num_bytes)
    for limit, num_kept in ((sum(sizes), 2), (sum(sizes) - 1, 1)):
        writer.forget()
        monkeypatch.setattr(writer, "_max_kept_bytes", limit)
        for batch in batches:
            texts(model, batch)
        assert len(writer.kept) == num_kept
