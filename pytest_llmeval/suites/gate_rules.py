"""Rules of gates as they are written: ``accuracy >= 0.6``, ``ci_low(category.geography.accuracy) > 0.5``."""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias, cast

from pytest_llmeval.suites.wording import quoted

__all__ = ["ANY_SUITE", "GateRule", "GateRuleError", "GivenGate"]

Bound: TypeAlias = Literal["value", "ci_low", "ci_high"]

ANY_SUITE = "*"
"""Stands for every suite that has the metric."""

_EXAMPLE = "expected a metric, >=, >, <= or <, and a number, such as 'accuracy >= 0.6' or 'ci_low(accuracy) > 0.55'"
_FORM = re.compile(r"(?P<left>.*?\S)\s*(?P<comparison>>=|<=|>|<)\s*(?P<number>[^<>=]*)", re.DOTALL)
_CALL = re.compile(r"(?P<bound>\w+)\s*\(\s*(?P<subject>.*\S)\s*\)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}
)


class GateRuleError(ValueError):
    """A rule that cannot be read. The message says what was found and what is expected."""


@dataclass(frozen=True, slots=True)
class GateRule:
    """``bound`` of ``subject`` (a metric, ``category.NAME.METRIC`` or ``macro.METRIC``) against ``threshold``.

    ``text`` is the rule with single spaces, whatever it was written with: what the gate is known by.
    """

    text: str
    subject: str
    comparison: str
    threshold: float
    bound: Bound = "value"

    @classmethod
    def parse(cls, text: str) -> GateRule:
        """Read a rule. Raises ``GateRuleError``."""
        found = _FORM.fullmatch(text.strip())
        if found is None or not text.isprintable():
            raise GateRuleError(f"found {quoted(text)}, {_EXAMPLE}")
        number = found["number"].strip()
        if _NUMBER.fullmatch(number) is None or not math.isfinite(float(number)):
            raise GateRuleError(f"found {quoted(text)}, in which {quoted(number)} is no number; {_EXAMPLE}")
        left, bound = " ".join(found["left"].split()), "value"
        if (call := _CALL.fullmatch(left)) is not None:
            left, bound = call["subject"], call["bound"]
            if bound not in ("ci_low", "ci_high"):
                near = difflib.get_close_matches(bound, ("ci_low", "ci_high"), 1)
                hint = f"did you mean {near[0]}?" if near else "expected ci_low or ci_high"
                raise GateRuleError(f"found {quoted(text)}: {quoted(bound)} is no bound of an interval; {hint}")
        shown = left if bound == "value" else f"{bound}({left})"
        return cls(
            f"{shown} {found['comparison']} {number}", left, found["comparison"], float(number), cast(Bound, bound)
        )

    def holds(self, value: float) -> bool:
        """Whether the value is on the right side; NaN is on none."""
        return _COMPARISONS[self.comparison](value, self.threshold)


@dataclass(frozen=True, slots=True)
class GivenGate:
    """A rule that is asked for from outside of a suite: ``suite`` is a name, or ``*`` for all that have the metric."""

    suite: str
    rule: GateRule

    @classmethod
    def parse(cls, text: str) -> GivenGate:
        """Read ``SUITE: RULE``; a rule alone is for every suite. Raises ``GateRuleError``."""
        suite, colon, rule = text.rpartition(": ")
        if not colon:
            suite, colon, rule = text.rpartition(":")
        if colon and not suite.strip():
            raise GateRuleError(f"found {quoted(text)}: the name of the suite is missing before the colon")
        return cls(suite.strip() or ANY_SUITE, GateRule.parse(rule))

    def matches(self, suite: str) -> bool:
        """Whether it is for the suite of this name."""
        return self.suite in (ANY_SUITE, suite)

    def __str__(self) -> str:
        return f"{self.suite}: {self.rule.text}"
