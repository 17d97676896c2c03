"""The self-test of a server: a few requests before the first answer, which show what it can be believed.

What works: texts, chats, log-likelihoods. What does not is refused, with the reason in one line. Log-likelihoods are
believed where the echo has the shape that it must have, where its numbers are those that the server gives the same
tokens when it writes them, and where neither the order of requests nor a prefix cache changes them. A judge is tested
for how it is held to JSON, too.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.encoding import Encoder
from pytest_llmeval.models.servers.client import RequestRefused
from pytest_llmeval.models.servers.dialect import WEAKER, Dialect, Written
from pytest_llmeval.models.servers.loglikelihood_checks import PROBES, LoglikelihoodChecks
from pytest_llmeval.models.servers.verdict import Disobeyed, ServerVerdict, Untrue, raise_if_passing, reason_of
from pytest_llmeval.types import JSON, GenerateRequest, Message

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.client import Client

__all__ = ["GREEDY_PROMPTS", "examine", "examine_embeddings", "find_json_way", "greedy_replies"]

_NUM_WRITTEN = 12
_NUM_SHORT = 2
_ALONE = "it is asked for embeddings alone"


async def examine(dialect: Dialect, client: Client, encoder: Encoder | None, tokenizer: str) -> ServerVerdict:
    """Ask the server, and judge. ``encoder`` uses the tokenizer that ``tokenizer`` names (empty: the server's own).

    Raises ``ModelStopped`` and ``Unreachable``, and ``ModelError`` for what might go well at another time: a session
    is not to depend on that. Everything else is in the verdict.
    """
    notes: list[str] = []
    chat = await _judge_chat(dialect, client)
    try:
        text = await _judge_text(dialect, client, notes) if dialect.takes_text else chat
    except Disobeyed as error:
        text = chat = reason_of(error)
    if text is not None and chat is None and dialect.takes_text:
        dialect.takes_text = False
        notes.append(f"no text completions ({text}): a text prompt is sent as one turn of the user")
        text = None
    elif not dialect.takes_text:
        notes.append("a text prompt is sent as one turn of the user")
    notes += [f"the server does not take {name}" for name in dialect.left_out]
    loglikelihood = LoglikelihoodChecks(dialect, client, encoder, tokenizer, notes)
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
        one, other = await asyncio.gather(*(dialect.embed(client, text) for text in PROBES[:2]))
        if one.vector == other.vector:
            reason = "two texts have the same embedding"
    except RequestError as error:
        raise_if_passing(error, client, "of embeddings")
        reason = reason_of(error)
    return ServerVerdict(text=_ALONE, chat=_ALONE, loglikelihood=_ALONE, embeddings=reason, embeds=True)


async def find_json_way(dialect: Dialect, client: Client) -> None:
    """Find out how the server is held to JSON, which is then so for all verdicts. Chats work: see ``examine``.

    What it refuses now is therefore the format, whatever it says of it. Raises as ``examine``.
    """
    prompt = (Message(role="user", content="Is the sky blue? " + _JSON_WANTED),)
    request = GenerateRequest(prompt, max_tokens=_NUM_JSON, json_schema=json.dumps(_JSON_SCHEMA))
    while not dialect.is_json_way_known:
        try:
            await dialect.write(client, request)
            break
        except RequestRefused as error:
            raise_if_passing(error, client, "of replies in JSON")
            if dialect.json_way == "text":
                raise ModelError(f"{client.endpoint.url}: no reply in JSON: {reason_of(error)}") from None
            dialect.json_way = WEAKER[dialect.json_way]
        except RequestError:
            break  # it took the format, and what it writes is checked for each verdict


_NUM_JSON = 256
_JSON_WANTED = 'Answer with this JSON: {"label": "yes", "score": 5}'
_JSON_SCHEMA: JSON = {
    "type": "object",
    "properties": {"label": {"type": "string", "enum": ["yes", "no"]}, "score": {"type": "integer", "enum": [1, 5]}},
    "required": ["label", "score"],
    "additionalProperties": False,
}


GREEDY_PROMPTS = ("Name three animals, and say what each of them eats.", PROBES[0])
"""Prompts for replicas whose weights cannot be compared by logprobs."""
_NUM_GREEDY = 24


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
    except (RequestError, Untrue) as error:
        raise_if_passing(error, client, "of chats")
        return reason_of(error)
    return None


async def _judge_text(dialect: Dialect, client: Client, notes: list[str]) -> str | None:
    try:
        for probe in PROBES:
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
    except Disobeyed:
        raise
    except (RequestError, Untrue) as error:
        # Also for 500: to send texts as chats instead changes what is measured.
        raise_if_passing(error, client, "of texts", is_500_passing=True)
        return reason_of(error)
    return None


def _check_length(written: Written, request: GenerateRequest) -> None:
    if written.num_tokens is not None and written.num_tokens > request.max_tokens:
        raise Disobeyed(f"max_tokens was {request.max_tokens} and the reply has {written.num_tokens} tokens")


def _stop_in(text: str) -> str | None:
    """Return a piece from inside a reply, which a stop string can be made of: it stands in it, and more behind it."""
    body = text.strip()
    if len(body) < 6:
        return None
    piece = body[len(body) // 2 - 1 : len(body) // 2 + 1]
    return piece if piece.strip() else body[len(body) // 2 - 2 : len(body) // 2 + 2]
