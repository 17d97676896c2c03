"""Checks what a scorer returned: one that a user wrote can return anything, and a report holds numbers only."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from pytest_llmeval.models.base import JudgeSteps
from pytest_llmeval.scoring.base import PreparedSample, Scorer
from pytest_llmeval.scoring.metrics.definitions import WILDCARD, definition
from pytest_llmeval.scoring.metrics.sample_values import contradiction
from pytest_llmeval.scoring.references import quote
from pytest_llmeval.types import JSON, GenerateResponse, Response, Score, Status, as_builtin, finite_number

__all__ = ["checked", "judging", "never_right", "shown_score"]

_MAX_REASON = 200
"""Characters of a reason. Samples are counted by their reasons, and a long one is that of a single sample."""
_STATUSES: tuple[Status, ...] = get_args(Status)


def judging(scorer: Scorer, presented: PreparedSample, responses: Sequence[Response]) -> JudgeSteps:
    """Ask as the scorer does, and check its score.

    A reply that ended inside of its reasoning has no answer, whatever the scorer says of an empty reply.
    """
    score = yield from scorer.asking(presented, responses)
    score = checked(score, scorer.name)
    if len(responses) != 1 or not isinstance(responses[0], GenerateResponse) or not responses[0].is_unfinished:
        return score
    return score if score.status == "unscored" else replace(never_right(score), no_answer=True, answer=None, vote=None)


def never_right(score: Score) -> Score:
    """Return the score, but wrong if it is correct: an empty text may be expected, a missing answer never is."""
    if score.status != "correct":
        return score
    return replace(score, status="wrong", values={name: _lowest(name, value) for name, value in score.values.items()})


def _lowest(name: str, value: float) -> float:
    metric = definition(name)
    if metric.kind == "proportion":
        return 0.0
    return metric.lowest if metric.higher_is_better and math.isfinite(metric.lowest) else value


def checked(score: object, scorer: str) -> Score:
    """Return the score with its values as Python's own floats, or an unscored one that names ``scorer`` and what is
    wrong.

    An array of numpy or torch with one entry counts as its number. A score that is right or wrong and has no values
    gets an accuracy of 1 or 0.
    """
    try:
        return _checked(score)
    except _Problem as problem:
        return Score(status="unscored", reason=f"the scorer {scorer} gave {problem}")


def shown_score(score: Score, *, with_values: bool = False, with_details: bool = True) -> dict[str, JSON]:
    """Return a judgement as a report shows it beside others of the same sample."""
    shown: dict[str, JSON] = {"status": score.status, "answer": score.answer, "no_answer": score.no_answer}
    if with_values:
        shown["values"] = dict(score.values)
    if with_details and score.details:
        shown["details"] = dict(score.details)
    return shown


class _Problem(Exception):
    """A statement of what is wrong with a score."""


def _checked(score: object) -> Score:
    if not isinstance(score, Score):
        raise _Problem(f"a {type(score).__name__}, expected a Score")
    if not isinstance(score.status, str) or score.status not in _STATUSES:
        raise _Problem(f"the status {_shown(score.status)}, expected {', '.join(_STATUSES[:-1])} or {_STATUSES[-1]}")
    values = _values(score.values)
    reasons = _reasons(score.not_measurable, values)
    if score.status in ("correct", "wrong") and (
        "accuracy" in reasons or ("accuracy" not in values and WILDCARD in reasons)
    ):
        raise _Problem(f"the status {score.status} and an accuracy that is not measurable, expected the status scored")
    if (found := contradiction(score.status, values)) is not None:
        raise _Problem(found)
    if not values and score.status in ("correct", "wrong"):
        values = {"accuracy": float(score.status == "correct")}
    return Score(
        status=score.status,
        values=values,
        chance=_chance(score.chance),
        details=_details(score.details),
        answer=_text(score.answer),
        no_answer=bool(as_builtin(score.no_answer)),
        reason=_text(score.reason),
        vote=_text(score.vote),
        not_measurable=reasons,
    )


def _values(values: object) -> dict[str, float]:
    if not isinstance(values, Mapping):
        raise _Problem(f"values that are a {type(values).__name__}, expected a mapping of names to numbers")
    if (
        type(values) is dict
        and _STR.issuperset(map(type, values))
        and _FLOAT.issuperset(map(type, values.values()))
        and all(map(math.isfinite, values.values()))
    ):
        return dict(values)  # as nearly always
    found: dict[str, float] = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise _Problem(f"a value under the name {_shown(name)}, expected a text")
        found[name] = _number(name, value)
    return found


_STR, _FLOAT = frozenset((str,)), frozenset((float,))


def _reasons(reasons: object, values: Mapping[str, float]) -> Mapping[str, str]:
    if not isinstance(reasons, Mapping):
        raise _Problem(f"a not_measurable that is a {type(reasons).__name__}, expected a mapping of names to reasons")
    if not reasons:
        return {}
    found: dict[str, str] = {}
    for name, reason in reasons.items():
        if not isinstance(name, str) or not isinstance(reason, str) or not reason.strip():
            raise _Problem(f"not_measurable[{_shown(name)}] = {_shown(reason)}, expected a reason")
        if name in values:
            raise _Problem(f"{name} = {values[name]} and says that it is not measurable, expected one of the two")
        text = " ".join(reason.split())
        found[name] = text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 1] + "…"
    return found


def _number(name: str, value: object) -> float:
    if type(value) is float and math.isfinite(value):  # which is usual
        return value
    number = finite_number(value)
    if number is None:
        raise _Problem(f"{name} = {_shown(value)}, expected a finite number")
    return number


def _chance(chance: object) -> float | None:
    if chance is None:
        return None
    number = _number("chance", chance)
    if not 0 <= number < 1:
        raise _Problem(f"chance = {number}, expected a number of at least 0 and below 1")
    return number


def _details(details: object) -> Mapping[str, JSON]:
    """Return details as they are where JSON knows them, which is usual and quick."""
    if not isinstance(details, Mapping):
        raise _Problem(f"details that are a {type(details).__name__}, expected a mapping")
    try:
        if isinstance(details, dict):
            if not (all(type(name) is str for name in details) and all(map(_is_plain, details.values()))):
                _ENCODER.encode(details)
            return details
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        plain = {str(name): _json(f"details[{_shown(name)}]", value) for name, value in details.items()}
        _ENCODER.encode(plain)
    except (ValueError, RecursionError) as error:
        raise _Problem(f"details that JSON cannot hold: {type(error).__name__}") from None
    return plain


_ENCODER = json.JSONEncoder()


def _is_plain(value: object) -> bool:
    """Return whether JSON knows the value for sure: none is too large, or nested too deeply."""
    if type(value) is list:
        return _FLOAT.issuperset(map(type, value)) or all(type(item) is not list and _is_plain(item) for item in value)
    if type(value) is int:
        return -_LARGE < value < _LARGE
    return value is None or type(value) in (float, str, bool)


_LARGE = 1 << 63
"""Smaller numbers surely have a text: Python refuses to write those of more than 4,300 digits."""


def _json(where: str, value: object) -> JSON:
    value = as_builtin(value)
    if isinstance(value, Mapping):
        return {str(name): _json(where, item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(where, item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise _Problem(f"{where} = {_shown(value)}, which JSON does not know")


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _shown(value: object) -> str:
    try:
        return quote(value)
    except Exception:  # a number of a million digits, or a __repr__ that fails
        return f"a {type(value).__name__}"
