"""A model behind one server or several: ``ServerModel``.

Requests are encoded, grouped and sent at once, as many as the servers' limits allow. Each has a future of its own, and
goes to the replica with the most room.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.base import Failed, UniformBackend
from pytest_llmeval.models.encoding import EncodedPair, sum_of_windows
from pytest_llmeval.models.servers import loop
from pytest_llmeval.models.servers.client import Client, ModelStopped, RequestRefused, Unreachable, Usage
from pytest_llmeval.models.servers.connections import served_together
from pytest_llmeval.models.servers.dialect import Dialect, FoundServer, ScoredPrompt
from pytest_llmeval.models.servers.planning import Embedded, Options, Pair, PlannedText, Planner, Question, Windows
from pytest_llmeval.models.servers.verdict import ServerVerdict
from pytest_llmeval.types import (
    GenerateResponse,
    LoglikelihoodResponse,
    ModelIdentity,
    Request,
    Response,
    ServerUse,
)

__all__ = ["Replicas", "ServerModel", "ServerReplica"]


_T = TypeVar("_T")
_SLACK = 4
"""The questions beyond its share that a server may get if it has read their prompt: one for each of four options."""
_NUM_REMEMBERED = 1000


@dataclass(slots=True, kw_only=True)
class ServerReplica:
    """One server. ``error`` is what ended it."""

    client: Client
    dialect: Dialect
    found: FoundServer
    num_open: int = 0
    error: ModelError | None = None

    @property
    def load(self) -> float:
        return self.num_open / max(1, self.client.limit.width)


class Replicas:
    """Shares questions out, each to the server with the most room. Used on the event loop alone."""

    def __init__(self, members: Sequence[ServerReplica]) -> None:
        self.members = tuple(members)
        self._readers: OrderedDict[Hashable, ServerReplica] = OrderedDict()

    async def ask(self, question: Callable[[ServerReplica], Awaitable[_T]], prompt: Hashable = None) -> _T:
        """Return what the question's server answers. A server that is gone, or refuses to go on, is not asked again;
        one that fails for the moment, in all tries, leaves the question to another.

        The server that was last asked about the same ``prompt`` has read it already: it is asked again if it has
        little more to do than the others. Raises ``RequestError``, and what ended the last server.
        """
        tried: list[ServerReplica] = []
        while True:
            replica = self._next(prompt, tried)
            replica.num_open += 1
            try:
                return await question(replica)
            except (ModelStopped, Unreachable) as error:
                replica.error = replica.error or error
            except RequestRefused as error:
                tried.append(replica)
                if not error.is_temporary or not self._living(tried):
                    raise
            finally:
                replica.num_open -= 1

    def _living(self, tried: Sequence[ServerReplica] = ()) -> list[ServerReplica]:
        return [m for m in self.members if m.error is None and not any(m is other for other in tried)]

    def _next(self, prompt: Hashable, tried: Sequence[ServerReplica]) -> ServerReplica:
        alive = self._living(tried) or self._living()
        if not alive:
            error = self.members[-1].error
            assert error is not None
            raise ModelStopped(str(error))
        chosen = min(alive, key=lambda replica: replica.load)
        if prompt is None or len(alive) == 1:
            return chosen
        reader = self._readers.pop(prompt, chosen)
        if any(reader is one for one in alive) and reader.num_open - _SLACK <= chosen.load * reader.client.limit.width:
            chosen = reader
        self._readers[prompt] = chosen
        if len(self._readers) > _NUM_REMEMBERED:
            self._readers.popitem(last=False)
        return chosen

    @property
    def num_concurrent(self) -> int:
        """Return how many questions the servers can work on at once: each connection on all that one request asks
        for.
        """
        return sum(one.client.limit.width * one.dialect.num_together for one in self.members if one.error is None)

    @property
    def usage(self) -> Usage:
        """Return the use of all servers together."""
        total = Usage()
        for replica in self.members:
            usage = replica.client.usage
            total.num_requests += usage.num_requests
            total.num_retries += Counter(dict(usage.num_retries))  # the loop may add a reason meanwhile
            total.num_prompt_tokens += usage.num_prompt_tokens
            total.num_tokens += usage.num_tokens
            total.num_in_flight += usage.num_in_flight
            total.max_in_flight += usage.max_in_flight
        return total


_R = TypeVar("_R", bound=Response)
_Answers: TypeAlias = "dict[int, Response | Failed]"

_PORTION = 64
"""The number of requests that are encoded together; those of one sample stand side by side."""
_NUM_ENCODERS = 4


class ServerModel(UniformBackend):
    """A model that servers run. ``verdict`` is the result of their self-test; ``summary`` says it in one line.

    ``prices`` are for a million tokens, of prompts and of replies. ``missing`` has a line for each server that did not
    answer at the start.
    """

    has_stops_behind_reasoning = True

    def __init__(
        self,
        identity: ModelIdentity,
        replicas: Replicas,
        planner: Planner,
        verdict: ServerVerdict,
        *,
        prices: tuple[float | None, float | None] = (None, None),
        missing: Sequence[str] = (),
    ) -> None:
        self.identity = identity
        self.verdict = verdict
        self._replicas = replicas
        self._planner = planner
        self._prices = prices
        self._missing = tuple(missing)
        self._process = os.getpid()
        self.is_closed = False
        self._encoders = ThreadPoolExecutor(_NUM_ENCODERS, thread_name_prefix="llmeval-encode")
        self._jobs: set[Future[None]] = set()
        self._served = ServerUse()

    @property
    def summary(self) -> str:
        """Return what the servers are and what their self-test found, for pytest's header."""
        found, number = self._replicas.members[0], len(self._replicas.members)
        version = f" {found.found.version}" if found.found.version else ""
        replicas = f", {number} replicas" if number > 1 else ""
        return f"{found.dialect.name}{version}, {found.found.model}{replicas}; {self.verdict.summary()}"

    @property
    def why_weights_may_change(self) -> str | None:
        """Return why the next session may meet another model though the server says the same; None if it cannot.

        A digest is made from the weights. A name or a path stays when others are put in their place.
        """
        is_known = self._replicas.members[0].found.names_weights
        return None if is_known else "the server does not say which weights its model has"

    @property
    def num_concurrent(self) -> int:
        """Return how many requests the servers can work on at once."""
        return self._replicas.num_concurrent

    @property
    def usage(self) -> Usage:
        """Return what was asked so far, over all replicas."""
        return self._replicas.usage

    @property
    def num_in_flight(self) -> int:
        """Return how many requests are open now."""
        return self.usage.num_in_flight

    @property
    def server_use(self) -> ServerUse:
        """Return what was asked so far, and what it costs."""
        usage = self.usage
        use = ServerUse(
            num_requests=usage.num_requests,
            retries=dict(usage.num_retries),
            num_prompt_tokens=usage.num_prompt_tokens,
            num_tokens=usage.num_tokens,
            cost=self.cost_of(usage),
            left_out=tuple({name for member in self._replicas.members for name in list(member.dialect.left_out)}),
            ended=(*self._missing, *self._ended_replicas()),
        )
        return use + self._served

    def _ended_replicas(self) -> list[str]:
        """Return why replicas have ended. The end of an only server is the model's, of which the session tells."""
        members = self._replicas.members
        return [str(one.error).partition("\n")[0] for one in members if one.error is not None and len(members) > 1]

    def cost_of(self, counted: Usage | Response) -> float | None:
        """Return what these tokens cost by the prices of this session; None if no price was given.

        A log-likelihood counts as a request of its own, as APIs bill it: context and continuation are read, and one
        token is written behind them. Options that a server takes in one request can cost less together. A text that is
        scored whole has no cost: it does not say how often its tokens were read, as windows overlap.
        """
        if isinstance(counted, LoglikelihoodResponse):
            tokens = counted.num_context_tokens + counted.num_tokens, 1
        else:
            tokens = counted.num_prompt_tokens, counted.num_tokens
        costs = [price * count / 1e6 for price, count in zip(self._prices, tokens, strict=True) if price is not None]
        return math.fsum(costs) if costs else None

    def _priced(self, answer: Response | Failed) -> Response | Failed:
        """Return a reply with what its tokens cost."""
        return answer if isinstance(answer, RequestError) else replace(answer, cost=self.cost_of(answer))

    def lacks_method(self, suite: str, method: str) -> str | None:
        """Return why the servers cannot be asked for this method of ``Model``, in one line; None if they can."""
        return self.verdict.refusal(method)

    def unknown_setting(self, request: Request) -> tuple[str, str] | None:
        """Return a setting of the request that the servers are not known to have, and what to do; None for none."""
        return self._planner.unknown_setting(request)

    def refuses_tools(self) -> str | None:
        """Return why the servers' model cannot be given tools, in one line; None if it can, as far as is known."""
        return self._planner.why_no_tools

    def close(self) -> None:
        """Cancel what is under way, and end the connections."""
        self.is_closed = True
        for job in list(self._jobs):
            job.cancel()
        for replica in self._replicas.members:
            loop.run(replica.client.close()).result()
        self._encoders.shutdown(wait=False, cancel_futures=True)
        loop.shutdown_if_unused()

    # Asking

    def submit(self, requests: Sequence[Request]) -> list[Future[Response | Failed]]:
        """Start asking; one future for each request, in order. Does not wait.

        A future's result is a response, or the ``RequestError`` in its place; it raises ``ModelError`` where the model
        has ended. Cancelling a future cancels its request.
        """
        if os.getpid() != self._process:
            raise ModelError(f"model {self.identity.name}: its connections do not work in a forked process")
        futures: list[Future[Response | Failed]] = [Future() for _ in requests]
        if futures:
            job = loop.run(self._answer(list(requests), futures))
            self._jobs.add(job)
            job.add_done_callback(self._jobs.discard)
        return futures

    def run(self, requests: Sequence[Request]) -> list[Response | Failed]:
        listener = self.take_listener()
        return self.await_all(self.submit(requests), listener)

    async def _answer(self, requests: Sequence[Request], futures: Sequence[Future[Response | Failed]]) -> None:
        """Encode the requests in portions, and ask one portion while the next is encoded."""
        running = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []
        try:
            for first in range(0, len(requests), _PORTION):
                places = range(first, min(first + _PORTION, len(requests)))
                wanted = [(place, requests[place]) for place in places if not futures[place].cancelled()]
                questions, errors = await running.run_in_executor(self._encoders, self._planner.plan, wanted)
                for place, error in errors.items():
                    _resolve(futures[place], error)
                tasks += [self._start(question, futures) for question in questions]
            await asyncio.gather(*tasks)
        except BaseException as error:
            for task in tasks:
                task.cancel()
            for future in futures:
                if not future.done():
                    _fail(future, error)
            raise

    def _start(self, question: Question, futures: Sequence[Future[Response | Failed]]) -> asyncio.Task[None]:
        """Return a task that answers the question, and ends when nobody wants the answer any more."""
        running = asyncio.get_running_loop()
        own = [futures[place] for place in question.places]
        task = running.create_task(self._settle(question, futures))

        def on_done(future: Future[Response | Failed]) -> None:
            if future.cancelled() and all(other.cancelled() for other in own):
                running.call_soon_threadsafe(task.cancel)

        for future in own:
            future.add_done_callback(on_done)
        return task

    async def _settle(self, question: Question, futures: Sequence[Future[Response | Failed]]) -> None:
        try:
            prompt = question.pair.context if isinstance(question, Pair) else None
            answers: _Answers = await self._replicas.ask(lambda replica: _ask(question, replica), prompt)
        except RequestError as error:
            answers = dict.fromkeys(question.places, error)
        except asyncio.CancelledError as error:
            for place in question.places:
                _fail(futures[place], error)
            if all(futures[place].cancelled() for place in question.places):
                return
            raise
        except Exception as error:  # the model has ended, or a defect of ours: it belongs to these requests
            for place in question.places:
                _fail(futures[place], error)
            return
        for place, answer in answers.items():
            if not isinstance(answer, RequestError):
                self._served = self._served.counting(answer)
            _resolve(futures[place], answer if isinstance(question, Windows) else self._priced(answer))


def _resolve(future: Future[Response | Failed], answer: Response | Failed) -> None:
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_result(answer)


def _fail(future: Future[Response | Failed], error: BaseException) -> None:
    if isinstance(error, asyncio.CancelledError):
        future.cancel()
    elif not future.done() and future.set_running_or_notify_cancel():
        future.set_exception(error)


async def _ask(question: Question, replica: ServerReplica) -> _Answers:
    """Return the answers to one question, by place. Raises ``RequestError``."""
    match question:
        case PlannedText():
            return dict.fromkeys(question.places, await _ask_text(question, replica))
        case Pair():
            answer = await replica.dialect.loglikelihood(replica.client, question.pair)
            return dict.fromkeys(question.places, answer)
        case Options():
            return await _ask_options(question, replica)
        case Embedded():
            return dict.fromkeys(question.places, await replica.dialect.embed(replica.client, question.text))
        case Windows():
            pairs = [replica.dialect.loglikelihood(replica.client, pair) for pair in question.pairs]
            windows = await asyncio.gather(*pairs)
            return dict.fromkeys(question.places, replace(sum_of_windows(windows), **served_together(windows)))


async def _ask_text(question: PlannedText, replica: ServerReplica) -> GenerateResponse:
    response = await replica.dialect.generate(replica.client, question.request, question.opened)
    sent = question.num_prompt_tokens
    if sent is not None and response.num_prompt_tokens not in (0, sent, 2 * sent):  # twice if it was asked again
        raise RequestError(
            f"the prompt has {sent} tokens and the server read {response.num_prompt_tokens}: it cuts long prompts, or "
            "changes them"
        )
    return response


async def _ask_options(question: Options, replica: ServerReplica) -> _Answers:
    dialect, client = replica.dialect, replica.client
    shared = ScoredPrompt(logprobs=(), is_greedy=True, num_context_tokens=len(question.context), seconds=0.0)
    if question.shared:
        shared = await dialect.score(client, EncodedPair(question.context, question.shared))
    found = await dialect.next_logprobs(client, (*question.context, *question.shared), list(question.tokens))
    if found is None:
        raise RequestError("the server gave no logprobs of the options' tokens, as it did in its self-test")
    num_answers = len(question.places)
    answers: _Answers = {}
    for token, places in question.tokens.items():
        logprob = found.logprobs[token]
        answer = LoglikelihoodResponse(
            loglikelihood=math.fsum((*shared.logprobs, logprob)),
            num_tokens=len(question.shared) + 1,
            is_greedy=None if shared.is_greedy is None else shared.is_greedy and logprob >= found.largest - 1e-9,
            num_context_tokens=len(question.context),
            seconds=(shared.seconds + found.seconds) / num_answers,
            is_timed=found.is_timed and num_answers == 1,
            **served_together((shared, found)),
        )
        answers.update(dict.fromkeys(places, answer))
    return answers
