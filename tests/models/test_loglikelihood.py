"""Log-likelihoods of the transformers backend, against a loop that scores one token at a time."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmeval.errors import ContextLengthError, RequestError
from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.types import LoglikelihoodRequest, LoglikelihoodResponse
from tests.models.support import load, naive_loglikelihood
from tests.properties import examples
from tests.tiny_models import make_checkpoint

REQUESTS = [
    LoglikelihoodRequest("The capital of France is", " Paris"),
    LoglikelihoodRequest("The capital of France is", " Rome, and of Japan Tokyo."),
    LoglikelihoodRequest("Question: is that so? Answer:", " yes"),
    LoglikelihoodRequest("Question: is that so? Answer:", " no"),
    LoglikelihoodRequest("Question: is that so?\nAnswer: ", "no"),
    LoglikelihoodRequest("", "One, two"),
    LoglikelihoodRequest("x", "é\u4e16\U0001f600"),
    LoglikelihoodRequest("The capital of France is", " Paris"),
    LoglikelihoodRequest("A", " B" * 40),
]


def scored(response: object) -> LoglikelihoodResponse:
    """The response; fails on an error."""
    assert isinstance(response, LoglikelihoodResponse), response
    return response


def naive(model: HuggingFaceModel, request: LoglikelihoodRequest) -> tuple[float, bool, int, int]:
    """The reference: encoded by ``Encoder`` (tested by itself), scored by the loop."""
    pair = model._encoder.pair(request.context, request.continuation)
    return (*naive_loglikelihood(model, pair.context, pair.continuation), len(pair.continuation), len(pair.context))


def test_equals_scoring_one_token_at_a_time(any_model: HuggingFaceModel) -> None:
    for request, response in zip(REQUESTS, any_model.loglikelihood(REQUESTS), strict=True):
        total, is_greedy, num_tokens, num_context_tokens = naive(any_model, request)
        assert scored(response).loglikelihood == pytest.approx(total, abs=1e-5)
        assert scored(response).is_greedy == is_greedy
        assert scored(response).num_tokens == num_tokens
        assert scored(response).num_context_tokens == num_context_tokens


def test_greedy_continuation_is_greedy(gpt2: HuggingFaceModel) -> None:
    """Of a context's continuations by one character, exactly the likeliest token is greedy."""
    seen = []
    for context in "abcdefghijklmnopqrstuvwxyz":
        logits = gpt2.model(torch.tensor([gpt2.tokenizer.encode(context)])).logits[0, -1]
        best, worst = (gpt2.tokenizer.decode([int(token)]) for token in (logits.argmax(), logits.argmin()))
        if all(gpt2.tokenizer.encode(context + c)[:1] == gpt2.tokenizer.encode(context) for c in (best, worst)):
            responses = [gpt2.loglikelihood(context, continuation) for continuation in (best, worst)]
            seen.append(tuple((r.is_greedy, r.num_tokens) for r in responses))
    assert ((True, 1), (False, 1)) in seen
    assert ((False, 1), (True, 1)) not in seen


_TEXT = st.text(alphabet="ab .\nThePQ?é", max_size=30)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.tuples(_TEXT, _TEXT.filter(bool)), min_size=1, max_size=7),
    batch_size=st.none() | st.integers(1, 4),
)
def test_batching_does_not_change_results(
    gpt2: HuggingFaceModel, texts: list[tuple[str, str]], batch_size: int | None
) -> None:
    batched = HuggingFaceModel(gpt2._spec, ModelSettings(device="cpu", batch_size=batch_size), gpt2._loaded)
    requests = [LoglikelihoodRequest(context, continuation) for context, continuation in texts]
    for request, together in zip(requests, batched.loglikelihood(requests), strict=True):
        (alone,) = batched.loglikelihood([request])
        if isinstance(alone, RequestError):
            assert str(together) == str(alone)
        else:
            assert scored(together).loglikelihood == pytest.approx(alone.loglikelihood, abs=1e-5)
            assert scored(together).num_tokens == alone.num_tokens


def with_engine(model: HuggingFaceModel, engine: str) -> HuggingFaceModel:
    """The same weights, scored by ``engine``."""
    return HuggingFaceModel(model._spec, ModelSettings(device="cpu", engine=engine), model._loaded)


def test_small_batches_of_tokens_give_the_same(any_model: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = with_engine(any_model, "plain")
    together = [scored(r).loglikelihood for r in plain.loglikelihood(REQUESTS)]
    monkeypatch.setattr(plain.engine, "_plain_tokens", 1)
    alone = [scored(r).loglikelihood for r in plain.loglikelihood(REQUESTS)]
    assert together == pytest.approx(alone, abs=1e-5)


def test_equal_inputs_are_computed_once(gpt2: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    forward = gpt2.model.forward

    def counting(**inputs: torch.Tensor) -> object:
        rows.append(len(inputs["input_ids"]))
        return forward(**inputs)

    monkeypatch.setattr(gpt2.model, "forward", counting)
    choices = [LoglikelihoodRequest("Question: which one?\nAnswer:", letter) for letter in "ABCD"]
    responses = [scored(r).loglikelihood for r in gpt2.loglikelihood([*choices, *choices])]
    assert sum(rows) == 1
    assert responses[:4] == responses[4:]
    assert len(set(responses)) == 4


def test_without_logits_to_keep(gpt2: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = with_engine(gpt2, "plain")
    kept = [scored(r).loglikelihood for r in plain.loglikelihood(REQUESTS)]
    runner = plain.engine._runner
    taken = {name: one for name, one in runner.parameters.items() if name != "logits_to_keep"}
    monkeypatch.setattr(runner, "parameters", taken)
    assert [scored(r).loglikelihood for r in plain.loglikelihood(REQUESTS)] == pytest.approx(kept, abs=1e-6)


def test_no_requests(gpt2: HuggingFaceModel) -> None:
    assert gpt2.loglikelihood([]) == []


def test_longest_request_that_fits(gpt2: HuggingFaceModel) -> None:
    """128 positions hold 129 tokens, since the last is predicted and never read; lm-eval's rule."""
    fits, too_long = gpt2.loglikelihood([LoglikelihoodRequest("!" * 128, "!"), LoglikelihoodRequest("!" * 129, "!")])
    assert scored(fits).num_context_tokens == 128
    assert isinstance(too_long, ContextLengthError)
    assert (too_long.num_tokens, too_long.max_tokens) == (129, 128)
    assert "129 tokens" in str(too_long)
    assert "1 too many" in str(too_long)


def test_bad_requests_leave_their_neighbours_alone(gpt2: HuggingFaceModel) -> None:
    good = LoglikelihoodRequest("The capital of France is", " Paris")
    responses = gpt2.loglikelihood(
        [LoglikelihoodRequest("a", ""), good, LoglikelihoodRequest("a" * 999, "b"), LoglikelihoodRequest("a", "\ud800")]
    )
    assert [type(r) for r in responses] == [RequestError, LoglikelihoodResponse, ContextLengthError, RequestError]
    assert "empty" in str(responses[0])
    assert "surrogate (U+D800)" in str(responses[3])
    assert scored(responses[1]).loglikelihood == pytest.approx(gpt2.loglikelihood(good.context, " Paris").loglikelihood)


def test_short_form_raises(gpt2: HuggingFaceModel) -> None:
    with pytest.raises(RequestError, match="empty"):
        gpt2.loglikelihood("a", "")


def test_seconds_are_shared(gpt2: HuggingFaceModel) -> None:
    seconds = [scored(r).seconds for r in gpt2.loglikelihood(REQUESTS)]
    assert all(s > 0 for s in seconds)


def test_not_a_number_is_an_error(tmp_path: Path) -> None:
    model = load(make_checkpoint(tmp_path, "gpt2"))
    with torch.no_grad():
        model.model.transformer.wte.weight[model.tokenizer.encode("?")[0]] = math.nan
        model.model.lm_head.weight = torch.nn.Parameter(model.model.lm_head.weight.nan_to_num(0.0).clone())
    responses = model.loglikelihood([LoglikelihoodRequest("a?", "b"), LoglikelihoodRequest("a!", "b")])
    assert isinstance(responses[0], RequestError)
    assert "not finite" in str(responses[0])
    assert isinstance(responses[1], LoglikelihoodResponse)


def test_out_of_memory_halves_the_batch(gpt2: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch) -> None:
    gpt2 = with_engine(gpt2, "plain")
    expected = [scored(r).loglikelihood for r in gpt2.loglikelihood(REQUESTS)]
    forward = gpt2.model.forward

    def small(**inputs: torch.Tensor) -> object:
        if len(inputs["input_ids"]) > 2:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return forward(**inputs)

    monkeypatch.setattr(gpt2.model, "forward", small)
    assert [scored(r).loglikelihood for r in gpt2.loglikelihood(REQUESTS)] == pytest.approx(expected, abs=1e-5)


def test_out_of_memory_for_one_request_is_its_own(gpt2: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch) -> None:
    gpt2 = with_engine(gpt2, "plain")
    forward = gpt2.model.forward

    def short(**inputs: torch.Tensor) -> object:
        if inputs["input_ids"].shape[1] > 20:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return forward(**inputs)

    monkeypatch.setattr(gpt2.model, "forward", short)
    long, fits = gpt2.loglikelihood([LoglikelihoodRequest("!" * 50, "!"), LoglikelihoodRequest("!", "?")])
    assert isinstance(long, RequestError)
    assert "too little memory" in str(long)
    assert isinstance(fits, LoglikelihoodResponse)


def test_other_exceptions_come_through(gpt2: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**inputs: torch.Tensor) -> object:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(gpt2.model, "forward", broken)
    with pytest.raises(ZeroDivisionError):
        gpt2.loglikelihood(REQUESTS)
