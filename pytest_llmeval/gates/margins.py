"""The drop of a metric that is allowed: ``accuracy=0.01``, ``boolq: accuracy=0.01``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.suites.format.gate_rules import ANY_SUITE, GateRuleError
from pytest_llmeval.text.wording import quoted

__all__ = ["Margin"]

_EXAMPLE = "expected a metric, =, and a number of at least 0, such as 'accuracy=0.01' or 'boolq: accuracy=0.01'"


@dataclass(frozen=True, slots=True)
class Margin:
    """``value`` is the drop of ``metric`` that is allowed, in its unit, in ``suite`` (``*``: in all that have it).

    ``text`` is what the user wrote, where it was read from a text.
    """

    suite: str
    metric: str
    value: float
    text: str = field(default="", compare=False)

    @classmethod
    def parse(cls, text: str) -> Margin:
        """Read ``SUITE: METRIC=VALUE``; a suite's name may hold colons. Raises ``GateRuleError``."""
        left, equals, number = text.rpartition("=")
        suite, colon, metric = left.rpartition(":")
        suite, metric, number = suite.strip(), metric.strip(), number.strip()
        if not equals or not metric or not number or not text.isprintable() or (colon and not suite):
            raise GateRuleError(f"found {quoted(text)}, {_EXAMPLE}")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0:
            raise GateRuleError(f"found {quoted(text)}, in which {quoted(number)} is not a valid drop; {_EXAMPLE}")
        known = definition(metric)
        widest = known.highest - known.lowest
        if value >= widest:
            hint = f"; did you mean {value / 100:g}?" if value / 100 < widest else ""
            raise GateRuleError(
                f"found {quoted(text)}, which allows every drop: {metric} lies between {known.lowest:g} and "
                f"{known.highest:g}{hint}"
            )
        return cls(suite or ANY_SUITE, metric, value, text)

    def matches(self, suite: str) -> bool:
        return self.suite in (ANY_SUITE, suite)

    def __str__(self) -> str:
        prefix = "" if self.suite == ANY_SUITE else f"{self.suite}: "
        return f"{prefix}{self.metric}={self.value:g}"
