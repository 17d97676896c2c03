"""Answers with replies from a file in place of a model, and finds out which reply belongs to which sample."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from pytest_llmeval.data.files import Source
from pytest_llmeval.errors import LeftOutError, ModelError, RequestError
from pytest_llmeval.models.base import Failed, SampleBackend
from pytest_llmeval.models.findings import fingerprint_files
from pytest_llmeval.models.replay.file import (
    RecordedReply,
    ReplayArguments,
    Replies,
    ReplyProblem,
    parsed_list,
    read_replies,
    truncated,
)
from pytest_llmeval.text.documents import found_documents
from pytest_llmeval.text.wording import describe, quoted
from pytest_llmeval.types import (
    COSTS_NOTHING,
    IS_KNOWN,
    JSON,
    REPLAYED,
    AskedSample,
    ConversationRequest,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    ModelIdentity,
    Response,
)

__all__ = ["DataResponses", "ReplayModel", "assign_replies", "load_replay", "responses_of"]

_T = TypeVar("_T")
_MOST_NAMED = 5
NOTHING_FOUND = GenerateResponse(text="", documents=(), has_text=False)
"""The reply to a query that a run lacks."""


def load_replay(name: str, source: Source, arguments: ReplayArguments) -> ReplayModel:
    """Read the file. Raises ``ModelError`` and ``SuiteError`` for what is wrong with it, in one line."""
    try:
        replies = read_replies(source, arguments)
    except ReplyProblem as problem:
        raise ModelError(f"model {name}: {problem}") from None
    details: dict[str, JSON] = {
        "kind": replies.kind,
        "num_replies": len(replies.replies),
        "partial": arguments.partial,
        IS_KNOWN: True,
    }
    identity = ModelIdentity(
        name=name,
        backend="replay",
        fingerprint=fingerprint_files([("replies", source.path)], [*sorted(arguments.given)]),
        details=details if replies.report is None else {**details, REPLAYED: [*replies.report]},
    )
    return ReplayModel(identity, replies, partial=arguments.partial)


class ReplayModel(SampleBackend):
    """Gives each sample the reply that a file has for it."""

    def __init__(self, identity: ModelIdentity, replies: Replies, *, partial: bool = False) -> None:
        super().__init__(identity)
        self._replies = replies
        self._partial = partial
        self._assigned: dict[str, Mapping[str, tuple[RecordedReply, ...]]] = {}
        self._num_left_out: dict[str, int] = {}

    def prepare(self, suite: str, samples: Sequence[AskedSample], /) -> None:
        """Find the replies to this suite. Raises ``ModelError`` where they do not fit it."""
        try:
            assigned = self._assigned[suite] = assign_replies(self._replies, suite, samples, partial=self._partial)
        except ReplyProblem as problem:
            raise ModelError(f"model {self.identity.name}: {problem}") from None
        own = self._replies.of(suite)
        self._num_left_out[suite] = len(own) - len(assigned) if _are_in_order(own) else 0

    def warning_of(self, suite: str) -> str | None:
        """Return a warning if replies to a prepared suite are left over, or None."""
        num_left_out = self._num_left_out[suite]
        if num_left_out <= 0:
            return None
        replies = "reply is" if num_left_out == 1 else f"{num_left_out} replies are"
        num_samples = len(self._assigned[suite])
        samples = "1 sample" if num_samples == 1 else f"{num_samples} samples"
        return f"{self._replies.shown}: the last {replies} left out, since suite {quoted(suite)} has {samples}"

    def lacks_method(self, suite: str, method: str) -> bool:
        """Tell whether no reply to the suite, which was prepared, is what this method of ``Model`` would return."""
        replies = [reply for own in self._assigned[suite].values() for reply in own if not reply.is_empty]
        if method == "generate":
            return bool(replies) and all(
                reply.response is None and not reply.documents and not reply.tool_calls for reply in replies
            )
        return bool(replies) and all(
            reply.loglikelihoods is None and reply.scores is None and isinstance(parsed_list(reply.response), str)
            for reply in replies
        )

    def answer(self, sample: AskedSample) -> Sequence[Response | Failed]:
        """See ``SampleBackend``. With ``partial`` a ``LeftOutError`` for a sample without a reply."""
        replies = self._assigned[sample.suite].get(sample.id, ())
        if not replies and self._replies.kind == "TREC run":
            return [NOTHING_FOUND for _ in sample.requests]
        if not replies:
            missing = LeftOutError(f"no reply in {self._replies.shown}")
            return [missing for _ in sample.requests]
        return responses_of(replies, sample)


class DataResponses(SampleBackend):
    """Gives each sample the response that its own data set carries."""

    def __init__(self) -> None:
        details: dict[str, JSON] = {"kind": "data set", COSTS_NOTHING: True}
        super().__init__(ModelIdentity(name="responses", backend="replay", details=details))

    def answer(self, sample: AskedSample) -> Sequence[Response | Failed]:
        if sample.response is None and sample.reads_documents:
            return [NOTHING_FOUND for _ in sample.requests]
        if sample.response is None:
            missing = RequestError("the row has no response; dataset.where can leave such rows out")
            return [missing for _ in sample.requests]
        is_cut = truncated(sample.row.get("finish_reason"))
        return responses_of([RecordedReply(place=sample.place, response=sample.response, truncated=is_cut)], sample)


# Which sample a reply belongs to


def assign_replies(
    replies: Replies, suite: str, samples: Sequence[AskedSample], *, partial: bool = False
) -> dict[str, tuple[RecordedReply, ...]]:
    """Return the replies to each sample of a suite, by the sample's id, those of several epochs in their order.

    They are assigned by id, by number if the file counts rows, else by order (with ``partial`` as far as both go).
    Raises ``ReplyProblem`` for replies that have no sample, samples that have no reply (unless ``partial``), two
    replies to one sample that are not epochs, and replies to other rows than the suite's.
    """
    own = replies.of(suite)
    if not own:
        named = dict.fromkeys(reply.suite for reply in replies.replies if reply.suite is not None)
        raise ReplyProblem(f"{replies.shown} has no replies for suite {quoted(suite)}, only for {_listed(named)}")
    by_number = {str(sample.number): sample.id for sample in samples}
    if all(reply.number is not None for reply in own):
        named_replies = [(by_number.get(str(reply.number), f"row {reply.number}"), reply) for reply in own]
    elif _are_in_order(own):
        if len(own) != len(samples) and not partial:
            raise ReplyProblem(
                f"{replies.shown} has {len(own)} replies without ids, and suite {quoted(suite)} has {len(samples)} "
                "samples: give them ids, or one reply for each sample, in order; ?partial=true scores the first "
                f"{min(len(own), len(samples))}"
            )
        named_replies = [(sample.id, reply) for sample, reply in zip(samples, own, strict=False)]
    elif (without := next((reply for reply in own if reply.id is None), None)) is not None:
        raise ReplyProblem(f"{without.place}: the reply has no id, and others have one; give ids to all, or to none")
    else:
        named_replies = [(str(reply.id), reply) for reply in own]
    assigned = _grouped(named_replies, replies)
    _check_ids(assigned, replies, suite, samples, partial=partial)
    _check_documents(assigned, replies, suite, samples)
    return assigned


def _are_in_order(own: Sequence[RecordedReply]) -> bool:
    """Tell whether only their order says to which samples the replies belong."""
    return all(reply.id is None and reply.number is None for reply in own)


def _grouped(named: Iterable[tuple[str, RecordedReply]], replies: Replies) -> dict[str, tuple[RecordedReply, ...]]:
    groups: dict[str, list[RecordedReply]] = {}
    empty: set[str] = set()
    for id_, reply in named:
        if reply.is_empty:
            empty.add(id_)
        else:
            groups.setdefault(id_, []).append(reply)
    twice = [
        id_
        for id_, members in groups.items()
        if len(members) > 1 and len({member.epoch for member in members} - {None}) != len(members)
    ]
    if twice:
        first, second = groups[twice[0]][:2]
        raise ReplyProblem(
            f"{replies.shown} has more than one reply to {_listed(twice)} ({first.place}, {second.place}): "
            "remove one, or number them in a column epoch"
        )
    return {id_: tuple(sorted(members, key=lambda member: member.epoch or 0)) for id_, members in groups.items()} | {
        id_: () for id_ in empty if id_ not in groups
    }


def _check_ids(
    assigned: Mapping[str, tuple[RecordedReply, ...]],
    replies: Replies,
    suite: str,
    samples: Sequence[AskedSample],
    *,
    partial: bool,
) -> None:
    ids = [sample.id for sample in samples]
    known = set(ids)
    if replies.kind == "TREC run" and not known.isdisjoint(assigned):
        return  # what a run lacks counts as nothing found, and it may hold queries of other suites
    surplus = [id_ for id_ in assigned if id_ not in known]
    missing = [id_ for id_ in ids if not assigned.get(id_)]
    if surplus:
        also = f", and none to {_listed(missing)}" if missing and not partial else ""
        raise ReplyProblem(
            f"{replies.shown} has replies to {_listed(surplus)}, which suite {quoted(suite)} does not "
            f"have{also}; its ids are {_listed(ids)}"
        )
    if missing and not partial:
        raise ReplyProblem(
            f"{replies.shown} has no reply to {_listed(missing)}, of the {len(ids)} samples of suite "
            f"{quoted(suite)}; ?partial=true scores those that have one"
        )


def _check_documents(
    assigned: Mapping[str, tuple[RecordedReply, ...]], replies: Replies, suite: str, samples: Sequence[AskedSample]
) -> None:
    """Refuse replies to other rows: what both have under one name, as text or a number, has to be equal."""
    for sample in samples:
        for reply in assigned.get(sample.id, ()):
            for name, value in (reply.doc or {}).items():
                own = sample.row.get(name)
                if isinstance(own, str | int | float) and isinstance(value, str | int | float) and own != value:
                    raise ReplyProblem(
                        f"{reply.place}: the reply is to a row whose {quoted(name)} is {describe(value)}, and sample "
                        f"{quoted(sample.id)} of suite {quoted(suite)} ({sample.place}) has {describe(own)}: the rows "
                        "have to be the same, in the same order"
                    )


def _listed(names: Collection[object]) -> str:
    """Return the first few of ``names``, and how many there are."""
    first = ", ".join(quoted(str(name)) for name in islice(names, _MOST_NAMED))
    return first if len(names) <= _MOST_NAMED else f"{first}, … ({len(names)})"


# What it answers


def responses_of(replies: Sequence[RecordedReply], sample: AskedSample) -> list[Response | Failed]:
    """Return what the replies to a sample answer to its requests; ``RequestError`` in their place where they do not
    fit.
    """
    try:
        return list(_responses(replies, sample))
    except ReplyProblem as problem:
        return [RequestError(str(problem)) for _ in sample.requests]


def _responses(replies: Sequence[RecordedReply], sample: AskedSample) -> Iterator[Response]:
    requests = sample.requests
    if all(isinstance(request, GenerateRequest) for request in requests):
        texts = [found for reply in replies for found in _generated(reply, sample)]
        num_turns = len(requests[0].users) if isinstance(requests[0], ConversationRequest) else 1
        if len(requests) == 1:
            texts = _as_turns(texts, num_turns)
        if len(texts) != len(requests):
            times = "once" if len(requests) == 1 else f"{len(requests)} times"
            turns = f", in {num_turns} turns" if num_turns > 1 else ""
            has = "1 response" if len(texts) == 1 else f"{len(texts)} responses"
            raise ReplyProblem(f"{replies[0].place}: found {has}, and the suite asks each sample {times}{turns}")
        if (found := next((len(one.turns) + 1 for one in texts if one.turns), num_turns)) != num_turns:
            turns = "1 turn" if num_turns == 1 else f"{num_turns} turns"
            raise ReplyProblem(f"{replies[0].place}: found replies to {found} turns, and the suite asks {turns}")
        yield from texts
        return
    if len(replies) > 1:
        raise ReplyProblem(f"{replies[1].place}: found several epochs, and log-likelihoods are measured once")
    yield from _scored(replies[0], len(requests), isinstance(requests[0], LoglikelihoodRollingRequest))


def _generated(reply: RecordedReply, sample: AskedSample) -> Iterator[GenerateResponse]:
    """Yield the texts of a reply, each with its contexts, documents and so on; if documents are judged, the one list of
    them.
    """
    if sample.reads_documents and reply.is_cut:
        raise ReplyProblem(f"{reply.place}: the report keeps the first documents only, of more than it has room for")
    value = parsed_list(reply.response)
    is_data = isinstance(value, list | dict | int | float)  # a text may be the reply of a model
    if sample.reads_documents and not reply.documents and not reply.is_text and is_data:
        try:
            yield GenerateResponse(text="", documents=found_documents(value), has_text=False)
        except ValueError as error:
            raise ReplyProblem(f"{reply.place}: response: {error}") from None
        return
    if sample.reads_documents and reply.documents and reply.response is None:
        yield from (GenerateResponse(text="", documents=own, has_text=False) for own in reply.documents)
        return
    texts = _texts(reply)
    count = len(texts)
    kept = (reply.contexts, reply.documents, reply.traces, reply.reasonings, reply.tool_calls, reply.truncated)
    beside = zip(*(_of_each(own, count) for own in (*kept, reply.turns)), strict=True)
    for text, (contexts, documents, trace, reasoning, calls, is_cut, turns) in zip(texts, beside, strict=True):
        yield GenerateResponse(
            text=text,
            finish_reason="length" if is_cut else "stop",
            contexts=contexts,
            documents=documents,
            trace=trace,
            reasoning=reasoning,
            is_unfinished=reasoning is not None and not text and not calls,
            tool_calls=calls,
            turns=tuple(GenerateResponse(text=earlier, reasoning=own) for earlier, own in turns or ()),
        )


def _as_turns(replies: list[GenerateResponse], count: int) -> list[GenerateResponse]:
    """Return as many replies as a conversation has turns as one, the last; any other number of replies as they are."""
    if not 1 < len(replies) == count:
        return replies
    return [replace(replies[-1], turns=tuple(replies[:-1]))]


def _of_each(found: Sequence[_T | None], count: int) -> Sequence[_T | None]:
    """Return what the file has for each of the texts; where it has one, that for all."""
    return found if len(found) == count else [found[0] if found else None] * count


def _texts(reply: RecordedReply) -> list[str]:
    value = "" if reply.response is None and reply.tool_calls else reply.response
    if value is None:
        found = "scores" if reply.scores is not None else "documents" if reply.documents else "log-likelihoods"
        raise ReplyProblem(f"{reply.place}: found {found} and no response, and this suite reads a text")
    return [_text(one, reply.place) for one in (value if isinstance(value, list) else [value])]


def _text(value: JSON, place: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    raise ReplyProblem(f"{place}: response: found {describe(value)}, expected text")


def _scored(reply: RecordedReply, count: int, is_text: bool) -> Iterator[LoglikelihoodResponse]:
    if reply.scores is not None:
        yield from _option_scores(reply, count)
        return
    name, value = "loglikelihoods", reply.loglikelihoods
    if value is None:
        name, value = "response", parsed_list(reply.response)
        if not isinstance(value, list) and not (count == 1 and _is_number(value)):
            what = "the log-likelihood of a text" if is_text else f"the log-likelihoods of {count} options"
            raise ReplyProblem(f"{reply.place}: found a response and no log-likelihoods, and this suite needs {what}")
    numbers = _numbers(reply, name, value, count)
    counts = None if reply.num_tokens is None else _numbers(reply, "num_tokens", reply.num_tokens, count)
    greedy = _greedy(reply, value, count)
    for place, number in enumerate(numbers):
        if number > 0 or math.isnan(number):
            raise ReplyProblem(
                f"{reply.place}: {name}: found {number}, expected a log-likelihood in nats, at most 0; scores of "
                "another kind belong in a column scores"
            )
        num_tokens = 0 if counts is None else counts[place]
        if counts is not None and (num_tokens < 1 or not float(num_tokens).is_integer()):
            raise ReplyProblem(f"{reply.place}: num_tokens: found {num_tokens}, expected a whole number above 0")
        yield LoglikelihoodResponse(
            loglikelihood=number,
            num_tokens=int(num_tokens),
            is_greedy=greedy[place],
            measure="uncounted" if counts is None else "loglikelihood",
        )


def _greedy(reply: RecordedReply, value: JSON, count: int) -> list[bool | None]:
    """Tell whether each continuation is the likeliest one, as a column or pairs of a number and this say; else None."""
    found = parsed_list(reply.is_greedy)
    if found is None:
        pairs = parsed_list(value)
        is_paired = isinstance(pairs, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
        found = [pair[1] for pair in pairs] if is_paired else [None] * count  # type: ignore[union-attr, index]
    items = found if isinstance(found, list) else [found]
    known = {True: True, "True": True, "true": True, False: False, "False": False, "false": False, None: None}
    for item in items:
        if not isinstance(item, bool | str | None) or item not in known:
            raise ReplyProblem(f"{reply.place}: is_greedy: found {describe(item)}, expected true or false")
    if len(items) != count:
        raise ReplyProblem(f"{reply.place}: is_greedy: found {len(items)}, and the sample needs {count}")
    return [known[item] for item in items]  # type: ignore[index]


def _option_scores(reply: RecordedReply, count: int) -> Iterator[LoglikelihoodResponse]:
    """Yield scores of options (logits, say), made a distribution by a softmax: ``s - log(sum(exp(s)))``, so never above
    0.

    Where the suite also asks for each option without the prompt, there is nothing left to subtract.
    """
    value = parsed_list(reply.scores)
    length = len(value) if isinstance(value, list) else 1
    size = length if length > 1 and count == 2 * length else count
    scores = _numbers(reply, "scores", value, size)
    for score in scores:
        if math.isnan(score) or score == math.inf:
            raise ReplyProblem(f"{reply.place}: scores: found {score}, expected a number")
    top = max(scores)
    if top == -math.inf:
        raise ReplyProblem(f"{reply.place}: scores: found -inf for every option, expected a number for one at least")
    total = top + math.log(math.fsum(math.exp(score - top) for score in scores))
    for score in (*scores, *(total for _ in range(count - size))):
        yield LoglikelihoodResponse(loglikelihood=min(0.0, score - total), num_tokens=0, measure="score")


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers(reply: RecordedReply, name: str, value: JSON, count: int) -> list[float]:
    value = parsed_list(value)
    items = value if isinstance(value, list) else [value]
    if len(items) != count:
        raise ReplyProblem(f"{reply.place}: {name}: found {len(items)}, and the sample needs {count}")
    return [_number(reply, name, item) for item in items]


def _number(reply: RecordedReply, name: str, value: JSON) -> float:
    if isinstance(value, list) and value:  # [loglikelihood, is_greedy]
        value = value[0]
    try:
        if value is None or isinstance(value, bool | dict | list):
            raise ValueError
        return float(value)
    except (ValueError, OverflowError):
        raise ReplyProblem(f"{reply.place}: {name}: found {describe(value)}, expected a number") from None
