"""Samples that are asked several times: the settings, and how the scores of their replies become one."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from pytest_llmeval.data.spec import FROM_LIST, Spec, each_once, refuse_here, whole
from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.base import Failed, JudgeSteps
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scoring.base import (
    Better,
    Presented,
    ScorerWrapper,
    SettingsError,
    score_without_judge,
    side_by_side,
)
from pytest_llmeval.scoring.checking import judging, shown_score
from pytest_llmeval.scoring.filters import FilteredScorer
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.measurable import why_not_measurable, with_numbers
from pytest_llmeval.scoring.metrics.sample_values import contradiction
from pytest_llmeval.scoring.responses import reply, status_of_credit
from pytest_llmeval.text.wording import Keys, describe, expected_one_of, quoted
from pytest_llmeval.types import JSON, Ask, GenerateRequest, GenerateResponse, Prompt, Request, Response, Score, Status

__all__ = [
    "COUNTING_REDUCTIONS",
    "MAX_EPOCHS",
    "EpochsScorer",
    "EpochsSpec",
    "Reductions",
    "deciding_epoch",
    "pass_at_k",
    "pass_hat_k",
    "reduction_parts",
    "reduction_problem",
]

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


COUNTING_REDUCTIONS = ("any", "all", "pass@", "pass^")
"""Reductions that need to know which replies are right, by the first of ``reduction_parts``."""


_KEYS: Keys = ("epochs",)


_COUNTS = ("correct", "total", "no_answer")


_UNLIKE_ONE_GUESS = ("skill",)


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
    """Return the share of the choices of ``k`` replies in which all are of the ``num_such``, exact until divided."""
    if not 0 <= num_such <= num_replies or not 1 <= k <= num_replies:
        raise ValueError(f"found {num_such} of {num_replies} replies and k = {k}")
    return math.comb(num_such, k) / math.comb(num_replies, k)


@dataclass(frozen=True, slots=True)
class EpochsScorer(ScorerWrapper):
    """A scorer that asks for ``count`` replies, has each judged, and reduces the scores as ``reduce`` says (see
    ``EpochsSpec``).

    ``vote`` is what ``mode`` counts. ``threshold`` makes right and wrong of replies that have numbers alone.
    ``not_measurable`` are the numbers that a reply counts as, by metric, where it says that there is none.
    """

    count: int
    reduce: tuple[str, ...] = ("mean",)
    vote: Literal["answer", "text"] = "answer"
    threshold: float | None = None
    not_measurable: Mapping[str, float] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Name those of the first reduction as they are, the others' under their names; none where the scorer names
        none.
        """
        own = self.inner.metrics
        if not own:
            return ()
        first, *others = (_metrics(name, own) for name in self.reduce)
        names = [*first, "no_answer"] if "no_answer" in own and "no_answer" not in first else first
        for reduction, found in zip(self.reduce[1:], others, strict=True):
            names = [*names, *(_under(reduction, name) for name in found if name not in _COUNTS)]
        return tuple(names)

    @property
    def better(self) -> Mapping[str, Better]:
        own = self.inner.better
        return {**own, **{_under(reduction, name): own[name] for reduction in self.reduce[1:] for name in own}}

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """Ask what the scorer asks, once for each epoch. Raise ``SettingsError`` where all replies would be equal."""
        own = self.inner.requests(presented, prompt, delimiter=delimiter, generate=generate)
        asked = [request for request in own if isinstance(request, GenerateRequest)]
        if len(asked) != len(own) or not asked:
            raise SettingsError(
                f"the scorer {self.inner.name} compares loglikelihoods, which would be the same {self.count} times; "
                "remove epochs, or use a scorer that judges a reply",
                _KEYS,
            )
        if self.count > 1 and any(request.temperature == 0 for request in asked):
            raise SettingsError(
                f"every sample is asked {self.count} times, and at temperature 0 all replies are the same; set "
                "generate.temperature above 0 (where replies are read from a file or made by a program, it changes "
                "nothing)",
                _KEYS,
            )
        return tuple(dataclasses.replace(request, epoch=epoch) for epoch in range(self.count) for request in asked)

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        return score_without_judge(self.asking(presented, responses))

    def asking(self, presented: Presented, responses: Sequence[Response]) -> JudgeSteps:
        """Return the reduced score. It is unscored where one of the replies is, and where right replies are to be
        counted and the scorer knows none.
        """
        size = len(responses) // self.count
        if size * self.count != len(responses) or not size:
            raise ModelError(f"expected as many responses for each of {self.count} epochs, found {len(responses)}")
        parts = [responses[epoch * size : (epoch + 1) * size] for epoch in range(self.count)]
        judged = yield from side_by_side([self._judging(presented, part) for part in parts])
        scores = [self._decided(with_numbers(score, self.not_measurable)) for _, score in judged]
        for epoch, score in enumerate(scores, 1):
            if score.status == "unscored":
                return Score(status="unscored", reason=f"epoch {epoch} of {self.count}: {score.reason}")
        return self._reduced(scores, [vote for vote, _ in judged])

    def _decided(self, score: Score) -> Score:
        """Return the score with right or wrong, where it is a number and ``threshold`` says from which one on it is
        right.

        It is unscored where an accuracy that the scorer gave says the opposite.
        """
        if self.threshold is None or score.status != "scored":
            return score
        name = self._threshold_metric(score)
        if name is None or name not in score.values:
            return score
        value = score.values[name]
        lower = definition(name, self.inner.better).higher_is_better is False
        is_right = value <= self.threshold if lower else value >= self.threshold
        status: Status = "correct" if is_right else "wrong"
        if (found := contradiction(status, score.values)) is not None:
            return Score(status="unscored", reason=f"epochs.threshold gave {found}")
        return dataclasses.replace(score, status=status)

    def _threshold_metric(self, score: Score) -> str | None:
        """Return the first metric that the score has, or says to be not measurable; None where it says nothing."""
        names = (*self.inner.metrics, *score.values)
        return next((name for name in names if name in score.values or why_not_measurable(score, name)), None)

    def _judging(
        self, presented: Presented, responses: Sequence[Response]
    ) -> Generator[Ask, Sequence[Response | Failed], tuple[str | None, Score]]:
        """Return what mode counts of one epoch, None for nothing; and its score."""
        if self.vote == "text" and isinstance(self.inner, FilteredScorer):
            return (yield from self.inner.judging(presented, responses))
        score = yield from judging(self.inner, presented, responses)
        if self.vote == "text":
            return reply(responses) if _has_answered(responses) else None, score
        return (score.answer if score.vote is None else score.vote), score

    def _reduced(self, scores: Sequence[Score], votes: Sequence[str | None]) -> Score:
        first, *others = self.reduce
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


def _has_answered(responses: Sequence[Response]) -> bool:
    """Return whether no reply ended inside of its reasoning."""
    return not any(isinstance(response, GenerateResponse) and response.is_unfinished for response in responses)


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
        return _mean(scores), 0
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


def _mean(scores: Sequence[Score]) -> Score:
    """Average every number; right if every reply is, wrong if none is, else a number between.

    Of replies on which a number is not measurable it is averaged over the others; where it is missing, it has no mean.
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
