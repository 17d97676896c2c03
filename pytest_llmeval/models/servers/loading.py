"""Finds out what a server is and which dialect it speaks, tests it, and makes a ``ServerModel`` of it."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import json
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from pytest_llmeval.errors import LLMEvalError, ModelError, OptionError, RequestError
from pytest_llmeval.models.encoding import Encoder, Tokenizer
from pytest_llmeval.models.endpoints import Endpoint, ServerArguments
from pytest_llmeval.models.hardware import importing_torch
from pytest_llmeval.models.servers import loop
from pytest_llmeval.models.servers.anthropic import AnthropicDialect
from pytest_llmeval.models.servers.client import Client, Unreachable
from pytest_llmeval.models.servers.completions import OpenAIDialect, what_came
from pytest_llmeval.models.servers.concurrency import FixedLimit
from pytest_llmeval.models.servers.dialect import Dialect, looked_up
from pytest_llmeval.models.servers.echoed_logprobs import Generic
from pytest_llmeval.models.servers.llama_cpp import LlamaCppPython, LlamaServer
from pytest_llmeval.models.servers.model import Replicas, ServerModel, ServerReplica
from pytest_llmeval.models.servers.ollama import OllamaDialect
from pytest_llmeval.models.servers.planning import Planner
from pytest_llmeval.models.servers.server_checks import (
    GREEDY_PROMPTS,
    examine,
    examine_embeddings,
    find_json_way,
    greedy_replies,
)
from pytest_llmeval.models.servers.verdict import Probe, ServerVerdict, merged
from pytest_llmeval.models.servers.vllm_sglang import VLLM, SGLang
from pytest_llmeval.roles import ROLES, Role
from pytest_llmeval.text.messages import openai_messages, read_messages
from pytest_llmeval.text.redaction import model_error
from pytest_llmeval.text.wording import quoted
from pytest_llmeval.types import IS_KNOWN, JSON, ModelIdentity

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.client import Client
    from pytest_llmeval.models.servers.dialect import FoundServer
    from pytest_llmeval.models.servers.model import Replicas, ServerReplica

__all__ = ["DIALECT_CLASSES", "ServerTokenizer", "detect", "load_server", "local_tokenizer", "tokenizer_of"]


DIALECT_CLASSES: Mapping[str, type[Dialect]] = {
    dialect.name: dialect
    for dialect in (VLLM, SGLang, LlamaCppPython, LlamaServer, OllamaDialect, OpenAIDialect, AnthropicDialect, Generic)
}

_HOSTS: Mapping[str, type[Dialect]] = {"api.openai.com": OpenAIDialect, "api.anthropic.com": AnthropicDialect}
_OWNERS: Mapping[str, type[Dialect]] = {
    "vllm": VLLM,
    "sglang": SGLang,
    "llamacpp": LlamaServer,
    "library": OllamaDialect,
}
"""Dialects by what ``owned_by`` says in an entry of ``/models``."""


async def detect(client: Client, dialect: str | None, *, has_name: bool) -> type[Dialect]:
    """Return the dialect that the user named, or the server's own. ``has_name``: the user has named a model, which a
    server without a list of models needs.

    Raises ``ModelError`` for what is no server of models.
    """
    if dialect is not None:
        return DIALECT_CLASSES[dialect]
    hosted = _HOSTS.get(urlsplit(client.endpoint.url).hostname or "")
    if hosted is not None:
        return hosted
    reply = await client.get("/models")
    if 300 <= reply.status < 400 or reply.status in (401, 402, 403):
        raise client.error_of(reply)
    data = reply.body.get("data") if isinstance(reply.body, dict) else None
    entries = [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []
    for entry in entries:
        if (known := _OWNERS.get(str(entry.get("owned_by")))) is not None:
            return known
        if "display_name" in entry and entry.get("type") == "model":
            return AnthropicDialect
    if reply.headers.get("server", "").lower().startswith("llama.cpp"):
        return LlamaServer
    if (found := await _by_paths(client)) is not None:
        return found
    if not entries and not (has_name and reply.status in (404, 405, 501) and "<" not in reply.text[:200]):
        raise ModelError(f"{client.endpoint.url} is not a model server: {what_came(reply)}")
    return Generic


async def _by_paths(client: Client) -> type[Dialect] | None:
    """Return the dialect, found by the paths that each kind of server has beside the OpenAI interface."""
    if "version" in await looked_up(client, "//api/version"):
        return OllamaDialect
    info = (await looked_up(client, "//openapi.json")).get("info")
    if isinstance(info, dict) and "llama.cpp Python" in str(info.get("title")):
        return LlamaCppPython
    if "default_generation_settings" in await looked_up(client, "//props"):
        return LlamaServer
    return SGLang if "model_path" in await looked_up(client, "//get_model_info") else None


_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")


def local_tokenizer(model: str, given: str | None, found: FoundServer) -> tuple[Tokenizer | None, str]:
    """Return the tokenizer that was given, else that of the model's own folder or snapshot, where the server names one
    that is on this machine; and where it comes from, for the report. Raises ``ModelError``.
    """
    if given is not None:
        if given.startswith(("/", ".", "~")) and not Path(given).expanduser().is_dir():
            raise ModelError(f"tokenizer={given}: there is no such folder")
        return _load_tokenizer(model, given), given
    for name in filter(None, (found.root, found.model)):
        folder = Path(name) if Path(name).is_absolute() else _snapshot(name)
        if folder is not None and any((folder / file).is_file() for file in _TOKENIZER_FILES):
            try:
                return _load_tokenizer(model, str(folder)), name
            except ModelError:
                continue  # the server has one that works
    return None, ""


def _snapshot(name: str) -> Path | None:
    """Return the model's snapshot in the hub's cache; None if there is none, or the name is no id of the hub."""
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(name, local_files_only=True))
    except (OSError, ValueError):  # errors of the hub's library are of these kinds
        return None


def _load_tokenizer(model: str, location: str) -> Tokenizer:
    with importing_torch(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # under -W error, what a library warns of at its import would end the run
        from pytest_llmeval.models.huggingface.loading import load_tokenizer

    tokenizer: Tokenizer = load_tokenizer(model, location)
    return tokenizer


def tokenizer_of(replicas: Replicas) -> ServerTokenizer | None:
    """Return the servers' own tokenizer, where they have an interface for that. Not from the event loop's thread."""
    tokenizer = ServerTokenizer(replicas)
    try:
        return tokenizer if tokenizer.looks_sound() else None
    except RequestError:
        return None


class ServerTokenizer:
    """A tokenizer for ``Encoder`` that asks the server; each call waits for its reply.

    Not for the event loop's own thread, which would wait for itself.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self.eos_token_id: int | None = None
        self.chat_template: str | None = "the server's own; it may have tools and tool_calls"
        self.encode = functools.lru_cache(maxsize=4096)(self._encode)

    def looks_sound(self) -> bool:
        """Return whether the server encodes and decodes."""
        return bool(self._encode("a b", add_special_tokens=False)) and self._text([0]) is not None

    def _encode(self, text: str, *, add_special_tokens: bool | None = None, verbose: bool = True) -> list[int]:
        """Return the tokens of a text; ``add_special_tokens`` None is the server's own habit with prompts."""
        if not text and add_special_tokens is False:
            return []
        adds = add_special_tokens is not False
        tokens: list[int] | None = self._ask(
            lambda replica: replica.dialect.tokenize(replica.client, text, add_special_tokens=adds)
        )
        if tokens is None:
            raise RequestError("the server does not tell the token ids of a text; name its tokenizer (tokenizer=…)")
        return tokens

    def _text(self, tokens: Sequence[int]) -> str | None:
        text: str | None = self._ask(lambda replica: replica.dialect.detokenize(replica.client, tokens))
        return text

    def _ask(self, question: Callable[[ServerReplica], Awaitable[Any]]) -> Any:
        """Return the answer of one of the servers that live."""
        return loop.wait(self._replicas.ask(question))

    def decode(self, tokens: Any, /, **settings: Any) -> str:
        """Return the text of token ids, special tokens included."""
        text = self._text([int(token) for token in tokens])
        if text is None:
            raise RequestError("the server does not tell the text of token ids; name its tokenizer (tokenizer=…)")
        return text

    @functools.cached_property
    def bos_token_id(self) -> int | None:
        """Return the token that the server puts before every text; None if it puts none."""
        own, other = self.encode("a"), self.encode("a", add_special_tokens=False)
        return own[0] if own[1:] == other and len(own) == len(other) + 1 else None

    @functools.cached_property
    def bos_token(self) -> str | None:
        """Return the text of the token that the server puts before every text."""
        return None if self.bos_token_id is None else self.decode([self.bos_token_id]) or None

    @functools.cached_property
    def all_special_ids(self) -> list[int]:
        """Return the id of BOS alone; none if the server does not tell it."""
        return [] if self.bos_token_id is None else [self.bos_token_id]

    def apply_chat_template(self, conversation: list[dict[str, Any]], /, **settings: Any) -> str:
        """Return the text of a chat by the server's template."""
        if settings.get("tools"):
            raise RequestError(
                "a chat with tools ends with a turn that the assistant has begun: this server cannot continue it; name "
                "the model's tokenizer (tokenizer=…), or leave out prompt.prefix"
            )
        is_begun = bool(settings.get("continue_final_message"))
        messages = openai_messages(read_messages(conversation))
        text = self._ask(lambda replica: replica.dialect.render(replica.client, messages, is_begun=is_begun))
        if not isinstance(text, str):
            raise RequestError(
                "the server does not tell how it renders a chat; name the model's tokenizer (tokenizer=…)"
            )
        return text


_WIDTHS: Mapping[str, int] = {"llama-cpp-python": 4, "llama-server": 1, "ollama": 4}
"""The most requests at once if neither the user nor the server says; other servers get 64."""


def load_server(name: str, arguments: ServerArguments, role: Role | None = None) -> ServerModel:
    """Return the model behind the servers of ``arguments``, which the user calls ``name``. Takes a few requests.

    An embedder is asked for embeddings, and for nothing else. For a model whose replies are JSON, as a judge's are, it
    is found out how the server is held to JSON. Raises ``ModelError`` in one line.
    """
    clients: list[Client] = []
    try:
        clients += [
            Client(
                endpoint,
                model=arguments.model or "",
                timeout_s=arguments.timeout_s,
                shared=arguments.shared_folder,
                budget=arguments.budget,
                prices=(arguments.price_in or 0.0, arguments.price_out or 0.0),
                limit_field=arguments.max_tokens_field,
                on_lost=arguments.on_lost,
            )
            for endpoint in arguments.endpoints
        ]
        if len(clients) > 1 and arguments.on_lost is None:
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
    if own is not None and arguments.no_chat is not None:
        own.chat_template = None
    used = tokenizer if tokenizer is not None else own
    encoder = None if used is None else Encoder(cast("Tokenizer", used))

    async def test(member: ServerReplica) -> ServerVerdict:
        if embeds:
            return await examine_embeddings(member.dialect, member.client)
        verdict = await examine(member.dialect, member.client, encoder, source)
        verdict = dataclasses.replace(verdict, chat=arguments.no_chat or verdict.chat)
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
    """Have the server asked whether it is still the same, whenever it is suspect.

    A hosted model is left out: its name says nothing that could be compared.
    """
    if not member.dialect.is_hosted:
        member.client.watch.ask = functools.partial(_check_is_the_same, member, arguments, probe)


async def _check_is_the_same(member: ServerReplica, arguments: ServerArguments, probe: Probe | None) -> None:
    """Compare the server with what it was: its identity, and the known logprobs of a text. Raises ``ModelError`` if it
    differs.
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
        details={**details, **({IS_KNOWN: True} if found.names_weights else {}), "self_test": verdict.as_json()},
    )


def _fingerprint(details: Mapping[str, JSON]) -> str:
    """Return the SHA-256 over what the server says of itself and how it is asked; not over where it runs."""
    parts = {key: value for key, value in details.items() if key not in ("urls", "alias")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
