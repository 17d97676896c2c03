"""Data sets that carry the replies which are to be scored."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_llmeval.suites.loading.suite import Suite

__all__ = ["has_own_responses"]

_MENTIONED = re.compile(r"\bresponse\b")


def has_own_responses(suite: Suite) -> bool:
    """Whether the suite's data have a reply to score: the field ``response``, or a column of that name.

    A column that the suite makes something else of, a target or a part of the prompt, is no reply.
    """
    if all(sample.response is None for sample in suite.samples):
        return False
    dataset = suite.spec.dataset
    if dataset is not None and "response" in dataset.fields:
        return True
    return not any(_MENTIONED.search(text) for text in _texts(suite))


def _texts(suite: Suite) -> Iterator[str]:
    """Columns and templates that a suite names."""
    spec = suite.spec
    fewshot = spec.prompt.fewshot
    rules = [spec.choices, spec.target, spec.category, spec.prompt.template, spec.prompt.system, spec.prompt.prefix]
    rules += list(spec.dataset.fields.values()) if spec.dataset is not None else []
    rules += [fewshot.template, fewshot.answer, *fewshot.fields.values()] if fewshot is not None else []
    for rule in rules:
        for part in rule if isinstance(rule, tuple) else (rule,):
            if isinstance(part, str):
                yield part
