"""A panel: several judges, each of which judges every reply, and how their scores become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_llmeval.models.base import Failed, JudgeSteps
from pytest_llmeval.scoring.base import side_by_side
from pytest_llmeval.scoring.checking import shown_score
from pytest_llmeval.scoring.metrics.judged import rating
from pytest_llmeval.scoring.metrics.sample_values import value_of
from pytest_llmeval.scoring.metrics.summary import why_not_measurable
from pytest_llmeval.scoring.responses import status_of_credit
from pytest_llmeval.scoring.statistics.intervals import mean
from pytest_llmeval.types import JSON, Response, Score

__all__ = ["panel", "panel_metrics"]

_BY_MAJORITY = ("accuracy", "win_rate", "first_order", "second_order")
"""Numbers that stand for labels: what most judges say, and a half where no label has more than half of them."""


_LABELS = frozenset((0.0, 0.5, 1.0))


def panel_metrics(rated: str, num_judges: int) -> tuple[str, ...]:
    """Return the metrics that a panel has beside the scorer's: how far its judges agree on the metric ``rated``, each
    judge's number, and how far that is from the panel's.
    """
    numbers = range(1, num_judges + 1)
    each = (f"judge.{number}.{name}" for name in (rated, "dissent") for number in numbers)
    return ("judge.alpha", *each)


def panel(askings: Sequence[JudgeSteps], rated: str) -> JudgeSteps:
    """Return one score of those of several judges, who are asked side by side, each what its own of ``askings`` asks.

    A label is that of the majority, any other number the mean of those that the judges gave. Unscored where one of the
    judges gives no verdict: a number of fewer judges would stand beside the others'.
    """
    scores = yield from side_by_side([_of_judge(asking, place) for place, asking in enumerate(askings)])
    for number, score in enumerate(scores, 1):
        if score.status == "unscored":
            return Score(status="unscored", reason=f"judge {number}: {score.reason}", details=_shown(scores))
    names = dict.fromkeys(name for score in scores for name in score.values)
    values: dict[str, float] = {}
    for name in names:
        if all(name in score.values or why_not_measurable(score, name) is not None for score in scores):
            values[name] = _together(name, [score.values[name] for score in scores if name in score.values])
    credits = [value_of(score, "accuracy") for score in scores]
    known = [credit for credit in credits if credit is not None]
    status = status_of_credit(_together("accuracy", known)) if len(known) == len(scores) else scores[0].status
    reasons = {name: why for score in scores for name, why in score.not_measurable.items() if name not in names}
    found = Score(status=status, values=values, not_measurable=reasons)
    whole = value_of(found, rated)
    own = [value_of(score, rated) for score in scores]
    if whole is not None:
        for number, value in enumerate(own, 1):
            if value is not None:
                values |= {f"judge.{number}.{rated}": value, f"judge.{number}.dissent": abs(value - whole)}
        values |= {rating(number): value for number, value in enumerate([one for one in own if one is not None], 1)}
    usual = scores[own.index(whole) if whole in own else 0]
    epoch = {name: usual.details[name] for name in ("epoch",) if name in usual.details}
    return replace(
        found,
        answer=usual.answer if whole in own else " | ".join(dict.fromkeys(one.answer or "no answer" for one in scores)),
        vote=usual.vote,
        no_answer=usual.no_answer,
        chance=usual.chance,
        details={**epoch, **_shown(scores)},
        not_measurable={**reasons, **_unmeasured(rated, own, scores)},
    )


def _of_judge(asking: JudgeSteps, place: int) -> JudgeSteps:
    """Return the same, asked of the judge at this place."""
    answers: Sequence[Response | Failed] | None = None
    try:
        while True:
            asked = next(asking) if answers is None else asking.send(answers)
            answers = yield replace(asked, judge=place) if asked.role == "judge" else asked
    except StopIteration as stop:
        score: Score = stop.value
        return score
    finally:
        asking.close()


def _together(name: str, values: Sequence[float]) -> float:
    is_label = name in _BY_MAJORITY or name.startswith("criterion_")
    if not is_label or not _LABELS.issuperset(values):
        return mean(values)
    return next((label for label in sorted(_LABELS) if values.count(label) * 2 > len(values)), 0.5)


def _unmeasured(rated: str, own: Sequence[float | None], scores: Sequence[Score]) -> dict[str, str]:
    """Return why the numbers of single judges, and of what they have in common, are missing where they are."""
    found: dict[str, str] = {}
    for number, (value, score) in enumerate(zip(own, scores, strict=True), 1):
        reason = why_not_measurable(score, rated)
        if value is None and reason is not None:
            found |= {f"judge.{number}.{rated}": reason, f"judge.{number}.dissent": reason}
    if found and sum(value is not None for value in own) < 2:
        found["judge.alpha"] = "fewer than two judges gave a number"
    return found


def _shown(scores: Sequence[Score]) -> dict[str, JSON]:
    judges: list[JSON] = [
        {**shown_score(score, with_values=True), **({} if score.reason is None else {"reason": score.reason})}
        for score in scores
    ]
    return {"judges": judges}
