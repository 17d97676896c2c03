"""How the turns of a conversation are judged, and how their scores become the sample's."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, TypeAlias

from pytest_llmeval.models.base import Failed
from pytest_llmeval.scoring.base import PreparedSample, side_by_side
from pytest_llmeval.scoring.epochs import mean_score
from pytest_llmeval.scoring.metrics.skill import skill
from pytest_llmeval.scoring.score_checks import shown_score
from pytest_llmeval.types import JSON, Ask, ConversationRequest, GenerateResponse, Response, Score, Status, each_reply

__all__ = ["WrongTurn", "first_wrong_turn", "judging_turns", "score_of_turns"]

_Judged: TypeAlias = Generator[Ask, Sequence[Response | Failed], tuple[Score, str | None]]


def judging_turns(
    presented: PreparedSample,
    request: ConversationRequest,
    responses: Sequence[Response],
    judge: Callable[[int, PreparedSample, Sequence[Response]], _Judged],
    others: Collection[int],
) -> _Judged:
    """Judge the scored turns of a conversation, the last one among them, side by side.

    ``judge`` takes the place of a turn, what is presented of it, and its reply, and returns the score and what filters
    leave of the reply. The turns in ``others`` are not judged by the suite's scorer. Return the sample's score, and
    what filters leave of the last reply.
    """
    users, replies = request.users, [one for one in each_reply(responses) if isinstance(one, GenerateResponse)]
    count, num_missing = len(users), len(users) - len(replies)  # a file of replies may have the last one only
    turns = presented.turns or (*(None,) * (count - 1), presented)
    scored = {place: turn for place, turn in enumerate(turns) if turn is not None}
    if (first := next(iter(scored))) < num_missing:
        return Score(status="unscored", reason=f"turn {first + 1} of {count}: the reply to it is not known"), None
    texts = [] if num_missing else [reply.text for reply in replies]
    judged = yield from side_by_side(
        [
            judge(place, _after(turn, users[: place + 1], texts[:place]), [replies[place - num_missing]])
            for place, turn in scored.items()
        ]
    )
    if len(scored) == 1:
        return judged[0]
    scores = dict(zip(scored, (score for score, _ in judged), strict=True))
    own = [place for place in scored if place not in others]
    targets = {place: turn.target for place, turn in scored.items() if turn.target}
    return score_of_turns([scores.get(place) for place in range(count)], own, targets), judged[-1][1]


def _after(turn: PreparedSample, users: Sequence[str], replies: Sequence[str]) -> PreparedSample:
    """Return what is presented of a turn, with what was said before the reply to it, as a judge is shown it."""
    if len(users) == 1:
        return replace(turn, sample=replace(turn.sample, question=users[0]))
    both = zip_longest(users, replies)
    texts = [(f"User: {user}", None if reply is None else f"Assistant: {reply}") for user, reply in both]
    return replace(turn, conversation="\n\n".join(text for said in texts for text in said if text is not None))


def score_of_turns(
    scores: Sequence[Score | None],
    own: Collection[int],
    targets: Mapping[int, str | tuple[str, ...]] = MappingProxyType({}),
) -> Score:
    """Return the sample's score: None stands for a turn that is not scored, and the last one is.

    The sample is wrong if a turn is, else a number if one is, else right, and unscored if a turn is. Its numbers are
    the means over the turns in ``own``, which the suite's scorer judges; the accuracy of a right or wrong sample is 1
    or 0. The chance of guessing all turns is the product of their chances. The answer is the last turn's. ``targets``
    are what the report says was expected of turns.
    """
    judged = {place: score for place, score in enumerate(scores) if score is not None}
    for place, score in judged.items():
        if score.status == "unscored":
            return replace(score, reason=f"turn {place + 1} of {len(scores)}: {score.reason}")
    last = judged[len(scores) - 1]
    mean = mean_score([judged[place] for place in own])
    values, reasons = dict(mean.values), dict(mean.not_measurable)
    found = {score.status for score in judged.values()}
    status: Status = "wrong" if "wrong" in found else "scored" if "scored" in found else "correct"
    if status != "scored" and "accuracy" in values:
        values["accuracy"] = float(status == "correct")
    chances = [score.chance for score in judged.values() if score.chance is not None]
    chance = math.prod(chances) if len(chances) == len(judged) else None
    if "skill" in values and chance is not None:
        values["skill"] = skill(values["accuracy"], chance)
    elif values.pop("skill", None) is not None:
        reasons["skill"] = "the reply to one of its turns cannot be guessed"
    shown: list[JSON] = [
        None if score is None else _shown(score, targets.get(place), with_details=score is not last)
        for place, score in enumerate(scores)
    ]
    return replace(
        last,
        status=status,
        values=values,
        chance=chance,
        details={**last.details, "turns": shown},
        not_measurable=reasons,
    )


def _shown(score: Score, target: str | tuple[str, ...] | None, *, with_details: bool) -> dict[str, JSON]:
    shown = shown_score(score, with_values=True, with_details=with_details)
    return shown if target is None else {**shown, "target": target if isinstance(target, str) else list(target)}


@dataclass(frozen=True, slots=True)
class WrongTurn:
    """A wrong turn of a conversation: which of how many, what was expected, and what was found."""

    number: int
    count: int
    target: str | tuple[str, ...]
    answer: str | None
    no_answer: bool


def first_wrong_turn(details: Mapping[str, JSON]) -> WrongTurn | None:
    """Return the first wrong turn of a sample that was judged in several, of its score's or its record's details."""
    turns: Any = details.get("turns")
    for number, turn in enumerate(turns if isinstance(turns, list) else (), 1):
        if isinstance(turn, dict) and turn.get("status") == "wrong":
            target = turn.get("target", ())
            shown = target if isinstance(target, str) else tuple(target)
            return WrongTurn(number, len(turns), shown, turn.get("answer"), bool(turn.get("no_answer")))
    return None
