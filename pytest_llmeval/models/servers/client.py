"""One server over HTTP: JSON in, JSON out. A request that may succeed later is tried again; any other failure is one
line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urljoin, urlsplit

from pytest_llmeval.errors import LLMEvalError, ModelError, ModelStoppedError, RequestError
from pytest_llmeval.models.budget import Amount, Budget, BudgetError, most_new_tokens
from pytest_llmeval.models.endpoints import DEFAULT_TIMEOUT_S, Endpoint, check_variable
from pytest_llmeval.models.servers import loop
from pytest_llmeval.models.servers.concurrency import Limit, Ticket, limit_for
from pytest_llmeval.models.servers.connections import (
    LONGEST_MESSAGE,
    BrokenConnection,
    Connections,
    NoAnswer,
    NoConnection,
    Reply,
    Secret,
    TimedReply,
    is_quota,
    is_temporary,
    is_unknown_model,
    message_of,
    retry_after_s,
    status_within,
)
from pytest_llmeval.models.servers.rates import (
    BETWEEN_LINES_S,
    LONG_WAIT_S,
    RequestQueue,
    allowance_in,
    request_queue_for,
)
from pytest_llmeval.text.redaction import is_secret_value, one_line, remember
from pytest_llmeval.types import JSON

__all__ = ["Client", "ModelStopped", "RequestRefused", "Unreachable", "Usage", "Watch", "tokens_in"]


GET_TIMEOUT_S: Final = 5.0
"""Seconds to wait for a server's account of itself."""
NUM_TRIES: Final = 6
"""Tries of a request. Without ``Retry-After`` the waits between them double, and are at most 31 s together."""
TOTAL_S: Final = 600.0
"""Seconds after which a request is not tried again."""
LONGEST_RETRY_AFTER_S: Final = 120.0
"""The longest wait, in seconds, that a server's ``Retry-After`` can ask for."""
_BASE_DELAY_S = 0.5
_MOST_GIVEN_UP = 32
"""Requests in a row that were given up after all tries, before the server counts as ended."""
_LONGEST_TEXT = 2000
"""Characters that are kept of a reply's text, for messages."""
_SHORTEST_KEY, _LONG_KEY = 6, 16
"""Lengths of API keys. A shorter one than the first is not masked, since it is found in other words; one of the second
length that is not letters alone is more surely a secret."""
_ANTHROPIC_VERSION = "2023-06-01"


_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class RequestRefused(RequestError):
    """One request that the server refuses, or for which its replies stay unusable: the sample's own error.

    ``status`` is the last reply's; None if there was none. ``is_temporary``: it might go well at another time.
    """

    def __init__(self, message: str, status: int | None = None, *, is_temporary: bool = False) -> None:
        self.status = status
        self.is_temporary = is_temporary
        super().__init__(message)


class ModelStopped(ModelStoppedError):
    """The server will answer no request of this model: a wrong key, an unknown model, an exhausted quota."""

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class Unreachable(ModelError):
    """The server cannot be connected to, after all tries."""


@dataclass(slots=True, kw_only=True)
class Usage:
    """Counts of what a server was asked so far. ``num_retries`` counts by reason: ``429``, ``500``, ``timed out``, …"""

    num_requests: int = 0
    num_retries: Counter[str] = field(default_factory=Counter)
    num_prompt_tokens: int = 0
    num_tokens: int = 0
    num_in_flight: int = 0
    max_in_flight: int = 0


class _Temporary(Exception):
    """A failure that may pass when the request is tried again. ``reason`` is a word to count by."""

    def __init__(self, reason: str, error: LLMEvalError, retry_after_s: float | None = None) -> None:
        self.reason = reason
        self.error = error
        self.retry_after_s = retry_after_s
        super().__init__(reason)


class Client:
    """Talks to one endpoint. All methods run on the event loop of ``loop``.

    ``limit`` is how many requests may be open, by default that of the host, which the processes of a session share
    through the folder ``shared``; dialects set its width. ``queue`` says when the next request may be sent; by default
    those of host and key, shared as well. ``model`` is the name by which hosted APIs count requests. ``budget`` is what
    the session may pay, by ``prices`` of a million tokens that are read and written; ``limit_field`` is the user's name
    of the field that limits a reply. ``on_lost`` is that of ``ServerArguments``. ``sleep``, the clocks and ``jitter``
    (a number from 0 to 1) stand in for time and luck in tests.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        model: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        get_timeout_s: float = GET_TIMEOUT_S,
        limit: Limit | None = None,
        queue: RequestQueue | None = None,
        shared: Path | None = None,
        budget: Budget | None = None,
        prices: tuple[float, float] = (0.0, 0.0),
        limit_field: str | None = None,
        on_lost: Callable[[Endpoint], Awaitable[None]] | None = None,
        environ: Mapping[str, str] = os.environ,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        check_variable(endpoint, environ)
        self.endpoint = endpoint
        self.usage = Usage()
        self._budget, self._prices, self._limit_field = budget, prices, limit_field
        self._on_lost = on_lost
        self._budget_turn = asyncio.Lock()
        self._entrance = asyncio.Lock()
        """A request that has a slot and waits for its turn holds this lock, so that the others wait without a slot."""
        self.limit = limit or limit_for(endpoint, shared)
        self.queue = queue or request_queue_for(endpoint, shared)
        self._model = model
        self._timeout_s, self._get_timeout_s = timeout_s, get_timeout_s
        key = environ[endpoint.api_key_env].strip() if endpoint.api_key_env else ""
        self._is_telling = is_secret_value(key) or (
            len(key) >= _LONG_KEY and not key.isalpha() and is_secret_value(key, "password")
        )
        if self._is_telling:
            remember(key)
        self._key, self._headers = Secret(key), Secret(_headers(endpoint, key))
        self._api, self._root = urlsplit(endpoint.url).path, urlsplit(endpoint.root).path
        self._sleep, self._clock, self._wall_clock, self._jitter = sleep, clock, wall_clock, jitter
        self._ended: ModelStopped | Unreachable | None = None
        self.watch = Watch(clock)
        self.num_connection_tries = NUM_TRIES
        """Tries to connect to a host that does not answer; fewer if the model has other replicas."""
        self._num_given_up = 0
        self._told_at: float | None = None
        self._connections: Connections | None = None
        self._is_closed = False

    async def get(self, path: str, *, timeout_s: float | None = None, tries: int = 2) -> Reply:
        """Return the reply to a GET, whatever its status; ``path`` is below the API's root, with ``//`` the server's.

        Raises ``Unreachable`` after the first try to connect, and ``RequestRefused`` where no reply came whole.
        """
        patience_s = timeout_s or min(self._get_timeout_s, self._timeout_s)
        return await self._repeat(lambda: self._get(path, patience_s), tries)

    async def post(
        self,
        path: str,
        body: Mapping[str, JSON] | Callable[[], Mapping[str, JSON] | None],
        *,
        tries: int | None = None,
        is_optional: bool = False,
    ) -> TimedReply:
        """Return the JSON object that the server answers ``body`` with.

        A function is called for the body when the request's turn has come; where it gives None, nothing is sent, and
        the reply is empty. ``is_optional``: if this path is refused (a proxy may let ``/v1`` through and nothing else),
        that is an error of this request alone.

        Raises ``RequestRefused`` for this request, ``BudgetError`` if the budget has no room to send it or to repeat
        it, and ``ModelStopped`` or ``Unreachable``, which every later call then raises at once.
        """
        async with contextlib.AsyncExitStack() as held:
            async with self._entrance:
                ticket = await held.enter_async_context(self.limit.slot())
                wanted = await self.queue.wait_for_turn(lambda: self._made(body), self._model)
            if wanted is None:
                return TimedReply({}, seconds=0.0)
            content = json.dumps(wanted, separators=(",", ":")).encode()
            most = None
            if self._budget is not None and path.rpartition("/")[2] not in _UNPAID:
                most = self._amount(len(content), most_new_tokens(wanted, self._limit_field))
            self.usage.num_requests += 1
            self.usage.num_in_flight += 1
            self.usage.max_in_flight = max(self.usage.max_in_flight, self.usage.num_in_flight)
            num_tries = 0

            async def attempt() -> TimedReply:
                nonlocal num_tries
                if num_tries:
                    await self.queue.wait_for_turn(lambda: self._made(wanted), self._model, is_again=True)
                num_tries += 1
                return await self._post(path, content, ticket, most)

            try:
                found = await self._repeat(attempt, tries or NUM_TRIES)
            except BudgetError:
                if num_tries == 1:  # it was never sent
                    self.usage.num_requests -= 1
                raise
            except (ModelStopped, Unreachable) as error:
                if is_optional and isinstance(error, ModelStopped) and error.status in (401, 403, 404):
                    raise RequestRefused(str(error)) from None
                self._ended = self._ended or type(error)(str(error))  # without its traceback
                raise
            finally:
                self.usage.num_in_flight -= 1
        read, written = tokens_in(found)
        self.usage.num_prompt_tokens += read
        self.usage.num_tokens += written
        return found

    def _amount(self, num_prompt_tokens: int, num_tokens: int) -> Amount:
        cost = (self._prices[0] * num_prompt_tokens + self._prices[1] * num_tokens) / 1e6
        return Amount(cost, num_prompt_tokens + num_tokens)

    async def close(self) -> None:
        """Close all connections, for good."""
        self._is_closed = True
        if self._connections is not None:
            loop.forget(self.close)
            connections, self._connections = self._connections, None
            await connections.close()

    def error_of(self, reply: Reply) -> LLMEvalError:
        """Return the error that ``post`` raises for such a reply."""
        found = self._failure_in(reply)
        return found.error if isinstance(found, _Temporary) else found

    def _made(self, body: Mapping[str, JSON] | Callable[[], Mapping[str, JSON] | None]) -> Mapping[str, JSON] | None:
        self._check_has_not_ended()  # or the requests of a model that has stopped would wait for their turns
        return body() if callable(body) else body

    # One try

    async def _get(self, path: str, timeout_s: float | None) -> Reply:
        try:
            reply = await self._exchange("GET", path, None, timeout_s)
        except _Temporary as problem:
            # A second try would only double the wait for a server that may be none.
            has_waited = isinstance(problem.error, Unreachable) or problem.reason == "timed out"
            raise problem.error if has_waited else problem from None
        if is_temporary(reply.status) and isinstance(found := self._failure_in(reply), _Temporary):
            raise found
        return reply

    async def _post(self, path: str, content: bytes, ticket: Ticket, most: Amount | None) -> TimedReply:
        self._check_has_not_ended()
        await self._check_is_the_same()
        if most is None or self._budget is None:
            reply, seconds = await self._timed(path, content)
        else:
            reply, seconds = await self._paid(self._budget, most, path, content)
        allowance = allowance_in(reply.headers, self._wall_clock())
        self.queue.update_allowance(allowance, self.usage.num_in_flight - 1, self._model)
        if reply.is_success and isinstance(reply.body, dict) and not reply.body.get("error"):
            self.limit.answered(ticket)
            self._num_given_up = 0
            return TimedReply(reply.body, seconds=seconds)
        found = self._failure_in(reply)
        if reply.status in (502, 503, 504):
            self.watch.mark_suspect()
        if reply.status == 429 and isinstance(found, _Temporary):
            self.limit.refused(ticket)
        raise found

    async def _timed(self, path: str, content: bytes) -> tuple[Reply, float]:
        started = time.perf_counter()
        with self.watch.open():
            reply = await self._exchange("POST", path, content, None)
        return reply, time.perf_counter() - started

    async def _paid(self, budget: Budget, most: Amount, path: str, content: bytes) -> tuple[Reply, float]:
        """Return what ``_timed`` does, once the budget has room for ``most``. Raises ``BudgetError`` if it never has.

        ``most`` was paid unless more is known: a request without a reply may have been worked on, and each try is paid
        for.
        """
        async with self._budget_turn:  # of many that wait for room, one looks for it
            held = paid = await budget.hold(most)
        try:
            reply, seconds = await self._timed(path, content)
            counted = tokens_in(reply.body)
            if any(counted) or not reply.is_success:
                paid = self._amount(*counted)
            return reply, seconds
        except _Temporary as problem:
            if isinstance(problem.error, Unreachable):  # there was no connection
                paid = Amount()
            raise
        finally:
            budget.settle(held, paid)

    async def _check_is_the_same(self) -> None:
        """Check that a server is still the same: one that was started anew may serve another model, whose answers would
        be taken for this one's.
        """
        try:
            await self.watch.check()
        except Unreachable as error:
            raise _Temporary("no connection", Unreachable(str(error))) from None
        except RequestError as error:  # it is not back yet, or busy
            raise _Temporary("not ready", RequestRefused(str(error), is_temporary=True)) from None
        except ModelError as error:
            raise ModelStopped(str(error)) from None
        self._check_has_not_ended()

    def _check_has_not_ended(self) -> None:
        if self._ended is not None:
            raise type(self._ended)(str(self._ended))
        if self._is_closed:
            raise ModelStopped(self._line("the connections were closed"))

    async def _exchange(self, method: str, path: str, content: bytes | None, timeout_s: float | None) -> Reply:
        self._check_has_not_ended()
        try:
            if self._connections is None:
                self._connections = Connections(self.endpoint, self._headers)
                loop.at_shutdown(self.close)
            patience_s = timeout_s or self._timeout_s
            answer = await self._connections.exchange(method, self._path(path), content, patience_s)
        except NoConnection as error:
            self.watch.mark_suspect()
            raise _Temporary("no connection", Unreachable(self._line(f"does not answer: {error}"))) from None
        except NoAnswer as error:
            self.watch.mark_suspect()
            raise self._passing("timed out", str(error), None) from None
        except BrokenConnection as error:
            self.watch.mark_suspect()
            raise self._passing("broken connection", f"the connection broke: {error}", None) from None
        try:
            parsed = json.loads(answer.content)
        except (ValueError, RecursionError):
            parsed = None
        begun = answer.content[: _LONGEST_TEXT + len(self._key.reveal())].decode("utf-8", "replace")
        whole = Reply(status=answer.status, headers=answer.headers, body=parsed, text=begun)
        masked = self._masked(whole, answer.content)
        return replace(masked, text=masked.text[:_LONGEST_TEXT])

    def _masked(self, reply: Reply, content: bytes) -> Reply:
        """Return the reply without the API key, which servers repeat. In answers one that may be a word stays."""
        key = self._key.reveal()
        if reply.is_success and isinstance(reply.body, dict) and not reply.body.get("error"):
            spellings = (key.encode(), json.dumps(key)[1:-1].replace("/", "\\/").encode())
            if not self._is_telling or not any(spelling in content for spelling in spellings):
                return reply
        return reply if len(key) < _SHORTEST_KEY else reply.without(key)

    def _path(self, path: str) -> str:
        return self._root + path[1:] if path.startswith("//") else self._api + path

    # Many tries

    async def _repeat(self, attempt: Callable[[], Awaitable[_T]], tries: int) -> _T:
        begin = self._clock()
        for number in range(1, tries + 1):
            try:
                return await attempt()
            except _Temporary as problem:
                delay_s = self._delay_s(number, problem.retry_after_s)
                is_last = number == tries or self._clock() - begin + delay_s > TOTAL_S
                if is_last or (problem.reason == "no connection" and number >= self.num_connection_tries):
                    raise self._given_up(problem.error, number) from None
                self.usage.num_retries[problem.reason] += 1
                self._tell_of_wait(problem, delay_s)
                is_lost = problem.reason in ("no connection", "broken connection")
            if is_lost and self._on_lost is not None:
                await self._on_lost(self.endpoint)
            await self._sleep(delay_s)
        raise AssertionError(tries)

    def _tell_of_wait(self, problem: _Temporary, delay_s: float) -> None:
        """Say in the log how long a server wants us to wait: from outside, a session that waits seems to hang."""
        now = self._clock()
        asked_s = problem.retry_after_s or 0.0
        if asked_s >= LONG_WAIT_S and (self._told_at is None or now - self._told_at >= BETWEEN_LINES_S):
            self._told_at = now
            _log.warning("%s; Retry-After is %s s, trying again in %.0f s", problem.error, f"{asked_s:,.0f}", delay_s)

    def _delay_s(self, number: int, retry_after_s: float | None) -> float:
        if retry_after_s is not None:
            return min(retry_after_s, LONGEST_RETRY_AFTER_S)
        return self._jitter() * _BASE_DELAY_S * 2.0**number

    def _given_up(self, error: LLMEvalError, tries: int) -> LLMEvalError:
        """Return the last try's error with the number of tries. After many such requests in a row the model stops."""
        if tries == 1 or not isinstance(error, RequestRefused):
            return error
        self._num_given_up += 1
        if self._num_given_up >= _MOST_GIVEN_UP:
            return ModelStopped(f"{error} (after {tries} tries, as the {_MOST_GIVEN_UP - 1} requests before)")
        return RequestRefused(f"{error} (after {tries} tries)", error.status, is_temporary=True)

    # What a reply means

    def _failure_in(self, reply: Reply) -> LLMEvalError | _Temporary:
        """Return the error of a reply that is no answer: one that may pass is wrapped, as it is tried again."""
        status, said = reply.status, message_of(reply)
        if reply.is_success and (code := status_within(reply)) is not None:
            status = code
        shown = f"{status}: {said}" if said else str(status)
        if 300 <= status < 400:
            target = urlsplit(urljoin(self.endpoint.url, reply.headers.get("location", ""))).netloc.rpartition("@")[2]
            return self._stop(f"redirects to {target}, which is not followed: give that URL")
        if status == 402 or is_quota(reply, status):
            return self._stop(f"the quota is exhausted ({shown})")
        if is_temporary(status):
            return self._passing(str(status), shown, status, retry_after_s(reply.headers, self._wall_clock()))
        if reply.is_html and 200 <= status < 300:
            return self._stop("is no model server: found an HTML page")
        if status in (401, 403):
            hint = "" if self.endpoint.api_key_env else "; name the variable that holds its key with api_key_env=NAME"
            return self._stop(f"refuses access ({shown}){hint}", status)
        if status == 404 and is_unknown_model(reply):
            return self._stop(f"unknown model ({shown})", status)
        if reply.is_success and not isinstance(reply.body, dict):
            return self._passing("not JSON", "a reply that is no JSON object, or is cut", status)
        return RequestRefused(self._line(shown), status)

    def _stop(self, problem: str, status: int | None = None) -> ModelStopped:
        return ModelStopped(self._line(problem), status)

    def _passing(self, reason: str, problem: str, status: int | None, retry_after_s: float | None = None) -> _Temporary:
        return _Temporary(reason, RequestRefused(self._line(problem), status, is_temporary=True), retry_after_s)

    def _line(self, problem: str) -> str:
        return one_line(f"{self.endpoint.url}: {problem}", 2 * LONGEST_MESSAGE)


_UNPAID = frozenset(("tokenize", "detokenize", "show"))
"""Ends of paths at which a server runs no model."""


def tokens_in(reply: object) -> tuple[int, int]:
    """Return how many tokens were read and written for a reply, as it says; 0 where it says nothing.

    It does so by OpenAI's and Anthropic's ``usage``, SGLang's ``meta_info``, or what llama-server and Ollama have.
    Anthropic's ``input_tokens`` are without those that were written to its cache or read from there.
    """
    if not isinstance(reply, dict):
        return 0, 0
    counts = next((found for key in ("usage", "meta_info") if isinstance(found := reply.get(key), dict)), reply)
    cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
    read = ("prompt_tokens", "input_tokens", *cached, "tokens_evaluated", "prompt_eval_count")
    written = ("completion_tokens", "output_tokens", "tokens_predicted", "eval_count")
    return sum(_number(counts.get(name)) for name in read), sum(_number(counts.get(name)) for name in written)


def _headers(endpoint: Endpoint, key: str) -> dict[str, str]:
    """Return the headers of every request: with the key, where there is one."""
    headers = {"user-agent": "pytest-llmeval-suites"}
    if endpoint.protocol == "anthropic":
        headers["anthropic-version"] = _ANTHROPIC_VERSION
    if key and endpoint.protocol == "anthropic":
        headers["x-api-key"] = key
    elif key:
        headers["authorization"] = f"Bearer {key}"
    return headers


def _number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


_SHORTEST_RESTART_S = 1.0
"""Seconds without a request after which the server may have been started anew."""


class Watch:
    """Watches one server: if it may have been started anew, perhaps with another model, it is asked what it is.

    ``ask`` raises ``ModelError`` if the server is not what it was. If ``ask`` is None, the server is not asked.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.ask: Callable[[], Awaitable[None]] | None = None
        self._clock = clock
        self._num_open = 0
        self._quiet_since_s = clock()
        self._is_suspect = False
        self._asking: asyncio.Task[None] | None = None

    def mark_suspect(self) -> None:
        """Have it asked before the next request: a connection broke, or a gateway says that the server is gone."""
        self._is_suspect = True

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Count a request as being at the server: it would break if the server went away."""
        self._num_open += 1
        try:
            yield
        finally:
            self._num_open -= 1
            self._quiet_since_s = self._clock()

    async def check(self) -> None:
        """Ask the server before a request, if it is suspect. All requests that come meanwhile wait for one asking.
        Raises what ``ask`` raises.
        """
        if not self._num_open and self._clock() - self._quiet_since_s > _SHORTEST_RESTART_S:
            self._is_suspect = True
        if self.ask is not None and self._asking is None and self._is_suspect:
            self._is_suspect = False  # what breaks from here on makes it suspect again
            self._asking = asyncio.create_task(self._ask(self.ask))
            # Reads the error: asyncio warns of one that nobody has read, and all who wait may have been cancelled.
            self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        if self._asking is not None:
            await asyncio.shield(self._asking)  # a request that is cancelled does not end it for the others

    async def _ask(self, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            await ask()
        except BaseException:
            self._is_suspect = True
            raise
        finally:
            self._asking = None
            self._quiet_since_s = self._clock()
