"""Log-likelihoods from an echoed prompt: ``echo`` and ``logprobs`` of ``/completions``, by token ids or by text.

A server that is not known here is asked in this way; whether it can be believed, the self-test finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.models.servers.completions import CompletionsDialect, logprob_lists, only_choice, token_id, usage_of
from pytest_llmeval.models.servers.connections import served_by
from pytest_llmeval.models.servers.dialect import ScoredPrompt, TextPair, checked_logprob
from pytest_llmeval.types import JSON

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.client import Client

__all__ = ["Generic", "is_greedy", "scored_ids", "scored_text"]


_UNDECODED = "\ufffd"


def is_greedy(logprobs: Sequence[float], tops: Sequence[Any]) -> bool | None:
    """Return whether each token is the likeliest of its place, by the top logprobs there; None where those are
    missing.
    """
    if not all(isinstance(top, Mapping) and top for top in tops):
        return None
    for value in (value for top in tops for value in top.values()):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise RequestError(f"the server gave {value!r} in a logprob's place")
    return all(logprob >= max(top.values()) - 1e-9 for logprob, top in zip(logprobs, tops, strict=True))


def scored_ids(reply: Mapping[str, Any], pair: EncodedPair, seconds: float, *, has_ids: bool = False) -> ScoredPrompt:
    """Return the continuation's part of an echo of token ids. The reply may hold tokens that were written after the
    prompt.

    ``has_ids``: the echo was asked to name tokens by their ids, and has to.

    Raises ``RequestError`` unless the reply has an entry for each token that was sent, those tokens, null for the first
    and finite numbers for the rest.
    """
    choice = only_choice(reply)
    sent = (*pair.context, *pair.continuation)
    tokens, logprobs, tops, _ = logprob_lists(choice)
    num_prompt_tokens, num_tokens = usage_of(reply)
    num_written = min(num_tokens or 0, 1)  # some servers have to write a token, which the echo may leave out
    if len(tokens) not in (len(sent), len(sent) + num_written):
        raise RequestError(f"{len(sent)} tokens were sent and the server's echo has {len(tokens)}")
    if num_prompt_tokens is not None and num_prompt_tokens != len(sent):
        raise RequestError(f"{len(sent)} tokens were sent and the server read {num_prompt_tokens}")
    _check_tokens(tokens, sent, choice.get("text"), has_ids=has_ids)
    if logprobs[0] is not None:
        raise RequestError("the server's echo has a logprob for the first token, which has nothing before it")
    first, last = len(pair.context), len(sent)
    values = tuple(checked_logprob(value) for value in logprobs[1:last])[first - 1 :]
    return ScoredPrompt(
        logprobs=values,
        is_greedy=is_greedy(values, tops[first:last]),
        num_context_tokens=len(pair.context),
        seconds=seconds,
        **served_by(reply),
    )


def _check_tokens(tokens: Sequence[str], sent: Sequence[int], text: object, *, has_ids: bool) -> None:
    """Check whether what was echoed is what was sent: by ids, else by the text that the tokens make up."""
    ids = [token_id(token) for token in tokens[: len(sent)]]
    if None not in ids:
        if ids != list(sent):
            raise RequestError("the server's echo has other tokens than were sent")
        return
    if has_ids:
        raise RequestError("the server's echo names its tokens by their texts, and not by their ids")
    joined = "".join(tokens)
    if not isinstance(text, str) or _UNDECODED in joined or _UNDECODED in text:
        return
    if not (text.endswith(joined) or joined.endswith(text) or joined.startswith(text)):
        raise RequestError("the tokens of the server's echo do not join back to its text")


def scored_text(reply: Mapping[str, Any], pair: TextPair, seconds: float) -> ScoredPrompt:
    """Return the continuation's part of an echoed text, found by ``text_offset``.

    Raises ``RequestError`` unless the tokens join back to the text that was sent, the first has null and the rest
    finite numbers, and a token begins where the continuation does.
    """
    choice = only_choice(reply)
    sent = pair.context + pair.continuation
    tokens, logprobs, tops, offsets = logprob_lists(choice)
    if offsets is None:
        raise RequestError("the server's echo has no text_offset, so its tokens cannot be matched with the text")
    if sent not in str(choice.get("text", "")):
        raise RequestError("the server's reply lacks the text that was sent: it ignores echo")
    if not all(type(offset) is int for offset in offsets):
        raise RequestError("the server's reply does not say where in the text each token stands")
    has_bos = bool(tokens) and not sent.startswith(tokens[0]) and logprobs[0] is None and len(tokens) > 1
    if has_bos:  # an entry of its own, before the text
        start = offsets[1]
        tokens, logprobs, tops, offsets = tokens[1:], logprobs[1:], tops[1:], [offset - start for offset in offsets[1:]]
    _check_offsets(tokens, offsets, sent)
    num_sent = sum(offset < len(sent) for offset in offsets)
    num_prompt_tokens, _ = usage_of(reply)
    if num_prompt_tokens is not None and num_prompt_tokens - num_sent not in (0, 1):  # 1: BOS is not echoed
        raise RequestError(f"the server read {num_prompt_tokens} tokens and its echo has {num_sent}")
    if not has_bos and logprobs[0] is not None:
        raise RequestError("the server's echo has a logprob for the first token, which has nothing before it")
    first = next((i for i, offset in enumerate(offsets) if offset >= len(pair.context)), len(offsets))
    if first >= num_sent or offsets[first] != len(pair.context):
        raise RequestError(
            "one of the server's tokens has both an end of the context and a beginning of the continuation; "
            "put a space or a line break between the two, or ask a server that takes token ids"
        )
    if first == 0 and not has_bos:
        raise RequestError("the context is empty, and this server gives no logprob for the first token of a text")
    values = tuple(checked_logprob(value) for value in logprobs[first:num_sent])
    return ScoredPrompt(
        logprobs=values,
        is_greedy=is_greedy(values, tops[first:num_sent]),
        num_context_tokens=first + (num_prompt_tokens - num_sent if num_prompt_tokens is not None else 0),
        seconds=seconds,
        **served_by(reply),
    )


def _check_offsets(tokens: Sequence[str], offsets: Sequence[Any], sent: str) -> None:
    """Check whether the tokens are those of the text, each where its offset says.

    A token that is a part of a character has no text of its own: it is skipped, and what follows must fit again.
    """
    are_numbers = bool(offsets) and all(isinstance(offset, int) for offset in offsets)
    if not are_numbers or list(offsets) != sorted(offsets) or offsets[0] != 0:
        raise RequestError("the text_offset values of the server's echo do not rise from 0")
    ends = [*offsets[1:], None]
    for token, start, end in zip(tokens, offsets, ends, strict=True):
        if start >= len(sent):
            return
        if token and _UNDECODED not in token and not sent.startswith(token, start):
            raise RequestError("the tokens of the server's echo do not join back to the text that was sent")
        is_partial = not token or _UNDECODED in token
        if end is not None and not is_partial and end != start + len(token) and end <= len(sent):
            raise RequestError("the tokens of the server's echo do not join back to the text that was sent")


class Generic(CompletionsDialect):
    """An unknown server. By token ids where a tokenizer is given, else by text; ``scores`` is set when it is tried."""

    name = "generic"
    scores = "text"

    async def score(self, client: Client, pair: EncodedPair | TextPair) -> ScoredPrompt:
        prompt: JSON
        if isinstance(pair, EncodedPair):
            prompt = [*pair.context, *pair.continuation]
        else:
            prompt = pair.context + pair.continuation
        fields: dict[str, JSON] = {
            "prompt": prompt,
            "echo": True,
            "logprobs": 1,
            "max_tokens": 1,  # 0 is refused by some servers, and taken for «no limit» by others
            "temperature": 0.0,
        }
        reply, seconds = await self.post(client, "/completions", fields)
        return scored_ids(reply, pair, seconds) if isinstance(pair, EncodedPair) else scored_text(reply, pair, seconds)
