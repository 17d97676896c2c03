"""What guessing gets, by counts of our own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.guessing import GuessingModel
from pytest_llmeval.types import (
    AskedSample,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    Request,
)

OPTIONS = ("red", "blue", "green", "grey")


def sample(number: int, *requests: Request, **fields: tuple[object, ...]) -> AskedSample:
    return AskedSample(suite="s", id=f"q{number}", number=number, place="s.yaml", requests=requests, **fields)  # type: ignore[arg-type]


def scored(number: int, right: int, options: Sequence[str] = OPTIONS) -> AskedSample:
    requests = [LoglikelihoodRequest("?", f" {option}") for option in options]
    return sample(number, *requests, options=tuple(options), right=(right,))


def picks(model: GuessingModel, samples: Sequence[AskedSample]) -> list[int]:
    """The option that is ahead, for each sample; fails where it is not ahead by every normalisation."""
    answers = iter(model.answer_samples(samples))
    found = []
    for one in samples:
        values = []
        for _ in one.requests:
            response = next(answers)
            assert isinstance(response, LoglikelihoodResponse)
            values.append(response.loglikelihood)
        ahead = {
            max(range(len(values)), key=[v / n for v, n in zip(values, lengths, strict=True)].__getitem__)
            for lengths in ([1] * len(values), [len(option) for option in one.options], [1000] * len(values))
        }
        assert len(ahead) == 1
        assert values.count(0.0) == 1
        found.append(ahead.pop())
    return found


def text(model: GuessingModel, one: AskedSample) -> str:
    (response,) = model.answer_samples([one])
    assert isinstance(response, GenerateResponse)
    return response.text


def test_random_picks_each_option_alike() -> None:
    samples = [scored(number, 0) for number in range(4000)]
    model = GuessingModel("random", "random")
    found = picks(model, samples)
    for option in range(4):
        assert abs(found.count(option) - 1000) < 5 * (4000 * 0.25 * 0.75) ** 0.5
    assert picks(GuessingModel("random", "random"), samples[::-1])[::-1] == found
    assert picks(GuessingModel("random?seed=1", "random", 1), samples) != found


def test_majority_is_the_commonest_place() -> None:
    samples = [scored(number, right) for number, right in enumerate([1, 2, 2, 3, 1])]
    model = GuessingModel("majority", "majority")
    model.prepare("s", samples)
    assert picks(model, samples) == [1] * 5  # 1 and 2 are right twice: the lower place
    assert picks(model, [scored(9, 0, ["only", "two"])]) == [1]
    model.prepare("s", [scored(number, 3) for number in range(3)])
    assert picks(model, [scored(9, 0, ["a", "b", "c"])]) == [0]  # there is no fourth


def test_labels() -> None:
    def asked(number: int, right: int, epoch: int = 0) -> AskedSample:
        return sample(number, GenerateRequest("?", epoch=epoch), options=("A", "B", "C"), right=(right,))

    samples = [asked(number, right) for number, right in enumerate([2, 0, 2, 1])]
    majority, rand = GuessingModel("majority", "majority"), GuessingModel("random", "random")
    majority.prepare("s", samples)
    assert [text(majority, one) for one in samples] == ["C"] * 4
    rand.prepare("s", samples)
    assert {text(rand, asked(number, 0)) for number in range(50)} == {"A", "B", "C"}
    assert {text(rand, asked(1, 0, epoch)) for epoch in range(50)} == {"A", "B", "C"}


def test_texts() -> None:
    """What counts is what the scorer compares; what is written is what an example shows."""
    rows = [("2", "1 + 1 is 2", "2"), ("5", "five: 5", "5"), ("2", "again 2", "2.0")]
    samples = [
        sample(number, GenerateRequest("?"), answers=(shown,), answer_keys=(key,))
        for number, (key, shown, _) in enumerate(rows)
    ]
    majority, rand = GuessingModel("majority", "majority"), GuessingModel("random", "random")
    for model in (majority, rand):
        model.prepare("s", samples)
    assert [text(majority, one) for one in samples] == ["1 + 1 is 2"] * 3
    drawn = [text(rand, sample(n, GenerateRequest("?"), answers=("x",), answer_keys=("x",))) for n in range(100)]
    assert set(drawn) == {"1 + 1 is 2", "five: 5"}
    assert 25 < drawn.count("five: 5") < 75


def test_a_sample_with_several_right_texts_counts_each_once() -> None:
    samples = [
        sample(1, GenerateRequest("?"), answers=("a", "b"), answer_keys=("a", "b")),
        sample(2, GenerateRequest("?"), answers=("c", "b"), answer_keys=("c", "b")),
    ]
    model = GuessingModel("majority", "majority")
    model.prepare("s", samples)
    assert text(model, samples[0]) == "b"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (LoglikelihoodRollingRequest("a text"), "how likely a text is, which cannot be guessed"),
        (LoglikelihoodRequest("?", " one target"), "how likely a text is, which cannot be guessed"),
        (GenerateRequest("?"), "no right answers to guess among"),
    ],
)
def test_nothing_to_guess(request_: Request, words: str) -> None:
    model = GuessingModel("majority", "majority")
    model.prepare("s", [])
    (found,) = model.answer_samples([sample(1, request_)])
    assert isinstance(found, RequestError)
    assert words in str(found)


def test_a_prompt_without_its_sample_cannot_be_guessed() -> None:
    model = GuessingModel("random", "random")
    with pytest.raises(ModelError, match="model random: it answers samples of suites only"):
        model.generate("Hello")
    with pytest.raises(ModelError, match="not a prompt without its sample"):
        model.loglikelihood("Hello", " you")
