"""What a judge is asked about retrieval-augmented answers: instructions, the form of the verdict, and its reading.

``PROMPT_VERSION`` is raised when one of these is worded anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pytest_llmeval.scorers.judging.judged_scorer import REASON, checked_keys, object_schema, reason_in
from pytest_llmeval.scorers.judging.prompts import TEXT
from pytest_llmeval.types import JSON

__all__ = [
    "ATTRIBUTED_SENTENCES",
    "CLAIMS",
    "COMMITTED_QUESTION",
    "RELEVANT",
    "SUPPORTED",
    "Form",
    "Judged",
    "Question",
    "questions",
    "supported_together",
]

T = TypeVar("T")


_MAX_CLAIMS = 200
"""The most claims that are read of one text: each of them is one more request."""


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """One kind of asking.

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
