"""Questions that wait for a turn together go out in one request, and each gets its own answer or error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pytest_llmeval.models.servers.batches import Batches, Take
from pytest_llmeval.types import LoglikelihoodRequest
from tests.servers.conftest import Connect
from tests.servers.language_models import DEMO
from tests.servers.stub import StubServer

pytestmark = pytest.mark.usefixtures("no_rests")


class Line:
    """Something that answers after its turn has come; turns come one after the other."""

    def __init__(self) -> None:
        self.requests: list[list[int]] = []
        self.num_cancelled = 0
        self.turn = asyncio.Lock()
        self.seconds = 0.0

    async def send(self, take: Take[int]) -> Sequence[int | BaseException]:
        async with self.turn:
            questions = take()
            if not questions:
                return []
            self.requests.append(questions)
            try:
                await asyncio.sleep(self.seconds)
            except asyncio.CancelledError:
                self.num_cancelled += 1
                raise
            if 0 in questions:
                raise ValueError("zero")
            return [ValueError(str(q)) if q < 0 else 10 * q for q in questions]

    def batches(self, *, max_questions: int = 3, max_size: int = 100) -> Batches[int, int]:
        return Batches(self.send, abs, max_questions=max_questions, max_size=max_size)


def ask(questions: Sequence[int], **limits: int) -> tuple[Line, list[Any]]:
    async def run() -> tuple[Line, list[Any]]:
        line = Line()
        batches = line.batches(**limits)
        return line, await asyncio.gather(*map(batches.ask, questions), return_exceptions=True)

    return asyncio.run(asyncio.wait_for(run(), 20))


def test_each_gets_its_own_answer() -> None:
    line, answers = ask([1, 2, 3, -4, 5])
    assert line.requests == [[1, 2, 3], [-4, 5]]
    assert answers[:3] == [10, 20, 30]
    assert str(answers[3]) == "-4"
    assert answers[4] == 50


def test_large_questions_are_fewer_together() -> None:
    line, answers = ask([60, 40, 1, 150, 2], max_size=100)
    assert line.requests == [[60, 40], [1], [150], [2]]
    assert answers == [600, 400, 10, 1500, 20]


def test_an_error_of_a_request_is_that_of_its_questions() -> None:
    line, answers = ask([1, 0, 2, 3])
    assert line.requests == [[1, 0, 2], [3]]
    assert [str(answer) for answer in answers] == ["zero", "zero", "zero", "30"]


def test_an_error_before_the_turn_leaves_no_question_waiting() -> None:
    async def send(take: Take[int]) -> Sequence[int | BaseException]:
        raise ValueError("no turn")

    async def run() -> list[Any]:
        batches = Batches(send, abs, max_questions=3, max_size=9)
        return await asyncio.gather(*map(batches.ask, range(3)), return_exceptions=True)

    answers: list[Any] = asyncio.run(asyncio.wait_for(run(), 20))
    assert [str(answer) for answer in answers] == ["no turn"] * 3


@pytest.mark.parametrize("num_cancelled", [1, 2])
def test_a_request_ends_when_none_of_its_questions_is_wanted(num_cancelled: int) -> None:
    async def run() -> tuple[Line, list[Any]]:
        line = Line()
        line.seconds = 0.05 if num_cancelled == 1 else 60.0
        batches = line.batches()
        tasks = [asyncio.create_task(batches.ask(question)) for question in (1, 2)]
        while not line.requests:
            await asyncio.sleep(0)
        for task in tasks[:num_cancelled]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        async with line.turn:
            return line, answers

    line, answers = asyncio.run(asyncio.wait_for(run(), 20))
    assert line.num_cancelled == (num_cancelled == 2)
    assert answers[1] == 20 or num_cancelled == 2


def test_options_of_several_questions_share_requests(connect: Connect, demo: Any) -> None:
    """Of one connection, which all but the first wait for."""
    requests = [
        LoglikelihoodRequest(f"Question {number}: what is warm?\nAnswer:", text)
        for number in range(10)
        for text in (" the summer sun", " a lamp", " the lamp")
    ]
    with StubServer("vllm") as stub:
        model = connect(stub, f"tokenizer={DEMO}", "max_connections=1")
        before = stub.num_questions
        found = model.loglikelihood(requests)
        assert stub.num_questions - before <= 5  # with the question what it is, after a rest
    expected = demo.loglikelihood(requests)
    assert [one.loglikelihood for one in found] == pytest.approx([one.loglikelihood for one in expected], abs=1e-4)
    assert [one.is_greedy for one in found] == [one.is_greedy for one in expected]
