"""Texts do not depend on what else is in the batch: architectures, headers, settings, memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.huggingface import generation_rows
from pytest_llmeval.models.huggingface.generation import RowsWriter
from pytest_llmeval.models.huggingface.loading import quiet
from pytest_llmeval.types import GenerateRequest, GenerateResponse
from tests.models.support import load, naive_greedy
from tests.models.writing_models import (
    CONFIGS,
    HEADER,
    IN_LOOP,
    OTHER_HEADER,
    QUESTIONS,
    SHARING,
    alone,
    build,
    rows_writer,
    texts,
)
from tests.properties import examples
from tests.tiny_models import make_checkpoint

_LIKE_ANOTHER = {"qwen2", "bloom"}
"""What attends as llama does, and what has no loop as mamba has none."""


@pytest.mark.parametrize(
    ("model_type", "batch_size"),
    [
        *((name, None) for name in sorted(CONFIGS.keys() - _LIKE_ANOTHER)),
        *(pytest.param(name, None, marks=pytest.mark.slow) for name in sorted(_LIKE_ANOTHER)),
        *(pytest.param(name, 3, marks=() if name == "gpt2" else pytest.mark.slow) for name in sorted(CONFIGS)),
    ],
)
def test_greedy_equals_decoding_by_hand(model_type: str, batch_size: int | None) -> None:
    model = build(model_type, batch_size)
    requests = [GenerateRequest(HEADER + q, max_tokens=4 + 5 * i) for i, q in enumerate(QUESTIONS)]
    requests += [GenerateRequest(q, max_tokens=7) for q in QUESTIONS]
    expected = []
    for request in requests:
        with quiet():
            tokens = naive_greedy(model, model._encoder.prompt(request.prompt), request.max_tokens)
        expected.append(model.tokenizer.decode(tokens, skip_special_tokens=True))
    assert texts(model, requests) == expected
    assert texts(model, requests) == expected  # with the header that is kept, where there is one


def test_dynamic_angles_do_not_follow_what_was_written_before() -> None:
    """Beyond the switch transformers keeps the angles of the longest text so far, for shorter ones too."""
    rotary = {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}}
    settings = {**rotary, "max_position_embeddings": 60}
    requests = [GenerateRequest("So it goes on. " * n, max_tokens=8) for n in (14, 9, 2)]
    model = build.__wrapped__("llama", None, **settings)
    model.max_length = 256
    together = texts(model, requests)
    fresh = []
    for request in requests:
        one = build.__wrapped__("llama", None, **settings)
        one.max_length = 256
        fresh += texts(one, [request])
    assert together == fresh


@pytest.mark.parametrize("model_type", sorted(CONFIGS))
def test_who_writes(model_type: str) -> None:
    """Headers are shared where attention is full, and where the class lets its attention be replaced."""
    model = build(model_type)
    texts(model, [GenerateRequest(HEADER + q, max_tokens=2) for q in QUESTIONS])
    writer = model.text_engine.rows_writer
    assert (writer is not None) == (model_type in IN_LOOP)
    if writer is not None:
        assert writer.shares_headers == (model_type in SHARING)
        assert bool(writer.kept) == (model_type in SHARING)


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "mistral", "bloom", "mamba"])
def test_settings_may_differ_in_a_batch(model_type: str) -> None:
    model = build(model_type)
    whole = model.generate(HEADER + QUESTIONS[0], max_tokens=12, temperature=0.8, seed=3).text
    requests = [
        GenerateRequest(HEADER + question, max_tokens=n, stop=stop, temperature=temperature, seed=seed)
        for question in QUESTIONS[:3]
        for n, stop, temperature, seed in [
            (12, (), 0.0, 0),
            (12, (), 0.8, 3),
            (12, (whole[3:5],), 0.8, 3),
            (5, ("e", "t"), 1.5, 4),
        ]
    ]
    together = texts(model, requests)
    assert together == alone(model, requests)
    assert together[1] == whole
    assert together[2] == whole[: whole.index(whole[3:5])]


@settings(max_examples=examples(15), deadline=None)
@given(
    chosen=st.lists(
        st.builds(
            GenerateRequest,
            st.tuples(
                st.sampled_from(["", HEADER, OTHER_HEADER, HEADER + OTHER_HEADER]), st.sampled_from(QUESTIONS)
            ).map("".join),
            max_tokens=st.integers(1, 12),
            stop=st.sampled_from([(), ("e",), ("\n", "the")]),
            temperature=st.sampled_from([0.0, 0.5, 2.0]),
            seed=st.integers(0, 2),
        ),
        min_size=1,
        max_size=10,
    ),
    model_type=st.sampled_from(["gpt2", "llama", "gemma3_text"]),
    batch_size=st.sampled_from([None, 2, 5]),
)
def test_any_batch_equals_single_requests(
    chosen: list[GenerateRequest], model_type: str, batch_size: int | None
) -> None:
    assert texts(build(model_type, batch_size), chosen) == alone(build(model_type), chosen)


def test_rows_leave_when_they_are_done(rows_of_passes: list[tuple[int, int]]) -> None:
    limits = [1, 9, 3, 6, 3]
    texts(build("bloom"), [])  # a model without a loop records nothing
    texts(
        build("llama", eos_token_id=None),
        [GenerateRequest(q, max_tokens=n) for q, n in zip(QUESTIONS, limits, strict=True)],
    )
    assert [rows for rows, columns in rows_of_passes if columns == 1] == [4, 4, 2, 2, 2, 1, 1, 1]


def test_a_header_is_read_once(rows_of_passes: list[tuple[int, int]]) -> None:
    model = build("gpt2")
    writer = rows_writer(model)
    requests = [GenerateRequest(HEADER + q, max_tokens=1) for q in QUESTIONS]
    texts(model, requests)  # the first time headers are checked
    writer.forget()
    rows_of_passes.clear()
    num_tokens = sum(len(model._encoder.prompt(r.prompt)) for r in requests)
    first = texts(model, requests)
    (header,) = (header.tokens for header in writer.kept)
    assert (1, len(header)) in rows_of_passes
    assert sum(rows * columns for rows, columns in rows_of_passes) < num_tokens
    rows_of_passes.clear()
    assert texts(model, requests) == first
    assert texts(model, requests[2:3]) == first[2:3]
    assert max(columns for _, columns in rows_of_passes) < len(header)


def test_two_headers_are_kept() -> None:
    model = build("llama")
    writer = rows_writer(model)
    writer.forget()
    for header in (HEADER, OTHER_HEADER, "0 1 2 3 4 5 6 7 8 9" * 5):
        texts(model, [GenerateRequest(header + q, max_tokens=1) for q in QUESTIONS])
    kept = [model.tokenizer.decode(header.tokens) for header in writer.kept]
    assert [text[:10] for text in kept] == ["0 1 2 3 4 ", OTHER_HEADER[:10]]


def test_kept_headers_are_not_mistaken_for_each_other() -> None:
    """Two of one length, and a prompt that begins with each; then longer and shorter ones."""
    model = build("gpt2")
    rows_writer(model).forget()
    first, second = (model.tokenizer.decode(model.tokenizer.encode(h * 2)[:40]) for h in (HEADER, OTHER_HEADER))
    requests = [[GenerateRequest(header + q, max_tokens=6) for q in QUESTIONS] for header in (first, second)]
    expected = [alone(model, part) for part in requests]
    for part in requests:
        texts(model, part)
    assert len(rows_writer(model).kept) == 2
    assert texts(model, [requests[0][1], requests[1][1]]) == [expected[0][1], expected[1][1]]
    for header in (first[:-20], first, first + second, second[:-15], second + first):
        batch = [GenerateRequest(header + q, max_tokens=6) for q in QUESTIONS]
        together = texts(model, batch)
        assert texts(model, batch) == together
        assert together == alone(model, batch)


def test_a_prompt_that_is_a_kept_header_has_a_token_of_its_own() -> None:
    model = build("gpt2")
    texts(model, [GenerateRequest(HEADER + q, max_tokens=2) for q in QUESTIONS])
    (kept, *_) = rows_writer(model).kept
    header = model.tokenizer.decode(kept.tokens)
    assert model._encoder.prompt(header) == kept.tokens
    requests = [GenerateRequest(header, max_tokens=6), GenerateRequest(header[:-9], max_tokens=6)]
    assert texts(model, requests[:1]) + texts(model, requests[1:]) == alone(model, requests)


def test_a_model_that_disagrees_with_itself_shares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attention that forgets the header, as a class might whose code does something else than it says."""
    attend = generation_rows.attend

    def forgetful(
        module: Any, query: Any, key: Any, value: Any, mask: Any, *, shared_header: Any, **kwargs: Any
    ) -> Any:
        header = shared_header
        empty = generation_rows.Header(
            (), tuple(k[:, :, :0] for k in header.keys), tuple(v[:, :, :0] for v in header.values)
        )
        mask = mask[..., -key.shape[2] :] if mask is not None else None
        return attend(module, query, key, value, mask, shared_header=empty, **kwargs)

    expected = alone(build("qwen2"), [GenerateRequest(HEADER + q, max_tokens=5) for q in QUESTIONS])
    monkeypatch.setattr(generation_rows, "attend", forgetful)
    model = build("qwen2", rms_norm_eps=1e-6)  # another one, which has checked nothing yet
    assert texts(model, [GenerateRequest(HEADER + q, max_tokens=5) for q in QUESTIONS]) == expected
    assert not rows_writer(model).shares_headers


def test_rotary_angles_do_not_follow_a_neighbour() -> None:
    """Beyond 96 positions the angles of all positions change, for those rows that are so long and no others."""
    model = build("long_rope")
    requests = [GenerateRequest(HEADER + q, max_tokens=n) for q in QUESTIONS for n in (3, 60)]
    assert any(len(model._encoder.prompt(r.prompt)) + r.max_tokens > 96 for r in requests)
    assert any(len(model._encoder.prompt(r.prompt)) + r.max_tokens <= 96 for r in requests)
    assert texts(model, requests) == alone(model, requests)


def test_out_of_memory_halves_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("gpt2")
    requests = [GenerateRequest(HEADER + q, max_tokens=5) for q in QUESTIONS]
    expected = texts(model, requests)
    forward: Callable[..., torch.Tensor] = RowsWriter.forward

    def small(self: RowsWriter, input_ids: torch.Tensor, *arguments: Any) -> torch.Tensor:
        if input_ids.shape[0] > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, input_ids, *arguments)

    monkeypatch.setattr(RowsWriter, "forward", small)
    assert texts(model, requests) == expected
    assert model.model.config._attn_implementation == "sdpa"


def test_progress_is_reported() -> None:
    model = build("llama", eos_token_id=None)
    told: list[tuple[int, int]] = []
    model.on_progress = lambda done, total: told.append((done, total))
    requests = [GenerateRequest(q, max_tokens=n) for q, n in zip(QUESTIONS, (2, 9, 4, 6, 4), strict=True)]
    model.generate([*requests, requests[0], GenerateRequest("a", max_tokens=0)])
    model.on_progress = None
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert {total for _, total in told} == {7}
    assert told[0][0] == 3  # the one that is refused, and the first to end, twice
    assert told[-1][0] == 7


def test_logits_that_are_no_numbers_fail_their_row_alone(tmp_path: Path) -> None:
    model = load(make_checkpoint(tmp_path, "gpt2"))
    with torch.no_grad():
        model.model.transformer.wte.weight[model.tokenizer.encode("?")[0]] = math.nan
        model.model.lm_head.weight = torch.nn.Parameter(model.model.lm_head.weight.nan_to_num(0.0).clone())
    requests = [GenerateRequest(OTHER_HEADER + q, max_tokens=3) for q in QUESTIONS]
    together = model.generate(requests)
    assert rows_writer(model).kept
    for request, response in zip(requests, together, strict=True):
        assert isinstance(response, RequestError) == ("?" in str(request.prompt))
    assert [r.text for r in together if isinstance(r, GenerateResponse)] == alone(
        model, [r for r in requests if "?" not in str(r.prompt)]
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(tmp_path: Path, dtype: str) -> None:
    """The first token is the likeliest by the whole prompt's logits, or next to it."""
    model = load(make_checkpoint(tmp_path, "llama"), dtype=dtype)
    requests = [GenerateRequest(HEADER + q, max_tokens=1) for q in QUESTIONS]
    for request, text in zip(requests, texts(model, requests), strict=True):
        with torch.no_grad():
            logits = model.model(torch.tensor([model._encoder.prompt(request.prompt)])).logits[0, -1].float()
        likely = [model.tokenizer.decode([token], skip_special_tokens=True) for token in logits.topk(3).indices]
        assert text in likely
    assert rows_writer(model).shares_headers
