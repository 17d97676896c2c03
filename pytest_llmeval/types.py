"""The values that all other folders exchange: samples, requests, responses, scores.

All are frozen and made of builtins. This module imports the standard library and the table of roles only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, Protocol, TypeAlias

from pytest_llmeval.roles import Role

__all__ = [
    "COSTS_NOTHING",
    "IS_KNOWN",
    "JSON",
    "REPLAYED",
    "Ask",
    "AskedSample",
    "ConversationRequest",
    "EmbeddingRequest",
    "EmbeddingResponse",
    "EngineUse",
    "GenerateRequest",
    "GenerateResponse",
    "LoglikelihoodRequest",
    "LoglikelihoodResponse",
    "LoglikelihoodRollingRequest",
    "Message",
    "ModelIdentity",
    "NotMeasurable",
    "Prompt",
    "Request",
    "Response",
    "Role",
    "Sample",
    "Score",
    "ScoreLike",
    "ServerUse",
    "Status",
    "StoreFlaws",
    "ToolCall",
    "as_builtin",
    "each_reply",
    "finite_number",
    "who_served",
]

JSON: TypeAlias = bool | int | float | str | list["JSON"] | dict[str, "JSON"] | None

Status: TypeAlias = Literal["correct", "wrong", "scored", "unscored"]
"""``scored`` is a number with no right or wrong, or half right; ``unscored`` could not be judged, and is never counted
as 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a chat.

    ``tool_calls`` are the functions that a turn of the assistant asks for, as the text of a JSON list in the form of
    OpenAI's API; empty for none. ``tool_call_id`` says which of them a tool's turn answers. ``name`` is who speaks:
    the function, or one of several users. ``has_content`` is False where a turn with tool calls has null for its
    ``content``, which is empty then: chat templates may tell it from an empty text.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: str = ""
    tool_call_id: str = ""
    name: str = ""
    has_content: bool = True


Prompt: TypeAlias = str | tuple[Message, ...]
"""Text, or the turns of a chat that the backend renders with the model's own chat template.

A last turn of the assistant is the beginning of its reply, which the model continues.
"""


@dataclass(frozen=True, slots=True)
class LoglikelihoodRequest:
    """A request for the log-likelihood of ``continuation`` after ``context``."""

    context: Prompt
    continuation: str


@dataclass(frozen=True, slots=True)
class LoglikelihoodRollingRequest:
    """A request for the log-likelihood of the whole ``text``, however long. Answered with a ``LoglikelihoodResponse``.

    A text longer than the model's context is read in windows, and each token is scored once. ``stride`` None cuts it
    into disjoint windows: the first token of a window is conditioned on one token. A ``stride`` of N moves a full
    window on by N tokens at a time and scores only those, so that every token after the first window has at least
    ``max_length - N`` tokens before it: slower, and closer to what the model can do.
    """

    text: str
    stride: int | None = None


SPECIAL_SAMPLING: Mapping[str, float] = {"top_k": 0, "repetition_penalty": 1.0}
"""Settings of a request that few suites have and few models know, with the values that do nothing."""


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """A request for the text that the model writes after ``prompt``.

    ``temperature`` 0 is greedy decoding; above 0 tokens are sampled with ``seed``, so that the same request gives the
    same text; ``top_p`` keeps the likeliest tokens whose probabilities reach that sum, and leaves out the others.
    Requests that differ in ``epoch`` alone are askings of one question: each draws tokens of its own. Generation ends
    at the end-of-text token, before the first string of ``stop``, or after ``max_tokens`` tokens. ``json_schema`` is
    the schema, as text, that the reply is wanted to follow: a model that cannot be held to one leaves it aside.
    ``reasoning`` are the tags, pairs of an opening and a closing one, between which the model may reason before it
    answers: ``stop`` applies behind them only, and what stands between them is split off when the reply arrives.
    Without tags nothing is split off. ``top_k`` keeps so many of the likeliest tokens where tokens are sampled, and 0
    all. ``repetition_penalty`` makes tokens less likely that stand in the prompt or the reply already, also in greedy
    decoding, and 1 does nothing (Keskar et al. 2019, as in transformers). ``tools`` are the functions that the model
    may call, as the text of a JSON list in the form of OpenAI's API; empty for none. Only a chat has tools.
    """

    prompt: Prompt
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    seed: int = 0
    top_p: float = 1.0
    epoch: int = 0
    json_schema: str = ""
    reasoning: tuple[tuple[str, str], ...] = ()
    top_k: int = 0
    repetition_penalty: float = 1.0
    tools: str = ""

    @property
    def special_sampling(self) -> dict[str, float]:
        """Return ``top_k`` and ``repetition_penalty``, each only where it decides something."""
        values = {name: getattr(self, name) for name in SPECIAL_SAMPLING if name != "top_k" or self.temperature > 0}
        return {name: value for name, value in values.items() if value != SPECIAL_SAMPLING[name]}


@dataclass(frozen=True, slots=True)
class ConversationRequest(GenerateRequest):
    """A request for the reply to the last turn of a conversation: the user's first is the end of ``prompt``, and each
    of ``turns`` follows the model's own reply to the one before.

    A model never sees one: it is asked turn by turn (``inference.conversations``).
    """

    turns: tuple[str, ...] = ()

    @property
    def users(self) -> tuple[str, ...]:
        """Return the user's text of each turn."""
        return (self.prompt if isinstance(self.prompt, str) else self.prompt[-1].content, *self.turns)

    def next_turn(self, replies: Sequence[GenerateResponse]) -> GenerateRequest:
        """Return the request for the turn after these replies: all messages so far, the replies without reasoning."""
        prompt = (Message(role="user", content=self.prompt),) if isinstance(self.prompt, str) else self.prompt
        for reply, turn in zip(replies, self.turns, strict=False):
            prompt += (Message(role="assistant", content=reply.text), Message(role="user", content=turn))
        values = {one.name: getattr(self, one.name) for one in fields(GenerateRequest)}
        return GenerateRequest(**{**values, "prompt": prompt})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoglikelihoodResponse:
    """``loglikelihood`` is the sum, in nats, of the logprobs of the continuation's ``num_tokens`` tokens.

    ``is_greedy``: each of those tokens is the likeliest at its place; None where that is unknown.
    ``num_context_tokens`` counts what the continuation is conditioned on. ``seconds``: this request's share of the time
    that its batch took; ``is_timed`` says that they are its own, measured for it alone. Of a
    ``LoglikelihoodRollingRequest`` the whole text is the continuation, and its context the one token that stands before
    the text.

    ``asked_at``, of a model with a store: when this reply was asked for, in this session or an earlier one (Unix, s).
    ``kept_as``: the session that asked for it, if it is in a store. Processes of one session may ask twice.

    ``measure`` says what the number is, where it was not computed here but came from a file: ``uncounted``, of an
    unknown number of tokens (``num_tokens`` is 0); ``score``, an option's score, to be compared as it is, whatever the
    option's length.

    ``served_model`` and ``system_fingerprint`` are what a server's reply says of who gave it: the name of the model,
    and of what it ran on. None where it does not say, and of models behind no server. ``cost`` is what the reply costs,
    in the user's currency; None if nothing says that.
    """

    loglikelihood: float
    num_tokens: int
    is_greedy: bool | None = False
    num_context_tokens: int = 0
    seconds: float = 0.0
    measure: Literal["loglikelihood", "uncounted", "score"] = "loglikelihood"
    is_timed: bool = False
    asked_at: float | None = None
    kept_as: str | None = None
    served_model: str | None = None
    system_fingerprint: str | None = None
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A function's name and the arguments with which a reply asks for it.

    ``arguments`` is a JSON object; None if what the model wrote is none, and then ``text`` is what it wrote.
    """

    name: str
    arguments: Mapping[str, JSON] | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateResponse:
    """``text`` is what the model wrote, without the prompt and without the stop string.

    ``seconds``, ``is_timed``, ``asked_at``, ``served_model``, ``system_fingerprint`` and ``cost`` as in
    ``LoglikelihoodResponse``. ``prefill_seconds``, where it is known, is the part of the ``seconds`` that went by until
    the first token was there: the time of reading the prompt. What else a program says of its reply is None where it
    says nothing of that: ``contexts`` are the texts, best first, that it retrieved and wrote its answer from,
    ``documents`` the ids of what it found, in its order, each with its score or None, and ``trace`` the steps by which
    an agent came to it. What only searches has documents, and no text: ``has_text`` is False then.

    ``reasoning`` is what the model wrote before its answer, where the model tells the two apart, and once the reply has
    arrived at whoever asked with tags of reasoning; None where there is none. ``is_unfinished``: the reply ended inside
    of its reasoning, and there is no answer. ``tagged``, of a model that knows it: the text with the tags of reasoning
    that ``text`` lacks, since the chat template opened them or they are special tokens; gone once the reply arrived.

    ``tool_calls`` are the functions that the reply asks for, in order; None where the model says nothing of them, and
    empty where it says that there are none. Of a request with tools, a reply that says nothing of them has those that
    its text holds (``text.tool_calls``), once it has arrived.

    ``turns`` are the replies to the earlier turns of a conversation; all other fields are the last reply's alone.
    """

    text: str
    finish_reason: Literal["stop", "length"] = "stop"
    num_prompt_tokens: int = 0
    num_tokens: int = 0
    seconds: float = 0.0
    is_timed: bool = False
    prefill_seconds: float | None = None
    asked_at: float | None = None
    kept_as: str | None = None
    contexts: tuple[str, ...] | None = None
    documents: tuple[tuple[str, float | None], ...] | None = None
    has_text: bool = True
    cost: float | None = None
    trace: tuple[JSON, ...] | None = None
    served_model: str | None = None
    system_fingerprint: str | None = None
    reasoning: str | None = None
    is_unfinished: bool = False
    tagged: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    turns: tuple[GenerateResponse, ...] = ()


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """A request for the vector that stands for ``text``."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingResponse:
    """``vector`` is the text's embedding, as the model gives it, of whatever length.

    ``num_prompt_tokens`` were read for it, and none written: ``num_tokens`` is 0. ``seconds``, ``is_timed``,
    ``asked_at``, ``served_model``, ``system_fingerprint`` and ``cost`` as in ``LoglikelihoodResponse``.
    """

    vector: tuple[float, ...]
    num_prompt_tokens: int = 0
    num_tokens: int = 0
    seconds: float = 0.0
    is_timed: bool = False
    asked_at: float | None = None
    kept_as: str | None = None
    served_model: str | None = None
    system_fingerprint: str | None = None
    cost: float | None = None


Request: TypeAlias = LoglikelihoodRequest | LoglikelihoodRollingRequest | GenerateRequest | EmbeddingRequest
Response: TypeAlias = LoglikelihoodResponse | GenerateResponse | EmbeddingResponse


def each_reply(responses: Iterable[Response]) -> list[Response]:
    """Return the responses, those to earlier turns of a conversation before the last: all that were asked for."""
    return [
        one
        for response in responses
        for one in (*(response.turns if isinstance(response, GenerateResponse) else ()), response)
    ]


@dataclass(frozen=True, slots=True)
class Ask:
    """Requests, independent of each other, that a scorer yields during its judgement to the model of a role.

    ``judge`` is the place of the judge that is asked among several, from 0. ``unusable`` are requests that were
    answered before with what is no answer: a store is not to give these replies again.
    """

    role: Role
    requests: tuple[Request, ...]
    judge: int = 0
    unusable: tuple[Request, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One question of a suite, as its data gives it: read and mapped, not yet interpreted by a scorer.

    ``id`` is unique in the suite. ``path`` and ``line`` say where the row stands (1-based; None where the format of the
    data set has no line for a row, as in JSON). ``cluster`` names what the sample shares with others, such as a
    passage; None where the suite says nothing of that. ``human`` is what people said of its reply, where the suite says
    where that stands. ``target`` is an index into ``choices``, a list of indices,
    text, a number or a bool: the scorer knows which. ``response`` is a reply that the data set itself carries.
    ``variables`` holds every name that a prompt template can use: the row's columns, the mapped fields, and ``row``
    (the columns alone). ``earlier`` is what the baseline has of the sample, where the scorer compares with it.
    """

    id: str
    path: str
    line: int | None
    question: str = ""
    choices: tuple[str, ...] = ()
    choice_types: tuple[str, ...] = ()
    target: JSON = None
    category: str | None = None
    cluster: str | None = None
    response: JSON = None
    human: JSON = None
    variables: Mapping[str, object] = field(default_factory=dict)
    earlier: EarlierReply | None = None


@dataclass(frozen=True, slots=True)
class EarlierReply:
    """A baseline's reply to a sample, None if it has none. ``problem`` says why it cannot be compared."""

    text: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A scorer's judgement of one sample.

    ``answer`` is what was extracted from the response, for a reader; None where nothing could be extracted, which is
    ``wrong`` with ``no_answer`` set. ``values`` are the sample's numbers by metric name (``accuracy`` 1.0 or 0.0,
    ``brier``, …). ``chance`` is the probability that a guess is right, None where guessing has no meaning. ``details``
    are for the report: logprobs per choice, the order in which options were shown. ``reason`` explains ``unscored``.
    ``vote`` is what a majority vote counts: the answer in a form that equal answers share, however they are written;
    None where the answer is that itself. ``not_measurable`` gives the reason for each metric that has no meaning for
    this sample; ``*`` stands for all that have no value in it. A metric that has neither a value nor a reason is
    missing, and no gate on it passes.
    """

    status: Status
    answer: str | None = None
    no_answer: bool = False
    values: Mapping[str, float] = field(default_factory=dict)
    chance: float | None = None
    details: Mapping[str, JSON] = field(default_factory=dict)
    reason: str | None = None
    vote: str | None = None
    not_measurable: Mapping[str, str] = field(default_factory=dict)


class ScoreLike(Protocol):
    """A score as metrics read it; a record of a report is one, too."""

    @property
    def status(self) -> Status: ...

    @property
    def no_answer(self) -> bool: ...

    @property
    def values(self) -> Mapping[str, float]: ...

    @property
    def chance(self) -> float | None: ...

    @property
    def not_measurable(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class NotMeasurable:
    """A value that a scorer or test gives in place of a number that has no meaning for a sample, with the reason: it is
    left out of the metric, counted with its reason, and closes no gate. What could not be judged is an error, and no
    such thing.
    """

    reason: str


IS_KNOWN = "known_by_content"
"""Among the details of a model: True where its fingerprint is one of what the model consists of."""

COSTS_NOTHING = "costs_nothing"
"""Among the details of a model in a report: True where nothing is paid for its replies."""

REPLAYED = "report"
"""Among the details of ``replay:REPORT``: the time at which the report's session began, and how long it took (s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelIdentity:
    """The model that a number was measured on, as the report describes it.

    ``name`` is how the user named the model and the key of its records; ``backend`` the code that runs it;
    ``revision`` the commit of the weights where the hub knows one; ``fingerprint`` a hash over the weights' content
    and everything else that decides the responses, None where it cannot be known. ``details`` holds what else a reader
    wants: class, number of parameters, maximum length, versions. Never a secret.
    """

    name: str
    backend: str
    revision: str | None = None
    dtype: str | None = None
    device: str | None = None
    fingerprint: str | None = None
    details: dict[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineUse:
    """The ways in which the log-likelihoods of a suite were computed, and the checks of them.

    ``reason`` says why it was this engine. ``num_audited`` requests were scored by the slow path as well, and differed
    by ``largest_difference`` (nats) at most, where ``tolerance`` was allowed.
    """

    engine: Literal["tree", "plain"]
    reason: str
    num_audited: int = 0
    largest_difference: float | None = None
    tolerance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFlaws:
    """The parts of a store (``--llm-store``) that one process could not use, by the names of the store's files.

    ``unreadable`` says why a file could not be read, ``damaged`` how many of its lines are damaged.
    """

    unreadable: Mapping[str, str] = field(default_factory=dict)
    damaged: Mapping[str, int] = field(default_factory=dict)

    def __or__(self, other: StoreFlaws) -> StoreFlaws:
        """Return the flaws that two processes found together, which read the same files: nothing is counted twice."""
        names = self.damaged.keys() | other.damaged.keys()
        return StoreFlaws(
            unreadable={**self.unreadable, **other.unreadable},
            damaged={name: max(self.damaged.get(name, 0), other.damaged.get(name, 0)) for name in sorted(names)},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerUse:
    """Counts of what one process has sent to a model behind a server, from its start.

    ``num_requests`` were answered or given up, tries of one request counted once; ``retries`` says how often one was
    tried again, by reason (``429``, ``connection``). Tokens are those that the server counts, of all requests, those of
    the self-test too. ``cost`` is in the currency of the prices; None where no price was given. ``left_out`` are
    settings that the server has refused (``temperature``), which no request has had since; ``ended`` are replicas that
    have ended or were never there, each with the reason. ``replicas`` says of replicas on Ray how many requests each
    has answered, and on which machine. ``served_models`` and ``system_fingerprints`` count the replies, those from a
    store too, by what they say of who gave them.
    """

    num_requests: int = 0
    retries: Mapping[str, int] = field(default_factory=dict)
    num_prompt_tokens: int = 0
    num_tokens: int = 0
    cost: float | None = None
    left_out: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    replicas: Mapping[str, int] = field(default_factory=dict)
    served_models: Mapping[str, int] = field(default_factory=dict)
    system_fingerprints: Mapping[str, int] = field(default_factory=dict)

    def counting(self, reply: Response) -> ServerUse:
        """Return the use with this reply counted in ``served_models`` and ``system_fingerprints``."""
        model, fingerprint = who_served(reply)
        if model is None and fingerprint is None:
            return self
        return replace(
            self,
            served_models=_added(self.served_models, _once(model)),
            system_fingerprints=_added(self.system_fingerprints, _once(fingerprint)),
        )

    def __add__(self, other: ServerUse) -> ServerUse:
        """Add the counts of two processes."""
        costs = [use.cost for use in (self, other) if use.cost is not None]
        return ServerUse(
            num_requests=self.num_requests + other.num_requests,
            retries=_added(self.retries, other.retries),
            num_prompt_tokens=self.num_prompt_tokens + other.num_prompt_tokens,
            num_tokens=self.num_tokens + other.num_tokens,
            cost=math.fsum(costs) if costs else None,
            left_out=tuple(sorted({*self.left_out, *other.left_out})),
            ended=tuple(sorted({*self.ended, *other.ended})),
            replicas=_added(self.replicas, other.replicas),
            served_models=_added(self.served_models, other.served_models),
            system_fingerprints=_added(self.system_fingerprints, other.system_fingerprints),
        )


def who_served(reply: object) -> tuple[str | None, str | None]:
    """Return the ``served_model`` and ``system_fingerprint`` of a response of any kind, also of one that came later."""
    return getattr(reply, "served_model", None), getattr(reply, "system_fingerprint", None)


def _once(name: str | None) -> dict[str, int]:
    return {} if name is None else {name: 1}


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted(one.keys() | other.keys())}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedSample:
    """A sample as a model sees it that answers by sample and not by prompt: a file of replies, or guessing.

    ``number`` is its place in the suite as it was read, from 1. ``options`` are what an answer is chosen from (option
    texts, labels, or yes and no), ``right`` the indices of the right ones; without options, ``answers`` are the texts
    that count as right, the first as an example would show it, and ``answer_keys`` the same as the scorer compares
    them. ``response`` is a reply that the data set carries, ``row`` the columns that it was read from, ``place`` where.
    ``requests`` are what other models would be asked; empty where the whole suite is only looked at.
    ``reads_documents``: what is judged is the documents that a search found, so that a list is one ranking, and not the
    replies of several epochs.
    """

    suite: str
    id: str
    number: int
    place: str
    requests: tuple[Request, ...] = ()
    options: tuple[str, ...] = ()
    right: tuple[int, ...] = ()
    answers: tuple[str, ...] = ()
    answer_keys: tuple[str, ...] = ()
    response: JSON = None
    row: Mapping[str, object] = field(default_factory=dict)
    reads_documents: bool = False


def as_builtin(value: object) -> object:
    """Return a value from a user's code: a number or truth value of numpy or torch as Python's own, else as it is."""
    if isinstance(value, str | int | float | list | tuple | Mapping) or not hasattr(value, "item"):
        return value
    try:
        return value.item()
    except Exception:  # of several entries, or something else of that name
        return value


def finite_number(value: object) -> float | None:
    """Return a finite number from a user's code, also one of numpy or torch; None for anything else."""
    plain = as_builtin(value)
    try:
        number = float(plain) if isinstance(plain, int | float) else math.nan
    except OverflowError:
        number = math.nan
    return number if math.isfinite(number) else None
