"""The client: what is tried again and for how long, what ends a sample and what ends a model, and what nobody sees."""

from __future__ import annotations

import asyncio
import email.utils
import gzip
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pytest_llmeval.errors import LLMEvalError, ModelError, OptionError
from pytest_llmeval.models.budget import Amount, Budget, BudgetError
from pytest_llmeval.models.endpoints import Endpoint
from pytest_llmeval.models.servers import connections
from pytest_llmeval.models.servers.client import Client, ModelStopped, RequestRefused, Unreachable, Watch
from pytest_llmeval.models.servers.concurrency import AdaptiveLimit
from tests.models.support import one_line_of
from tests.servers.scripted import CLOSE, HANG, ScriptedServer, Step, reply, sent

KEY = "planted-4f7d2a91c0"
OK = reply({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
BUSY = reply({"error": {"message": "slow down"}}, 429)


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


Ask = Callable[[Client, ScriptedServer], Awaitable[None]]


def talk(*steps: Step, ask: Ask, clock: Clock | None = None, **settings: Any) -> Client:
    """Have a client ask a server that answers by the steps."""
    clock = clock or Clock()
    endpoint = settings.pop("endpoint", {})

    async def main() -> Client:
        async with ScriptedServer(steps) as server:
            client = Client(
                Endpoint(url=server.url, **endpoint),
                sleep=clock.sleep,
                clock=clock,
                wall_clock=clock,
                **{"environ": {"SOME_VARIABLE": KEY}, "jitter": lambda: 1.0, **settings},
            )
            try:
                await ask(client, server)
            finally:
                await client.close()
        return client

    return asyncio.run(asyncio.wait_for(main(), 60))


async def post_once(client: Client, server: ScriptedServer) -> None:
    assert (await client.post("/completions", {"prompt": "x"}))["choices"] == []


def error_of(*steps: Step, clock: Clock | None = None, **settings: Any) -> LLMEvalError:
    """What one ``post`` raises."""
    raised: list[LLMEvalError] = []

    async def ask(client: Client, server: ScriptedServer) -> None:
        try:
            await client.post("/completions", {"prompt": "x"})
        except LLMEvalError as error:
            raised.append(error)

    talk(*steps, ask=ask, clock=clock, **settings)
    (error,) = raised
    return error


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        (
            {"usage": {"prompt_tokens": 30, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 20}}},
            (30, 7),
        ),
        (
            {
                "usage": {
                    "input_tokens": 10,
                    "cache_creation_input_tokens": 5_000,
                    "cache_read_input_tokens": 20_000,
                    "cache_creation": {"ephemeral_5m_input_tokens": 5_000},
                    "output_tokens": 7,
                }
            },
            (25_010, 7),
        ),
        ({"usage": {"input_tokens": 10, "cache_read_input_tokens": None, "output_tokens": 7}}, (10, 7)),
        ({"meta_info": {"prompt_tokens": 4, "completion_tokens": 2}}, (4, 2)),
        ({"tokens_evaluated": 4, "tokens_predicted": 2}, (4, 2)),
        ({"prompt_eval_count": 4, "eval_count": 2}, (4, 2)),
    ],
)
def test_tokens_that_are_paid(said: dict[str, Any], counted: tuple[int, int]) -> None:
    budget = Budget(None, 100_000)
    usage = talk(reply({"choices": [], **said}), ask=post_once, budget=budget, prices=(1e6, 2e6)).usage
    assert (usage.num_prompt_tokens, usage.num_tokens) == counted
    assert budget.paid == Amount(counted[0] + 2 * counted[1], sum(counted))


# What is sent


def test_what_is_sent() -> None:
    async def ask(client: Client, server: ScriptedServer) -> None:
        await client.post("/completions", {"prompt": "a\ud800ü", "n": 1})
        await client.get("/models")
        await client.get("//version")
        post, *gets = server.calls
        assert (post.method, post.path, post.body) == ("POST", "/v1/completions", {"prompt": "a\ud800ü", "n": 1})
        assert post.headers["content-type"] == "application/json"
        assert post.headers["host"] == f"127.0.0.1:{server.port}"
        assert "authorization" not in post.headers
        assert [(call.method, call.path) for call in gets] == [("GET", "/v1/models"), ("GET", "/version")]
        assert {call.connection for call in server.calls} == {1}  # kept open

    usage = talk(OK, ask=ask).usage
    assert (usage.num_requests, usage.num_prompt_tokens, usage.num_tokens, usage.max_in_flight) == (1, 3, 2, 1)
    assert usage.num_in_flight == 0
    assert not usage.num_retries


def test_a_server_is_asked_who_it_is_after_a_break_and_after_a_rest() -> None:
    clock, asked = Clock(), list[float]()

    async def is_the_same() -> None:
        asked.append(clock())

    async def ask(client: Client, server: ScriptedServer) -> None:
        client.watch.ask = is_the_same
        for num_asked, rest_s in ((0, 0.0), (0, 0.9), (1, 1.1), (1, 0.0)):
            await clock.sleep(rest_s)
            await post_once(client, server)
            assert len(asked) == num_asked
        await post_once(client, server)  # whose first connection is closed
        assert len(asked) == 2

    talk(OK, OK, OK, OK, CLOSE, OK, ask=ask, clock=clock)


def test_a_gateway_without_a_server_is_a_doubt_and_a_busy_one_is_none() -> None:
    asked: list[int] = []

    async def ask(client: Client, server: ScriptedServer) -> None:
        async def is_the_same() -> None:
            asked.append(len(server.calls))

        client.watch.ask = is_the_same
        clock.now += 0.5
        await post_once(client, server)

    # The wait after 429 lets a server be started anew, unless something else is at it.
    for step, expected in ((reply({}, 502), [1]), (reply({}, 500), []), (reply({}, 429, "retry-after: 5"), [1])):
        asked.clear()
        clock = Clock()
        talk(step, OK, ask=ask, clock=clock, **({} if expected else {"jitter": lambda: 0.0}))
        assert asked == expected


def test_a_doubt_that_comes_while_it_is_asked_is_not_forgotten() -> None:
    async def main() -> None:
        asked: list[int] = []

        async def ask() -> None:
            asked.append(1)
            if len(asked) == 1:
                watch.mark_suspect()

        watch = Watch(lambda: 0.0)
        watch.ask = ask
        await watch.check()
        assert not asked
        watch.mark_suspect()
        for expected in (1, 2, 2):
            await watch.check()
            assert len(asked) == expected

    asyncio.run(main())


def test_all_requests_wait_for_one_asking_and_fail_with_it() -> None:
    """A host that is gone is asked once for all of them, and the model ends when the first has tried often enough."""
    asked: list[float] = []
    clock = Clock()

    async def ask(client: Client, server: ScriptedServer) -> None:
        async def is_the_same() -> None:
            asked.append(clock())
            await asyncio.sleep(0)
            raise Unreachable("gone")

        client.watch.ask = is_the_same
        client.watch.mark_suspect()
        posts = [client.post("/completions", {"n": number}) for number in range(64)]
        found = await asyncio.gather(*posts, return_exceptions=True)
        assert {(type(error), str(error)) for error in found} == {(Unreachable, "gone")}
        num_asked = len(asked)
        assert num_asked < 20
        with pytest.raises(Unreachable):
            await client.post("/completions", {})
        assert len(asked) == num_asked
        assert not server.calls

    talk(OK, ask=ask, clock=clock)


def test_a_check_that_fails_is_the_requests_own_error() -> None:
    async def ask(client: Client, server: ScriptedServer) -> None:
        async def is_the_same() -> None:
            raise RequestRefused("busy")

        client.watch.ask = is_the_same
        client.watch.mark_suspect()
        with pytest.raises(RequestRefused, match=r"busy \(after 6 tries\)"):
            await client.post("/completions", {})
        client.watch.ask = None
        await post_once(client, server)

    talk(OK, ask=ask)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_an_optional_path_that_is_closed_is_its_own_error(status: int) -> None:
    async def ask(client: Client, server: ScriptedServer) -> None:
        with pytest.raises(RequestRefused):
            await client.post("//tokenize", {}, is_optional=True)
        await post_once(client, server)

    talk(reply({"error": {"message": "model not found"}}, status), OK, ask=ask)


def test_an_optional_path_may_tell_of_the_models_end() -> None:
    async def ask(client: Client, server: ScriptedServer) -> None:
        with pytest.raises(ModelStopped):
            await client.post("//tokenize", {}, is_optional=True)

    talk(reply({"error": {"message": "pay", "code": "insufficient_quota"}}, 429), OK, ask=ask)


def test_a_closed_client_opens_nothing() -> None:
    async def ask(client: Client, server: ScriptedServer) -> None:
        await client.close()
        with pytest.raises(ModelStopped, match="closed"):
            await client.post("/completions", {})
        assert not server.calls

    talk(OK, ask=ask)


@pytest.mark.parametrize("escaped", [False, True])
def test_an_escaped_key_is_not_shown(escaped: bool) -> None:
    key = "ab/cd/ef+0123456789"
    body = f'{{"error": {{"message": "wrong key {key}"}}}}'
    raw = sent(400, (body.replace("/", "\\/").replace("+", "\\u002b") if escaped else body).encode())
    error = error_of(raw, endpoint={"api_key_env": "OTHER"}, environ={"OTHER": key})
    assert str(error).endswith("400: wrong key ***")


@pytest.mark.parametrize("key", ["ollama", "123456"])
def test_a_dummy_key_is_not_taken_out_of_answers(key: str) -> None:
    async def ask(client: Client, server: ScriptedServer) -> None:
        answer = await client.post("/completions", {})
        assert answer == {"text": f"Use {key}.", "logprob": -2.123456789}

    talk(
        reply({"text": f"Use {key}.", "logprob": -2.123456789}),
        ask=ask,
        endpoint={"api_key_env": "OTHER"},
        environ={"OTHER": key},
    )


def test_a_server_that_fails_all_the_time_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer between begins the count anew."""
    monkeypatch.setattr("pytest_llmeval.models.servers.client._MOST_GIVEN_UP", 3)
    failing = reply({"error": {"message": "no memory"}}, 500)

    async def ask(client: Client, server: ScriptedServer) -> None:
        found: list[Any] = []
        for number in range(7):
            try:
                found.append(await client.post("/completions", {"n": number}, tries=2))
            except LLMEvalError as error:
                found.append(error)
        assert [type(one) for one in found[:2] + found[3:5]] == [RequestRefused] * 4
        assert found[2]["choices"] == []
        assert [type(one) for one in found[5:]] == [ModelStopped] * 2
        assert str(found[6]).endswith("500: no memory (after 2 tries, as the 2 requests before)")
        assert len(server.calls) == 11

    talk(*[failing] * 4, OK, failing, ask=ask)


def test_a_server_that_is_another_one_stops_the_model() -> None:
    async def is_the_same() -> None:
        raise ModelError("it is another one")

    async def ask(client: Client, server: ScriptedServer) -> None:
        client.watch.ask = is_the_same
        for _ in range(2):
            with pytest.raises(ModelStopped, match="it is another one"):
                await client.post("/completions", {})
        assert len(server.calls) == 1

    talk(CLOSE, OK, ask=ask)


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        ("openai", {"authorization": f"Bearer {KEY}"}),
        ("anthropic", {"x-api-key": KEY, "anthropic-version": "2023-06-01"}),
    ],
)
def test_keys(protocol: str, expected: dict[str, str]) -> None:
    async def ask(client: Client, server: ScriptedServer) -> None:
        await post_once(client, server)
        headers = server.calls[0].headers
        assert {name: headers[name] for name in expected} == expected
        assert len({"authorization", "x-api-key"} & headers.keys()) == 1

    talk(OK, ask=ask, endpoint={"api_key_env": "SOME_VARIABLE", "protocol": protocol})


@pytest.mark.parametrize("environ", [{}, {"MY_KEY": " "}])
def test_a_missing_variable_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"the variable MY_KEY, which holds the key for http://h/v1, is not set"):
        Client(Endpoint(url="http://h/v1", api_key_env="MY_KEY"), environ=environ)


def test_what_cannot_be_a_key_is_not_shown() -> None:
    with pytest.raises(OptionError) as caught:
        Client(Endpoint(url="http://h/v1", api_key_env="MY_KEY"), environ={"MY_KEY": f"{KEY}\nx: y"})
    assert "MY_KEY" in one_line_of(caught.value)
    assert KEY not in str(caught.value)


# What is tried again


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        *((reply({"error": "busy"}, status), str(status)) for status in (408, 409, 429, 500, 502, 503, 504, 529)),
        (sent(502, b"<html>Bad Gateway</html>", "content-type: text/html"), "502"),
        (reply({"error": {"code": 502, "message": "wrapped"}}), "502"),
        (CLOSE, "broken connection"),
        (sent(200, b'{"choices": [', length=100), "broken connection"),  # cut on the way
        (sent(200, b'{"choices": ['), "not JSON"),  # cut before it was sent
        (sent(200, b""), "not JSON"),
        (reply([1, 2]), "not JSON"),
        (sent(200, b'{"choices": []}{"choices": []}'), "not JSON"),
        (sent(200, gzip.compress(b"{}", mtime=0), "content-encoding: gzip"), "not JSON"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "broken connection"),
    ],
)
def test_what_may_pass_is_tried_again(step: bytes, reason: str) -> None:
    client = talk(step, step, OK, ask=post_once)
    assert client.usage.num_retries == {reason: 2}
    assert client.usage.num_requests == 1


@pytest.mark.parametrize(("room", "num_sent"), [(10, 0), (100, 1)])
def test_a_request_counts_unless_the_budget_had_no_room_for_its_first_try(room: int, num_sent: int) -> None:
    async def ask(client: Client, server: ScriptedServer) -> None:
        with pytest.raises(BudgetError):
            await client.post("/completions", {"prompt": "x", "max_tokens": 50})
        assert len(server.calls) == num_sent

    assert talk(CLOSE, OK, ask=ask, budget=Budget(None, room)).usage.num_requests == num_sent


@pytest.mark.parametrize("body", [b'{"x": "%s"}' % (b"a" * 3_000_000), b'{"x": [%s0]}' % (b"0," * 3000)])
def test_a_reply_without_end_is_not_read_to_its_end(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_REPLY_BYTES", 1 << 20)
    monkeypatch.setattr(connections, "MAX_REPLY_COMMAS", 2000)
    client = talk(sent(200, body), OK, ask=post_once)
    assert client.usage.num_retries == {"broken connection": 1}


def test_a_reply_that_comes_twice_does_not_answer_the_next_request() -> None:
    """Also where the second copy comes late, when the connection is idle."""

    async def ask(client: Client, server: ScriptedServer) -> None:
        for expected in range(4):
            assert await client.post("/x", {"k": expected}) == {"k": expected}

    talk(lambda call: reply(call.body) if call.connection > 2 else reply(call.body) * 2, ask=ask)


def test_tries_and_waits() -> None:
    clock = Clock()
    error = error_of(reply({"error": {"message": "it is broken"}}, 500), clock=clock)
    assert isinstance(error, RequestRefused)
    assert error.status == 500
    assert one_line_of(error).endswith("/v1: 500: it is broken (after 6 tries)")
    assert clock.sleeps == [1.0, 2.0, 4.0, 8.0, 16.0]  # with all of the jitter


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("0.5", 0.5),
        ("9999", 120.0),
        (email.utils.formatdate(1_000_000 + 30, usegmt=True), 30.0),
        (email.utils.formatdate(1_000_000 - 30, usegmt=True), 0.0),
        ("soon", 1.0),
    ],
)
def test_retry_after(header: str, wait_s: float) -> None:
    clock = Clock()
    talk(reply({}, 429, f"retry-after: {header}"), OK, ask=post_once, clock=clock)
    assert clock.sleeps == [wait_s]


def test_a_long_wait_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    def limited(wait_s: int) -> bytes:
        return reply({"error": {"message": "too many"}}, 429, f"retry-after: {wait_s}")

    async def ask(client: Client, server: ScriptedServer) -> None:
        server.steps = [limited(3), limited(3600), limited(20), OK]
        await client.post("/x", {})
        server.steps = [limited(25), limited(30), OK]  # 20 s later
        await client.post("/x", {})

    talk(OK, ask=ask, clock=Clock())
    assert [record.getMessage().partition("/v1: ")[2] for record in caplog.records] == [
        "429: too many; Retry-After is 3,600 s, trying again in 120 s",
        "429: too many; Retry-After is 20 s, trying again in 20 s",
    ]


def test_no_try_begins_after_ten_minutes() -> None:
    clock = Clock()

    async def ask(client: Client, server: ScriptedServer) -> None:
        with pytest.raises(RequestRefused, match="after 3 tries"):
            await client.post("/x", {})

    def busy(call: object) -> bytes:
        clock.now += 200.0  # so long does the server take to refuse
        return reply({}, 429, "retry-after: 90")

    talk(busy, ask=ask, clock=clock)
    assert clock.sleeps == [90.0, 90.0]


def test_a_reply_that_takes_too_long() -> None:
    """It alone has little time: for a reply that comes, a busy machine may take longer."""

    async def ask(client: Client, server: ScriptedServer) -> None:
        await post_once(client, server)  # which connects

        async def wait(_: float) -> None:
            server.steps, client._timeout_s = [OK], 60.0

        server.steps, client._timeout_s, client._sleep = [HANG], 0.05, wait
        await post_once(client, server)

    client = talk(OK, ask=ask)
    assert client.usage.num_retries == {"timed out": 1}
    assert client.usage.num_in_flight == 0


def test_fewer_tries_on_request() -> None:
    async def ask(client: Client, server: ScriptedServer) -> None:
        with pytest.raises(RequestRefused):
            await client.post("/x", {}, tries=1)
        assert len(server.calls) == 1

    talk(BUSY, OK, ask=ask)


def test_refusals_shrink_an_adaptive_limit_once() -> None:
    limit = AdaptiveLimit(20)

    async def ask(client: Client, server: ScriptedServer) -> None:
        await asyncio.gather(*(client.post("/x", {"k": number}) for number in range(10)))

    client = talk(*[BUSY] * 10, OK, ask=ask, limit=limit)
    assert client.usage.num_retries == {"429": 10}
    assert limit.width == 16


def test_a_connection_that_the_server_closes_between_two_requests() -> None:
    async def ask(client: Client, server: ScriptedServer) -> None:
        for _ in range(3):
            await post_once(client, server)
        assert server.num_connections == 3

    assert talk(reply({"choices": []}, 200, "connection: close"), ask=ask).usage.num_retries == {}


def test_a_cancelled_request_leaves_nothing_behind() -> None:
    async def ask(client: Client, server: ScriptedServer) -> None:
        task = asyncio.create_task(client.post("/x", {}))
        while not server.calls:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client.usage.num_in_flight == 0
        await post_once(client, server)
        assert [call.connection for call in server.calls] == [1, 2]

    talk(HANG, OK, ask=ask)


# What ends a sample


@pytest.mark.parametrize("status", [400, 413, 422, 405, 501])
@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "too long\nand more", "type": "x"}},
        {"error": "too long"},
        {"message": "too long"},
        {"detail": "too long"},
    ],
)
def test_a_request_that_the_server_refuses(status: int, body: object) -> None:
    error = error_of(reply(body, status))
    assert isinstance(error, RequestRefused)
    assert error.status == status
    assert one_line_of(error).endswith(f"/v1: {status}: too long")


def test_a_long_refusal_is_cut() -> None:
    assert len(str(error_of(reply({"error": "x" * 5000}, 400)))) < 400


def test_a_missing_path_is_no_missing_model() -> None:
    chat_only = "This is a chat model and not supported in the v1/completions endpoint."
    for body in ({"detail": "Not Found"}, {"error": {"message": chat_only}}):
        error = error_of(reply(body, 404))
        assert isinstance(error, RequestRefused)
        assert error.status == 404
    assert isinstance(error_of(sent(404, b"<html>", "content-type: text/html")), RequestRefused)


# What ends the model


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (reply({"error": {"message": "Incorrect API key"}}, 401), "refuses access (401: Incorrect API key)"),
        (reply({"detail": "no"}, 403), "refuses access (403: no)"),
        (reply({"error": {"message": "The model `x` does not exist."}}, 404), "unknown model (404: The model `x` does"),
        (reply({"type": "error", "error": {"type": "not_found_error", "message": "model: x"}}, 404), "unknown model"),
        (reply({"error": 'model "x" not found, try pulling it first'}, 404), "unknown model"),
        (reply({"error": {"code": "insufficient_quota", "message": "You exceeded"}}, 429), "the quota is exhausted"),
        (reply({"error": {"message": "Your credit balance is too low"}}, 400), "the quota is exhausted"),
        (reply({"error": {"message": "pay"}}, 402), "the quota is exhausted (402: pay)"),
        (sent(200, b"<!doctype html><p>", "content-type: text/html"), "is no model server: found an HTML page"),
        (sent(200, b"  <html>"), "is no model server: found an HTML page"),
        (reply({}, 301, "location: https://u:p@other.example:1/v1"), "redirects to other.example:1, which is not fol"),
        (reply({}, 307, "location: /v2/x"), "redirects to 127.0.0.1"),
    ],
)
def test_what_ends_the_model(step: bytes, words: str) -> None:
    async def ask(client: Client, server: ScriptedServer) -> None:
        messages = []
        for _ in range(3):
            with pytest.raises(ModelStopped) as caught:
                await client.post("/completions", {})
            messages.append(one_line_of(caught.value))
        assert len(set(messages)) == 1
        assert messages[0].startswith(f"{server.url}: ")
        assert words in messages[0]
        assert len(server.calls) == 1  # nothing is asked any more

    client = talk(step, OK, ask=ask)
    assert not client.usage.num_retries


def test_a_quota_of_a_minute_passes() -> None:
    body = {"error": {"code": 429, "message": "You exceeded your current quota, please check your plan and billing."}}
    assert talk(reply(body, 429), OK, ask=post_once).usage.num_retries == {"429": 1}


def test_a_server_without_a_key_says_how_one_is_named() -> None:
    assert "api_key_env=NAME" in str(error_of(reply({}, 401)))
    assert "api_key_env" not in str(error_of(reply({}, 401), endpoint={"api_key_env": "SOME_VARIABLE"}))


# Looking


def test_get_returns_whatever_the_status() -> None:
    async def ask(client: Client, server: ScriptedServer) -> None:
        found = await client.get("//props")
        assert (found.status, found.body, found.is_html) == (404, {"detail": "Not Found"}, False)
        page = await client.get("/models")
        assert (page.status, page.body, page.is_html, page.text) == (200, None, True, "<html>")
        assert isinstance(client.error_of(page), ModelStopped)
        assert isinstance(client.error_of(found), RequestRefused)
        await post_once(client, server)  # to look at an error does not end the model

    talk(reply({"detail": "Not Found"}, 404), sent(200, b"<html>", "content-type: text/html"), OK, ask=ask)


@contextmanager
def refusing() -> Iterator[int]:
    """A port that refuses connections: nobody listens there, and no other process can, for it is taken."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        yield port


@pytest.mark.parametrize(("method", "num_sleeps"), [("get", 0), ("post", 5)])
def test_a_host_that_does_not_answer(method: str, num_sleeps: int) -> None:
    clock = Clock()

    async def main() -> str:
        with refusing() as port:
            client = Client(Endpoint(url=f"http://127.0.0.1:{port}/v1"), sleep=clock.sleep, clock=clock)
            with pytest.raises(Unreachable) as caught:
                await (client.get("/models") if method == "get" else client.post("/completions", {}))
        await client.close()
        assert one_line_of(caught.value).startswith(client.endpoint.url)
        return str(caught.value)

    assert asyncio.run(main()).endswith("/v1: does not answer: connection refused")
    assert len(clock.sleeps) == num_sleeps


def test_a_server_that_has_gone_is_not_waited_for_again() -> None:
    clock = Clock()

    async def main() -> None:
        with refusing() as port:
            endpoint = Endpoint(url=f"http://127.0.0.1:{port}/v1", max_connections=2)
            client = Client(endpoint, sleep=clock.sleep, clock=clock)
            found = await asyncio.gather(*(client.post("/x", {}) for _ in range(50)), return_exceptions=True)
        assert {type(error) for error in found} == {Unreachable}
        await client.close()

    asyncio.run(main())
    assert len(clock.sleeps) <= 10  # two were under way


def test_a_host_that_takes_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECT_TIMEOUT_S", 0.05)

    async def main() -> None:
        async def forever(*_: object, **__: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", forever)
        client = Client(Endpoint(url="http://127.0.0.1:9/v1"))
        with pytest.raises(Unreachable, match=r"^http://127.0.0.1:9/v1: does not answer: no connection within"):
            await client.get("/models")
        await client.close()

    asyncio.run(main())


def test_a_host_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)

    async def main() -> None:
        client = Client(Endpoint(url="http://hots/v1"))
        with pytest.raises(Unreachable, match=r"^http://hots/v1: does not answer: Name or service not known$"):
            await client.get("/models")
        await client.close()

    asyncio.run(main())


def test_https_where_http_is_spoken() -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            client = Client(Endpoint(url=f"https://127.0.0.1:{port}/v1"))
            with pytest.raises(Unreachable, match=r"did you mean http://\?"):
                await client.get("/models")
            await client.close()

    asyncio.run(main())


def test_certificates_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ssl.SSLContext] = []
    create = ssl.create_default_context

    def remember() -> ssl.SSLContext:
        made.append(create())
        return made[0]

    monkeypatch.setattr(ssl, "create_default_context", remember)
    asyncio.run(_refused_tls())
    assert [(context.verify_mode, context.check_hostname) for context in made] == [(ssl.CERT_REQUIRED, True)]


async def _refused_tls() -> None:
    with refusing() as port:
        client = Client(Endpoint(url=f"https://127.0.0.1:{port}/v1"))
        with pytest.raises(Unreachable):
            await client.get("/models")
        await client.close()


# Proxies


def test_a_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(_: Client, proxy: ScriptedServer) -> None:
        monkeypatch.setenv("http_proxy", f"http://me:{KEY}@127.0.0.1:{proxy.port}")
        client = Client(
            Endpoint(url="http://far.example/v1", api_key_env="SOME_VARIABLE"), environ={"SOME_VARIABLE": KEY}
        )
        assert (await client.post("/completions", {"prompt": "x"}))["choices"] == []
        with pytest.raises(RequestRefused, match=r"^http://far\.example/v1: 400: no$"):
            await client.post("/completions", {"prompt": "y"})
        await client.close()
        assert proxy.calls[0].path == "http://far.example/v1/completions"
        assert proxy.calls[0].headers["authorization"] == f"Bearer {KEY}"

    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    talk(OK, reply({"error": "no"}, 400), ask=ask)


def test_no_proxy_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "nonsense://")
    with refusing() as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        talk(OK, ask=post_once)


# What nobody sees


@pytest.mark.parametrize(
    "step",
    [
        reply({"error": {"message": f"Incorrect API key provided: {KEY}."}}, 401),
        reply({"error": {"message": f"bad header Bearer {KEY}"}}, 400),
        reply({"error": f"busy, {KEY}"}, 500),
        sent(403, f"<html>{KEY}".encode(), "content-type: text/html"),
        CLOSE,
        reply({}, 302, f"location: http://x:{KEY}@other/?key={KEY}"),
    ],
)
@pytest.mark.parametrize("is_proxied", [False, True])
def test_no_message_log_or_traceback_holds_the_key(
    step: bytes, is_proxied: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint: dict[str, Any] = {"api_key_env": "SOME_VARIABLE"}

    async def ask(client: Client, server: ScriptedServer) -> None:
        if is_proxied:
            monkeypatch.setenv("all_proxy", f"http://127.0.0.1:{server.port}")
            clock = Clock()
            client = Client(
                Endpoint(url="http://far.example/v1", **endpoint),
                sleep=clock.sleep,
                environ={"SOME_VARIABLE": KEY},
            )
        with pytest.raises(LLMEvalError) as caught:
            await client.post("/completions", {"prompt": "x"})
        shown = str(caught.getrepr(showlocals=True, style="long", tbfilter=lambda found: found.traceback[1:]))
        assert "client.py" in shown
        assert KEY not in shown + repr(client) + str(caught.value)
        await client.close()

    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    talk(step, ask=ask, endpoint=endpoint)
    assert KEY not in caplog.text
