"""The self-test of a server: a few requests before the first answer, which show what it can be believed.

Texts, chats and log-likelihoods are tried. What fails is refused, with the reason in one line. Log-likelihoods are
believed if the echo has the shape that it must have, if its numbers are those that the server gives the same tokens
when it writes them, and if neither the order of requests nor a prefix cache changes them. A judge is also tested for
how it is held to JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.encoding import EncodedPair, Encoder
from pytest_llmeval.models.servers.client import Client, RequestRefused
from pytest_llmeval.models.servers.dialect import WEAKER, Dialect, Sampled, TextPair, Written
from pytest_llmeval.models.servers.echoed_logprobs import Generic
from pytest_llmeval.models.servers.verdict import MOST_NOISE, TOLERANCE, Compared, Probe, ServerVerdict
from pytest_llmeval.text.redaction import one_line
from pytest_llmeval.types import JSON, GenerateRequest, Message

__all__ = ["GREEDY_PROMPTS", "examine", "examine_embeddings", "find_json_way", "greedy_replies"]

_PROBES = (
    "The sun rises in the east and sets in the west. In the morning the first light",
    "purple seven quickly Tuesday river not",
    "x = 3; y = 8; the",
    "list: apple, table, cloud,",
)
"""Texts after most of which no token is nearly certain: near 0 all logprobs are equal, whatever is wrong with them."""
_FRESH_PROBE = (
    " of the meeting on Tuesday: the bridge stays closed until the end of May, the library gets 12 new chairs, "
    "and the baker asked who had moved his sign. The next meeting is about",
    (" purple", " purple elephants", " purple elephants dance slowly"),
)
"""A text that, behind words drawn anew, was not sent before; an unlikely continuation and the beginnings of it."""
_FRESH_WORDS = (
    *("Notes", "Report", "Minutes", "Summary", "Record", "Draft", "Copy", "Letter", "Page", "Chapter", "Story", "List"),
    *("apple", "river", "stone", "window", "garden", "winter", "paper", "silver", "morning", "market", "lamp", "road"),
)
_SAME = (_PROBES[0], " of the day falls on seven purple elephants, and the old bridge stays closed")
"""A text with a continuation of words of which most are unlikely: what other weights make of it is not the same."""
_FORCED = ((_PROBES[0], " of"), (_PROBES[1], " a"), (_PROBES[3], " the"))
"""Texts with continuations that are one token of most tokenizers, and that are not what comes next."""
_TOKENS_PROBE = "  The 3 quick foxes\n\tcost 1,234.50 € — naïve café, été, 漢字 and Ω; don't 🙂!"
_NUM_SAMPLED = 4
_NUM_WRITTEN = 12
_NUM_SHORT = 2
_ALONE = "it is asked for embeddings alone"
_NUM_JSON = 256
_JSON_WANTED = 'Answer with this JSON: {"label": "yes", "score": 5}'
_JSON_SCHEMA: JSON = {
    "type": "object",
    "properties": {"label": {"type": "string", "enum": ["yes", "no"]}, "score": {"type": "integer", "enum": [1, 5]}},
    "required": ["label", "score"],
    "additionalProperties": False,
}
GREEDY_PROMPTS = ("Name three animals, and say what each of them eats.", _PROBES[0])
"""Prompts for replicas whose weights cannot be compared by logprobs."""
_NUM_GREEDY = 24


async def examine(dialect: Dialect, client: Client, encoder: Encoder | None, tokenizer: str) -> ServerVerdict:
    """Ask the server, and judge. ``encoder`` uses the tokenizer that ``tokenizer`` names (empty: the server's own).

    Raises ``ModelStopped`` and ``Unreachable``, and ``ModelError`` for a failure that may pass, so that no verdict
    depends on the moment. Everything else is in the verdict.
    """
    notes: list[str] = []
    chat = await _judge_chat(dialect, client)
    try:
        text = await _judge_text(dialect, client, notes) if dialect.takes_text else chat
    except _IgnoredMaxTokens as error:
        text = chat = _reason_of(error)
    if text is not None and chat is None and dialect.takes_text:
        dialect.takes_text = False
        notes.append(f"no text completions ({text}): a text prompt is sent as one turn of the user")
        text = None
    elif not dialect.takes_text:
        notes.append("a text prompt is sent as one turn of the user")
    notes += [f"the server does not take {name}" for name in dialect.left_out]
    loglikelihood = _LoglikelihoodChecks(dialect, client, encoder, tokenizer, notes)
    reason = await loglikelihood.judge()
    if reason is None and not tokenizer:
        notes.append("tokens and BOS are the server's own, not compared with a tokenizer (tokenizer=ID_OR_FOLDER)")
    return ServerVerdict(
        text=text,
        chat=chat,
        loglikelihood=reason,
        uses_next=reason is None and loglikelihood.uses_next,
        counts_tokens=loglikelihood.counts_tokens,
        scores=dialect.scores if reason is None else None,
        largest_difference=loglikelihood.compared.largest if loglikelihood.compared.differences else None,
        notes=tuple(notes),
        probe=loglikelihood.probe,
    )


async def examine_embeddings(dialect: Dialect, client: Client) -> ServerVerdict:
    """Ask a server for embeddings and for nothing else: one that only embeds writes no texts. Raises what ``examine``
    does.
    """
    reason = None
    try:
        one, other = await asyncio.gather(*(dialect.embed(client, text) for text in _PROBES[:2]))
        if one.vector == other.vector:
            reason = "two texts have the same embedding"
    except RequestError as error:
        _raise_if_passing(error, client, "of embeddings")
        reason = _reason_of(error)
    return ServerVerdict(text=_ALONE, chat=_ALONE, loglikelihood=_ALONE, embeddings=reason, embeds=True)


async def find_json_way(dialect: Dialect, client: Client) -> None:
    """Find out how the server is held to JSON; all judgements are then asked for in this way. Raises what ``examine``
    raises.

    Chats are known to work. A refusal is therefore about the format, whatever it says.
    """
    prompt = (Message(role="user", content="Is the sky blue? " + _JSON_WANTED),)
    request = GenerateRequest(prompt, max_tokens=_NUM_JSON, json_schema=json.dumps(_JSON_SCHEMA))
    while not dialect.is_json_way_known:
        try:
            await dialect.write(client, request)
            break
        except RequestRefused as error:
            _raise_if_passing(error, client, "of replies in JSON")
            if dialect.json_way == "text":
                raise ModelError(f"{client.endpoint.url}: no reply in JSON: {_reason_of(error)}") from None
            dialect.json_way = WEAKER[dialect.json_way]
        except RequestError:
            break  # it took the format, and what it writes is checked for each verdict


async def greedy_replies(dialect: Dialect, client: Client, *, is_chat: bool) -> list[str | None]:
    """Return the greedy reply to each of ``GREEDY_PROMPTS``; None for one that does not come, or that the server
    draws.
    """

    async def reply(text: str) -> str | None:
        prompt = (Message(role="user", content=text),) if is_chat else text
        try:
            return (await dialect.write(client, GenerateRequest(prompt, max_tokens=_NUM_GREEDY))).text
        except (RequestError, ModelError):  # one that is gone shows it when it is asked the next time
            return None

    if "temperature" in dialect.left_out:
        return [None] * len(GREEDY_PROMPTS)
    return await asyncio.gather(*map(reply, GREEDY_PROMPTS))


# Texts and chats


async def _judge_chat(dialect: Dialect, client: Client) -> str | None:
    prompt = (Message(role="user", content="Name a colour of the rainbow."),)
    request = GenerateRequest(prompt, max_tokens=_NUM_WRITTEN, stop=() if not dialect.is_hosted else ("\n\n\n",))
    try:
        for limited in (request, replace(request, max_tokens=_NUM_SHORT)):
            _check_length(await dialect.write(client, limited), limited)
    except (RequestError, _IgnoredMaxTokens) as error:
        _raise_if_passing(error, client, "of chats")
        return _reason_of(error)
    return None


async def _judge_text(dialect: Dialect, client: Client, notes: list[str]) -> str | None:
    try:
        for probe in _PROBES:
            request = GenerateRequest(probe, max_tokens=_NUM_WRITTEN)
            written = await dialect.write(client, request)
            _check_length(written, request)
            if (stop := _stop_in(written.text)) is not None:
                stopped = await dialect.write(client, replace(request, stop=(stop,)))
                if stop in stopped.text.removesuffix(stop):
                    notes.append("the server does not obey stop strings: its replies are cut here")
                # what the model itself ends after a few tokens says nothing of a higher limit
                short = replace(request, max_tokens=_NUM_SHORT)
                _check_length(await dialect.write(client, short), short)
                break
    except RequestError as error:
        # Also for 500: to send texts as chats instead changes what is measured.
        _raise_if_passing(error, client, "of texts", is_500_passing=True)
        return _reason_of(error)
    return None


def _check_length(written: Written, request: GenerateRequest) -> None:
    if written.num_tokens is not None and written.num_tokens > request.max_tokens:
        raise _IgnoredMaxTokens(f"max_tokens was {request.max_tokens} and the reply has {written.num_tokens} tokens")


def _stop_in(text: str) -> str | None:
    """Return a piece from inside a reply, which a stop string can be made of: it stands in it, and more behind it."""
    body = text.strip()
    if len(body) < 6:
        return None
    piece = body[len(body) // 2 - 1 : len(body) // 2 + 1]
    return piece if piece.strip() else body[len(body) // 2 - 2 : len(body) // 2 + 2]


# Log-likelihoods


@dataclass(frozen=True, slots=True)
class _Case:
    """A probe, the tokens that the server wrote behind it, and what it gave them then."""

    pair: EncodedPair | TextPair
    logprobs: tuple[float, ...]


class _LoglikelihoodChecks:
    """Judges one server's log-likelihoods."""

    def __init__(
        self, dialect: Dialect, client: Client, encoder: Encoder | None, tokenizer: str, notes: list[str]
    ) -> None:
        self._dialect = dialect
        self._client = client
        self._encoder = encoder
        self._tokenizer = tokenizer
        self._notes = notes
        self.compared = Compared()
        self.probe: Probe | None = None
        self.uses_next = False
        self.counts_tokens = False

    async def judge(self) -> str | None:
        """Return why log-likelihoods are refused; None if they are not."""
        if self._dialect.scores is None:
            await self._check_counts_only()
            return self._dialect.why_no_scores
        is_unknown = isinstance(self._dialect, Generic) and self._encoder is not None
        ways = ["ids", "text"] if is_unknown else [self._dialect.scores]
        reasons = []
        for way in ways:
            self._dialect.scores = "ids" if way == "ids" else "text"
            self.compared = Compared()
            try:
                await self._check()
            except (RequestError, _WrongLogprobs) as error:
                _raise_if_passing(error, self._client, "of log-likelihoods")
                reasons.append(_reason_of(error))
            else:
                return None
        return reasons[0]

    async def _check_counts_only(self) -> None:
        """Check whether the server counts tokens as the tokenizer that was given."""
        if self._encoder is None or not self._dialect.takes_text:
            return
        try:
            written = await self._dialect.write(self._client, GenerateRequest(_TOKENS_PROBE, max_tokens=1))
        except RequestError:
            return
        self.counts_tokens = written.num_prompt_tokens == len(await self._tokens(_TOKENS_PROBE))

    async def _check(self) -> None:
        if self._dialect.scores == "ids" and self._encoder is None:
            raise _WrongLogprobs("the model's tokenizer is not known; name it: tokenizer=ID_OR_FOLDER")
        await self._check_first()
        await self._check_tokenizer()
        fresh = await self._check_beginnings()
        cases = await self._cases()
        for case, values in cases:
            self.compared.add(values, case.logprobs)
        if not self.compared.is_close:
            raise _WrongLogprobs(
                f"the logprobs of a prompt's tokens differ by up to {self.compared.largest:.2g} from those of the same "
                "tokens when the server writes them (shifted, without BOS, or processed)"
            )
        orders = Compared()
        for pair, values in ((fresh[0], fresh[1]), *((case.pair, values) for case, values in reversed(cases))):
            orders.add((await self._dialect.score(self._client, pair)).logprobs, values)
        if not orders.is_close:
            raise _WrongLogprobs(
                f"logprobs depend on what was asked before: the same prompt differs by {orders.largest:.2g}"
            )
        self.compared.differences += orders.differences
        await self._check_next(*cases[0])
        pair = await self._pair(*_SAME)
        self.probe = Probe(pair, (await self._dialect.score(self._client, pair)).logprobs)
        if self.compared.largest > TOLERANCE:
            self._notes.append(
                f"logprobs of one token differ by up to {self.compared.largest:.1g}: the precision of the server"
            )

    async def _check_beginnings(self) -> tuple[EncodedPair | TextPair, tuple[float, ...]]:
        """Check whether a token's logprob is the same in a short prompt and in a longer one that begins with it.

        Numbers that belong to a neighbouring token are not. Returns the longest prompt, with its logprobs.
        """
        text, beginnings = _FRESH_PROBE
        text = " ".join(random.SystemRandom().sample(_FRESH_WORDS, 4)) + text  # the server may know last session's
        pairs = [await self._pair(text, continuation) for continuation in beginnings]
        whole = (await self._dialect.score(self._client, pairs[-1])).logprobs
        compared = Compared()
        for pair in pairs[:-1]:
            values = (await self._dialect.score(self._client, pair)).logprobs
            if isinstance(pair, EncodedPair):
                same = pairs[-1].continuation[: len(values)] == pair.continuation
            else:
                same = len(values) < len(whole)
            if same:
                compared.add(values, whole[: len(values)])
        if not compared.is_close:
            raise _WrongLogprobs(
                f"the logprob of a token changes by up to {compared.largest:.2g} with what stands behind it: the "
                "numbers are shifted, or depend on what was asked before"
            )
        return pairs[-1], whole

    async def _check_first(self) -> None:
        """Refuse log-likelihoods at once, and not after all tries, if the server says that it does not give them."""
        pair = await self._pair(_PROBES[0], " of")
        self._dialect.tries = 1
        try:
            await self._dialect.score(self._client, pair)
        except RequestError as error:
            words = ("logits_all", "not support", "unsupported", "echo", "logprobs")
            if any(word in str(error).lower() for word in words):
                hint = "; start it with --logits_all true" if "logits_all" in str(error) else ""
                raise _WrongLogprobs(f"{_reason_of(error)}{hint}") from None
        finally:
            self._dialect.tries = None

    async def _check_tokenizer(self) -> None:
        """Check whether server and tokenizer make the same tokens of a text with spaces, digits and Unicode."""
        if self._encoder is None or not self._tokenizer:
            return
        own = await self._tokens(_TOKENS_PROBE)
        try:
            theirs = await self._dialect.tokenize(self._client, _TOKENS_PROBE, add_special_tokens=True)
        except RequestError:
            theirs = None
        if theirs is not None and theirs != own:
            raise _WrongLogprobs(
                f"the tokenizer {self._tokenizer} makes {len(own)} other tokens of a text than the server, which makes "
                f"{len(theirs)}"
            )
        sampled = await self._dialect.sample(self._client, _TOKENS_PROBE, num_tokens=1, temperature=0.0)
        if sampled.num_prompt_tokens not in (None, len(own)):
            raise _WrongLogprobs(
                f"the tokenizer {self._tokenizer} makes {len(own)} tokens of a text, and the server read "
                f"{sampled.num_prompt_tokens}: another tokenizer, or BOS missing or doubled"
            )
        self.counts_tokens = sampled.num_prompt_tokens is not None

    async def _tokens(self, text: str) -> list[int]:
        encoder = cast("Encoder", self._encoder)
        return list(await asyncio.to_thread(encoder.prompt, text))

    async def _pair(self, text: str, continuation: str) -> EncodedPair | TextPair:
        if self._dialect.scores == "text":
            return TextPair(text, continuation)
        return await asyncio.to_thread(cast("Encoder", self._encoder).pair, text, continuation)

    async def _cases(self) -> list[tuple[_Case, tuple[float, ...]]]:
        """Return probes, each with the tokens that the server wrote behind it, and the echo's logprobs of these tokens.

        The first has the likeliest tokens, the others drawn ones. Drawn tokens need not be those that their text is
        encoded to; asked by text, such a probe says nothing.
        """
        cases = []
        for number, probe in enumerate(_PROBES):
            sampled = await self._dialect.sample(
                self._client, probe, num_tokens=_NUM_SAMPLED, temperature=1.0 if number else 0.0
            )
            case = await self._case(probe, sampled)
            if case is None:
                continue
            scored = await self._dialect.score(self._client, case.pair)
            if len(scored.logprobs) == len(case.logprobs):
                cases.append((case, scored.logprobs))
            elif isinstance(case.pair, EncodedPair):
                raise _WrongLogprobs(f"the echo has {len(scored.logprobs)} logprobs of {len(case.logprobs)} tokens")
        if not any(value < -MOST_NOISE for case, _ in cases for value in case.logprobs):
            raise _WrongLogprobs("no token that the server wrote could be compared with its echo")
        return cases

    async def _case(self, probe: str, sampled: Sampled) -> _Case | None:
        if not sampled.tokens:
            return None
        if self._dialect.scores == "text":
            texts = [str(token) for token in sampled.tokens]
            if not all(texts) or any("\ufffd" in text for text in texts):
                return None
            return _Case(TextPair(probe, "".join(texts)), sampled.logprobs)
        context = await self._tokens(probe)
        if sampled.num_prompt_tokens not in (None, len(context)):
            raise _WrongLogprobs(
                f"the server read {sampled.num_prompt_tokens} tokens of a text that has {len(context)}: another "
                "tokenizer, or BOS missing or doubled"
            )
        if not all(isinstance(token, int) for token in sampled.tokens):
            return await self._case_of_texts(tuple(context), sampled)
        tokens = cast("tuple[int, ...]", sampled.tokens)
        return _Case(EncodedPair(tuple(context), tokens), sampled.logprobs)

    async def _case_of_texts(self, context: tuple[int, ...], sampled: Sampled) -> _Case | None:
        """Return the case of a server that names tokens by their texts, asked by ids: as far as each text is one
        token.
        """
        encoder = cast("Encoder", self._encoder)
        known: list[int] = []
        for text in map(str, sampled.tokens):
            tokens = await asyncio.to_thread(encoder.plain, text)
            if len(tokens) != 1:
                break
            known += tokens
        return _Case(EncodedPair(context, tuple(known)), sampled.logprobs[: len(known)]) if known else None

    async def _check_next(self, case: _Case, scored: Sequence[float]) -> None:
        """Check whether several tokens can be asked for in one request, and have the numbers of the echo there."""
        if not isinstance(case.pair, EncodedPair):
            await self._check_forced()
            return
        first, other = case.pair.continuation[0], case.pair.context[-1]
        try:
            found = await self._dialect.next_logprobs(self._client, case.pair.context, [first, other])
        except RequestError as error:
            self._notes.append(f"options are asked for one by one ({_reason_of(error)})")
            return
        if found is None:
            return
        unlikely = await self._dialect.score(self._client, EncodedPair(case.pair.context, (other,)))
        compared = Compared()
        compared.add([found.logprobs[first], found.logprobs[other]], [scored[0], unlikely.logprobs[0]])
        if not compared.is_close:
            raise _WrongLogprobs(
                f"the logprob of a token in the prompt differs by {compared.largest:.2g} from that of the same token "
                "when the server writes it"
            )
        self.compared.differences += compared.differences
        self.uses_next = True

    async def _check_forced(self) -> None:
        """Check whether a token that the server is made to write has its logprob of the echo."""
        compared = Compared()
        try:
            for probe, text in _FORCED:
                pair = TextPair(probe, text)
                forced = await self._dialect.score_forced(self._client, pair)
                if forced is None:
                    continue
                echoed = await self._dialect.score(self._client, pair)
                if len(echoed.logprobs) == 1:
                    compared.add(forced.logprobs, echoed.logprobs)
        except RequestError as error:
            self._notes.append(f"options of one token are asked for by echo ({_reason_of(error)})")
            return
        self._dialect.forces_tokens = bool(compared.differences) and compared.is_close


class _WrongLogprobs(Exception):
    """A server whose log-likelihoods cannot be believed; the message is the reason."""


class _IgnoredMaxTokens(Exception):
    """A server that writes more than it was asked for; the message says how much."""


def _reason_of(error: Exception) -> str:
    return one_line(str(error), 200)


def _raise_if_passing(error: Exception, client: Client, what: str, *, is_500_passing: bool = False) -> None:
    """Raise ``ModelError`` if the server was only busy, or broken for the moment.

    Some servers answer 500 to requests that they can never answer; with ``is_500_passing`` a 500 counts as temporary.
    """
    if isinstance(error, RequestRefused) and error.is_temporary and (error.status != 500 or is_500_passing):
        raise ModelError(f"{client.endpoint.url}: the self-test {what} could not be ended: {_reason_of(error)}")
