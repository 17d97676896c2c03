"""A sample's part of the report, and all that travels from an xdist worker to the controller.

This travels as one ASCII string of JSON: execnet carries builtins only and no lone surrogate, and a report that it
cannot carry would end the worker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from operator import attrgetter
from sys import intern
from typing import Any, Literal, Protocol, runtime_checkable

from pytest_llmeval.text.reasoning import DEFAULT_TAGS, holds_tags
from pytest_llmeval.types import JSON, EngineUse, ServerUse, Status, StoreFlaws

__all__ = [
    "ANY_JSON_FIELDS",
    "FINGERPRINT_DIGITS",
    "NEW_REPLIES",
    "NOT_ASKED",
    "UNKNOWN_REPLIES",
    "Payload",
    "Record",
    "SuiteInfo",
    "Unrecorded",
    "are_replies_to_another_prompt",
    "judging_change",
    "records_without_texts",
    "remove_texts",
    "without_texts",
]

UNKNOWN_REPLIES, NEW_REPLIES = "unknown", "new"
"""``Record.kept_as`` if it is not known which replies a sample is about. If they are new, its own session asked for all
that it can be about; else a store may have given replies of another session."""

FINGERPRINT_DIGITS = 16
"""The digits of a sample's fingerprint that decide whether it is the same: a kept baseline has no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The result of one sample. Its key in a report is (suite, model, id). A kept baseline says no ``nodeid``.

    ``prompt`` is text, a list of chat messages, a hash, or None, as ``--llm-report-prompts`` says. ``output`` is the
    model's text without its ``reasoning``; each is None if there is none. ``num_truncated`` of the sample's replies
    ended at their limit of tokens. ``values`` are the sample's numbers by metric name.

    ``num_tokens`` counts the tokens that were generated or scored, ``num_prompt_tokens`` those of the sample's distinct
    prompts. ``seconds`` is the model's time: a share of its batch's, unless the sample ``is_timed`` by itself. If it is
    known, ``prefill_seconds`` passed until each reply's first token was there; ``num_decoded`` tokens came after.
    ``cost`` is the cost of the sample's replies in the user's currency, if the model gives it for each.
    ``num_judge_requests``, ``num_judge_tokens`` (read and written), ``judge_seconds`` and ``judge_cost`` are a judge's
    alone, and no other number contains them; ``judge_cost`` is None if it is not known for each request.

    ``fingerprint`` hashes everything that decides what the model is asked and how the reply is judged,
    ``question_fingerprint`` the question, its options and its target, whatever the prompt. ``cluster`` names what the
    sample shares with others (a passage); None if samples are independent of each other. ``not_measurable`` gives the
    reason for each metric that has no meaning for the sample, as ``Score`` does.

    In a session with a store, ``asked_at`` is the time at which the last reply was asked for (ISO 8601, UTC), maybe by
    an earlier session, and ``kept_as`` is a hash of the sessions that asked for the replies. It is
    ``UNKNOWN_REPLIES`` or ``NEW_REPLIES`` if a hand-written test does not say which replies the sample is about.
    ``is_reused``: an earlier session asked for one of the replies; hand-written tests do not say that.
    ``served_by`` lists the authors of replies and verdicts, as servers name them, who differ from those of the
    session's first: ``role`` (None for the evaluated model), ``name``, ``model``, ``system_fingerprint``.
    """

    suite: str
    id: str
    nodeid: str = ""
    status: Status
    model: str | None = None
    category: str | None = None
    reason: str | None = None
    question: str | None = None
    prompt: JSON = None
    choices: tuple[str, ...] = ()
    target: JSON = None
    output: str | None = None
    answer: str | None = None
    no_answer: bool = False
    values: Mapping[str, float] = field(default_factory=dict)
    chance: float | None = None
    details: Mapping[str, JSON] = field(default_factory=dict)
    num_prompt_tokens: int = 0
    num_tokens: int = 0
    seconds: float = 0.0
    is_timed: bool = False
    prefill_seconds: float | None = None
    num_decoded: int | None = None
    fingerprint: str | None = None
    cluster: str | None = None
    not_measurable: Mapping[str, str] = field(default_factory=dict)
    asked_at: str | None = None
    kept_as: str | None = None
    num_judge_requests: int = 0
    num_judge_tokens: int = 0
    judge_seconds: float = 0.0
    cost: float | None = None
    served_by: tuple[Mapping[str, JSON], ...] = ()
    reasoning: str | None = None
    num_truncated: int = 0
    question_fingerprint: str | None = None
    judge_cost: float | None = None
    is_reused: bool = False

    def is_same_sample(self, other: Record) -> bool:
        """Tell whether both are known to be asked and judged in the same way, whatever the model."""
        if self.fingerprint is None or other.fingerprint is None:
            return False
        return self.fingerprint[:FINGERPRINT_DIGITS] == other.fingerprint[:FINGERPRINT_DIGITS]

    def is_same_question(self, other: Record) -> bool:
        """Tell whether both are known to have the same question, options and target, whatever the prompt."""
        return self.question_fingerprint is not None and self.question_fingerprint == other.question_fingerprint

    @property
    def has_reasoning(self) -> bool:
        """Tell whether reasoning was split off a reply of this sample, or a reply contains tags of it."""
        outputs = self.details.get("outputs")
        texts = [self.output, *(outputs if isinstance(outputs, list) else ())]
        is_apart = self.reasoning is not None or "reasonings" in self.details
        return is_apart or any(isinstance(text, str) and holds_tags(text, DEFAULT_TAGS) for text in texts)

    @property
    def has_counted_tokens(self) -> bool:
        """Tell whether the model has counted tokens of its replies: one that does not leaves 0."""
        return self.num_tokens + self.num_prompt_tokens > 0

    def to_dict(self) -> dict[str, JSON]:
        """Return the record as JSON values; this is not a deep copy."""
        return dict(zip(_RECORD_FIELDS, _record_values(self), strict=True))


def without_texts(record: Record) -> Record:
    """Return the record without its texts and details: all that numbers are made of, in a fraction of the memory.

    Strings that records have in common are held once. The beginning of a reply without an answer stays, since the
    summary shows the first. ``reasoning`` becomes an empty text if there was any, because comparisons ask for that.
    """
    # ``replace`` takes three times as long, and this is done for every record of a report.
    kept = object.__new__(Record)
    for put, value in zip(_PUT_FIELDS, _record_values(record), strict=True):
        put(kept, value)
    _PUT["values"](kept, dict(zip(_shared_names(*record.values), record.values.values(), strict=True)))
    remove_texts(kept)
    return kept


def remove_texts(record: Record) -> None:
    """Remove the texts of a record that was just made and that nobody else has; see ``without_texts``.

    Fields of ``ANY_JSON_FIELDS`` need not be there. The names of ``values`` stay as they are.
    """
    _PUT_SUITE(record, _shared(record.suite))
    if record.model is not None:
        _PUT_MODEL(record, _shared(record.model))
    if record.category is not None:
        _PUT_CATEGORY(record, _shared(record.category))
    if record.cluster is not None:
        _PUT_CLUSTER(record, _shared(record.cluster))
    _PUT_REASONING(record, "" if record.has_reasoning else None)
    if record.output is not None:
        _PUT_OUTPUT(record, _shared(record.output[:_MAX_OUTPUT]) if record.no_answer else None)
    _PUT_QUESTION(record, None)
    _PUT_ANSWER(record, None)
    _PUT_PROMPT(record, None)
    _PUT_TARGET(record, None)
    _PUT_CHOICES(record, ())
    _PUT_DETAILS(record, _NOTHING)
    if not record.not_measurable:
        _PUT_NOT_MEASURABLE(record, _NOTHING)


_NOTHING: Mapping[str, Any] = {}
"""The same mapping for all records without texts: to add details to a record, make a new mapping."""


@runtime_checkable
class _OnDisk(Protocol):
    """Records that lie in a file, and are read without their texts faster than with them."""

    def without_texts(self) -> Iterator[Record]: ...


def records_without_texts(records: Sequence[Record]) -> Iterable[Record]:
    """Return the records as ``without_texts`` leaves them, each made when it is its turn."""
    return records.without_texts() if isinstance(records, _OnDisk) else map(without_texts, records)


ANY_JSON_FIELDS = ("prompt", "target")
"""Fields of a record that may hold any JSON."""


@lru_cache(maxsize=16)
def _shared_names(*names: str) -> tuple[str, ...]:
    return tuple(map(_shared, names))


_MAX_OUTPUT = 100


def _shared(text: str) -> str:
    return intern(text if type(text) is str else str(text))


_RECORD_FIELDS = tuple(field.name for field in fields(Record))
_PUT: Mapping[str, Callable[[Record, object], None]] = {name: getattr(Record, name).__set__ for name in _RECORD_FIELDS}
"""Functions that set a field of a record that is being made: it is frozen once it is made."""
_PUT_FIELDS = tuple(_PUT.values())
_PUT_SUITE, _PUT_MODEL, _PUT_CATEGORY, _PUT_CLUSTER = (_PUT[name] for name in ("suite", "model", "category", "cluster"))
_PUT_OUTPUT, _PUT_REASONING, _PUT_CHOICES = _PUT["output"], _PUT["reasoning"], _PUT["choices"]
_PUT_DETAILS, _PUT_NOT_MEASURABLE = _PUT["details"], _PUT["not_measurable"]
_PUT_QUESTION, _PUT_ANSWER, _PUT_PROMPT, _PUT_TARGET = (
    _PUT[name] for name in ("question", "answer", "prompt", "target")
)
_record_values: Callable[[Record], tuple[Any, ...]] = attrgetter(*_RECORD_FIELDS)


def _record_of(values: Sequence[Any]) -> Record:
    """Undo ``_record_values``, after a trip through JSON."""
    named = dict(zip(_RECORD_FIELDS, values, strict=True))
    named["choices"], named["served_by"] = tuple(named["choices"]), tuple(named["served_by"])
    return Record(**named)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteInfo:
    """The part of a suite's report that is known before any of its samples has run.

    ``path`` is the suite file's node id, None for a suite of hand-written tests. ``num_samples`` counts the whole
    suite, selected or not. ``metrics`` are the names that its scores carry, in the order in which they are shown.

    ``gates`` are the suite's own, as ``GateRule.text`` has them, with their lines in its file. ``primary_metric`` is
    the metric of comparisons with a baseline, None for the usual one; ``higher_is_better`` is its better direction, if
    the suite says so. ``better`` is the better direction ("higher" or "lower") of each metric for which the scorer
    gives it. ``cluster`` is the field by which samples belong together. ``min_measurable`` is the share of samples on
    which a metric has to be measurable. ``interval`` is the method of intervals, None for the formulas of
    ``metrics/summary.py``.

    ``judge`` is the fingerprint of the models that the scorers ask, ``judged_by`` their descriptions.
    ``fingerprint_parts`` are the hashes that make up ``fingerprint``: ``questions``, ``prompt``, ``fewshot``,
    ``scorer``; ``judging`` for the scorer without filters that only take text out of replies; ``judge_prompt`` for the
    wording of judges' prompts; ``baseline`` for the baseline whose replies are judged beside the suite's own. With
    ``splits_reasoning`` replies are judged without the reasoning between tags, which no version before schema 3 did.
    ``asked_with`` are the settings of prompt, examples, generation and filters that differ from their defaults, by
    dotted key. ``variant`` is the name of the variant that it is (of ``boolq``, the ``name`` is ``boolq@polite``), None
    for a suite as it is written.
    """

    name: str
    path: str | None = None
    description: str = ""
    scorer: str | None = None
    settings: Mapping[str, JSON] = field(default_factory=dict)
    fingerprint: str | None = None
    num_samples: int | None = None
    metrics: tuple[str, ...] = ("accuracy",)
    overridden: tuple[str, ...] = ()
    gates: Mapping[str, int | None] = field(default_factory=dict)
    primary_metric: str | None = None
    higher_is_better: bool | None = None
    better: Mapping[str, str] = field(default_factory=dict)
    cluster: str | None = None
    min_measurable: float = 0.9
    interval: Literal["bootstrap"] | None = None
    judge: str | None = None
    judged_by: tuple[str, ...] = ()
    fingerprint_parts: Mapping[str, str] = field(default_factory=dict)
    splits_reasoning: bool = False
    asked_with: Mapping[str, JSON] = field(default_factory=dict)
    variant: str | None = None

    @property
    def base(self) -> str:
        """Return the suite's name, without that of its variant."""
        return self.name if self.variant is None else self.name.removesuffix(f"@{self.variant}")

    def is_called(self, names: Collection[str]) -> bool:
        """Tell whether a user means it by one of the names: its own, or that of the suite of which it is a variant."""
        return self.name in names or self.base in names

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SuiteInfo:
        """Undo ``asdict``, also after a trip through JSON. Unknown keys are left out."""
        values = {name: data[name] for name in _INFO_FIELDS if name in data}
        for name in ("metrics", "overridden", "judged_by"):
            if name in values:
                values[name] = tuple(values[name])
        return cls(**values)


_INFO_FIELDS = tuple(field.name for field in fields(SuiteInfo))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrecorded:
    """A hand-written test that failed before it recorded anything.

    ``suite`` is the one that its mark names, if it has one; ``model`` is the one that it was for, if there are several.
    """

    nodeid: str
    reason: str
    suite: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """All that one test report carries from the process that ran the test to the one that writes the report.

    ``model`` is a ``ModelIdentity`` as a dict. ``judges`` are the identities of models that have a role, with the key
    ``role``. ``engine`` tells how the log-likelihoods of the records' suite are computed. ``uses`` are about models
    behind servers: the role (None for an evaluated model), the name, the process that asked, and all that it has sent
    so far. ``store_problem`` is the reason why the process can keep no more replies. ``store_flaws`` are the process,
    and all of the store that it could not use so far.
    """

    records: tuple[Record, ...] = ()
    unrecorded: Unrecorded | None = None
    suite: SuiteInfo | None = None
    model: Mapping[str, JSON] | None = None
    judges: tuple[Mapping[str, JSON], ...] = ()
    engine: EngineUse | None = None
    uses: tuple[tuple[str | None, str, str, ServerUse], ...] = ()
    store_problem: str | None = None
    store_flaws: tuple[str, StoreFlaws] | None = None

    def encode(self) -> str:
        """Return ASCII JSON. Lone surrogates and NULs are escaped; a value that JSON does not know becomes its text."""
        return _ENCODER.encode(
            [
                # Values without their names: the same code reads them, and every sample is one of these.
                [_record_values(record) for record in self.records],
                None if self.unrecorded is None else asdict(self.unrecorded),
                None if self.suite is None else asdict(self.suite),
                self.model,
                self.judges,
                None if self.engine is None else asdict(self.engine),
                [[*names, asdict(use)] for *names, use in self.uses],
                self.store_problem,
                None if self.store_flaws is None else [self.store_flaws[0], asdict(self.store_flaws[1])],
            ]
        )

    @classmethod
    def decode(cls, text: str) -> Payload:
        records, unrecorded, suite, model, judges, engine, uses, store_problem, store_flaws = json.loads(text)
        return cls(
            records=tuple(_record_of(values) for values in records),
            unrecorded=None if unrecorded is None else Unrecorded(**unrecorded),
            suite=None if suite is None else SuiteInfo.from_dict(suite),
            model=model,
            judges=tuple(judges),
            engine=None if engine is None else EngineUse(**engine),
            uses=tuple((role, name, process, ServerUse(**use)) for role, name, process, use in uses),
            store_problem=store_problem,
            store_flaws=None if store_flaws is None else (store_flaws[0], StoreFlaws(**store_flaws[1])),
        )


_ENCODER = json.JSONEncoder(default=str)


_JUDGING: tuple[str, ...] = ("judging", "judge_prompt")
"""Parts that must be the same: how an answer is judged once its text is taken out of the reply."""


def judging_change(before: SuiteInfo, after: SuiteInfo) -> str | None:
    """Return why two suites do not judge an answer in the same way as far as their reports say, or None if they do."""
    then, now = before.fingerprint_parts, after.fingerprint_parts
    if then.get("scorer") == now.get("scorer"):
        same = _JUDGING[1:]
    elif "judging" not in then or "judging" not in now:
        return "the scorer or its filters differ, and a report of an earlier version does not say which: make it anew"
    else:
        same = _JUDGING
    return "the scorer differs" if any(then.get(part) != now.get(part) for part in same) else None


NOT_ASKED = "the replies come from a file, and were not asked with this prompt"


def are_replies_to_another_prompt(before: SuiteInfo, after: SuiteInfo, model: Mapping[str, JSON]) -> bool:
    """Tell whether the prompt changed, and the ``model`` of a report that answered it gives replies from a file.

    Filters and ``generate.reasoning`` may change: by them a reply is read, and not asked for.
    """
    then, now = before.fingerprint_parts, after.fingerprint_parts
    changed = [part for part in ("prompt", "fewshot") if then.get(part) != now.get(part)]
    if model.get("backend") != "replay" or before.fingerprint == after.fingerprint or not changed:
        return False
    keys = {
        key
        for key in before.asked_with.keys() | after.asked_with.keys()
        if before.asked_with.get(key) != after.asked_with.get(key)
    }
    return "fewshot" in changed or not keys or not keys <= {"filters", "generate.reasoning"}
