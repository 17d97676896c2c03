"""The time of calls shared among their samples, and what the models that scorers ask have used."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.base import (
    Failed,
    identify,
)
from pytest_llmeval.types import (
    LoglikelihoodResponse,
    Response,
    Role,
    who_served,
)

__all__ = ["JudgeUse", "TimeShares", "cost_of", "use_of"]


class TimeShares:
    """The shares of samples in the time of a call, which answers a sample's neighbours too.

    Keeps, in seconds, what was spent on calls since the last sample was settled, and each sample's share of it.
    """

    def __init__(self) -> None:
        self._spent_s = 0.0
        self._shares_s: dict[Hashable, float] = {}

    def share_out(self, spent_s: float, reported_s: Mapping[Hashable, float]) -> None:
        """Share a call that took ``spent_s`` among its samples, in proportion to the seconds that the model reported.

        If it reported none, the shares are equal. In either case they sum to ``spent_s``.
        """
        total_s = math.fsum(reported_s.values())
        for key, seconds in reported_s.items():
            fraction = seconds / total_s if total_s > 0 else 1 / len(reported_s)
            self._shares_s[key] = self._shares_s.get(key, 0.0) + spent_s * fraction
        self._spent_s += spent_s

    def settle(self, key: Hashable) -> float:
        """Return what to add to the time that a sample's test took so that only its own share of the model's time is in
        it.

        Negative for a sample that asked for others; over all samples of a call these sum to 0. To be called once after
        each test of a sample, whether it asked or found its response waiting.
        """
        difference = self._shares_s.pop(key, 0.0) - self._spent_s
        self._spent_s = 0.0
        return difference


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeUse:
    """Requests that were answered, the tokens that were read and written for them, and the models' time (s).

    ``asked_at`` says of each when it was asked (Unix, s), None of one that is in no store. ``served`` are who has
    answered, each once: the role, the model's name, and what its server says of the model and of what it runs on.
    ``cost`` is None if it is not known for one of the requests.
    """

    num_requests: int = 0
    num_tokens: int = 0
    seconds: float = 0.0
    asked_at: tuple[float | None, ...] = ()
    served: tuple[tuple[Role, str, str | None, str | None], ...] = ()
    cost: float | None = 0.0

    def __add__(self, other: JudgeUse) -> JudgeUse:
        return JudgeUse(
            num_requests=self.num_requests + other.num_requests,
            num_tokens=self.num_tokens + other.num_tokens,
            seconds=self.seconds + other.seconds,
            asked_at=self.asked_at + other.asked_at,
            served=tuple(dict.fromkeys(self.served + other.served)),
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
        )


def use_of(answers: Sequence[Response | Failed], role: Role, model: object) -> JudgeUse:
    """Return what one call to the model of a role has used."""
    responses = [answer for answer in answers if not isinstance(answer, RequestError)]
    read = sum(
        one.num_context_tokens if isinstance(one, LoglikelihoodResponse) else one.num_prompt_tokens for one in responses
    )
    return JudgeUse(
        num_requests=len(responses),
        num_tokens=read + sum(one.num_tokens for one in responses),
        seconds=math.fsum(one.seconds for one in responses),
        asked_at=tuple(one.asked_at for one in responses),
        served=tuple(
            dict.fromkeys(
                (role, identify(model).name, *who) for one in responses if (who := who_served(one)) != (None, None)
            )
        ),
        cost=cost_of(responses),
    )


def cost_of(responses: Sequence[Response]) -> float | None:
    """Return what the responses cost together; None if that is not known for one of them."""
    known = [one.cost for one in responses if one.cost is not None]
    return math.fsum(known) if len(known) == len(responses) else None
