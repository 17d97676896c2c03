"""The base class of scorers around another scorer, to which they pass on everything that they do not override."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from pytest_llmeval.scoring.base import Scorer
from pytest_llmeval.types import JSON

__all__ = ["ScorerWrapper"]


def _passed_on(name: str) -> Any:
    """What the inner scorer has under this name: a value, or a method to call."""
    return property(attrgetter(f"inner.{name}"))


@dataclass(frozen=True, slots=True)
class ScorerWrapper(Scorer):
    """Base of the scorers that add something to any other one."""

    inner: Scorer

    name = _passed_on("name")
    version = _passed_on("version")
    metrics = _passed_on("metrics")
    better = _passed_on("better")
    default_template = _passed_on("default_template")
    present = _passed_on("present")
    variables = _passed_on("variables")
    answer_text = _passed_on("answer_text")
    requests = _passed_on("requests")
    score = _passed_on("score")
    suite_problem = _passed_on("suite_problem")
    warnings = _passed_on("warnings")
    extra_template = _passed_on("extra_template")
    tells_right_from_wrong = _passed_on("tells_right_from_wrong")
    options = _passed_on("options")
    judges = _passed_on("judges")

    @property
    def layer_version(self) -> int:
        """Raised whenever this layer could make another score of the same responses; part of a suite's fingerprint."""
        return 1

    def versions(self) -> list[JSON]:
        """This layer's name and version, and what the inner scorer has."""
        return [type(self).__name__, self.layer_version, *self.inner.versions()]
