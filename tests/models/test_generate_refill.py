"""Texts that take the places of those that ended: what they say, in which order, from how much work, whose seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.huggingface.generation import RowsWriter, TextEngine
from pytest_llmeval.models.huggingface.generation_rows import Rows, RowsCache
from pytest_llmeval.models.huggingface.generation_writer import Seconds
from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from pytest_llmeval.types import GenerateRequest, GenerateResponse
from tests.models.support import load
from tests.models.writing_models import HEADER, OTHER_HEADER, QUESTIONS, alone, build, rows_writer, texts
from tests.properties import examples
from tests.tiny_models import make_checkpoint

LIMITS = (1, 9, 3, 30, 3, 17, 2, 12, 5, 8, 21, 4)


def endless(model_type: str, batch_size: int | None) -> HuggingFaceModel:
    """A model that writes as many tokens as it may."""
    return build(model_type, batch_size, eos_token_id=None)


def asked(limits: Sequence[int] = LIMITS, header: str = "") -> list[GenerateRequest]:
    """Different prompts of several lengths, with these limits."""
    return [GenerateRequest(f"{header}{n}: {QUESTIONS[n % 5]}", max_tokens=limit) for n, limit in enumerate(limits)]


def num_prompt_tokens(model: HuggingFaceModel, requests: Sequence[GenerateRequest]) -> int:
    """Tokens of all prompts."""
    return sum(len(model._encoder.prompt(request.prompt)) for request in requests)


@settings(max_examples=examples(14), deadline=None)
@given(
    chosen=st.lists(
        st.builds(
            GenerateRequest,
            st.tuples(st.sampled_from(["", HEADER]), st.sampled_from("123456789"), st.sampled_from(QUESTIONS)).map(
                "".join
            ),
            max_tokens=st.one_of(st.integers(1, 8), st.integers(1, 30)),
            stop=st.sampled_from([(), ("e",), ("\n", "the")]),
            temperature=st.sampled_from([0.0, 0.5, 2.0]),
            seed=st.integers(0, 2),
        ),
        min_size=1,
        max_size=10,
    ),
    model_type=st.sampled_from(["gpt2", "llama", "mistral", "gemma3_text", "llama4_text"]),
    batch_size=st.integers(1, 4),
)
def test_any_number_of_rows_writes_what_single_requests_write(
    chosen: list[GenerateRequest], model_type: str, batch_size: int
) -> None:
    """Windows of 8 tokens in mistral, and in every other layer of gemma3; chunks of 8 in one of llama4."""
    assert texts(build(model_type, batch_size), chosen) == alone(build(model_type), chosen)


@pytest.mark.parametrize(
    "model_type",
    [
        "gpt2",
        "llama",
        "mistral",
        pytest.param("llama4_text", marks=pytest.mark.slow),
        pytest.param("gptj", marks=pytest.mark.slow),
        pytest.param("deepseek_v3", marks=pytest.mark.slow),
    ],
)
def test_columns_move_back_and_rows_go_on(model_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows write twelve texts, many more tokens than they have columns."""
    moves = []
    move_back = RowsCache.move_back

    def counted(self: RowsCache, rows: slice, columns: slice, num_columns: int) -> None:
        moves.append(num_columns)
        move_back(self, rows, columns, num_columns)

    requests = asked(header=HEADER)
    expected = alone(endless(model_type, None), requests)
    monkeypatch.setattr(RowsCache, "move_back", counted)
    assert texts(endless(model_type, 2), requests) == expected
    assert moves
    assert min(moves) > 0


def test_rows_are_refilled_until_none_waits(rows_of_passes: list[tuple[int, int]]) -> None:
    requests = asked()
    texts(endless("llama", 3), requests)
    written = [rows for rows, columns in rows_of_passes if columns == 1]
    first_with_fewer = next(i for i, rows in enumerate(written) if rows < 3)
    assert set(written[:first_with_fewer]) == {3}
    assert written[first_with_fewer:] == sorted(written[first_with_fewer:], reverse=True)
    assert sum(written) == sum(limit - 1 for limit in LIMITS)  # a prompt's pass yields the first token


def test_an_eighth_of_the_rows_is_refilled_at_once(rows_of_passes: list[tuple[int, int]]) -> None:
    texts(endless("gpt2", 16), asked([2, 3, 4, 5] * 8))
    read = [rows for rows, columns in rows_of_passes if columns > 1]
    assert read[0] == 16
    assert len(read) > 2
    assert min(read[:-1]) >= 2


def test_who_waits_longest_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest texts first, prompt and limit together; a text that goes on for long keeps nobody waiting."""
    begun: list[int] = []
    add = Rows.add

    def recorded(self: Rows, prompts: Sequence[tuple[int, ...]]) -> torch.Tensor:
        begun.extend(sorted(map(len, prompts), reverse=True))
        return add(self, prompts)

    monkeypatch.setattr(Rows, "add", recorded)
    model = endless("gpt2", 2)
    requests = [GenerateRequest("a " * n, max_tokens=3) for n in (7, 3, 9, 5, 8, 2)] + [
        GenerateRequest("a", max_tokens=60)
    ]
    texts(model, requests)
    lengths = [len(model._encoder.prompt(request.prompt)) for request in requests]
    assert sorted(begun[:2]) == sorted([lengths[6], max(lengths)])
    assert begun[2:] == sorted(lengths[:6], reverse=True)[1:]


@pytest.mark.parametrize("num_short", [1, 40])
def test_long_prompts_that_come_late_find_room(num_short: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that might have been the longest end soon: at once, or after columns have moved back for them."""
    letters = tuple("abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    requests = [GenerateRequest(f"{n}", max_tokens=60, stop=letters) for n in range(num_short)]
    requests += [GenerateRequest(f"{n} " + "a b " * 12, max_tokens=5 + n) for n in range(3)]
    model = endless("gpt2", 1)
    order: list[int] = []
    add = Rows.add

    def recorded(self: Rows, prompts: Sequence[tuple[int, ...]]) -> torch.Tensor:
        order.extend(map(len, prompts))
        return add(self, prompts)

    expected = alone(model, requests)
    monkeypatch.setattr(Rows, "add", recorded)
    assert texts(model, requests) == expected
    assert max(order[:num_short]) < min(order[num_short:])


def test_newcomers_are_in_order_of_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one is the longest, up to whose beginning the other rows are cleared; those read at once are alike."""
    added: list[list[int]] = []
    add = Rows.add

    def recorded(self: Rows, prompts: Sequence[tuple[int, ...]]) -> torch.Tensor:
        added.append(list(map(len, prompts)))
        return add(self, prompts)

    monkeypatch.setattr(Rows, "add", recorded)
    texts(endless("gpt2", 6), asked())
    assert len(set(added[0])) > 2
    assert added == [sorted(lengths) for lengths in added]


def test_the_last_that_wait_begin_in_the_first_free_rows(rows_of_passes: list[tuple[int, int]]) -> None:
    """They are fewer than the rows that are refilled at once while many wait."""
    requests = [GenerateRequest(f"{n + 10}!", max_tokens=limit) for n, limit in enumerate([20] * 15 + [6, 1])]
    texts(endless("gpt2", 16), requests)
    first, second = (place for place, (_, columns) in enumerate(rows_of_passes) if columns > 1)
    assert rows_of_passes[second][0] == 1
    assert {rows for rows, _ in rows_of_passes[first:second]} == {16}


def test_a_header_is_read_once_for_all_that_come_later(rows_of_passes: list[tuple[int, int]]) -> None:
    model = endless("gpt2", 2)
    requests = asked(header=HEADER)
    texts(model, requests)
    rows_writer(model).forget()
    rows_of_passes.clear()
    found = model.generate(requests)
    (header,) = rows_writer(model).kept
    own = num_prompt_tokens(model, requests) - len(requests) * len(header.tokens)
    num_written = sum(one.num_tokens - 1 for one in found if isinstance(one, GenerateResponse))
    num_read = sum(rows * columns for rows, columns in rows_of_passes)
    padding = num_read - len(header.tokens) - own - num_written
    assert 0 <= padding <= 20  # of two rows that begin together


def test_without_refill_rows_begin_together(rows_of_passes: list[tuple[int, int]]) -> None:
    model = endless("llama", 4)
    refilled = texts(model, asked())
    num_refilled = len(rows_of_passes)
    model.text_engine = TextEngine(model._runner, model.engine.attention, refill=False)
    rows_of_passes.clear()
    assert texts(model, asked()) == refilled
    read = [rows for rows, columns in rows_of_passes if columns > 1]
    assert read == [4, 4, 4]
    assert len(rows_of_passes) > num_refilled
    del model.text_engine


def test_short_texts_do_not_keep_to_the_rows_of_long_ones(
    rows_of_passes: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory for three long texts is memory for more short ones."""
    model = endless("gpt2", None)
    monkeypatch.setattr(model.text_engine, "max_tokens", 330)
    long = [GenerateRequest(f"{n} " + "a " * 40, max_tokens=20) for n in range(4)]
    requests = [*long, *(GenerateRequest(str(n), max_tokens=6) for n in range(20))]
    assert texts(model, requests) == alone(endless("gpt2", 1), requests)
    assert max(rows for rows, _ in rows_of_passes) >= 8


@pytest.mark.parametrize("fails_after", [0, 12])
def test_out_of_memory_halves_the_rows_and_keeps_what_is_written(
    fails_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = endless("gpt2", 8)
    requests = asked(LIMITS * 2)
    expected = alone(endless("gpt2", None), requests)
    forward: Callable[..., torch.Tensor] = RowsWriter.forward
    passes: list[int] = []

    def small(self: RowsWriter, input_ids: torch.Tensor, *arguments: Any) -> torch.Tensor:
        passes.append(input_ids.shape[0])
        if input_ids.shape[0] > 2 and len(passes) > fails_after:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, input_ids, *arguments)

    monkeypatch.setattr(RowsWriter, "forward", small)
    told: list[int] = []
    model.on_progress = lambda done, total: told.append(done)
    assert texts(model, requests) == expected
    model.on_progress = None
    assert told == list(range(1, len(requests) + 1))
    assert sum(rows > 2 for rows in passes[fails_after:]) == 2  # eight rows, four


def test_a_request_without_room_alone_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = endless("gpt2", 4)
    requests = asked()
    requests[5] = GenerateRequest("a " * 60, max_tokens=4)
    limit = len(model._encoder.prompt(requests[5].prompt))
    forward: Callable[..., torch.Tensor] = RowsWriter.forward

    def small(self: RowsWriter, input_ids: torch.Tensor, *arguments: Any) -> torch.Tensor:
        if input_ids.shape[1] >= limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, input_ids, *arguments)

    monkeypatch.setattr(RowsWriter, "forward", small)
    found = model.generate(requests)
    assert [isinstance(one, RequestError) for one in found] == [i == 5 for i in range(len(requests))]
    assert "too little memory" in str(found[5])


@pytest.mark.parametrize("batch_size", [1, 3])
def test_what_takes_the_place_of_a_failed_row_is_right(batch_size: int, tmp_path: Path) -> None:
    """Its keys and values are no numbers, and nothing of them may stay."""
    model = load(make_checkpoint(tmp_path, "gpt2"), batch_size=batch_size)
    with torch.no_grad():
        model.model.transformer.wte.weight[model.tokenizer.encode("?")[0]] = math.nan
        model.model.lm_head.weight = torch.nn.Parameter(model.model.lm_head.weight.nan_to_num(0.0).clone())
    requests = [GenerateRequest(OTHER_HEADER + f"{n}{q}", max_tokens=3 + n) for n in range(2) for q in QUESTIONS]
    found = model.generate(requests)
    assert [isinstance(one, RequestError) for one in found] == ["?" in str(request.prompt) for request in requests]
    right = [request for request in requests if "?" not in str(request.prompt)]
    assert [one.text for one in found if isinstance(one, GenerateResponse)] == alone(model, right)


def test_seconds_are_shared_by_those_who_take_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    seconds = Seconds()

    def pass_by(passed_s: float) -> None:
        now[0] += passed_s

    pass_by(4.0)  # a header and two prompts
    seconds.write()
    seconds.read([0, 1])
    pass_by(10.0)
    assert seconds.end(0) == (7.0, 2.0)
    pass_by(3.0)
    seconds.write()
    pass_by(6.0)  # of three others that come now
    seconds.read([2, 3, 4])
    pass_by(8.0)
    assert seconds.end(1) == (2.0 + 5.0 + 3.0 + 2.0, 2.0)
    assert seconds.end(2) == (2.0 + 2.0, 2.0)
    pass_by(2.0)
    assert [seconds.end(row) for row in (3, 4)] == [(5.0, 2.0), (5.0, 2.0)]


@pytest.mark.parametrize("batch_size", [None, 2])
def test_the_seconds_of_all_are_those_of_the_call(batch_size: int | None) -> None:
    model = endless("llama", batch_size)
    started = time.perf_counter()
    found = model.generate(asked(header=HEADER))
    passed_s = time.perf_counter() - started
    responses = [one for one in found if isinstance(one, GenerateResponse)]
    assert len(responses) == len(LIMITS)
    assert 0 < math.fsum(one.seconds for one in responses) <= passed_s
    for one, limit in zip(responses, LIMITS, strict=True):
        assert one.num_tokens == limit
        assert one.prefill_seconds is not None
        assert 0 < one.prefill_seconds <= one.seconds
