"""Scorers that ask a judge about a reply, and their settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import Field

from pytest_llmeval.data.spec import refuse_here
from pytest_llmeval.scorers.judging.prompts import PROMPT_VERSION, TEXT, judge_prompt, question_of
from pytest_llmeval.scoring.base import AskingScorer, PreparedSample, ScorerSettings
from pytest_llmeval.scoring.references import quote, several_or_one, target_texts
from pytest_llmeval.text.wording import quoted
from pytest_llmeval.types import JSON, GenerateRequest, Role, Sample

__all__ = [
    "MAX_REPLY",
    "NAMES_IN_SCHEMA",
    "REASON",
    "JudgedScorer",
    "JudgedSettings",
    "check_metric_names",
    "checked_keys",
    "object_schema",
    "reason_in",
]

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


NAMES_IN_SCHEMA: dict[str, Any] = {"minProperties": 1, "propertyNames": {"pattern": f"^{_NAME.pattern}$"}}


def check_metric_names(what: str, names: Mapping[str, object]) -> None:
    """Refuse names of which no metric can be called, and an empty mapping."""
    for name in names:
        if _NAME.fullmatch(name) is None:
            message = f"found the name {quoted(name)}, expected a letter and then letters, digits and '_'"
            raise refuse_here(message, name)
    if not names:
        raise refuse_here(f"found none, expected one {what} or more")


class JudgedSettings(ScorerSettings):
    """The settings that all scorers have which ask a judge."""

    kind: str
    needs_target = False
    max_tokens: int = Field(1024, ge=1, description="Tokens that a verdict may have, its reasons included.")
    temperature: float = Field(
        0.0, ge=0, le=10, description="Of the judge: 0 takes the likeliest verdict, more draws one."
    )
    seed: int = Field(0, ge=0, description="Of what is drawn.")

    @property
    def asks_judge(self) -> bool:
        """Tell whether verdicts are asked for. They are not if the data hold them."""
        return True


S = TypeVar("S", bound=JudgedSettings)


REASON: Mapping[str, JSON] = {"reason": {"type": "string"}}
"""The property that stands first in each entry of a verdict: a judge that has given its reason judges by it."""


_SEEDS_APART = 1000
"""Between the askings of one sample: those that are tried again take the seeds that follow."""


MAX_REPLY = 200_000
"""Characters of a reply that a judge is shown."""


class JudgedScorer(AskingScorer[S]):
    """A scorer that shows a judge the question, the reference answer where there is one, and the reply."""

    @property
    def version(self) -> int:
        return PROMPT_VERSION if self.settings.asks_judge else 1

    @property
    def roles(self) -> frozenset[Role]:
        return frozenset(("judge",) if self.settings.asks_judge else ())

    @property
    def is_about_data(self) -> bool:
        return not self.settings.asks_judge

    def present(self, sample: Sample) -> PreparedSample:
        """Prepare the sample, which may have no target. The prompt need not hold the question."""
        shown = {"question": sample.question} if sample.question else {}
        if sample.target is None:
            return PreparedSample(sample=sample, judged_with=shown)
        texts = target_texts(sample)
        return PreparedSample(sample=sample, references=texts, target=several_or_one(texts), judged_with=shown)

    def request(
        self,
        presented: PreparedSample,
        task: str,
        schema: Mapping[str, JSON] | None,
        *replies: tuple[str, str],
        number: int = 0,
    ) -> GenerateRequest:
        """Return the request for the verdict of one asking, the ``number``-th of this sample from 0.

        ``schema`` is what its JSON has to follow, None for a YES or NO; ``replies`` are shown under their titles.
        """
        references = [("Reference answer", text) for text in presented.references]
        shown = [(title, text[:MAX_REPLY]) for title, text in replies]
        parts = [("Question", question_of(presented)), *references, *shown]
        return self.request_on(parts, task, schema, number=number)

    def request_on(
        self,
        parts: Sequence[tuple[str, str]],
        task: str,
        schema: Mapping[str, JSON] | None,
        *,
        number: int = 0,
    ) -> GenerateRequest:
        """Return the same on any material: titles, and what stands under them."""
        settings = self.settings
        return GenerateRequest(
            judge_prompt(task, schema, parts),
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            seed=settings.seed + _SEEDS_APART * number,
            epoch=number,
            json_schema="" if schema is None else json.dumps(schema),
        )


def object_schema(properties: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return JSON Schema of an object with these properties, all of them and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def checked_keys(found: Mapping[str, object], expected: Sequence[str]) -> None:
    """``ValueError`` unless these names are there, and no others."""
    if missing := [name for name in expected if name not in found]:
        raise ValueError(f"the verdict lacks {', '.join(missing)}")
    if others := [name for name in found if name not in expected]:
        raise ValueError(f"the verdict has {quote(others[0])}, which was not asked for")


def reason_in(found: object) -> Mapping[str, JSON]:
    """Return a verdict's entry that has to be a mapping with a reason. ``ValueError`` for anything else."""
    if not isinstance(found, dict) or not isinstance(found.get("reason"), str):
        raise ValueError("the verdict has an entry without a reason")
    if found["reason"].strip() == TEXT:
        raise ValueError(f"the verdict has an entry whose reason is {TEXT}, copied from the form")
    return found
