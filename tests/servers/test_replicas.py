"""Several servers of one model: who is asked, and who answers for one that has died."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.endpoints import Endpoint
from pytest_llmeval.models.servers.client import Client, ModelStopped, RequestRefused, Unreachable
from pytest_llmeval.models.servers.concurrency import FixedLimit
from pytest_llmeval.models.servers.dialect import Dialect, FoundServer
from pytest_llmeval.models.servers.model import Replicas, ServerReplica


def replica(number: int, width: int = 64) -> ServerReplica:
    client = Client(Endpoint(url=f"http://h{number}/v1"), limit=FixedLimit(width))
    return ServerReplica(client=client, dialect=cast("Dialect", None), found=cast("FoundServer", None))


Question = Callable[[ServerReplica], Awaitable[Any]]


async def url_of(member: ServerReplica) -> str:
    await asyncio.sleep(0)
    return member.client.endpoint.host


def share(members: list[ServerReplica], questions: list[Question], prompts: list[Any] | None = None) -> list[Any]:
    """What all questions, asked at once, are answered with."""
    replicas = Replicas(members)
    given = prompts or [None] * len(questions)

    async def main() -> list[Any]:
        asked = [replicas.ask(question, prompt) for question, prompt in zip(questions, given, strict=True)]
        return list(await asyncio.gather(*asked, return_exceptions=True))

    found = asyncio.run(main())
    assert all(member.num_open == 0 for member in members)
    return found


def test_shares_follow_widths() -> None:
    found = share([replica(1, 60), replica(2, 20)], [url_of] * 400)
    assert Counter(found) == {"http://h1": 300, "http://h2": 100}


def test_questions_of_one_prompt_go_to_one_server() -> None:
    prompts = [number // 4 for number in range(400)]
    found = share([replica(1), replica(2)], [url_of] * 400, prompts)
    assert all(len(set(found[first : first + 4])) == 1 for first in range(0, 400, 4))
    counts = Counter(found)
    assert max(counts.values()) - min(counts.values()) <= 4


def test_one_prompt_alone_is_shared_all_the_same() -> None:
    counts = Counter(share([replica(1), replica(2)], [url_of] * 400, ["same"] * 400))
    assert max(counts.values()) - min(counts.values()) <= 5


@pytest.mark.parametrize("error", [Unreachable("gone"), ModelStopped("no more")])
def test_a_server_that_dies_leaves_its_questions_to_the_others(error: ModelError) -> None:
    asked: list[str] = []

    async def question(member: ServerReplica) -> str:
        asked.append(await url_of(member))
        if asked[-1] == "http://h2" and asked.count("http://h2") > 3:
            raise error
        return asked[-1]

    members = [replica(number) for number in range(1, 4)]
    found = share(members, [question] * 90)
    assert Counter(found)["http://h2"] == 3
    assert len(found) == 90
    assert members[1].error is error


def test_the_last_server_s_error_is_that_of_what_is_left() -> None:
    async def question(member: ServerReplica) -> str:
        await asyncio.sleep(0)
        raise Unreachable(f"{member.client.endpoint.url} is gone")

    found = share([replica(1), replica(2)], [question] * 10)
    assert {type(error) for error in found} <= {ModelStopped, Unreachable}
    assert {str(error) for error in found} == {"http://h2/v1 is gone"}


@pytest.mark.parametrize("working", ["http://h1", "nowhere"])
def test_a_server_that_fails_for_the_moment_leaves_the_question_to_another(working: str) -> None:
    asked: list[str] = []

    async def question(member: ServerReplica) -> str:
        asked.append(await url_of(member))
        if asked[-1] != working:
            raise RequestRefused(f"{asked[-1]}: 502", 502, is_temporary=True)
        return asked[-1]

    (found,) = share([replica(1), replica(2), replica(3)], [question])
    if working == "nowhere":
        assert sorted(asked) == ["http://h1", "http://h2", "http://h3"]
        assert isinstance(found, RequestRefused)
    else:
        assert found == working


def test_an_error_of_a_request_is_no_reason_to_ask_elsewhere() -> None:
    asked: list[str] = []

    async def question(member: ServerReplica) -> str:
        asked.append(member.client.endpoint.host)
        raise RequestError("too long")

    (found,) = share([replica(1), replica(2)], [question])
    assert str(found) == "too long"
    assert len(asked) == 1
