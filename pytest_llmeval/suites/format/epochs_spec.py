"""The part of the suite format that says how often a sample is asked, and what becomes of its replies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from pytest_llmeval.data.spec import FROM_LIST, Spec, each_once, refuse_here, whole
from pytest_llmeval.text.wording import describe, expected_one_of, quoted

__all__ = ["MAX_EPOCHS", "EpochsSpec", "Reductions", "reduction_parts", "reduction_problem"]

_FORM = re.compile(r"(mean|first|any|all)|(mode)(?:@([1-9][0-9]{0,5}))?|(pass[@^])([1-9][0-9]{0,5})")
_PATTERN = whole(r"mean|first|any|all|mode|(mode@|pass@|pass\^)[1-9][0-9]{0,5}")
_KNOWN = ("mean", "first", "mode", "mode@8", "any", "all", "pass@1", "pass^1")
MAX_EPOCHS = 10_000


def reduction_parts(name: str) -> tuple[str, int | None]:
    """``mode@8`` as ``("mode", 8)``, ``pass@4`` as ``("pass@", 4)``, ``mean`` as ``("mean", None)``.

    Raises ``ValueError`` for what is not a reduction.
    """
    found = _FORM.fullmatch(name)
    if found is None:
        raise ValueError(f"there is no reduction {name!r}")
    plain, mode, mode_count, passes, pass_count = found.groups()
    number = mode_count or pass_count
    return plain or mode or passes, int(number) if number else None


def _reduction(name: str) -> str:
    try:
        reduction_parts(name)
    except ValueError:
        known = [word for word in _KNOWN if "@" not in word and "^" not in word]
        near = expected_one_of(name, known) if "pass" not in name else ""
        forms = near if near.startswith("; did") else f"; expected one of {', '.join(known)}, mode@k, pass@k, pass^k"
        raise refuse_here(f"there is no reduction {quoted(name)}{forms}") from None
    return name


Reductions: TypeAlias = Annotated[
    tuple[Annotated[str, AfterValidator(_reduction)], ...],
    FROM_LIST,
    AfterValidator(each_once("reduction")),
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": _PATTERN},
                {"type": "array", "items": {"type": "string", "pattern": _PATTERN}, "minItems": 1, "uniqueItems": True},
            ]
        }
    ),
]
"""One reduction or several; the first one decides whether a sample is right."""


class EpochsSpec(Spec):
    """How often every sample is asked, and how its scores become one."""

    count: int = Field(ge=1, le=MAX_EPOCHS, description="How often every sample is asked.")
    reduce: Reductions = Field(
        ("mean",),
        description="How a sample's scores become one. mean: the average of every number; right if every reply is "
        "right, wrong if none is, else a number between. first: the score of the first reply. mode: the score of the "
        "most frequent answer, the first one in a tie; mode@k: the same among the first k replies. any, all: right if "
        "any reply is right, if all are. pass@k: the probability that at least one of k replies is right; pass^k: that "
        "all k are; both unbiased. If several are given, the first decides what is right.",
    )

    threshold: float | None = Field(
        None,
        allow_inf_nan=False,
        description="For a scorer that gives numbers and no right or wrong: a reply is right if its first number is at "
        "least this (at most, for a metric that is better when lower). pass@k, pass^k, any and all need it then.",
    )
    vote: Literal["answer", "text"] = Field(
        "answer",
        description="What mode counts: the answers that the scorer found, or the replies after the filters, as "
        "lm-eval's majority_vote.",
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        if isinstance(value, dict | EpochsSpec):
            return value
        if isinstance(value, bool) or not isinstance(value, int):
            raise refuse_here(f"found {describe(value)}, expected a whole number, or a mapping with count and reduce")
        if not 1 <= value <= MAX_EPOCHS:
            raise refuse_here(f"found {describe(value)}, expected a number from 1 to {MAX_EPOCHS}")
        return {"count": value}

    @model_validator(mode="after")
    def _enough(self) -> EpochsSpec:
        problem = reduction_problem(self.reduce, self.count)
        if problem is not None:
            raise refuse_here(problem, "reduce")
        return self


def reduction_problem(names: Sequence[str], count: int) -> str | None:
    """Why a sample that is asked ``count`` times cannot be reduced so; None where it can."""
    for name in names:
        _, needed = reduction_parts(name)
        if needed is not None and needed > count:
            return f"{quoted(name)} needs {needed} replies, and every sample is asked {count} times"
    return None
