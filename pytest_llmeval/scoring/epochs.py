"""Samples that are asked several times: the settings, and how the scores of their replies become one."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from pytest_llmeval.data.spec import FROM_LIST, Spec, each_once, refuse_here, whole
from pytest_llmeval.scoring.base import Better
from pytest_llmeval.scoring.metrics.summary import why_not_measurable
from pytest_llmeval.scoring.responses import status_of_credit
from pytest_llmeval.scoring.score_checks import shown_score
from pytest_llmeval.text.wording import describe, expected_one_of, quoted
from pytest_llmeval.types import JSON, Score, Status

__all__ = [
    "COUNTING_REDUCTIONS",
    "MAX_EPOCHS",
    "EpochsSpec",
    "Reductions",
    "deciding_epoch",
    "mean_score",
    "pass_at_k",
    "pass_hat_k",
    "reduced_better",
    "reduced_metrics",
    "reduced_score",
    "reduction_parts",
    "reduction_problem",
]

_FORM = re.compile(r"(mean|first|any|all)|(mode)(?:@([1-9][0-9]{0,5}))?|(pass[@^])([1-9][0-9]{0,5})")
_PATTERN = whole(r"mean|first|any|all|mode|(mode@|pass@|pass\^)[1-9][0-9]{0,5}")
_KNOWN = ("mean", "first", "mode", "mode@8", "any", "all", "pass@1", "pass^1")
MAX_EPOCHS = 10_000


def reduction_parts(name: str) -> tuple[str, int | None]:
    """Return ``mode@8`` as ``("mode", 8)``, ``pass@4`` as ``("pass@", 4)``, ``mean`` as ``("mean", None)``.

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
    """Settings of how often the model answers every sample, and how the scores become one."""

    count: int = Field(ge=1, le=MAX_EPOCHS, description="How often the model answers every sample.")
    reduce: Reductions = Field(
        ("mean",),
        description="How a sample's scores become one. mean: the average of every number; the sample is right if "
        "every reply is right, wrong if none is, else a number between. first: the score of the first reply. mode: "
        "the score of the most frequent answer, the first one in a tie; mode@k: the same among the first k replies. "
        "any: right if any reply is right. all: right if all are. pass@k: the probability that at least one of k "
        "replies is right. pass^k: the probability that all k are. Both estimates are unbiased. If several are "
        "given, the first decides what is right.",
    )

    threshold: float | None = Field(
        None,
        allow_inf_nan=False,
        description="For a scorer that gives numbers without right or wrong: a reply is right if its first number is "
        "at least this (at most this, for a metric that is better when lower). pass@k, pass^k, any and all need it "
        "then.",
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
    """Return why a sample that is asked ``count`` times cannot be reduced so; None where it can."""
    for name in names:
        _, needed = reduction_parts(name)
        if needed is not None and needed > count:
            return f"{quoted(name)} needs {needed} replies, and every sample is asked {count} times"
    return None


COUNTING_REDUCTIONS = ("any", "all", "pass@", "pass^")
"""Reductions that need to know which replies are right, by the first of ``reduction_parts``."""
_COUNTS = ("correct", "total", "no_answer")
_UNLIKE_ONE_GUESS = ("skill",)
"""Metrics that compare with the chance of a single guess, and so have no meaning for the best or worst of several."""


def pass_at_k(num_replies: int, num_right: int, k: int) -> float:
    """Return the unbiased chance that at least one of ``k`` replies is right: ``1 - C(n - c, k) / C(n, k)``.

    Chen et al. 2021, Evaluating Large Language Models Trained on Code, equation 1. Raise ``ValueError`` unless ``0 <=
    num_right <= num_replies`` and ``1 <= k <= num_replies``.
    """
    return 1.0 - _share(num_replies, num_replies - num_right, k)


def pass_hat_k(num_replies: int, num_right: int, k: int) -> float:
    """Return the unbiased chance that all of ``k`` replies are right: ``C(c, k) / C(n, k)``.

    Yao et al. 2024, tau-bench, section 4. Raise ``ValueError`` as ``pass_at_k`` does.
    """
    return _share(num_replies, num_right, k)


def _share(num_replies: int, num_such: int, k: int) -> float:
    """Return the share of all choices of ``k`` replies that hold the ``num_such`` alone; exact until divided."""
    if not 0 <= num_such <= num_replies or not 1 <= k <= num_replies:
        raise ValueError(f"found {num_such} of {num_replies} replies and k = {k}")
    return math.comb(num_such, k) / math.comb(num_replies, k)


def deciding_epoch(score: Score) -> int:
    """Return which reply the answer of a reduced score comes from, from 0; 0 for any other score."""
    epoch = score.details.get("epoch", 0)
    return epoch if isinstance(epoch, int) else 0


class _NothingIsRightError(Exception):
    """An error of a scorer that says of no reply whether it is right, where right ones are to be counted."""


def _metrics(reduction: str, own: Sequence[str]) -> list[str]:
    """Return the metrics that a reduction gives where each reply's score carries ``own``."""
    kind, _ = reduction_parts(reduction)
    if kind in ("pass@", "pass^"):
        return [reduction]
    if kind in ("any", "all"):
        return [name for name in own if name not in _UNLIKE_ONE_GUESS]
    return list(own)


def _under(reduction: str, name: str) -> str:
    """Return the name of a metric of a reduction that is not the first."""
    return name if name == reduction else f"{reduction}.{name}"


def _reduce(reduction: str, scores: Sequence[Score], votes: Sequence[str | None]) -> tuple[Score, int]:
    """Return one score of several, and the epoch that its answer comes from."""
    kind, number = reduction_parts(reduction)
    if kind in _ESTIMATES:
        return _estimated(reduction, _ESTIMATES[kind](len(scores), _num_right(reduction, scores), number or 1), scores)
    if kind == "mean":
        return mean_score(scores), 0
    if kind == "mode":
        epoch = _majority(votes[:number])
        return scores[epoch], epoch
    if kind in ("any", "all"):
        _num_right(reduction, scores)
        wanted: Status = "correct" if kind == "any" else "wrong"
        epoch = next((place for place, score in enumerate(scores) if score.status == wanted), 0)
        values = {name: value for name, value in scores[epoch].values.items() if name not in _UNLIKE_ONE_GUESS}
        return dataclasses.replace(scores[epoch], values=values, chance=None), epoch
    return scores[0], 0


_ESTIMATES: Mapping[str, Callable[[int, int, int], float]] = MappingProxyType({"pass@": pass_at_k, "pass^": pass_hat_k})


def _num_right(reduction: str, scores: Sequence[Score]) -> int:
    if any(score.status == "scored" for score in scores):
        raise _NothingIsRightError(
            f"{reduction} needs right and wrong replies, and this scorer gives numbers; set epochs.threshold, the "
            "lowest number of a right reply"
        )
    return sum(score.status == "correct" for score in scores)


def _estimated(name: str, value: float, scores: Sequence[Score]) -> tuple[Score, int]:
    return Score(
        status=status_of_credit(value),
        answer=scores[0].answer,
        no_answer=all(score.no_answer for score in scores),
        values={name: value},
    ), 0


def mean_score(scores: Sequence[Score]) -> Score:
    """Average every number; right if every reply is, wrong if none is, else a number between.

    A number that is not measurable on some replies is averaged over the others; one that is missing has no mean.
    """
    found = {score.status for score in scores}
    known = dict.fromkeys(name for score in scores for name in score.values)
    names = [
        name
        for name in known
        if all(name in score.values or why_not_measurable(score, name) is not None for score in scores)
    ]
    of_name = {name: [score.values[name] for score in scores if name in score.values] for name in names}
    reasons = {name: why for score in scores for name, why in score.not_measurable.items() if name not in known}
    return Score(
        status=found.pop() if len(found) == 1 else "scored",  # the rule of status_of_credit
        answer=scores[0].answer,
        no_answer=all(score.no_answer for score in scores),
        values={name: math.fsum(own) / len(own) for name, own in of_name.items()},
        chance=scores[0].chance,
        not_measurable=reasons,
    )


def _majority(votes: Sequence[str | None]) -> int:
    """Return the first epoch with the answer that most epochs have, the first of equals as ``Counter.most_common``
    gives it.

    Replies without an answer do not vote, unless there is no other.
    """
    counts = Counter(vote for vote in votes if vote is not None)
    return votes.index(counts.most_common(1)[0][0]) if counts else 0


def reduced_metrics(reductions: Sequence[str], own: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics of reduced scores where each reply's score carries ``own``; none where the scorer names none.

    The first reduction's metrics keep their names; the others' stand under their reductions' names.
    """
    if not own:
        return ()
    first, *others = (_metrics(name, own) for name in reductions)
    names = [*first, "no_answer"] if "no_answer" in own and "no_answer" not in first else first
    for reduction, found in zip(reductions[1:], others, strict=True):
        names = [*names, *(_under(reduction, name) for name in found if name not in _COUNTS)]
    return tuple(names)


def reduced_better(reductions: Sequence[str], own: Mapping[str, Better]) -> Mapping[str, Better]:
    """Return the better directions of reduced scores' metrics; ``own`` are those of one reply's."""
    return {**own, **{_under(reduction, name): own[name] for reduction in reductions[1:] for name in own}}


def reduced_score(reductions: Sequence[str], scores: Sequence[Score], votes: Sequence[str | None]) -> Score:
    """Return one score of the scores of all epochs; ``votes`` are what ``mode`` counts, None for nothing.

    It is unscored where right replies are to be counted and the scorer knows none.
    """
    first, *others = reductions
    try:
        reduced, epoch = _reduce(first, scores, votes)
        values, reasons = dict(reduced.values), dict(reduced.not_measurable)
        for name in others:
            found, _ = _reduce(name, scores, votes)
            values.update((_under(name, key), value) for key, value in found.values.items())
            reasons.update((_under(name, key), reason) for key, reason in found.not_measurable.items())
    except _NothingIsRightError as error:
        return Score(status="unscored", reason=str(error))
    shown: list[JSON] = [shown_score(score, with_values=score.status == "scored") for score in scores]
    details: dict[str, JSON] = {"epoch": epoch, "epochs": shown}
    return dataclasses.replace(reduced, values=values, details=details, not_measurable=reasons)
