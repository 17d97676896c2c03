"""Hashes of the parts of a suite, which say what it is that differs between two of its fingerprints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, fields
from itertools import islice
from operator import attrgetter
from types import MappingProxyType
from typing import Any, get_args

from pytest_llmeval.scoring.base import PreparedSample
from pytest_llmeval.scoring.metrics.judged import JUDGE_PROMPT
from pytest_llmeval.suites.format.schema import RowsSpec
from pytest_llmeval.suites.loading.mapping import CLUSTER, FIELDS
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.text.reasoning import DEFAULT_TAGS
from pytest_llmeval.types import JSON, SPECIAL_SAMPLING, GenerateRequest, Prompt, Request, Sample

__all__ = ["fingerprint_parts", "length_of", "sample_fingerprint"]

_WHERE = frozenset(("samples", *RowsSpec.model_fields))
"""Settings that say where examples come from: the same examples in another file are the same."""


def fingerprint_parts(suite: Suite, scorer: JSON, judge_prompt: JSON = None) -> dict[str, str]:
    """Return hashes by part, SHA-256 in hexadecimal; ``scorer`` describes how a reply is judged, ``judge_prompt`` in
    which words a judge is asked, None where none is.

    ``questions``: the samples with their categories, by id, whatever their order. ``prompt``: the settings of the
    prompt and of what is generated. ``fewshot``: the settings of examples, and the examples; empty where a prompt shows
    none. ``scorer``. Where no part differs between two suites and their fingerprints do, it is in how rows become
    variables.
    """
    spec = suite.spec
    questions = sorted(suite.samples, key=lambda sample: sample.id)
    prompt: dict[str, JSON] = spec.prompt.model_dump(mode="json", exclude={"fewshot"})
    if spec.dataset is not None:
        own = {name: rule for name, rule in spec.dataset.fields.items() if name not in (*FIELDS, CLUSTER)}
        prompt["variables"] = own
    parts = {
        "questions": _hash(_encode([sample.id, sample.category, *_content(sample)]) for sample in questions),
        "prompt": _hash([json.dumps([prompt, spec.generate.model_dump(mode="json")])]),
        "fewshot": _fewshot(suite),
        "scorer": _hash([json.dumps(scorer)]),
    }
    return parts if judge_prompt is None else {**parts, JUDGE_PROMPT: _hash([json.dumps(judge_prompt)])}


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
            _drop_unsaid(others, request)
        asked.append([type(request).__name__, prompts.setdefault(prompt, len(prompts)), *others])
    judged = _judged(question)
    if question.parts:
        judged.append([_judged(part) for part in question.parts])
    return hashlib.sha256(_ENCODER.encode([scorer, list(prompts), asked, judged]).encode()).hexdigest()


def _drop_unsaid(values: list[Any], request: GenerateRequest) -> None:
    """Leave the last fields out where they say what was so before there were such fields."""
    del values[-len(SPECIAL_SAMPLING) :]  # which stand there with their names, where they are used
    if request.reasoning in ((), DEFAULT_TAGS):
        values.pop()
        if not request.json_schema:
            values.pop()
    values += map(list, request.special_sampling.items())


def _judged(presented: PreparedSample) -> list[object]:
    own: list[object] = [presented.choices, presented.right, presented.labels, presented.references]
    return [*own, presented.judged_with] if presented.judged_with else own


_ENCODER = json.JSONEncoder(default=astuple)
_VALUES_OF: Mapping[type, Callable[[Request], tuple[Any, ...]]] = MappingProxyType(
    {kind: attrgetter(*(field.name for field in fields(kind))) for kind in get_args(Request)}
)
"""The values of a request by its kind; the first is what the model reads."""


def length_of(requests: Sequence[Request]) -> int:
    """Return the number of characters of the longest request."""
    longest = 0
    for request in requests:
        prompt, *others = _VALUES_OF[type(request)](request)
        read = len(prompt) if isinstance(prompt, str) else sum(len(turn.content) for turn in prompt)
        scored = len(others[0]) if others and isinstance(others[0], str) else 0
        longest = max(longest, read + scored)
    return longest
