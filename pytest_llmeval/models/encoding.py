"""Turns text into tokens by lm-eval 0.4.13's rules (``lm_eval/api/model.py`` and ``lm_eval/models/huggingface.py``).

- All trailing white space of the context moves to the continuation.
- Context and continuation are encoded together, and what follows the first ``len(encoded context)`` tokens is the
  continuation; the context is encoded by itself.
- BOS as the tokenizer says, and not added to a text that already begins with it.
- An empty context is BOS, else EOS; a continuation that begins with that token is not given a second one.
- For encoder-decoder models both are encoded by themselves (``SeparateEncoder``).
- A text that is longer than the model's context is cut into windows, in which every token is scored once.

Where lm-eval would stop on an assertion (nothing is left to score, nothing to condition on), a ``RequestError`` says
so.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_llmeval.errors import RequestError
from pytest_llmeval.text.messages import template_messages
from pytest_llmeval.text.redaction import describe
from pytest_llmeval.types import LoglikelihoodRequest, LoglikelihoodResponse, Prompt

__all__ = [
    "NO_CALLS",
    "NO_TOOLS",
    "EncodedPair",
    "Encoder",
    "SeparateEncoder",
    "Tokenizer",
    "check_encodable",
    "rolling_windows",
    "shows_tools",
    "sum_of_windows",
]


def check_encodable(text: str) -> None:
    """Raise ``RequestError`` for a text with a lone surrogate."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            f"the text holds a lone surrogate (U+{ord(text[error.start]):04X}), which no tokenizer can encode"
        ) from None


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that this package uses."""

    bos_token_id: int | None
    eos_token_id: int | None
    bos_token: str | None
    chat_template: Any
    all_special_ids: list[int]

    def __call__(self, texts: list[str], /, **settings: Any) -> Any:
        """Return the tokens of each text as ``input_ids``; a fast tokenizer (``is_fast``) encodes them side by side."""

    def encode(self, text: str, /, **settings: Any) -> list[int]:
        """Return the tokens of ``text``; ``add_special_tokens`` overrides the tokenizer's own habit."""

    def decode(self, tokens: Any, /, **settings: Any) -> str:
        """Return the text of ``tokens``."""

    def apply_chat_template(self, conversation: list[dict[str, Any]], /, **settings: Any) -> Any:
        """Return the text of a chat."""


_MOST_ROLES = 12
NO_TOOLS = "the model's chat template has no tools; use a model that was tuned for them"
NO_CALLS = "the model's chat template does not show tool calls, and the messages have some; use a model that has tools"


def shows_tools(template: object) -> bool:
    """Tell whether a chat template, or one of several by name, shows a model the tools that it may call."""
    return "tools" in str(template)


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """A context and a continuation as tokens, neither empty; the model is fed both without the last token.

    The encoder of an encoder-decoder model is fed ``context``, and its decoder what starts a text and then
    ``continuation`` without its last token.
    """

    context: tuple[int, ...]
    continuation: tuple[int, ...]


class Encoder:
    """Encodes the requests of one model.

    ``add_bos`` None leaves BOS to the tokenizer; True or False overrides it. ``num_embeddings`` is the number of
    tokens that the model knows (None: not checked).
    """

    def __init__(self, tokenizer: Tokenizer, *, add_bos: bool | None = None, num_embeddings: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._add_bos = add_bos
        self._num_embeddings = num_embeddings
        self._texts: dict[Prompt, str] = {}
        self._encoded: dict[tuple[str, bool | None], list[int]] = {}
        # The choices of a question share their context, and a long one takes a millisecond.
        self._encode_context = functools.lru_cache(maxsize=8)(
            lambda text: tuple(self._encode(text, begins_with=self._prefix_text))
        )

    @property
    def prefix_token(self) -> int | None:
        """Return the token that stands for an empty context: BOS, else EOS, else None."""
        bos = self._tokenizer.bos_token_id
        return bos if bos is not None else self._tokenizer.eos_token_id

    @functools.cached_property
    def _prefix_text(self) -> str | None:
        """Return the text of BOS, else of EOS: a scored text that begins with it is given no other, as in lm-eval."""
        return None if self.prefix_token is None else self._tokenizer.decode([self.prefix_token])

    @contextlib.contextmanager
    def encoded(self, requests: Iterable[LoglikelihoodRequest]) -> Iterator[None]:
        """Encode the texts of ``requests`` together, which uses all cores. In this context ``pair`` finds them."""
        wanted: dict[bool | None, dict[str, None]] = {}
        try:
            # CodeLlama's tokenizer divides a text at its fill token, and none in a list of texts.
            if getattr(self._tokenizer, "is_fast", False) and not getattr(self._tokenizer, "fill_token", None):
                for request in requests:
                    with contextlib.suppress(RequestError):  # ``pair`` will raise it
                        text = self._texts[request.context] = self._text_of(request.context)
                        for part in self._inputs(text.rstrip(), text[len(text.rstrip()) :] + request.continuation):
                            check_encodable(part[0])
                            wanted.setdefault(part[1], {})[part[0]] = None
            for setting, texts in wanted.items():
                found = self._tokenizer([*texts], **_tokenizer_settings(setting))["input_ids"]
                self._encoded.update(zip(((text, setting) for text in texts), found, strict=True))
            yield
        finally:
            self._texts.clear()
            self._encoded.clear()

    def pair(self, context: Prompt, continuation: str) -> EncodedPair:
        """Encode what ``LoglikelihoodRequest`` holds. Raises ``RequestError``."""
        if not continuation:
            raise RequestError("the continuation is empty: there is nothing to score")
        context_text = self._text_of(context)
        kept = context_text.rstrip()
        continuation = context_text[len(kept) :] + continuation
        context_tokens, continuation_tokens = self._parts(context_text, kept, continuation)
        if not continuation_tokens:
            raise RequestError(f"the continuation {continuation[:40]!r} {self._NOTHING_TO_SCORE}")
        return EncodedPair(self._checked(context_tokens), self._checked(continuation_tokens))

    def text(self, text: str) -> tuple[int, tuple[int, ...]]:
        """Return the token before a text that is scored as a whole (BOS, else EOS), and the text's own tokens.

        A tokenizer that adds BOS adds it here too, and it is scored as the text's first token, after another one:
        that is what lm-eval's rolling log-likelihood does. The empty text of a tokenizer that adds nothing has no
        tokens. Raises ``RequestError``.
        """
        if self.prefix_token is None:
            raise RequestError(
                "the tokenizer has neither BOS nor EOS, and a text that is scored as a whole needs one before it"
            )
        tokens = self._encode(text, begins_with=self._prefix_text)
        return self.prefix_token, self._checked(tokens) if tokens else ()

    def plain(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text by itself, without special tokens. Raises ``RequestError``."""
        return tuple(self._tokens(text, add_special_tokens=False))

    @property
    def adds_bos(self) -> bool:
        """Tell whether a prompt begins with BOS."""
        bos = self._tokenizer.bos_token_id
        return bos is not None and self.prompt("a")[:1] == (bos,)

    @property
    def bos_text(self) -> str | None:
        """Return how a text writes BOS."""
        return self._tokenizer.bos_token

    @property
    def scores_bos(self) -> bool:
        """Tell whether ``text`` also begins with the token that stands before a text, where it is scored."""
        try:
            prefix_token, tokens = self.text("a")
        except RequestError:
            return False
        return tokens[:1] == (prefix_token,)

    def prompt(self, prompt: Prompt) -> tuple[int, ...]:
        """Encode what ``GenerateRequest`` holds; an empty prompt is BOS, else EOS. Raises ``RequestError``."""
        tokens = self._encode(self.render(prompt), begins_with=self._tokenizer.bos_token)
        return self._checked(tokens or [self._prefix()])

    def render(self, prompt: Prompt, tools: str = "") -> str:
        """Return the text of a prompt: a chat goes through the tokenizer's template, up to where the assistant would
        begin, or to the end of what it has begun to say. ``tools`` are those of a request. Raises ``RequestError``.
        """
        if isinstance(prompt, str):
            if tools:
                raise RequestError("the request has tools and no chat; set `prompt.chat: true` in the suite")
            return prompt
        if not getattr(self._tokenizer, "chat_template", None):
            raise RequestError(
                "the prompt is a chat and the model's tokenizer has no chat template; "
                "leave out prompt.chat (or prompt.messages), or use a model that was tuned for chat"
            )
        template = self._tokenizer.chat_template
        if any(turn.tool_calls for turn in prompt) and "tool_calls" not in str(template):
            raise RequestError(NO_CALLS)  # they would be left out without a word
        turns = template_messages(prompt)
        settings: dict[str, Any] = {}
        if tools:
            if not shows_tools(template):
                raise RequestError(NO_TOOLS)
            settings["tools"] = json.loads(tools)
        begun = turns.pop()["content"] if turns[-1]["role"] == "assistant" else ""
        whole = self._continued(turns, begun, settings)
        return whole or self._rendered(turns, add_generation_prompt=True, **settings) + begun

    def _continued(self, turns: list[dict[str, Any]], begun: str, settings: Mapping[str, Any]) -> str:
        """Return the chat with the turn that the assistant has begun, as lm-eval renders it; the empty text where
        nothing was begun or the template does not show it as it is.

        White space at the end of what was begun stays, also where the template strips it.
        """
        kept = begun.rstrip()
        if not kept:
            return ""
        try:
            whole = [*turns, {"role": "assistant", "content": begun}]
            text = self._rendered(whole, continue_final_message=True, **settings)
        except RequestError:  # a template may want the user's turn to be the last
            return ""
        if text.endswith(begun):
            return text
        return text + begun[len(kept) :] if text.endswith(kept) else ""

    def _rendered(self, turns: list[dict[str, Any]], **settings: Any) -> str:
        try:
            return str(self._tokenizer.apply_chat_template(turns, tokenize=False, **settings))
        except Exception as error:  # a template is the checkpoint's code: it raises what it likes
            roles = ", ".join(turn["role"] for turn in turns[:_MOST_ROLES]) + (
                ", …" if len(turns) > _MOST_ROLES else ""
            )
            raise RequestError(
                f"the tokenizer's chat template refuses the prompt: {describe(error)} (its messages: {roles})"
            ) from None

    _NOTHING_TO_SCORE = (
        "adds no token to its context, so there is nothing to score; put a space or a line break between the two"
    )

    def _text_of(self, context: Prompt) -> str:
        known = self._texts.get(context)
        return self.render(context) if known is None else known

    def _inputs(self, kept: str, continuation: str) -> list[tuple[str, bool | None]]:
        """Return the texts that ``_parts`` encodes, each with its ``add_special_tokens``."""
        if not kept:
            return [(continuation, False)]
        return [(text, self._setting(text, self._prefix_text)) for text in (kept, kept + continuation)]

    def _parts(self, context: str, kept: str, continuation: str) -> tuple[list[int], list[int]]:
        """Return the tokens of both parts. ``kept`` is ``context`` without the white space that has moved behind it."""
        context_tokens = list(self._encode_context(kept)) if kept else []
        if not context_tokens:
            return self._after_nothing(continuation)
        return context_tokens, self._encode(kept + continuation, begins_with=self._prefix_text)[len(context_tokens) :]

    def _after_nothing(self, continuation: str) -> tuple[list[int], list[int]]:
        tokens = self._tokens(continuation, add_special_tokens=False)
        prefix = self._prefix()
        return ([prefix], tokens[1:]) if tokens[:1] == [prefix] else ([prefix], tokens)

    def _prefix(self) -> int:
        if self.prefix_token is None:
            raise RequestError("the context is empty, and the tokenizer has neither BOS nor EOS to use in its place")
        return self.prefix_token

    def _encode(self, text: str, *, begins_with: str | None) -> list[int]:
        """Return the tokens of a text. ``begins_with`` is a token's text that it must not be given a second time."""
        return self._tokens(text, self._setting(text, begins_with))

    def _setting(self, text: str, begins_with: str | None) -> bool | None:
        return False if begins_with and text.startswith(begins_with) else self._add_bos

    def _tokens(self, text: str, add_special_tokens: bool | None) -> list[int]:
        """Return the tokens of a text; ``add_special_tokens`` None leaves special tokens to the tokenizer."""
        known = self._encoded.get((text, add_special_tokens))
        if known is not None:
            return known.copy()
        check_encodable(text)
        return list(self._tokenizer.encode(text, **_tokenizer_settings(add_special_tokens)))

    def _checked(self, tokens: list[int]) -> tuple[int, ...]:
        if self._num_embeddings is not None and max(tokens) >= self._num_embeddings:
            raise RequestError(
                f"the tokenizer gives token {max(tokens)} and the model knows {self._num_embeddings}: "
                "the tokenizer does not belong to this model"
            )
        return tuple(tokens)


def _tokenizer_settings(add_special_tokens: bool | None) -> dict[str, bool]:
    settings = {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
    # verbose: it would warn of texts longer than the context, of which we refuse some and cut others into windows
    return {"verbose": False, **settings}


class SeparateEncoder(Encoder):
    """Encodes the requests of an encoder-decoder model: the context with the special tokens that the tokenizer adds
    (T5's ``</s>``), the continuation without any.

    As in lm-eval, the empty context is BOS, else EOS, while white space alone is what the tokenizer makes of an empty
    text; and the prompt of a generation always has the tokenizer's own special tokens, whatever ``add_bos`` says and
    whatever it begins with.
    """

    _NOTHING_TO_SCORE = "has no token in the model's vocabulary, so there is nothing to score"

    def prompt(self, prompt: Prompt) -> tuple[int, ...]:
        """Encode what ``GenerateRequest`` holds; no token at all becomes BOS, else EOS. Raises ``RequestError``."""
        return self._checked(self._tokens(self.render(prompt), None) or [self._prefix()])

    def _inputs(self, kept: str, continuation: str) -> list[tuple[str, bool | None]]:
        return [(kept, self._setting(kept, self._prefix_text)), (continuation, False)]

    def _parts(self, context: str, kept: str, continuation: str) -> tuple[list[int], list[int]]:
        if not context:
            return self._after_nothing(continuation)
        context_tokens = list(self._encode_context(kept)) or [self._prefix()]
        return context_tokens, self._tokens(continuation, add_special_tokens=False)


def sum_of_windows(windows: Sequence[LoglikelihoodResponse]) -> LoglikelihoodResponse:
    """Return the log-likelihood of a text, from those of its windows. A text without tokens has 0, as in lm-eval."""
    return LoglikelihoodResponse(
        loglikelihood=math.fsum(window.loglikelihood for window in windows),
        num_tokens=sum(window.num_tokens for window in windows),
        is_greedy=bool(windows) and all(window.is_greedy for window in windows),
        num_context_tokens=1 if windows else 0,
        seconds=math.fsum(window.seconds for window in windows),
        is_timed=bool(windows) and all(window.is_timed for window in windows),
    )


def rolling_windows(
    tokens: tuple[int, ...], *, prefix_token: int, max_length: int | None, stride: int | None = None
) -> Iterator[EncodedPair]:
    """Return the windows of a text, in order: each scores its continuation, and these together are ``tokens``.

    The first window is up to ``max_length`` tokens after ``prefix_token``. Every later one scores the next ``stride``
    tokens (fewer at the end) after as much of the text as the model holds beside them. The model is fed a window
    without its last token, so one of ``max_length + 1`` tokens fits: a token has ``max_length - stride + 1`` before it
    at least, and the last window is as full as the others. ``stride`` None is ``max_length``: disjoint windows.

    These are ``get_rolling_token_windows`` of lm-eval 0.4.13 (``lm_eval/utils.py``) with ``max_seq_len=max_length``
    and ``context_len=max_length - stride + 1``; with ``stride`` None what its ``loglikelihood_rolling`` scores. With a
    stride they are the windows of the guide «Perplexity of fixed-length models» of transformers' documentation, but for
    its last window, which is shorter, and its first token, which it does not score.

    Raises ``RequestError`` for a stride that is not from 1 to ``max_length``, and where the model has no
    ``max_length``: the result depends on it, so it is not guessed.
    """
    if max_length is None:
        raise RequestError(
            "the size of the model's context is not known, and the windows of a long text depend on it; "
            "give --llm-model-arg max_length=N (lm-eval takes 2048)"
        )
    step = max_length if stride is None else stride
    if not 1 <= step <= max_length:
        raise RequestError(f"the stride is {stride}: expected a number from 1 to {max_length}, the size of the context")
    return _windows((prefix_token, *tokens), max_length, step)


def _windows(fed: tuple[int, ...], max_length: int, step: int) -> Iterator[EncodedPair]:
    start, end = 1, min(1 + max_length, len(fed))
    while start < end:
        yield EncodedPair(fed[max(0, end - max_length - 1) : start], fed[start:end])
        start, end = end, min(end + step, len(fed))
