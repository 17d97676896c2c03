"""Token ids of a model behind a server: from its tokenizer's files, else from the server itself."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.encoding import Tokenizer
from pytest_llmeval.models.hardware import importing_torch
from pytest_llmeval.models.servers import loop

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.dialect import FoundServer
    from pytest_llmeval.models.servers.model import Replicas, ServerReplica

__all__ = ["ServerTokenizer", "local_tokenizer", "tokenizer_of"]

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
    """Return the model's snapshot in the hub's cache; None where there is none, or the name is no id of the hub."""
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
    """A tokenizer as far as ``Encoder`` uses one, asked of the server; each call waits for its reply.

    Not for the event loop's own thread, which would wait for itself.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self.eos_token_id: int | None = None
        self.chat_template = "the server's own"
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
        """Return the token that the server puts before every text; None where it puts none."""
        own, other = self.encode("a"), self.encode("a", add_special_tokens=False)
        return own[0] if own[1:] == other and len(own) == len(other) + 1 else None

    @functools.cached_property
    def bos_token(self) -> str | None:
        """Return the text of the token that the server puts before every text."""
        return None if self.bos_token_id is None else self.decode([self.bos_token_id]) or None

    @functools.cached_property
    def all_special_ids(self) -> list[int]:
        """Return the id of BOS alone, as far as the server tells it."""
        return [] if self.bos_token_id is None else [self.bos_token_id]

    def apply_chat_template(self, conversation: list[dict[str, str]], /, **settings: Any) -> str:
        """Return the text of a chat by the server's template."""
        is_begun = bool(settings.get("continue_final_message"))
        messages: Sequence[Mapping[str, str]] = conversation
        text = self._ask(lambda replica: replica.dialect.render(replica.client, messages, is_begun=is_begun))
        if not isinstance(text, str):
            raise RequestError(
                "the server does not tell how it renders a chat; name the model's tokenizer (tokenizer=…)"
            )
        return text
