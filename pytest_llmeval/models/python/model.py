"""Asks a Python function and reads what it returned, or wraps an object of the model Protocol."""

from __future__ import annotations

import json
import math
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pytest_llmeval.data.code_version import SOURCE, hash_of_sources
from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.base import Backend, Failed, Model, NamedModel, ended_at_limit
from pytest_llmeval.models.budget import Amount, Budget, BudgetError
from pytest_llmeval.models.hardware import is_device_lost
from pytest_llmeval.models.python import calls
from pytest_llmeval.models.python.calls import CallBounds, CallOutcome, Calls, is_async
from pytest_llmeval.models.python.importing import (
    METHODS,
    NO_TOOLS,
    OWN_ARGUMENTS,
    TOOLS,
    concurrency_of,
    find_object,
    imported_name,
    make_answerer,
    needs_tools,
    offered_settings,
    own_traceback,
    price_of,
    signature_of,
)
from pytest_llmeval.models.reasoning import cut_at_stop
from pytest_llmeval.text.documents import context_texts, found_documents
from pytest_llmeval.text.messages import openai_messages
from pytest_llmeval.text.redaction import describe as describe_error
from pytest_llmeval.text.redaction import redact
from pytest_llmeval.text.tool_calls import read_tool_calls
from pytest_llmeval.text.traces import trace_steps
from pytest_llmeval.text.wording import describe, nearest, quoted
from pytest_llmeval.types import (
    JSON,
    SPECIAL_SAMPLING,
    EmbeddingRequest,
    EmbeddingResponse,
    GenerateRequest,
    GenerateResponse,
    ModelIdentity,
    Prompt,
    as_builtin,
    finite_number,
)

__all__ = ["CallError", "CallableModel", "EmbeddingFunction", "load_python", "read_reply"]


_OF_TEXT = ("raw", "text", "content", "output", "final_output", "answer")
"""The names under which the results of frameworks hold their text."""


def read_reply(returned: object) -> tuple[str, dict[str, Any]]:
    """Return the text, and what the function says beside it, by the names of the fields of ``GenerateResponse``.

    Documents alone need no text. ``ValueError`` says what it has returned instead.
    """
    beside: dict[str, Any] = {}
    if hasattr(returned, "tolist"):  # numpy's and torch's
        returned = returned.tolist()
    if isinstance(returned, Mapping) and not _are_scores(returned):
        returned, beside = _with_more(returned)
    elif isinstance(returned, list | tuple | Mapping):
        try:
            returned, beside = "", {"documents": found_documents(returned), "has_text": False}
        except ValueError as error:
            what = "a mapping" if isinstance(returned, Mapping) else "a list"
            raise ValueError(f"{what}: {error}") from None
    if not isinstance(returned, str):
        raise ValueError(_no_text(returned))
    return str(returned), beside


def _are_scores(returned: Mapping[Any, object]) -> bool:
    """Tell whether it maps documents' ids to scores."""
    known = ("text", *_BESIDE, "trace")
    return not any(key in known for key in returned) and all(
        isinstance(score, float | int) or hasattr(score, "item") for score in returned.values()
    )


def _with_more(returned: Mapping[Any, object]) -> tuple[object, dict[str, Any]]:
    known = ("text", *_BESIDE, "trace")
    unknown = [str(key) for key in returned if key not in known]
    if unknown or returned.keys().isdisjoint(("text", "documents", "tool_calls")):
        keys = ", ".join(quoted(str(key)) for key in list(returned)[:3]) or "none"
        near = nearest(unknown[0], known) if unknown else None
        hint = f"; did you mean {near}?" if near else ""
        raise ValueError(f"a mapping with the keys {keys}, expected a str, or a mapping with text and {_MORE}{hint}")
    beside: dict[str, Any] = {}
    for name, value in returned.items():
        try:
            if name == "trace":
                beside[name] = trace_steps(value)
            elif name != "text":
                beside[name] = _BESIDE[name](value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    text = returned.get("text")
    if text is None and beside.get("tool_calls"):
        return "", beside  # libraries give None for the text of a reply that consists of calls
    if "text" not in returned:
        beside["has_text"] = "tool_calls" in returned
        text = ""
    return text, beside


def _count(value: object) -> int:
    """Return a number of tokens; 0, for not known, where it is None, as libraries give it where a server did not
    count.
    """
    if value is None:
        return 0
    plain = as_builtin(value)
    if isinstance(plain, float) and plain.is_integer():  # a sum of numpy's or pandas'
        plain = int(plain)
    try:
        count = -1 if isinstance(plain, bool) else operator.index(plain)  # type: ignore[arg-type]
    except TypeError:
        count = -1
    if count < 0:
        raise ValueError(f"found {describe(plain)}, expected a whole number, 0 or more")
    return count


def _cost(value: object) -> float | None:
    if value is None:
        return None
    cost = None if isinstance(value, bool | str) else finite_number(value)
    if cost is None or cost < 0:
        raise ValueError(f"found {describe(as_builtin(value))}, expected a finite number, 0 or more")
    return cost


def _reasoning(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    raise ValueError(f"found {describe(as_builtin(value))}, expected text")


def _finish_reason(value: object) -> str:
    """Return ``length`` for a reply that was cut, by the words of several APIs, and ``stop`` for any other reason."""
    if value is None or isinstance(value, str):
        return "length" if value and ended_at_limit(value) else "stop"
    raise ValueError(f"found {describe(as_builtin(value))}, expected text such as stop or length")


_BESIDE: Mapping[str, Callable[[object], object]] = {
    "contexts": context_texts,
    "documents": found_documents,
    "num_prompt_tokens": _count,
    "num_tokens": _count,
    "cost": _cost,
    "reasoning": _reasoning,
    "finish_reason": _finish_reason,
    "tool_calls": read_tool_calls,
}
"""The names under which a function can say more beside its text, each with its reader."""
_MORE = f"{', '.join(_BESIDE)} or trace"


def _no_text(returned: object) -> str:
    """Return what was returned, and where an object of a framework has its text."""
    found = "None" if returned is None else f"{_short(returned)} ({type(returned).__name__})"
    name = next((name for name in _OF_TEXT if isinstance(_attribute(returned, name), str)), None)
    documents = " (or the ids of documents, where they are judged)" if returned is None else ""
    return f"{found}, expected a str{documents}{f': return its .{name}' if name else ''}"


def _attribute(value: object, name: str) -> object:
    try:
        return getattr(value, name, None)
    except Exception:  # of a property of the user's
        return None


_T = TypeVar("_T")
_UNBOUNDED = CallBounds()
_MOST = "max_connections"
_PRICES = ("price_in", "price_out")
_GRACE_S = 0.5
"""Seconds beyond its limit that a call may take without a warning that it blocks: another call may have blocked it."""


class CallError(RequestError):
    """An error that the user's own function raised: the first line says which, the rest is its traceback."""


def load_python(
    name: str,
    module: str,
    attribute: str,
    arguments: Mapping[str, JSON],
    *,
    bounds: CallBounds | None = None,
    prices: Mapping[str, JSON] | None = None,
    embeds: bool = False,
    budget: Budget | None = None,
) -> Model:
    """Return what the module names, ready to be asked. ``name`` is what records are keyed by. ``embeds``: a function is
    one of texts and gives their embeddings; else it is one of a prompt and gives a text. ``bounds`` are those of its
    calls, ``prices`` those of the session, ``price_in`` and ``price_out``, for a model that is given none, and
    ``budget`` what it may pay.

    Raises ``ModelError``.
    """
    found = find_object(module, attribute, name)
    signature = signature_of(found) if callable(found) else None
    taken = () if signature is None else signature.parameters
    ours = (*OWN_ARGUMENTS, *(one for one in (_MOST, *_PRICES) if one not in taken))
    if _MOST in ours and (most := concurrency_of(arguments, name, _MOST)) is not None:
        bounds = replace(bounds or _UNBOUNDED, most=most)
    own = {key: value for key, value in arguments.items() if key not in ours}
    answerer, per_call = make_answerer(found, own, name, attribute)
    code = hash_of_sources(answerer, imported_name(module))
    source: dict[str, JSON] = {} if code is None else {SOURCE: code}
    own_prices = {**(prices or {}), **{one: arguments[one] for one in _PRICES if one in ours and one in arguments}}
    price_in, price_out = (price_of(own_prices, name, one) for one in _PRICES)
    if _are_0((price_in, price_out)) and budget is not None and budget.most_tokens is None:
        budget = None  # it keeps to any, and its calls need not wait for what others cost
    if any(callable(getattr(answerer, method, None)) for method in METHODS):
        if given := [key for key in ours if key in arguments and key != "shown"]:
            has = next(method for method in METHODS if callable(getattr(answerer, method, None)))
            problem = (
                f"{attribute} has a method {has} for many requests: it bounds its calls itself, and says what they cost"
            )
            raise ModelError(f"model {name}: {' and '.join(given)}: {problem}")
        if budget is not None:
            problem = "an object that is asked for many replies at once cannot keep to a budget; name a function"
            raise ModelError(f"model {name}: {problem}")
        return PythonObject(answerer, name, source)
    identity = ModelIdentity(
        name=name,
        backend="python",
        details={"module": module, "callable": attribute, "is_async": is_async(answerer), **source},
    )
    if budget is not None and embeds:
        raise ModelError(f"model {name}: a function that is the embedder cannot keep to a budget")
    kind = EmbeddingFunction if embeds else CallableModel
    prices_of = (price_in, price_out)
    return kind(answerer, identity, per_call, bounds=bounds or _UNBOUNDED, prices=prices_of, budget=budget)


def _are_0(prices: tuple[float | None, float | None]) -> bool:
    """Tell whether nothing is paid: if one price is 0 and the other is not given, that one counts as 0 too."""
    return {*prices} - {None} == {0.0}


class PythonObject(NamedModel):
    """An object of the Protocol that the user's own code has made, with the hash of this code in its identity."""

    def __init__(self, model: object, name: str, source: Mapping[str, JSON]) -> None:
        super().__init__(model, name)
        self._source = source

    @property
    def identity(self) -> ModelIdentity:
        found = super().identity
        return replace(found, details={**found.details, **self._source})


class CallableModel(Backend):
    """A function that takes a prompt and returns a text, or a text and more about it; sync or async.

    It gets a chat as a list of ``{"role": …, "content": …}``, ``arguments`` with each call, and of a request's settings
    (max_tokens, stop, temperature, top_p, seed, epoch, and top_k, repetition_penalty and tools where the suite has
    them) those that it has a parameter for. Where it takes no ``stop`` its text is cut at the first stop string.
    ``bounds`` are those of its calls (see ``Calls``); where one runs at a time, the model answers one by one.
    ``prices`` are those of a million tokens, of prompts and of what is written. ``budget`` is what the session may
    pay.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        identity: ModelIdentity,
        arguments: Mapping[str, JSON],
        *,
        bounds: CallBounds = _UNBOUNDED,
        prices: tuple[float | None, float | None] = (None, None),
        budget: Budget | None = None,
    ) -> None:
        self._function = function
        self.identity = identity
        self._arguments = dict(arguments)
        self._bounds = bounds
        self._prices = prices
        self._budget = budget
        self._calls = Calls(function, identity.name, bounds)
        signature = signature_of(function)
        self._offered = () if signature is None else offered_settings(signature, arguments)
        self._needs_tools = signature is not None and needs_tools(signature)
        self.has_stops_behind_reasoning = "stop" not in self._offered
        self.answers_one_by_one = self._calls.concurrency == 1
        self._has_warned = False

    @property
    def function(self) -> Callable[..., Any]:
        """Return what answers."""
        return self._function

    @property
    def num_calls_at_once(self) -> int:
        """Return how many calls run at a time; each answers one request."""
        return self._calls.concurrency

    def run_generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse | Failed]:
        """Call the function for each request. An exception of it becomes a ``CallError`` in that request's place.

        The error of a device that is lost is raised: all calls that follow would fail.
        """
        listener = self.take_listener()
        responses: dict[int, GenerateResponse | Failed] = {}
        held: dict[int, Amount] = {}

        def take(place: int, outcome: CallOutcome) -> None:
            response = responses[place] = self._answer(requests[place], outcome)
            if place in held:
                self._settle(held.pop(place), response)
            listener({place: response})
            if self.on_progress is not None:
                self.on_progress(len(responses), len(requests))

        calls = [partial(self._called, request) for request in requests]
        try:
            self._calls.run(calls, take, partial(self._may_begin, held))
        finally:
            for amount in held.values():  # of calls that were interrupted
                self._settle(amount, RequestError("interrupted"))
        return [responses[place] for place in range(len(requests))]

    def _lacks(self, method: str) -> ModelError:
        """Return the error of a function that is asked for what a text does not say."""
        return ModelError(
            f"model {self.identity.name}: a function returns a text, and this suite's scorer needs log-likelihoods: "
            f"name a class or an object with a method {method}(requests), or score a reply (letter, exact, …)"
        )

    def _called(self, request: GenerateRequest) -> Any:
        if request.tools and TOOLS not in self._offered and TOOLS not in self._arguments:
            raise RequestError(NO_TOOLS)
        return self._function(_as_given(request.prompt), **self._settings(request))

    def _may_begin(self, held: dict[int, Amount], place: int) -> bool:
        """Tell whether the budget has room for a call, and hold that. Raises ``BudgetError``.

        What a function spends is not bounded by its prompt and ``max_tokens``: it may ask other models, many times.
        """
        if self._budget is None:
            return True
        if (amount := self._budget.try_hold(None)) is None:
            return False
        held[place] = amount
        return True

    def _settle(self, held: Amount, answer: GenerateResponse | Failed) -> None:
        """Tell the budget what a call has taken. If the call does not say that, nothing more is asked."""
        if self._budget is None:
            return
        if isinstance(answer, RequestError):
            self._budget.settle_unbounded(held, None)
            return
        tokens = answer.num_prompt_tokens + answer.num_tokens
        self._budget.settle_unbounded(held, Amount(answer.cost or 0.0, tokens))
        name = self.identity.name
        if self._budget.most_cost is not None and answer.cost is None:
            self._budget.end(
                f"{name} does not say what a reply costs, as --llm-budget needs it: let it count tokens, and give "
                "price_in and price_out, or let it return its cost; price_in=0 alone says that nothing is paid"
            )
        if self._budget.most_tokens is not None and not tokens:
            self._budget.end(f"{name} does not count tokens, as --llm-budget-tokens needs it")

    def _answer(self, request: GenerateRequest, outcome: CallOutcome) -> GenerateResponse | Failed:
        problem = self._problem(outcome)
        self._warn_of_blocking(outcome)
        if problem is not None:
            return problem
        response = self._response(outcome.returned, request, outcome.seconds)
        return response if isinstance(response, RequestError) else replace(response, cost=self.cost_of(response))

    def cost_of(self, response: GenerateResponse | EmbeddingResponse) -> float | None:
        """Return what the reply's tokens cost by the prices of this session; what the function said where it counts no
        tokens, or there are no prices. If it says nothing, and its prices are 0, that is 0.
        """
        counted = ((response.num_prompt_tokens, self._prices[0]), (response.num_tokens, self._prices[1]))
        costs = [count * price / 1e6 for count, price in counted if count and price is not None]
        if costs:
            return math.fsum(costs)
        return 0.0 if response.cost is None and _are_0(self._prices) else response.cost

    def _problem(self, outcome: CallOutcome) -> RequestError | None:
        """Return why a call has no result; None if it has one."""
        if outcome.is_late:
            limit, left = self._bounds.timeout_s, "" if is_async(self._function) else "; its thread is left to itself"
            return RequestError(f"{self.identity.name}: no reply within {limit:g} s{left}")
        if isinstance(outcome.error, BudgetError):
            return outcome.error
        return None if outcome.error is None else self._failed(outcome.error)

    def _warn_of_blocking(self, outcome: CallOutcome) -> None:
        """Warn of a function that blocks the event loop: no limit of time can end its call."""
        limit = self._bounds.timeout_s
        if limit is None or outcome.is_late or outcome.seconds < limit + _GRACE_S or self._has_warned:
            return
        self._has_warned = True
        warnings.warn(
            f"{self.identity.name}: a call took {outcome.seconds:.1f} s, and its limit is {limit:g} s: it blocks the "
            "event loop, where no limit can end it, nor another call run beside it; await what takes time, or write a "
            "plain function (def), which gets a thread",
            stacklevel=2,
        )

    def _settings(self, request: GenerateRequest) -> dict[str, Any]:
        # A function's own top_k may be the number of results of a search: without the suite's it is left alone.
        left_out = SPECIAL_SAMPLING.keys() - request.special_sampling.keys()
        if not request.tools and not self._needs_tools:
            left_out |= {TOOLS}
        settings: dict[str, Any] = {name: getattr(request, name) for name in self._offered if name not in left_out}
        if TOOLS in settings:
            settings[TOOLS] = json.loads(request.tools or "[]")
        if "stop" in settings:
            settings["stop"] = list(settings["stop"])
        return {**settings, **self._arguments}

    def _response(self, returned: object, request: GenerateRequest, seconds: float) -> GenerateResponse | Failed:
        if isinstance(returned, GenerateResponse):
            return returned
        if isinstance(returned, Iterator):
            try:
                returned = list(returned)
            except Exception as error:  # of the user's generator
                return self._failed(error)
        try:
            text, beside = read_reply(returned)
        except ValueError as error:
            return RequestError(redact(f"{self.identity.name} returned {error}"))
        if self.has_stops_behind_reasoning:
            text = cut_at_stop(request, text)[0]
        return GenerateResponse(text=text, seconds=seconds, is_timed=True, **beside)

    def _failed(self, error: BaseException) -> CallError:
        if is_device_lost(error):
            raise error
        lines = [f"{self.identity.name} raised {_described(error)}", *own_traceback(error, (__file__, calls.__file__))]
        return CallError(redact("\n".join(lines)))


class EmbeddingFunction(CallableModel):
    """A function that takes a list of texts and returns a vector for each, in order; sync or async.

    It gets ``arguments`` with each call. Where a call fails for several texts it is made for each alone, to know which
    of them is to blame.
    """

    _length: int | None = None

    def run_embed(self, requests: Sequence[EmbeddingRequest]) -> list[EmbeddingResponse | Failed]:
        found = self._embedded([request.text for request in requests])
        if not isinstance(found, RequestError):
            return found
        if len(requests) == 1:
            return [found]
        return [answer for request in requests for answer in self.run_embed([request])]

    def run_generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse | Failed]:
        raise self._lacks("generate")

    def _lacks(self, method: str) -> ModelError:
        return ModelError(f"model {self.identity.name}: a function that is the embedder gives vectors, and no {method}")

    def _embedded(self, texts: Sequence[str]) -> list[EmbeddingResponse | Failed] | Failed:
        found: list[CallOutcome] = []
        self._calls.run(
            [lambda: self._function(list(texts), **self._arguments)], lambda place, outcome: found.append(outcome)
        )
        (outcome,) = found
        if (problem := self._problem(outcome)) is not None:
            return problem
        returned = outcome.returned
        try:
            vectors = None if _is_single(returned) else [_entries(vector) for vector in returned]
        except Exception as error:
            return self._failed(error)
        if vectors is None:
            return self._refused(f"{_short(returned)} ({type(returned).__name__}), expected a vector for each text")
        if len(vectors) != len(texts):
            return self._refused(f"{len(vectors)} vectors for {len(texts)} text{'' if len(texts) == 1 else 's'}")
        seconds = outcome.seconds / max(1, len(texts))
        return [self._one(vector, seconds, is_timed=len(texts) == 1) for vector in vectors]

    def _one(self, vector: Any, seconds: float, *, is_timed: bool) -> EmbeddingResponse | Failed:
        if isinstance(vector, EmbeddingResponse):
            return replace(vector, cost=self.cost_of(vector))
        if _is_single(vector):
            return self._refused(f"{_short(vector)} ({type(vector).__name__}) in a vector's place")
        numbers: list[float] = []
        for entry in vector:
            if (number := None if isinstance(entry, bool) else finite_number(entry)) is None:
                return self._refused(f"a vector with {_short(entry)} in it, expected finite numbers")
            numbers.append(number)
        if not numbers or len(numbers) != (self._length or len(numbers)):
            return self._refused(f"a vector of {len(numbers)} numbers, expected {self._length or 'some'}")
        self._length = len(numbers)
        return EmbeddingResponse(vector=tuple(numbers), seconds=seconds, is_timed=is_timed)

    def _refused(self, what: str) -> RequestError:
        return RequestError(redact(f"{self.identity.name} returned {what}"))


def _entries(vector: Any) -> Any:
    """Return the list that a vector is; what is none, as it is."""
    if hasattr(vector, "tolist"):  # numpy's and torch's, all at once
        return vector.tolist()
    return vector if _is_single(vector) else list(vector)


def _is_single(value: object) -> bool:
    return isinstance(value, str) or not isinstance(value, Iterable)


def _described(error: BaseException) -> str:
    """Return an error in one line; of a group, which a ``TaskGroup`` raises, also the first error that is in it."""
    leaf, count = error, 1
    while isinstance(leaf, BaseExceptionGroup):
        count *= len(leaf.exceptions)
        leaf = leaf.exceptions[0]
    if leaf is error:
        return describe_error(error)
    return f"{type(error).__name__} of {describe_error(leaf)}{' and others' if count > 1 else ''}"


def _as_given(prompt: Prompt) -> str | list[dict[str, Any]]:
    """Return a text as it is, a chat as libraries of chat models take it."""
    if isinstance(prompt, str):
        return prompt
    return openai_messages(prompt)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
