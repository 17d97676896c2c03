"""Windows of a text, and the sums over them: pure, without a model."""

from __future__ import annotations

import contextlib
import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.inference.dispatch import ask as ask_model
from pytest_llmeval.models.base import Backend, Failed
from pytest_llmeval.models.encoding import EncodedPair, rolling_windows
from pytest_llmeval.models.huggingface.batches import score_texts
from pytest_llmeval.types import (
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    ModelIdentity,
    Request,
)

PREFIX = 1000
CASES = st.integers(1, 12).flatmap(
    lambda length: st.tuples(st.integers(0, 60), st.just(length), st.none() | st.integers(1, length))
)
"""Number of tokens, the model's length, and a stride that fits."""


def windows(num_tokens: int, max_length: int, stride: int | None) -> list[EncodedPair]:
    tokens = tuple(range(num_tokens))
    return list(rolling_windows(tokens, prefix_token=PREFIX, max_length=max_length, stride=stride))


@given(CASES)
def test_every_token_is_scored_once_after_the_tokens_before_it(case: tuple[int, int, int | None]) -> None:
    num_tokens, max_length, _ = case
    found = windows(*case)
    assert [token for pair in found for token in pair.continuation] == list(range(num_tokens))
    fed = (PREFIX, *range(num_tokens))
    for pair in found:
        start = fed.index(pair.continuation[0])
        assert pair.context == fed[start - len(pair.context) : start]
        assert len(pair.context) >= 1
        assert len(pair.context) + len(pair.continuation) - 1 <= max_length


@given(CASES)
def test_after_the_first_window_every_window_is_full(case: tuple[int, int, int | None]) -> None:
    num_tokens, max_length, stride = case
    first, *others = windows(*case) or [EncodedPair((), ())]
    assert len(first.continuation) == min(num_tokens, max_length)
    for pair in others:
        assert len(pair.context) + len(pair.continuation) - 1 == max_length
        assert len(pair.context) >= max_length - (stride or max_length) + 1


def guide_contexts(num_tokens: int, max_length: int, stride: int) -> dict[int, int]:
    """Tokens before each scored one in the guide «Perplexity of fixed-length models» of transformers' documentation.

    The labels of a window are shifted inside of the model, so the first token of the text is never scored.
    """
    contexts: dict[int, int] = {}
    previous_end = 0
    for begin in range(0, num_tokens, stride):
        end = min(begin + max_length, num_tokens)
        for position in range(max(previous_end, begin + 1), end):
            contexts[position] = position - begin
        previous_end = end
        if end == num_tokens:
            break
    return contexts


@given(CASES)
def test_a_stride_gives_each_token_the_context_of_the_guide_or_more(case: tuple[int, int, int | None]) -> None:
    num_tokens, max_length, stride = case
    expected = guide_contexts(num_tokens, max_length, stride or max_length)
    found = {
        token: len(pair.context) + place for pair in windows(*case) for place, token in enumerate(pair.continuation)
    }
    for token, context in expected.items():
        assert found[token] >= context


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None, reason="lm_eval is not installed: pip install 'lm_eval[hf]==0.4.13'"
)
@pytest.mark.filterwarnings("default")
@given(CASES)
def test_windows_are_those_of_lm_eval(case: tuple[int, int, int | None]) -> None:
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

    num_tokens, max_length, stride = case
    theirs = get_rolling_token_windows(
        token_list=list(range(num_tokens)),
        prefix_token=PREFIX,
        max_seq_len=max_length,
        context_len=max_length - (stride or max_length) + 1,
    )
    expected = [make_disjoint_window(pair) for pair in theirs]
    assert [(list(pair.context), list(pair.continuation)) for pair in windows(*case)] == expected


def test_windows_by_hand() -> None:
    assert windows(7, 4, None) == [
        EncodedPair((PREFIX,), (0, 1, 2, 3)),
        EncodedPair((2, 3), (4, 5, 6)),
    ]
    assert windows(7, 4, 2) == [
        EncodedPair((PREFIX,), (0, 1, 2, 3)),
        EncodedPair((1, 2, 3), (4, 5)),
        EncodedPair((2, 3, 4, 5), (6,)),
    ]
    assert windows(3, 4, 2) == [EncodedPair((PREFIX,), (0, 1, 2))]
    assert windows(0, 4, 2) == []


@pytest.mark.parametrize("stride", [0, -1, 9])
def test_a_stride_fits_the_context(stride: int) -> None:
    with pytest.raises(RequestError, match=rf"^the stride is {stride}: expected a number from 1 to 8"):
        rolling_windows((1, 2), prefix_token=0, max_length=8, stride=stride)


def test_without_a_length_there_are_no_windows() -> None:
    with pytest.raises(RequestError, match="--llm-model-arg max_length=N"):
        rolling_windows((1, 2), prefix_token=0, max_length=None)


# Sums over windows


def encode(text: str) -> tuple[int, tuple[int, ...]]:
    if "!" in text:
        raise RequestError("bad text")
    return PREFIX, tuple(map(ord, text))


def score(
    pairs: Mapping[int, EncodedPair], tell: Callable[[Mapping[int, LoglikelihoodResponse | RequestError]], None]
) -> Mapping[int, LoglikelihoodResponse | RequestError]:
    """A token's logprob is -1 / its code; a window with a ``?`` fails."""
    outcomes: dict[int, LoglikelihoodResponse | RequestError] = {}
    for key, pair in pairs.items():
        outcomes[key] = (
            RequestError("no memory")
            if ord("?") in pair.continuation
            else LoglikelihoodResponse(
                loglikelihood=-math.fsum(1 / token for token in pair.continuation),
                num_tokens=len(pair.continuation),
                is_greedy=ord("x") not in pair.continuation,
                num_context_tokens=len(pair.context),
                seconds=1.0,
            )
        )
        tell({key: outcomes[key]})
    return outcomes


def ask(*texts: str, stride: int | None = None, portion: int = 1 << 20) -> list[LoglikelihoodResponse | RequestError]:
    requests = [LoglikelihoodRollingRequest(text, stride) for text in texts]
    return score_texts(requests, encode=encode, max_length=4, score=score, max_tokens_planned=portion)


@given(st.lists(st.text("abcx", max_size=20), max_size=5), st.none() | st.integers(1, 4), st.integers(1, 40))
def test_sums_do_not_depend_on_portions(texts: list[str], stride: int | None, portion: int) -> None:
    responses = ask(*texts, stride=stride, portion=portion)
    assert responses == ask(*texts, stride=stride)
    for text, response in zip(texts, responses, strict=True):
        assert isinstance(response, LoglikelihoodResponse)
        assert response.loglikelihood == pytest.approx(-math.fsum(1 / ord(character) for character in text))
        assert response.num_tokens == len(text)
        assert response.num_context_tokens == (1 if text else 0)
        assert response.is_greedy == (bool(text) and "x" not in text)
        assert response.seconds == len(windows(len(text), 4, stride))


def test_a_text_that_fails_fails_alone() -> None:
    good, bad, unfit, also_good = ask("abcabc", "abc!", "abcabcab?", "ab")
    assert isinstance(good, LoglikelihoodResponse)
    assert isinstance(also_good, LoglikelihoodResponse)
    assert (str(bad), str(unfit)) == ("bad text", "no memory")


def test_progress_is_reported_in_texts() -> None:
    told: list[tuple[int, int]] = []
    requests = [LoglikelihoodRollingRequest(text) for text in ("a" * 8, "b" * 8, "c" * 4, "", "d" * 12)]
    score_texts(
        requests,
        encode=encode,
        max_length=4,
        score=score,
        on_progress=lambda done, total: told.append((done, total)),
        max_tokens_planned=20,
    )
    assert all(total == 5 for _, total in told)
    done = [number for number, _ in told]
    assert done == sorted(done)
    assert done[-1] == 5


# Asking a model


class Answers:
    """Tells by the log-likelihood which method was asked; its numbers are those of numpy."""

    def loglikelihood(self, requests: Sequence[LoglikelihoodRequest]) -> list[LoglikelihoodResponse]:
        return [LoglikelihoodResponse(loglikelihood=-1.0, num_tokens=1) for _ in requests]

    def loglikelihood_rolling(self, requests: Sequence[LoglikelihoodRollingRequest]) -> list[LoglikelihoodResponse]:
        length = [len(request.text) for request in requests]
        return [LoglikelihoodResponse(loglikelihood=np.float32(-n), num_tokens=np.int64(n)) for n in length]  # type: ignore[arg-type]

    def generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse]:
        return [GenerateResponse(text=str(request.prompt)) for request in requests]


def test_requests_of_all_kinds_come_back_in_order() -> None:
    requests: list[Request] = [
        LoglikelihoodRollingRequest("four"),
        GenerateRequest("hi"),
        LoglikelihoodRequest("a", " b"),
        LoglikelihoodRollingRequest("seventh"),
    ]
    first, text, pair, last = ask_model(Answers(), requests)
    assert first == LoglikelihoodResponse(loglikelihood=-4.0, num_tokens=4)
    assert isinstance(first, LoglikelihoodResponse)
    assert (type(first.loglikelihood), type(first.num_tokens)) == (float, int)
    assert text == GenerateResponse(text="hi")
    assert pair == LoglikelihoodResponse(loglikelihood=-1.0, num_tokens=1)
    assert last == LoglikelihoodResponse(loglikelihood=-7.0, num_tokens=7)


def test_a_reply_is_no_answer_to_a_text() -> None:
    class Writes:
        def loglikelihood_rolling(self, requests: Sequence[LoglikelihoodRollingRequest]) -> list[GenerateResponse]:
            return [GenerateResponse(text="hi") for _ in requests]

    with pytest.raises(ModelError, match="loglikelihood_rolling returned GenerateResponse, expected Loglikelihood"):
        ask_model(Writes(), [LoglikelihoodRollingRequest("a")])


def test_a_backend_need_not_score_texts() -> None:
    class NoTexts(Backend):
        identity = ModelIdentity(name="some", backend="of ours")

        def run_loglikelihood(self, requests: Sequence[LoglikelihoodRequest]) -> list[LoglikelihoodResponse | Failed]:
            return []

        def run_generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse | Failed]:
            return []

    with pytest.raises(ModelError, match=r"^model some: the backend of ours cannot score whole texts"):
        NoTexts().loglikelihood_rolling("a text")


@given(st.lists(st.text("abcx?!", max_size=12), min_size=1, max_size=5), st.integers(1, 40), st.integers(1, 12))
def test_of_a_stopped_call_whole_texts_are_kept(texts: list[str], portion: int, num_windows: int) -> None:
    finished: dict[int, LoglikelihoodResponse | RequestError] = {}
    told = 0

    def stop(done: int, total: int) -> None:
        nonlocal told
        told += 1
        if told == num_windows:
            raise KeyboardInterrupt

    requests = [LoglikelihoodRollingRequest(text) for text in texts]
    with contextlib.suppress(KeyboardInterrupt):
        score_texts(
            requests,
            encode=encode,
            max_length=4,
            score=score,
            on_progress=stop,
            on_finished=finished.update,
            max_tokens_planned=portion,
        )
        return
    for index, outcome in finished.items():
        assert str(outcome) == str(ask(texts[index])[0])
    num_scored, whole = 0, []
    for index, text in enumerate(texts):
        count = 0 if "!" in text else len(windows(len(text), 4, None))
        num_scored += count
        if count and num_scored <= num_windows:
            whole.append(index)
    # Of the last one nobody may know yet whether it goes on.
    assert set(whole[:-1]) <= set(finished)
