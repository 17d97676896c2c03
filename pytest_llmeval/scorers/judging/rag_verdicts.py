"""Verdicts on retrieval-augmented answers: what a judge is asked, and the metrics that follow from its answers.

``PROMPT_VERSION`` is raised when an instruction or a form is worded anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeAlias, TypeVar

from pytest_llmeval.models.base import Failed
from pytest_llmeval.scorers.judging.embeddings import cosine, embeddings
from pytest_llmeval.scorers.judging.judged_scorer import REASON, TEXT, checked_keys, object_schema, reason_in
from pytest_llmeval.scorers.judging.verdicts import Verdict
from pytest_llmeval.types import JSON, Ask, Response

__all__ = [
    "ATTRIBUTED_SENTENCES",
    "CLAIMS",
    "COMMITTED_QUESTION",
    "RELEVANT",
    "SUPPORTED",
    "Form",
    "Found",
    "Gathering",
    "Judged",
    "Question",
    "average_precision",
    "closeness_of",
    "number_of",
    "problem_of",
    "questions",
    "share",
    "shown_verdict",
    "supported_together",
]

T = TypeVar("T")
_MAX_CLAIMS = 200
"""The most claims that are read of one text: each of them is one more request."""


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """One kind of question to a judge.

    ``schema`` is what the JSON of the verdict has to follow. ``read`` raises ``ValueError`` for what is no verdict.
    """

    task: str
    schema: Mapping[str, JSON]
    read: Callable[[Mapping[str, JSON]], T]


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict of yes or no. ``text`` is what it is about, where the judge says that too."""

    holds: bool
    reason: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that an answer would answer, and whether the answer avoids to say anything."""

    text: str
    is_noncommittal: bool


def _yes_or_no(task: str, key: str) -> Form[Judged]:
    schema = object_schema({**REASON, key: {"type": "boolean"}})
    return Form(f"{task} {_REASON_FIRST}", schema, lambda found: _judged(found, key))


def _judged(found: object, key: str, text: str = "", *others: str) -> Judged:
    one = reason_in(found)
    checked_keys(one, (*others, "reason", key))
    if not isinstance(holds := one[key], bool):
        raise ValueError(f"{key} is neither true nor false")
    return Judged(holds, str(one["reason"]), text)


_REASON_FIRST = "First give your reason in a sentence or two."
_SUPPORT = (
    "A claim is supported where it follows from what the context says; what is known from elsewhere does not count."
)
SUPPORTED = _yes_or_no(f"You decide whether a context supports a claim. {_SUPPORT}", "supported")
"""The task of a verdict on a claim by a context."""

RELEVANT = _yes_or_no(
    "You decide whether a text that was retrieved for a question is relevant: whether something in it helps to answer "
    "the question, and to arrive at the reference answer where there is one.",
    "relevant",
)
"""The task of a verdict on a chunk by a question and reference answers."""


def _claims(found: Mapping[str, JSON]) -> list[str]:
    checked_keys(found, ("claims",))
    claims = found["claims"]
    if not isinstance(claims, list):
        raise ValueError("claims is not a list")
    if len(claims) > _MAX_CLAIMS:
        raise ValueError(f"there are {len(claims):,} claims, expected at most {_MAX_CLAIMS}")
    texts = [_text(claim, "a claim") for claim in claims]
    if len(set(texts)) < len(texts):
        raise ValueError("a claim stands twice")
    return texts


def _text(value: JSON, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{what} is not a text, or is empty")
    if value.strip() == TEXT:
        raise ValueError(f"{what} is {TEXT}, copied from the form")
    return value.strip()


CLAIMS = Form(
    "You list the claims that an answer to a question makes. A claim is one statement that can be true or false by "
    "itself: write it as a whole sentence, with names in the place of words such as it or there, and add nothing that "
    "the answer does not say. Each claim stands once. What states nothing is no claim: a greeting, a question, an "
    "apology, or that the answer is not known. Where there is no claim, the list is empty.",
    object_schema({"claims": {"type": "array", "items": {"type": "string"}}}),
    _claims,
)
"""The task of a verdict on an answer to a question."""


def questions(count: int) -> Form[list[str]]:
    """Ask for ``count`` questions that an answer could be given to, without showing the one that it was given to."""
    names = [f"question_{number}" for number in range(1, count + 1)]

    def read(found: Mapping[str, JSON]) -> list[str]:
        checked_keys(found, names)
        return [_text(found[name], name) for name in names]

    what = "one question" if count == 1 else f"{count} different questions"
    return Form(
        f"You are shown an answer, and write {what} that it would answer in full, as somebody would ask who does not "
        "know the answer.",
        object_schema({name: {"type": "string"} for name in names}),
        read,
    )


def _committed(found: Mapping[str, JSON]) -> Question:
    checked_keys(found, ("question", "noncommittal"))
    if not isinstance(is_noncommittal := found["noncommittal"], bool):
        raise ValueError("noncommittal is neither true nor false")
    return Question(_text(found["question"], "question"), is_noncommittal)


COMMITTED_QUESTION = Form(
    "You are shown an answer, and write one question that it would answer in full, as somebody would ask who does not "
    "know the answer. You also say whether the answer is noncommittal: whether it is evasive or vague, such as “I do "
    "not know”, and answers nothing.",
    object_schema({"question": {"type": "string"}, "noncommittal": {"type": "boolean"}}),
    _committed,
)
"""The task that reads an answer alone."""


def supported_together(count: int) -> Form[list[Judged]]:
    """Ask for a verdict on each of ``count`` claims by a context, in their order."""
    names = [f"claim_{number}" for number in range(1, count + 1)]

    def read(found: Mapping[str, JSON]) -> list[Judged]:
        checked_keys(found, names)
        return [_judged(found[name], "supported") for name in names]

    entry = object_schema({**REASON, "supported": {"type": "boolean"}})
    return Form(
        f"You decide of each of some claims whether a context supports it. {_SUPPORT} For each claim {_REASON_LOWER}",
        object_schema(dict.fromkeys(names, entry)),
        read,
    )


_REASON_LOWER = _REASON_FIRST[0].lower() + _REASON_FIRST[1:]


def _sentences(found: Mapping[str, JSON]) -> Sequence[Judged]:
    checked_keys(found, ("sentences",))
    entries = found["sentences"]
    if not isinstance(entries, list):
        raise ValueError("sentences is not a list")
    read = []
    for entry in entries:
        text = _text(reason_in(entry).get("sentence"), "a sentence")
        read.append(_judged(entry, "attributed", text, "sentence"))
    return read


ATTRIBUTED_SENTENCES = Form(
    "You take an answer to a question apart into its sentences, each of which stands once, and decide of each whether "
    f"it can be attributed to a context: whether it follows from what the context says. For each sentence "
    f"{_REASON_LOWER}",
    object_schema(
        {
            "sentences": {
                "type": "array",
                "items": object_schema({"sentence": {"type": "string"}, **REASON, "attributed": {"type": "boolean"}}),
            }
        }
    ),
    _sentences,
)
"""The task that reads a question, a context and an answer."""
Gathering: TypeAlias = Generator[Ask, Sequence[Response | Failed], T]
"""Something that asks models, and returns what came of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One metric of a sample: a ``value``, or the ``reason`` why it is not measurable, or a ``problem``: no verdict.

    ``verdicts`` are all that was asked for it, as a report shows it.
    """

    value: float | None = None
    reason: str | None = None
    problem: str | None = None
    verdicts: tuple[dict[str, JSON], ...] = ()

    def after(self, *verdicts: dict[str, JSON]) -> Self:
        """Return the same with these verdicts before its own."""
        return replace(self, verdicts=(*verdicts, *self.verdicts))


def number_of(
    found: Sequence[Verdict[Judged]],
    verdicts: tuple[dict[str, JSON], ...],
    formula: Callable[[Sequence[bool]], float],
) -> Found:
    """Return the value of a formula over verdicts, if all are there."""
    held = [one.value.holds for one in found if one.value is not None]
    if len(held) < len(found):
        return Found(problem=problem_of(found), verdicts=verdicts)
    return Found(value=formula(held), verdicts=verdicts)


def problem_of(found: Sequence[Verdict[T]]) -> str | None:
    return next((one.problem for one in found if one.value is None), None)


def shown_verdict(
    one: Verdict[T], head: Mapping[str, JSON], of_value: Callable[[T], Mapping[str, JSON]]
) -> dict[str, JSON]:
    """Return one asking as a report shows it: what was asked, what the judge said, and what that took."""
    if one.value is None:
        return {**head, "problem": one.problem, **one.shown}
    return {**head, **of_value(one.value), **one.shown}


def share(verdicts: Sequence[bool]) -> float:
    """Return the share of the claims that are supported. ``ZeroDivisionError`` if there are none."""
    return sum(verdicts) / len(verdicts)


def average_precision(relevant: Sequence[bool]) -> float:
    """Return the mean, over the relevant ranks, of the precision at each; 0 if no chunk (in rank order) is relevant.

    The sum is divided by the relevant chunks that were retrieved: how many there are beyond them is not known. ragas
    (``LLMContextPrecisionWithReference``) has the same number, but for the 1e-10 that it adds to the divisor.
    """
    precisions: list[float] = []
    for rank, is_relevant in enumerate(relevant, 1):
        if is_relevant:
            precisions.append((len(precisions) + 1) / rank)
    return math.fsum(precisions) / len(precisions) if precisions else 0.0


def closeness_of(question: str, texts: Sequence[str]) -> Gathering[Found]:
    """Return the mean cosine of the texts' vectors with the question's, as it is: it may be below 0.

    Not measurable where a vector is zero, which has no direction. All vectors are asked for together.
    """
    found = yield from embeddings((question, *texts))
    if found.problem is not None:
        return Found(problem=found.problem, verdicts=({"asked": "embeddings", "problem": found.problem, **found.took},))
    first, *others = found.vectors
    cosines = [cosine(first, other) for other in others]
    value: list[JSON] = [{"question": text, "cosine": one} for text, one in zip(texts, cosines, strict=True)]
    shown = {"asked": "embeddings", "value": value, **found.took}
    known = [one for one in cosines if one is not None]
    if len(known) < len(cosines):
        return Found(reason="an embedding is the zero vector", verdicts=(shown,))
    return Found(value=math.fsum(known) / len(known), verdicts=(shown,))
