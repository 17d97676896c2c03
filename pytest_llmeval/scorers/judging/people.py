"""What people say of replies, beside what the suite's scorer says: how far a judge can be trusted.

A suite names the column with ``human``. People rate the suite's first metric: right or wrong, which of two replies is
better, or a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.judged import CORRECTED, HUMAN, JUDGE
from pytest_llmeval.scoring.metrics.sample_values import value_of
from pytest_llmeval.scoring.metrics.summary import why_not_measurable
from pytest_llmeval.scoring.references import quote
from pytest_llmeval.types import GenerateResponse, Response, Sample, Score

__all__ = ["human_value", "is_of_this_reply", "people_metrics", "with_people"]

_ACCURACY = "accuracy"


_ORDERS = ("first_order", "second_order")
"""The verdicts of a pair's judge in both orders (see ``pairwise.py``)."""


_OF_ORDERS = ("first_order_right", "second_order_right", "both_orders_right")


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
    return (*(_OF_ORDERS if rated == "win_rate" and "order_kappa" in metrics else ()), *own, f"{CORRECTED}{rated}")


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


def is_of_this_reply(sample: Sample, responses: Sequence[Response]) -> bool:
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
    if people is not None and not is_of_this_reply(sample, responses):
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
            values |= dict(zip(_OF_ORDERS, (*in_order, min(in_order)), strict=True))
    return replace(score, values=values, details=details)
