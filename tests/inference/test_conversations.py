"""Conversations: the messages of each turn, whatever way the model is asked, and what their listener hears."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.errors import LeftOutError, RequestError
from pytest_llmeval.inference.dispatch import InFlight, ask
from pytest_llmeval.inference.store import Store
from pytest_llmeval.inference.stored_model import with_store
from pytest_llmeval.models.base import Backend
from pytest_llmeval.text.reasoning import DEFAULT_TAGS
from pytest_llmeval.types import (
    ConversationRequest,
    GenerateRequest,
    GenerateResponse,
    Message,
    ModelIdentity,
    each_reply,
)
from tests.properties import examples


def contents(prompt: Any) -> tuple[tuple[str, str], ...]:
    return tuple((turn.role, turn.content) for turn in prompt)


class Model(Backend):
    """Replies with the number of turns and the user's last text, behind reasoning; refuses a user who says no."""

    def __init__(self) -> None:
        self.identity = ModelIdentity(name="m", backend="test", fingerprint="1")
        self.asked: list[tuple[tuple[str, str], ...]] = []

    def run_generate(self, requests: Sequence[GenerateRequest]) -> list[Any]:
        listener = self.take_listener()
        answers = [self.answer(request) for request in requests]
        listener(dict(enumerate(answers)))
        return answers

    def answer(self, request: GenerateRequest) -> GenerateResponse | RequestError:
        assert type(request) is GenerateRequest
        self.asked.append(contents(request.prompt))
        users = [text for role, text in contents(request.prompt) if role == "user"]
        if "no" in users[-1]:
            return RequestError("refused")
        return GenerateResponse(text=f"<think>Hm.</think>{len(users)} {users[-1]}", num_tokens=1, seconds=1.0)


class Background(Model):
    """The same from a thread."""

    num_concurrent = 4

    def __init__(self) -> None:
        super().__init__()
        self.pool = ThreadPoolExecutor(2)

    def submit(self, requests: Sequence[GenerateRequest]) -> list[Future[Any]]:
        return [self.pool.submit(self.answer, request) for request in requests]


def answers_of(model: Any, requests: Sequence[Any]) -> list[Any]:
    if hasattr(model, "submit"):
        return InFlight(model, requests, model).wait()
    return list(ask(model, requests))


TEXTS = st.text("an o", min_size=1, max_size=4)
TALKS = st.lists(st.tuples(st.booleans(), st.lists(TEXTS, min_size=1, max_size=4)), min_size=1, max_size=4)


@given(talks=TALKS)
@settings(max_examples=examples(100))
@pytest.mark.parametrize("kind", [Model, Background, "stored", "stored background"])
def test_each_turn_has_the_system_text_all_turns_and_all_replies_before_it(
    kind: Any, talks: list[tuple[bool, list[str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = kind() if isinstance(kind, type) else (Background if "background" in kind else Model)()
    asked: Any = model
    if isinstance(kind, str):
        asked = with_store(model, Store(tmp_path_factory.mktemp("store") / "s"))
    system = (Message(role="system", content="S"),)
    requests = [
        ConversationRequest(
            (*(system if has_system else ()), Message(role="user", content=users[0])),
            turns=tuple(users[1:]),
            reasoning=DEFAULT_TAGS,
        )
        for has_system, users in talks
    ]
    answers = answers_of(asked, requests)
    expected: list[tuple[tuple[str, str], ...]] = []
    for (has_system, users), answer in zip(talks, answers, strict=True):
        messages: list[tuple[str, str]] = [("system", "S")] if has_system else []
        texts: list[str] = []
        refused = next((number for number, user in enumerate(users, 1) if "no" in user), None)
        for number, user in enumerate(users, 1):
            messages.append(("user", user))
            expected.append(tuple(messages))
            if number == refused:
                break
            texts.append(f"{number} {user}")
            messages.append(("assistant", texts[-1]))
        if refused is not None:
            place = f"turn {refused} of {len(users)}: " if len(users) > 1 else ""
            assert str(answer) == f"{place}refused"
            continue
        replies = each_reply([answer])
        assert [reply.text for reply in replies if isinstance(reply, GenerateResponse)] == texts
        assert {reply.reasoning for reply in replies if isinstance(reply, GenerateResponse)} == {"Hm."}
        assert sum(reply.seconds for reply in replies) == len(users)
    if isinstance(kind, str):  # equal requests are asked for once
        assert sorted(set(model.asked)) == sorted(set(expected))
        again = len(model.asked)
        assert [str(answer) for answer in answers_of(asked, requests)] != []
        assert len(model.asked) - again <= sum(isinstance(answer, RequestError) for answer in answers)
    else:
        assert sorted(model.asked) == sorted(expected)


def conversation(*users: str) -> ConversationRequest:
    return ConversationRequest((Message(role="user", content=users[0]),), turns=users[1:])


def test_turns_of_one_number_are_asked_together_and_the_listener_hears_of_last_replies() -> None:
    calls: list[int] = []
    heard: list[Mapping[int, Any]] = []

    class Counting(Model):
        def run_generate(self, requests: Sequence[GenerateRequest]) -> list[Any]:
            calls.append(len(requests))
            return super().run_generate(requests)

    requests = [conversation("a", "b", "c"), GenerateRequest((Message(role="user", content="p"),)), conversation("d")]
    answers = ask(Counting(), [*requests, conversation("e", "no", "f")], heard.append)
    assert calls == [4, 2, 1]
    assert [sorted(found) for found in heard] == [[1, 2], [3], [0]]
    assert [str(getattr(answer, "text", answer)) for answer in answers] == [
        *("<think>Hm.</think>3 c", "<think>Hm.</think>1 p", "<think>Hm.</think>1 d"),
        "turn 2 of 3: refused",
    ]


def test_a_sample_that_a_model_leaves_out_is_left_out() -> None:
    class Leaving(Model):
        def answer(self, request: GenerateRequest) -> Any:
            return LeftOutError("no reply in the file")

    (answer,) = ask(Leaving(), [conversation("a", "b")])
    assert isinstance(answer, LeftOutError)
    assert str(answer) == "no reply in the file"


def test_a_cancelled_conversation_asks_for_no_further_turn() -> None:
    class Held(Model):
        num_concurrent = 1

        def __init__(self) -> None:
            super().__init__()
            self.futures: list[Future[Any]] = []

        def submit(self, requests: Sequence[GenerateRequest]) -> list[Future[Any]]:
            self.futures += [Future() for _ in requests]
            return self.futures[-len(requests) :]

    model: Any = Held()
    flight = InFlight(model, [conversation("a", "b", "c")], model)
    model.futures[0].set_result(GenerateResponse(text="x"))
    assert len(model.futures) == 2
    flight.cancel()
    assert model.futures[1].cancelled()
    assert len(model.futures) == 2
    assert flight.is_over


def test_the_store_keeps_each_turn_as_a_request_of_its_own(tmp_path: Path) -> None:
    model = Model()
    stored = with_store(model, Store(tmp_path / "s"))
    ask(stored, [conversation("a", "b")])
    assert len(model.asked) == 2
    ask(stored, [conversation("a", "c")])
    assert model.asked[2:] == [(("user", "a"), ("assistant", "<think>Hm.</think>1 a"), ("user", "c"))]
    lines = [json.loads(line) for path in (tmp_path / "s").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert all("class" not in line["request"] and "turns" not in line["request"] for line in lines)
    plain = GenerateRequest(conversation("a").prompt)
    ask(stored, [plain])
    assert len(model.asked) == 3
