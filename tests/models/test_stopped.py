"""A call that is stopped hands over what was finished: the very responses that the whole call would have given."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from pytest_llmeval.inference.dispatch import ask
from pytest_llmeval.inference.store import Store
from pytest_llmeval.inference.stored_model import with_store
from pytest_llmeval.models.base import Failed
from pytest_llmeval.models.huggingface.model import HuggingFaceModel, PlainModel
from pytest_llmeval.models.python.calls import CallBounds
from pytest_llmeval.models.python.model import CallableModel
from pytest_llmeval.types import (
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    ModelIdentity,
    Request,
    Response,
)
from tests.models.support import load
from tests.tiny_models import make_checkpoint

TEXTS = ["a cat", "the dog sat on", "b", "a house in the city", "cats", "no", "it is a day", "why"]
PAIRS = [LoglikelihoodRequest(text, continuation) for text in TEXTS for continuation in (" and so", " but")]
ROLLING = [LoglikelihoodRollingRequest(text) for text in TEXTS]
GENERATED = [GenerateRequest(text, max_tokens=2 + 3 * place) for place, text in enumerate(TEXTS)]


def stopped(
    model: HuggingFaceModel, requests: Sequence[Request], *, plain: bool = False
) -> dict[int, Response | Failed | None]:
    """What is handed over when Ctrl-C comes after three of the requests are answered."""
    finished: dict[int, Response | Failed | None] = {}

    def stop(done: int, total: int) -> None:
        if done >= 3:
            raise KeyboardInterrupt

    model.on_progress = stop
    try:
        with pytest.raises(KeyboardInterrupt):
            ask(PlainModel(model) if plain else model, requests, finished.update)
    finally:
        model.on_progress = None
    assert model._listener is None
    return finished


def number_or_text(response: Response | Failed | None) -> object:
    if isinstance(response, LoglikelihoodResponse):
        return pytest.approx(response.loglikelihood, abs=1e-4), response.num_tokens
    return response.text if isinstance(response, GenerateResponse) else str(response)


@pytest.fixture(scope="module", params=["gpt2", "bloom", "t5"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HuggingFaceModel:
    """Computed by the tree and written by our own loop; plain and by transformers; encoder and decoder."""
    return load(make_checkpoint(tmp_path_factory.mktemp(request.param), request.param), batch_size=4)


@pytest.mark.parametrize("requests", [PAIRS, GENERATED], ids=["loglikelihood", "generate"])
@pytest.mark.parametrize("plain", [False, True], ids=["", "plain"])
def test_what_was_finished_is_handed_over(model: HuggingFaceModel, requests: Sequence[Request], plain: bool) -> None:
    # A text whose batch goes on is finished, too: the last is the longest.
    expected = ask(model, requests)
    finished = stopped(model, requests, plain=plain)
    assert 3 <= len(finished) < len(requests)
    for place, response in finished.items():
        assert number_or_text(expected[place]) == number_or_text(response)


def test_whole_texts_that_were_finished_are_handed_over(gpt2_folder: Path) -> None:
    model = load(gpt2_folder, batch_size=1, engine="plain")
    expected = ask(model, ROLLING)
    finished = stopped(model, ROLLING)
    assert 2 <= len(finished) < len(ROLLING)
    for place, response in finished.items():
        assert number_or_text(expected[place]) == number_or_text(response)


@pytest.mark.parametrize("requests", [PAIRS, ROLLING, GENERATED], ids=["loglikelihood", "rolling", "generate"])
def test_each_batch_is_in_the_store_before_the_next_one(
    gpt2_folder: Path, tmp_path: Path, requests: Sequence[Request]
) -> None:
    """The process may be killed at any time."""
    model = load(gpt2_folder, batch_size=2, engine="plain")
    expected = ask(model, requests)
    numbers: list[int] = []

    def stop(done: int, total: int) -> None:
        numbers.append(num_replies(tmp_path))
        if numbers[-1] >= 3:
            raise RuntimeError("killed here")

    with closing(Store(tmp_path / "store", max_age_s=3600)) as store:
        stored = with_store(model, store)
        model.on_progress = stop
        with pytest.raises(RuntimeError, match="killed here"):
            ask(stored, requests)
        model.on_progress = None
        assert 3 <= numbers[-1] < len(requests)
        assert [number_or_text(one) for one in ask(stored, requests)] == [number_or_text(one) for one in expected]
    assert num_replies(tmp_path) == len(requests), "each once"


def num_replies(folder: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in folder.joinpath("store").glob("*.jsonl"))


def test_the_rows_of_a_batch_share_its_seconds(gpt2_folder: Path) -> None:
    """Each has its part of the time until its own end: of texts that are written together the longer one took more."""
    started = time.perf_counter()
    short, long = ask(load(gpt2_folder), [GenerateRequest("a cat", max_tokens=n) for n in (2, 40)])
    elapsed_s = time.perf_counter() - started
    assert isinstance(short, GenerateResponse)
    assert isinstance(long, GenerateResponse)
    assert (short.num_tokens, long.num_tokens) == (2, 40)
    assert 0 < short.seconds < long.seconds < short.seconds + long.seconds < elapsed_s


def test_a_call_that_was_stopped_leaves_nothing_behind(gpt2: HuggingFaceModel) -> None:
    expected = [number_or_text(one) for one in ask(gpt2, GENERATED)]
    stopped(gpt2, GENERATED)
    assert [number_or_text(one) for one in ask(gpt2, GENERATED)] == expected


class Yields:
    """A model of a user's own whose method is a generator."""

    def generate(self, requests: Sequence[GenerateRequest]) -> Iterator[GenerateResponse]:
        for request in requests:
            if request.prompt == "cats":
                raise KeyboardInterrupt
            yield GenerateResponse(text=str(request.prompt).upper())


def test_what_a_generator_has_yielded_is_handed_over() -> None:
    finished: dict[int, Response | Failed | None] = {}
    with pytest.raises(KeyboardInterrupt):
        ask(Yields(), GENERATED, finished.update)
    assert [number_or_text(finished[place]) for place in range(4)] == [text.upper() for text in TEXTS[:4]]
    assert len(finished) == 4


def test_what_an_async_function_has_answered_is_handed_over() -> None:
    async def answer(prompt: str) -> str:
        await asyncio.sleep(0)
        if prompt == "cats":
            raise KeyboardInterrupt
        return prompt.upper()

    model = CallableModel(answer, ModelIdentity(name="later", backend="python"), {}, bounds=CallBounds(concurrency=1))
    finished: dict[int, Response | Failed | None] = {}
    with pytest.raises(KeyboardInterrupt):
        ask(model, GENERATED, finished.update)
    assert [number_or_text(finished[place]) for place in range(4)] == [text.upper() for text in TEXTS[:4]]
    assert len(finished) == 4


@pytest.mark.parametrize(
    ("is_async", "concurrency", "one_by_one"), [(False, 1, True), (False, 8, False), (True, 1, True), (True, 2, False)]
)
def test_which_functions_answer_one_by_one(is_async: bool, concurrency: int, one_by_one: bool) -> None:
    async def later(prompt: str) -> str:
        return prompt

    function = later if is_async else str
    model = CallableModel(
        function, ModelIdentity(name="f", backend="python"), {}, bounds=CallBounds(concurrency=concurrency)
    )
    assert model.answers_one_by_one is one_by_one
