"""Plans how a server is asked: requests are encoded, grouped, and checked for length. No network.

Options of one prompt that differ in their last token alone become one ``Options``; equal pairs are asked once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from pytest_llmeval.errors import ContextLengthError, RequestError
from pytest_llmeval.models.base import check_settings
from pytest_llmeval.models.encoding import EncodedPair, Encoder, check_encodable, rolling_windows
from pytest_llmeval.models.servers.dialect import Dialect, TextPair
from pytest_llmeval.models.servers.verdict import ServerVerdict
from pytest_llmeval.text.reasoning import Tags, opened_by
from pytest_llmeval.types import (
    EmbeddingRequest,
    GenerateRequest,
    LoglikelihoodRequest,
    LoglikelihoodRollingRequest,
    Message,
    Prompt,
    Request,
)

__all__ = ["Embedded", "Options", "Pair", "PlannedText", "Planner", "Question", "Windows"]


_SHORT_CHAT = (Message(role="user", content="a"),)
_MOST_TOKENS = 100
"""The most options in one request; vLLM takes 128."""


@dataclass(frozen=True, slots=True)
class PlannedText:
    """A text to be written. ``num_prompt_tokens`` is what the server should count; None if that is not known.
    ``opened`` is the tag of reasoning with which the server's chat template has the reply begin.
    """

    places: tuple[int, ...]
    request: GenerateRequest
    num_prompt_tokens: int | None
    opened: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """A continuation to be scored."""

    places: tuple[int, ...]
    pair: EncodedPair | TextPair


@dataclass(frozen=True, slots=True)
class Options:
    """Several continuations of one context that differ in their last token alone.

    ``shared`` is what they have in common behind the context; ``tokens`` maps each last token to the places of its
    requests.
    """

    context: tuple[int, ...]
    shared: tuple[int, ...]
    tokens: Mapping[int, tuple[int, ...]]

    @property
    def places(self) -> tuple[int, ...]:
        return tuple(place for places in self.tokens.values() for place in places)


@dataclass(frozen=True, slots=True)
class Windows:
    """A whole text, in windows of which each token is scored once."""

    places: tuple[int, ...]
    pairs: tuple[EncodedPair, ...]


@dataclass(frozen=True, slots=True)
class Embedded:
    """A text that is to be embedded."""

    places: tuple[int, ...]
    text: str


Question: TypeAlias = PlannedText | Pair | Options | Windows | Embedded


class Planner:
    """Makes questions for one model. Encoding takes time, and may ask the server: not on the event loop's thread.

    ``max_length`` is the server's context in tokens, None if it does not say; ``wanted_length`` the user's.
    """

    def __init__(
        self,
        dialect: Dialect,
        encoder: Encoder | None,
        verdict: ServerVerdict,
        *,
        max_length: int | None,
        wanted_length: int | None = None,
    ) -> None:
        self._dialect = dialect
        self._encoder = encoder
        self._verdict = verdict
        # A window has one token more than a model in this process is fed, and the server wants room for one to write.
        self._max_length = min(filter(None, (wanted_length, max_length)), default=None)
        self._window_length = min(filter(None, (wanted_length, max_length and max_length - 2)), default=None)
        self._adds_bos: bool | None = None
        self._chat_end: str | None = None

    def plan(self, requests: Iterable[tuple[int, Request]]) -> tuple[list[Question], dict[int, RequestError]]:
        """Return the questions for requests, each with its place, and the errors of those that cannot be asked."""
        questions: list[Question] = []
        errors: dict[int, RequestError] = {}
        pairs: dict[EncodedPair | TextPair, list[int]] = {}
        texts: dict[str, list[int]] = {}
        for place, request in requests:
            try:
                if isinstance(request, GenerateRequest):
                    questions.append(self._text(place, request))
                elif isinstance(request, LoglikelihoodRequest):
                    pairs.setdefault(self._pair(request), []).append(place)
                elif isinstance(request, EmbeddingRequest):
                    texts.setdefault(self._embedded(request), []).append(place)
                else:
                    questions.append(self._windows(place, request))
            except RequestError as error:
                errors[place] = error
        questions += self._grouped(pairs)
        questions += [Embedded(tuple(places), text) for text, places in texts.items()]
        return questions, errors

    def unknown_setting(self, request: Request) -> tuple[str, str] | None:
        """Return a setting of the request that the server's API is not known to have, and what to do; None for none."""
        names = request.special_sampling if isinstance(request, GenerateRequest) else ()
        problem = (
            f"this server's API ({self._dialect.name}) is not known to have it; leave it out of the suite, or give the "
            "server's own field with --llm-model-arg extra_body=JSON"
        )
        return next(((name, problem) for name in names if name not in self._dialect.sampling_names), None)

    # Log-likelihoods

    @staticmethod
    def _check(what: str, reason: str | None) -> None:
        """Raise ``RequestError`` for requests that the self-test has refused, for a reason."""
        if reason is not None:
            raise RequestError(f"the self-test has refused this server's {what}: {reason}")

    def _pair(self, request: LoglikelihoodRequest) -> EncodedPair | TextPair:
        self._check("log-likelihoods", self._verdict.refusal("loglikelihood"))
        if self._verdict.scores == "text":
            return self._text_pair(request)
        assert self._encoder is not None
        pair = self._encoder.pair(request.context, request.continuation)
        self._check_room(len(pair.context) + len(pair.continuation), 1)
        return pair

    def _text_pair(self, request: LoglikelihoodRequest) -> TextPair:
        """Return the pair that ``Encoder.pair`` would make, as far as texts go: white space moves to the
        continuation.
        """
        if not request.continuation:
            raise RequestError("the continuation is empty: there is nothing to score")
        context = self._rendered(request.context)
        kept = context.rstrip()
        pair = TextPair(kept, context[len(kept) :] + request.continuation)
        for text in (pair.context, pair.continuation):
            check_encodable(text)
        return pair

    def _check_room(self, num_tokens: int, num_new_tokens: int) -> None:
        if self._max_length is not None and num_tokens + num_new_tokens > self._max_length:
            raise ContextLengthError(num_tokens=num_tokens + num_new_tokens, max_tokens=self._max_length)

    def _grouped(self, pairs: Mapping[EncodedPair | TextPair, list[int]]) -> list[Question]:
        """Return the questions in the order of the first pair of each group, so that neighbours share what a prefix
        cache holds.
        """
        groups: dict[tuple[tuple[int, ...], tuple[int, ...]], dict[EncodedPair, list[int]]] = {}
        questions: list[Question | tuple[tuple[int, ...], tuple[int, ...]]] = []
        for pair, places in pairs.items():
            if isinstance(pair, TextPair) or not self._verdict.uses_next:
                questions.append(Pair(tuple(places), pair))
                continue
            key = (pair.context, pair.continuation[:-1])
            if key not in groups:
                questions.append(key)
            groups.setdefault(key, {})[pair] = places
        made: list[Question] = []
        for question in questions:
            if isinstance(question, Pair):
                made.append(question)
            elif isinstance(question, tuple):
                made += self._options(*question, groups[question])
        return made

    def _options(
        self, context: tuple[int, ...], shared: tuple[int, ...], members: Mapping[EncodedPair, list[int]]
    ) -> list[Question]:
        """Return one question if that is fewer requests than one for each: what they share is scored by itself."""
        if len(members) < (3 if shared else 1):
            return [Pair(tuple(places), pair) for pair, places in members.items()]
        tokens = [(pair.continuation[-1], tuple(places)) for pair, places in members.items()]
        parts = (tokens[first : first + _MOST_TOKENS] for first in range(0, len(tokens), _MOST_TOKENS))
        return [Options(context, shared, dict(part)) for part in parts]

    def _windows(self, place: int, request: LoglikelihoodRollingRequest) -> Windows:
        self._check("log-likelihoods", self._verdict.refusal("loglikelihood_rolling"))
        assert self._encoder is not None
        prefix, tokens = self._encoder.text(request.text)
        windows = rolling_windows(tokens, prefix_token=prefix, max_length=self._window_length, stride=request.stride)
        return Windows((place,), tuple(windows))

    # Embeddings

    def _embedded(self, request: EmbeddingRequest) -> str:
        self._check("embeddings", self._verdict.refusal("embed"))
        check_encodable(request.text)
        return request.text

    # Texts

    @property
    def why_no_tools(self) -> str | None:
        """Return why the model cannot be given tools; None if it can, as far as is known."""
        return self._dialect.why_no_tools

    def _text(self, place: int, request: GenerateRequest) -> PlannedText:
        check_settings(request)
        if (unknown := self.unknown_setting(request)) is not None:
            raise RequestError("generate.{}: {}".format(*unknown))
        prompt: Prompt = request.prompt
        if request.tools and (why := self._dialect.why_no_tools) is not None:
            raise RequestError(why)
        if isinstance(prompt, tuple):
            if prompt[-1].role != "assistant" or self._dialect.continues_chat or self._dialect.is_hosted:
                self._check("chats", self._verdict.chat)
                return PlannedText((place,), request, None, self._opened(request.reasoning))
            prompt = self._continued(prompt, request.tools)
        else:
            if request.tools and self._dialect.takes_text:
                raise RequestError("the request has tools and no chat; set `prompt.chat: true` in the suite")
            prompt = self._without_bos(prompt)
        self._check("texts", self._verdict.text)
        count = None
        if self._verdict.counts_tokens and self._encoder is not None and self._dialect.takes_text:
            count = len(self._encoder.prompt(prompt))
            self._check_room(count, request.max_tokens)
        return PlannedText((place,), replace(request, prompt=prompt, tools=""), count)

    def _opened(self, tags: Tags) -> str:
        """Return the tag of reasoning that the chat template opens, as far as it is known here; the empty text for
        none.
        """
        if self._chat_end is None:
            try:
                self._chat_end = "" if self._encoder is None else self._encoder.render(_SHORT_CHAT)
            except RequestError:  # no template, or none that is told
                self._chat_end = ""
        return opened_by(self._chat_end, tags) if tags else ""

    def _continued(self, prompt: tuple[Message, ...], tools: str) -> str:
        """Return a chat whose last turn the assistant has begun, rendered here for a server that cannot continue
        one.
        """
        if self._encoder is None or not self._dialect.takes_text:
            raise RequestError(
                "the chat ends with a turn that the assistant has begun, which this server cannot continue; name the "
                "model's tokenizer (tokenizer=ID_OR_FOLDER), and its chat template is used here"
            )
        return self._rendered(prompt, tools)

    def _rendered(self, prompt: Prompt, tools: str = "") -> str:
        if isinstance(prompt, str):
            return self._without_bos(prompt)
        if self._encoder is None:
            raise RequestError(
                "the prompt is a chat, and the server takes its log-likelihoods by text; name the model's tokenizer "
                "(tokenizer=ID_OR_FOLDER), and its chat template is used here"
            )
        return self._without_bos(self._encoder.render(prompt, tools))

    def _without_bos(self, text: str) -> str:
        """Return a text that begins with BOS, for a server that puts one before every text."""
        if self._encoder is None or not self._dialect.takes_text:
            return text
        if self._adds_bos is None:
            self._adds_bos = self._encoder.adds_bos
        bos = self._encoder.bos_text
        return text.removeprefix(bos) if bos and self._adds_bos else text
