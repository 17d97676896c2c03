"""The process that compares mathematics, with bounds: what ends it costs one comparison."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from pytest_llmeval.scoring.mathematics import worker as math_worker
from pytest_llmeval.scoring.processes.bounded_process import BoundedProcess, Bounds, ProcessError

__all__ = ["Comparison", "MathProcess", "Verdict", "shared_process"]

Comparison = Literal["math_verify", "searched", "minerva"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether two expressions are equal, and what each was read as (None: as text only).

    ``note`` says what a library could not do with them. ``problem`` says why they were not compared at all: for want of
    time or memory, or because the process ended or did not start. ``equal`` is then False.
    """

    equal: bool
    target: str | None = None
    reply: str | None = None
    note: str | None = None
    problem: str | None = None


class MathProcess(BoundedProcess):
    """Compares one pair at a time; a second thread waits."""

    def __init__(self) -> None:
        super().__init__(lambda: str(math_worker.__file__), "compares mathematics")

    def compare(self, comparison: Comparison, target: str, reply: str, bounds: Bounds) -> Verdict:
        """Compare a target and a reply. Never raises for what they hold: ``problem`` says what went wrong."""
        try:
            return Verdict(**self.compute(comparison, {"target": target, "reply": reply}, bounds))
        except ProcessError as error:
            return Verdict(False, problem=str(error))


@cache
def shared_process() -> MathProcess:
    """The one of this process, whatever the number of suites and scorers.

    The only thing kept for all: a scorer is a frozen value, and a process of its own for each would cost every suite a
    second and a hundred megabytes. It holds no result; a comparison is the same in any process.
    """
    return MathProcess()
