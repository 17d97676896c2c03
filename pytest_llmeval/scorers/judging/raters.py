"""Raters beside a suite's own scorer: panels of several judges, and people.

A panel's judges each judge every reply, and their scores become one. What people said (the column that a suite names
with ``human``) shows how far a judge can be trusted: they rate the suite's first metric, as right or wrong, as which of
two replies is better, or by a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_llmeval.models.base import Failed, JudgeSteps
from pytest_llmeval.scoring.base import side_by_side
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.judged import CORRECTED, HUMAN, JUDGE, rating
from pytest_llmeval.scoring.metrics.sample_values import value_of
from pytest_llmeval.scoring.metrics.summary import why_not_measurable
from pytest_llmeval.scoring.references import quote
from pytest_llmeval.scoring.responses import status_of_credit
from pytest_llmeval.scoring.score_checks import shown_score
from pytest_llmeval.scoring.statistics.intervals import mean
from pytest_llmeval.types import JSON, GenerateResponse, Response, Sample, Score

__all__ = ["human_value", "panel", "panel_metrics", "people_metrics", "with_people"]

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
    """Return the same steps, asked of the judge at this place."""
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
    """Return why numbers of single judges, or of their agreement, are missing, if some are."""
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


_ACCURACY = "accuracy"
_ORDERS = ("first_order", "second_order")
"""The verdicts of a pair's judge in both orders (see ``pairwise.py``)."""
_RIGHT_IN_ORDERS = ("first_order_right", "second_order_right", "both_orders_right")

_RIGHT = {
    **dict.fromkeys(("true", "yes", "pass", "right", "correct"), 1.0),
    **dict.fromkeys(("false", "no", "fail", "wrong", "incorrect"), 0.0),
}

_WINNERS = {"reply": 1.0, "tie": 0.5, "other": 0.0}


def people_metrics(rated: str, metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics that a suite has beside its ``metrics`` where people rated ``rated``, one of them."""
    own: tuple[str, ...]
    if rated == _ACCURACY:
        own = ("judge.agreement", "judge.base_rate", "judge.kappa", "judge.sensitivity", "judge.specificity")
    else:
        own = ("judge.agreement", "judge.human_mean", "judge.kappa")
    return (
        *(_RIGHT_IN_ORDERS if rated == "win_rate" and "order_kappa" in metrics else ()),
        *own,
        f"{CORRECTED}{rated}",
    )


def human_value(sample: Sample, rated: str, limits: tuple[float, float] | None = None) -> float | None:
    """Return people's rating of the sample as a number of the metric ``rated``; None if they did not rate it.

    ``limits`` are the lowest and the highest, where the suite says them. ``ValueError`` for what is no such number.
    """
    said = sample.human
    if said is None or (isinstance(said, str) and not said.strip()):
        return None
    words = _RIGHT if rated == _ACCURACY else _WINNERS if rated == "win_rate" else {}
    number = words.get(said.strip().lower()) if isinstance(said, str) else None
    if number is None and not (isinstance(said, bool) and rated != _ACCURACY):
        try:
            number = float(said) if isinstance(said, str | int | float) else None
        except (ValueError, OverflowError):
            number = None
    low, high = limits or (definition(rated).lowest, definition(rated).highest)
    is_one = number is not None and low <= number <= high and abs(number) < float("inf")
    if number is None or not is_one or (words and number not in words.values()):
        raise ValueError(f"human is {quote(said)}, expected {_expected(rated, low, high)}, or nothing")
    return number


def _expected(rated: str, low: float, high: float) -> str:
    if rated == _ACCURACY:
        return "true or false (also 1 or 0, right or wrong, pass or fail, yes or no)"
    if rated == "win_rate":
        return "reply, other or tie"
    if abs(low) < float("inf") and abs(high) < float("inf"):
        return f"a number from {low:g} to {high:g}"
    return "a number"


def _is_of_this_reply(sample: Sample, responses: Sequence[Response]) -> bool:
    """Tell whether people rated the reply that was given: not where the data hold another, which they rated."""
    replies = [response.text for response in responses if isinstance(response, GenerateResponse)]
    return not isinstance(sample.response, str) or replies in ([], [sample.response])


def with_people(score: Score, sample: Sample, rated: str, responses: Sequence[Response]) -> Score:
    """Return the score with what it says of the judge, whose number of the metric ``rated`` it holds."""
    judge = value_of(score, rated)
    if score.status == "unscored":
        return score
    if judge is None:
        reason = why_not_measurable(score, rated)
        reasons = {} if reason is None else {f"{CORRECTED}{rated}": reason}
        return replace(score, not_measurable={**score.not_measurable, **reasons})
    values, details = {**score.values, JUDGE: judge}, dict(score.details)
    people = human_value(sample, rated)
    if people is not None and not _is_of_this_reply(sample, responses):
        people, details["human"] = None, "people rated another reply"
    if people is not None:
        details["human"] = people
        values |= {HUMAN: people, "judge.agreement": float(people == judge)}
        if rated == _ACCURACY:
            values["judge.base_rate"] = people
            values["judge.agreement"] = 1 - abs(people - judge)  # of a panel of two minds a half
            if people == 1:
                values["judge.sensitivity"] = judge
            else:
                values["judge.specificity"] = 1 - judge
        else:
            values["judge.human_mean"] = people
        if all(name in score.values for name in _ORDERS):
            in_order = [float(score.values[name] == people) for name in _ORDERS]
            values |= dict(zip(_RIGHT_IN_ORDERS, (*in_order, min(in_order)), strict=True))
    return replace(score, values=values, details=details)
