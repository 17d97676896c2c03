"""Finds out what a server is, tests it, and makes a ``ServerModel`` of it."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import cast

from pytest_llmeval.errors import LLMEvalError, ModelError, OptionError
from pytest_llmeval.models.encoding import Encoder, Tokenizer
from pytest_llmeval.models.servers import loop
from pytest_llmeval.models.servers.arguments import Endpoint, ServerArguments
from pytest_llmeval.models.servers.client import Client, Unreachable
from pytest_llmeval.models.servers.detection import detect
from pytest_llmeval.models.servers.limits import FixedLimit
from pytest_llmeval.models.servers.model import Replicas, ServerModel, ServerReplica
from pytest_llmeval.models.servers.planning import Planner
from pytest_llmeval.models.servers.self_test import (
    GREEDY_PROMPTS,
    examine,
    examine_embeddings,
    find_json_way,
    greedy_replies,
)
from pytest_llmeval.models.servers.tokens import local_tokenizer, tokenizer_of
from pytest_llmeval.models.servers.verdict import Probe, ServerVerdict, merged
from pytest_llmeval.roles import ROLES, Role
from pytest_llmeval.text.redaction import model_error
from pytest_llmeval.text.wording import quoted
from pytest_llmeval.types import JSON, ModelIdentity

__all__ = ["load_server"]

_WIDTHS: Mapping[str, int] = {"llama-cpp-python": 4, "llama-server": 1, "ollama": 4}
"""Requests at once, where the user does not say and the server does not tell; 64 of the others."""


def load_server(name: str, arguments: ServerArguments, role: Role | None = None) -> ServerModel:
    """Return the model behind the servers of ``arguments``, which the user calls ``name``. Takes a few requests.

    An embedder is asked for embeddings, and for nothing else; of a model whose replies are JSON, as a judge's, it is
    found out how it is held to that.
    Raises ``ModelError`` in one line.
    """
    clients: list[Client] = []
    try:
        clients += [
            Client(endpoint, timeout_s=arguments.timeout_s, shared=arguments.shared_folder)
            for endpoint in arguments.endpoints
        ]
        if len(clients) > 1:
            for client in clients:
                client.num_connection_tries = 2
        return _load(name, arguments, clients, role)
    except BaseException as error:
        for client in clients:
            loop.run(client.close()).result()
        loop.shutdown_if_unused()
        if isinstance(error, OptionError) or not isinstance(error, LLMEvalError):
            raise
        raise model_error(name, str(error).removeprefix(f"model {name}: ").removeprefix(f"{name}: ")) from None


def _load(name: str, arguments: ServerArguments, clients: Sequence[Client], role: Role | None) -> ServerModel:
    embeds = role is not None and ROLES[role].method == "embed"
    members, missing = loop.wait(_connect_all(arguments, clients))
    first, replicas = members[0], Replicas(members)
    has_json_replies = role is not None and ROLES[role].has_json_replies
    tokenizer: Tokenizer | None = None
    source = ""
    if not embeds and (not first.dialect.is_hosted or arguments.tokenizer is not None):
        tokenizer, source = local_tokenizer(name, arguments.tokenizer, first.found)
    own = None if tokenizer is not None or first.dialect.is_hosted or embeds else tokenizer_of(replicas)
    used = tokenizer if tokenizer is not None else own
    encoder = None if used is None else Encoder(cast("Tokenizer", used))

    async def test(member: ServerReplica) -> ServerVerdict:
        if embeds:
            return await examine_embeddings(member.dialect, member.client)
        verdict = await examine(member.dialect, member.client, encoder, source)
        if has_json_replies and verdict.chat is None:
            await find_json_way(member.dialect, member.client)
        return verdict

    names = _names(clients)
    verdicts = loop.wait(_examine_all(members, names, test))
    living = [member for member in members if member.error is None]
    first, verdict = living[0], merged(verdicts)
    if len(living) > 1 and not embeds and verdict.probe is None:
        loop.wait(_compare_replies(living, is_chat=verdict.chat is None))
    for member in living:
        _watch(member, arguments, verdict.probe)
    if verdict.does_nothing:
        raise ModelError(f"nothing of it can be used: {'; '.join(verdict.refusals)}")
    absent = [name for name in names.values() if name not in verdicts]
    notes = (*verdict.notes, *(f"{url} does not answer: left out" for url in absent))
    verdict = dataclasses.replace(verdict, notes=notes)
    tokens = source or ("the server's own" if own is not None else None)
    return ServerModel(
        identity=_identity(name, arguments, living, verdict, tokens, role),
        replicas=replicas,
        planner=Planner(
            first.dialect, encoder, verdict, max_length=_length(living), wanted_length=arguments.max_length
        ),
        verdict=verdict,
        prices=(arguments.price_in, arguments.price_out),
        missing=missing,
    )


async def _connect_all(arguments: ServerArguments, clients: Sequence[Client]) -> tuple[list[ServerReplica], list[str]]:
    """Return the servers that answer, and why others do not: a worker may begin when one has died. Its requests are for
    the rest.
    """
    connecting = (_connect(arguments, client) for client in clients)
    found = await asyncio.gather(*connecting, return_exceptions=True)
    members = [one for one in found if isinstance(one, ServerReplica)]
    for error in found:
        if isinstance(error, BaseException) and not (members and isinstance(error, Unreachable)):
            raise error
    first = members[0]
    for member in members[1:]:
        if (first.dialect.name, first.found.identity) != (member.dialect.name, member.found.identity):
            raise _no_replicas(
                f"{first.client.endpoint.url} serves {first.dialect.name} {first.found.described_identity()} and "
                f"{member.client.endpoint.url} {member.dialect.name} {member.found.described_identity()}"
            )
    return members, [str(error) for error in found if isinstance(error, BaseException)]


def _length(members: Sequence[ServerReplica]) -> int | None:
    """Return the context of the one that has the shortest."""
    return min((member.found.max_length for member in members if member.found.max_length), default=None)


def _no_replicas(why: str) -> ModelError:
    return ModelError(f"the servers are no replicas of one model: {why}")


async def _connect(arguments: ServerArguments, client: Client) -> ServerReplica:
    """Return what a server is, by a few cheap requests."""
    kind = await detect(client, arguments.dialect, has_name=arguments.model is not None)
    dialect = kind(extra_body=arguments.extra_body, max_tokens_field=arguments.max_tokens_field)
    found = await dialect.identify(client, arguments.model)
    dialect.max_length = dialect.max_length or found.max_length
    width = found.num_slots or _WIDTHS.get(dialect.name)
    if client.endpoint.max_connections is None and width is not None and not dialect.is_hosted:
        client.limit.set_width(width)
    return ServerReplica(client=client, dialect=dialect, found=found)


def _watch(member: ServerReplica, arguments: ServerArguments, probe: Probe | None) -> None:
    """Have the server asked from now on whether it is the same, when there is doubt. The name of a hosted model says
    nothing that could be compared.
    """
    if not member.dialect.is_hosted:
        member.client.watch.ask = functools.partial(_check_is_the_same, member, arguments, probe)


async def _check_is_the_same(member: ServerReplica, arguments: ServerArguments, probe: Probe | None) -> None:
    """Ask again what the server is, and for the logprobs of a text that are known. Raises ``ModelError`` where that is
    something else now.
    """
    url, found, timeout_s = member.client.endpoint.url, member.found, arguments.timeout_s
    # The request that waits for this has one of the host's slots.
    client = Client(member.client.endpoint, timeout_s=timeout_s, get_timeout_s=timeout_s, limit=FixedLimit(1))
    client.usage = member.client.usage
    dialect = type(member.dialect)(extra_body=arguments.extra_body, max_tokens_field=arguments.max_tokens_field)
    dialect.scores, dialect.tries = member.dialect.scores, 1
    difference = None
    try:
        now = await dialect.identify(client, found.model)
        if now.identity != found.identity:
            difference = f"it was {found.described_identity()} and is {now.described_identity()}"
        elif probe is not None:
            logprobs = (await dialect.score(client, probe.pair)).logprobs
            difference = probe.difference(Probe(probe.pair, logprobs))
    finally:
        await client.close()
    if difference:
        raise ModelError(
            f"{url}: the server was started anew in the middle of the run and is another one: {difference}"
        )


def _names(clients: Sequence[Client]) -> dict[Endpoint, str]:
    """Return each endpoint's name: its URL, with the variable of its key if another endpoint has the same URL."""
    endpoints = [client.endpoint for client in clients]
    urls = [endpoint.url for endpoint in endpoints]
    return {
        one: one.url if urls.count(one.url) == 1 else f"{one.url} ({one.api_key_env or 'no key'})" for one in endpoints
    }


async def _examine_all(
    members: Sequence[ServerReplica],
    names: Mapping[Endpoint, str],
    test: Callable[[ServerReplica], Awaitable[ServerVerdict]],
) -> dict[str, ServerVerdict]:
    """Return the verdicts by name, without servers that died meanwhile; if all did, raise the first one's error."""
    found = await asyncio.gather(*map(test, members), return_exceptions=True)
    verdicts: dict[str, ServerVerdict] = {}
    for member, verdict in zip(members, found, strict=True):
        if isinstance(verdict, ServerVerdict):
            verdicts[names[member.client.endpoint]] = verdict
        elif isinstance(verdict, Unreachable):
            member.error = verdict
        else:
            raise verdict
    living = [member for member in members if member.error is None]
    if not living:
        assert members[0].error is not None
        raise members[0].error
    ways = {
        (member.dialect.takes_text, verdicts[names[member.client.endpoint]].scores, member.dialect.json_way)
        for member in living
    }
    lengths = {member.dialect.vector_length for member in living}
    if len(lengths) > 1:
        raise _no_replicas(f"their embeddings have {' and '.join(map(str, lengths))} numbers")
    if len(ways) > 1:
        raise _no_replicas("their self-tests found that they have to be asked in different ways")
    return verdicts


async def _compare_replies(members: Sequence[ServerReplica], *, is_chat: bool) -> None:
    """Check that servers without logprobs could have the same weights: their greedy replies to short prompts are the
    same.

    Raises ``ModelError`` for two that each give their own reply twice. One whose reply is another one the second time
    shows nothing.
    """

    async def replies() -> list[list[str | None]]:
        asked = (greedy_replies(member.dialect, member.client, is_chat=is_chat) for member in members)
        return await asyncio.gather(*asked)

    found = await replies()
    if all(one == found[0] for one in found):
        return
    again = await replies()
    for place, prompt in enumerate(GREEDY_PROMPTS):
        stable = [
            (member.client.endpoint.url, one[place])
            for member, one, other in zip(members, found, again, strict=True)
            if one[place] is not None and one[place] == other[place]
        ]
        for url, text in stable[1:]:
            if text != stable[0][1]:
                raise _no_replicas(
                    f"after {quoted(prompt)} {stable[0][0]} writes {quoted(stable[0][1] or '')} and {url} "
                    f"{quoted(text or '')}"
                )


def _identity(
    name: str,
    arguments: ServerArguments,
    replicas: Sequence[ServerReplica],
    verdict: ServerVerdict,
    tokenizer: str | None,
    role: Role | None,
) -> ModelIdentity:
    """Return what the report says of the model. A hosted name has no fingerprint: the weights behind it may change."""
    dialect, found = replicas[0].dialect, replicas[0].found
    urls: list[JSON] = [*dict.fromkeys(replica.client.endpoint.url for replica in replicas)]
    details: dict[str, JSON] = {
        "server": dialect.name,
        "version": found.version,
        "urls": urls,
        "model": found.model,
        "root": found.root,
        "build": found.build,
        "max_length": arguments.max_length or _length(replicas),
        "tokenizer": tokenizer,
        **found.details,
    }
    if arguments.extra_body:
        details["extra_body"] = dict(arguments.extra_body)
    if dialect.vector_length is not None:
        details["vector_length"] = dialect.vector_length
    elif not dialect.takes_text:
        details["text_prompts"] = "sent as one turn of the user"
    if role is not None and ROLES[role].has_json_replies:
        details["json"] = dialect.json_way
    if dialect.left_out:
        details["left_out"] = [*sorted(dialect.left_out)]
    if dialect.is_hosted or (found.build is None and found.root is None):
        details["alias"] = "the name does not say which weights it stands for: they may change"
    details = {key: value for key, value in details.items() if value is not None}
    return ModelIdentity(
        name=name,
        backend="server",
        fingerprint=None if "alias" in details else _fingerprint(details),
        details={**details, "self_test": verdict.as_json()},
    )


def _fingerprint(details: Mapping[str, JSON]) -> str:
    """Return the SHA-256 over what the server says of itself and how it is asked; not over where it runs."""
    parts = {key: value for key, value in details.items() if key not in ("urls", "alias")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
