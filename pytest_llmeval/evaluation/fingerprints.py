"""Hashes of the parts of a suite, which say what it is that differs between two of its fingerprints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from itertools import islice

from pytest_llmeval.scoring.metrics.judged import JUDGE_PROMPT
from pytest_llmeval.suites.format.dataset_spec import RowsSpec
from pytest_llmeval.suites.loading.mapping import CLUSTER, FIELDS
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.types import JSON, Sample

__all__ = ["fingerprint_parts"]

_WHERE = frozenset(("samples", *RowsSpec.model_fields))
"""Where examples come from: the same ones in another file are the same."""


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
