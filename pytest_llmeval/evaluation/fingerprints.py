"""Hashes of the parts of a suite, which say what it is that differs between two of its fingerprints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from operator import attrgetter
from types import MappingProxyType
from typing import Any, get_args

from pytest_llmeval.evaluation.part import FILTERED
from pytest_llmeval.scoring.base import PreparedSample
from pytest_llmeval.scoring.filters import TEXT_FILTERS
from pytest_llmeval.scoring.metrics.judged import JUDGE_PROMPT
from pytest_llmeval.suites.format.rows_spec import RowsSpec
from pytest_llmeval.suites.loading.mapping import CLUSTER, FIELDS
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.text.messages import message_as_json
from pytest_llmeval.text.reasoning import DEFAULT_TAGS
from pytest_llmeval.types import (
    JSON,
    SPECIAL_SAMPLING,
    ConversationRequest,
    GenerateRequest,
    LoglikelihoodRollingRequest,
    Message,
    Prompt,
    Request,
    Sample,
)

__all__ = [
    "asked_with",
    "fingerprint_parts",
    "length_of",
    "question_fingerprint",
    "questions_hash",
    "sample_fingerprint",
]

_WHERE = frozenset(("samples", *RowsSpec.model_fields))
"""Settings that say where examples come from: the same examples in another file are the same."""


def fingerprint_parts(
    suite: Suite, scorer: Sequence[JSON], judge_prompt: JSON = None, tools: str = ""
) -> dict[str, str]:
    """Return hashes by part, SHA-256 in hexadecimal; ``scorer`` describes how a reply is judged, ``judge_prompt`` in
    which words a judge is asked, None where none is, and ``tools`` are what ``prompt.tools`` holds or names.

    ``questions``: the samples with their categories, by id, whatever their order. ``prompt``: the settings of the
    prompt and of what is generated. ``fewshot``: the settings of examples, and the examples; empty where a prompt shows
    none. ``scorer``, and ``judging``: the scorer without the filters that only take the answer's text out of the reply.
    Where no part differs between two suites and their fingerprints do, it is in how rows become variables.
    """
    spec = suite.spec
    prompt: dict[str, JSON] = spec.prompt.model_dump(mode="json", exclude={"fewshot"})
    if tools:
        prompt["tools"] = tools  # the same tools in another file are the same
    if spec.dataset is not None:
        prompt["variables"] = _own_fields(spec.dataset.fields)
    parts = {
        "questions": questions_hash(suite),
        "prompt": _hash([json.dumps([prompt, spec.generate.model_dump(mode="json")])]),
        "fewshot": _fewshot(suite),
        "scorer": _hash([json.dumps(scorer)]),
        "judging": _hash([json.dumps(_without_text_filters(scorer))]),
    }
    return parts if judge_prompt is None else {**parts, JUDGE_PROMPT: _hash([json.dumps(judge_prompt)])}


def questions_hash(suite: Suite) -> str:
    """Return the part ``questions`` of a suite's fingerprint."""
    questions = sorted(suite.samples, key=lambda sample: sample.id)
    return _hash(_encode([sample.id, sample.category, *_content(sample)]) for sample in questions)


def _without_text_filters(scorer: Sequence[JSON]) -> list[JSON]:
    """Return what ``Evaluation`` says of a scorer, as if the suite had only those filters that change a text's meaning.

    ``scorer`` is its name, its version, its settings, and the versions of all its parts if it is not alone.
    """
    name, version, settings, *versions = scorer
    assert isinstance(settings, dict)
    steps = settings.get("filters")
    kept: dict[str, JSON] = {key: value for key, value in settings.items() if key != "filters"}
    others = [step for step in steps if _changes_meaning(step)] if isinstance(steps, list) else []
    if others:
        kept["filters"] = others
    else:
        versions = [found for found in map(_without_filters, versions) if found != [name, version]]
    return [name, version, kept, *versions]


def _changes_meaning(step: JSON) -> bool:
    return isinstance(step, dict) and step["kind"] not in TEXT_FILTERS


def _without_filters(versions: JSON) -> JSON:
    if not isinstance(versions, list):
        return versions
    if FILTERED in versions:
        place = versions.index(FILTERED)
        versions = [*versions[:place], *versions[place + 2 :]]
    return [_without_filters(one) for one in versions]


def question_fingerprint(sample: Sample) -> str:
    """Return 16 hexadecimal digits for a sample's question, options and target, whatever prompt they are put into.

    They are compared for the same sample of the same suite alone.
    """
    return hashlib.sha256(_encode(_content(sample)).encode()).hexdigest()[:16]


def asked_with(suite: Suite, tools: str = "") -> dict[str, JSON]:
    """Return the settings that decide how the suite's questions are asked, by dotted key, without defaults. ``tools``
    as in ``fingerprint_parts``.

    These are what may differ between two prompts for the same questions: the prompt, the plan of its examples (not the
    examples), what is generated, columns that a template may use, and filters that take the answer out of the reply.
    """
    spec = suite.spec
    found: dict[str, JSON] = {}
    prompt = spec.prompt.model_dump(mode="json", exclude_defaults=True)
    fewshot = prompt.pop("fewshot", None)
    if messages := prompt.get("messages"):
        who = ", ".join(f"column {one['column']}" if "column" in one else one["role"] for one in messages)
        has_templates = any("role" in one for one in messages)
        prompt["messages"] = f"{who} ({_hash([json.dumps(messages)])[:8]})" if has_templates else who
    if tools:
        names = ", ".join(tool["function"]["name"] for tool in json.loads(tools))
        prompt["tools"] = f"{names} ({_hash([tools])[:8]})"
    plan = {} if fewshot is None else {name: value for name, value in fewshot.items() if name not in _WHERE}
    for prefix, settings in (
        ("prompt", prompt),
        ("prompt.fewshot", plan),
        ("generate", spec.generate.model_dump(mode="json", exclude_defaults=True)),
        ("dataset.fields", {} if spec.dataset is None else _own_fields(spec.dataset.fields)),
    ):
        found |= {f"{prefix}.{name}": value for name, value in settings.items()}
    if spec.filters:
        found["filters"] = [
            {"kind": step.kind, **step.model_dump(mode="json", exclude_defaults=True)} for step in spec.filters
        ]
    return found


def _own_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: rule for name, rule in fields.items() if name not in (*FIELDS, CLUSTER)}


def _fewshot(suite: Suite) -> str:
    fewshot, shots = suite.spec.prompt.fewshot, suite.shots
    if fewshot is None or shots.count == 0:
        return ""
    # A sample is shown the first of its pool, without itself.
    shown = {shot.id: shot for pool in shots.pools.values() for shot in islice(pool, shots.count + 1)}
    shown |= {shot.id: shot for drawn in shots.drawn.values() for shot in drawn}
    settings = json.dumps(fewshot.model_dump(mode="json", exclude=set(_WHERE)))
    return _hash([settings, *(_encode(_content(shot)) for shot in shown.values())])


def _content(sample: Sample) -> tuple[object, ...]:
    asked = sample.question or sample.variables.get("row")  # a prompt's template may show columns alone
    return asked, sample.choices, sample.target


_encode = json.JSONEncoder(default=str).encode


def _hash(texts: Iterable[str]) -> str:
    found = hashlib.sha256()
    for text in texts:
        found.update(text.encode())
        found.update(b"\n")
    return found.hexdigest()


def sample_fingerprint(scorer: str, question: PreparedSample) -> str:
    prompts: dict[Prompt, int] = {}  # once each: all options of a sample follow the same
    asked = []
    for request in question.requests:
        prompt, *others = _VALUES_OF[type(request)](request)
        if isinstance(request, GenerateRequest):
            others = _settings_of(request)
        asked.append([type(request).__name__, prompts.setdefault(prompt, len(prompts)), *others])
    judged = _judged(question)
    if question.continuation and isinstance(question.requests[0], LoglikelihoodRollingRequest):
        judged.append(question.continuation)  # counted, not asked: elsewhere it stands in the requests
    if question.parts:
        judged.append([_judged(part) for part in question.parts])
    if question.turns:
        judged.append(["turns", *(None if turn is None else _judged(turn) for turn in question.turns)])
    return hashlib.sha256(_ENCODER.encode([scorer, list(prompts), asked, judged]).encode()).hexdigest()


_LATER = ("json_schema", "reasoning", *SPECIAL_SAMPLING, "tools")
"""Fields of a request for a text that came later: a request that makes no use of them has the values that it had."""
_FROM_THE_FIRST = attrgetter(
    *(field.name for field in fields(GenerateRequest) if field.name not in ("prompt", *_LATER))
)


def _settings_of(request: GenerateRequest) -> list[Any]:
    """Return all that decides the reply to a request beside its prompt."""
    values = list(_FROM_THE_FIRST(request))
    has_tags = request.reasoning not in ((), DEFAULT_TAGS)
    if request.json_schema or has_tags:
        values.append(request.json_schema)
    if has_tags:
        values.append(request.reasoning)
    values += map(list, request.special_sampling.items())
    if request.tools:
        values.append(["tools", request.tools])
    if isinstance(request, ConversationRequest):
        values.append(["turns", request.turns])
    return values


def _judged(presented: PreparedSample) -> list[object]:
    own: list[object] = [presented.choices, presented.right, presented.labels, presented.references]
    return [*own, presented.judged_with] if presented.judged_with else own


def _turn(message: Message) -> list[object]:
    """Return a message as it was described before there were tools in conversations, with what it has of these."""
    made = message_as_json(message)
    return [made.pop("role"), made.pop("content"), *([made] if made else [])]


_ENCODER = json.JSONEncoder(default=_turn)
_VALUES_OF: Mapping[type, Callable[[Request], tuple[Any, ...]]] = MappingProxyType(
    {kind: attrgetter(*(field.name for field in fields(kind))) for kind in (*get_args(Request), ConversationRequest)}
)
"""The values of a request by its kind; the first is what the model reads."""


def length_of(requests: Sequence[Request]) -> int:
    """Return the number of characters of the longest request."""
    longest = 0
    for request in requests:
        prompt, *others = _VALUES_OF[type(request)](request)
        turns = () if isinstance(prompt, str) else prompt
        read = len(prompt) if isinstance(prompt, str) else sum(len(turn.content + turn.tool_calls) for turn in turns)
        scored = len(others[0]) if others and isinstance(others[0], str) else 0
        if isinstance(request, ConversationRequest):
            scored = sum(map(len, request.turns))
        longest = max(longest, read + scored)
    return longest
