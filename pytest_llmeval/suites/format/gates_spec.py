"""The part of the suite format that says what fails a run: gates, and the metric that is compared with a baseline."""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeAlias, cast, get_args

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from pytest_llmeval.data.spec import FROM_LIST, Spec, expected_here, refuse_here, whole
from pytest_llmeval.text.wording import describe, nearest, quoted

__all__ = [
    "ANY_SUITE",
    "RULE_PATTERN",
    "Bound",
    "GateRule",
    "GateRuleError",
    "Gates",
    "GivenGate",
    "PrimaryMetricSpec",
    "Statistic",
]


Statistic: TypeAlias = Literal["sum", "p50", "p95", "p99"]
"""The sum or a percentile over samples, of what each of them used (money, time, tokens)."""

Bound: TypeAlias = Literal["value", "ci_low", "ci_high"] | Statistic
"""The number of a metric that a rule is about: its value, a bound of its interval, or a ``Statistic``."""

ANY_SUITE = "*"
"""The name that stands for every suite that has the metric."""

_NUMBER_PATTERN = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
RULE_PATTERN = rf"[\s\S]*[^\s<>=]\s*(?:>=|<=|>|<)\s*{_NUMBER_PATTERN}\s*"
"""A rule, as a regular expression that JSON Schema knows too."""

_EXAMPLE = "expected a metric, >=, >, <= or <, and a number, such as 'accuracy >= 0.6' or 'ci_low(accuracy) > 0.55'"
_FORM = re.compile(r"(?P<left>.*[^\s<>=]) ?(?P<comparison>>=|<=|>|<) ?(?P<number>[^<>=]*)")
_CALL = re.compile(r"(?P<bound>\w+) ?\( ?(?P<subject>.*\S) ?\)")
_NUMBER = re.compile(_NUMBER_PATTERN)
_BOUNDS = ("ci_low", "ci_high", *get_args(Statistic))
_COMPARISONS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}
_OF_CATEGORY = re.compile(r"(?:(?P<suite>.*?) ?: ?)??(?P<rule>(?:\w+ ?\( ?)?category\..*)")


class GateRuleError(ValueError):
    """A rule that cannot be read. The message says what was found and what is expected."""


@dataclass(frozen=True, slots=True)
class GateRule:
    """A rule that holds ``bound`` of ``subject`` (a metric, ``category.NAME.METRIC``, ``macro.METRIC``) to
    ``threshold``.

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
        plain = " ".join(text.split())
        found = _FORM.fullmatch(plain)
        if found is None or not plain.isprintable():
            raise GateRuleError(f"found {quoted(text)}, {_EXAMPLE}")
        number = found["number"]
        if _NUMBER.fullmatch(number) is None or not math.isfinite(float(number)):
            share = number.removesuffix("%").rstrip()
            is_percentage = share != number and _NUMBER.fullmatch(share) and math.isfinite(float(share))
            hint = f"did you mean {float(share) / 100:g}?" if is_percentage else _EXAMPLE
            raise GateRuleError(f"found {quoted(text)}, in which {quoted(number)} is not a finite number; {hint}")
        left, bound = found["left"], "value"
        if (call := _CALL.fullmatch(left)) is not None:
            left, bound = call["subject"], call["bound"]
            if bound not in _BOUNDS:
                near = nearest(bound, _BOUNDS)
                hint = f"did you mean {near}?" if near else f"expected {', '.join(_BOUNDS[:-1])} or {_BOUNDS[-1]}"
                raise GateRuleError(f"found {quoted(text)}: {quoted(bound)} is not a known statistic; {hint}")
        shown = left if bound == "value" else f"{bound}({left})"
        return cls(
            f"{shown} {found['comparison']} {number}", left, found["comparison"], float(number), cast(Bound, bound)
        )

    @property
    def written_threshold(self) -> str:
        """Return the threshold as the rule writes it: ``0.60``."""
        return self.text.rpartition(" ")[2]

    def holds(self, value: float) -> bool:
        """Tell whether the value is on the right side; NaN is on none."""
        return bool(_COMPARISONS[self.comparison](value, self.threshold))

    def says_the_same(self, other: GateRule) -> bool:
        """Tell whether the two differ in nothing but how the number is written."""
        return replace(self, text=other.text) == other


@dataclass(frozen=True, slots=True)
class GivenGate:
    """A rule that is asked for from outside of a suite: ``suite`` is a name, or ``*`` for all that have the metric.

    ``text`` is what the user wrote, where it was read from a text.
    """

    suite: str
    rule: GateRule
    text: str = field(default="", compare=False)

    @classmethod
    def parse(cls, text: str) -> GivenGate:
        """Read ``SUITE: RULE``; a rule alone is for every suite. Raises ``GateRuleError``.

        A colon belongs to the name of a category where it stands behind ``category.``. Of any others, the last one
        that a space follows ends the suite's name, else the last one.
        """
        plain = " ".join(text.split())
        if (found := _OF_CATEGORY.fullmatch(plain)) is not None:
            suite, rule, is_named = found["suite"] or "", found["rule"], found["suite"] is not None
        else:
            suite, colon, rule = plain.rpartition(": ")
            if not colon:
                suite, colon, rule = plain.rpartition(":")
            is_named = bool(colon)
        if is_named and not suite.strip():
            raise GateRuleError(f"found {quoted(text)}: the name of the suite is missing before the colon")
        return cls(suite.strip() or ANY_SUITE, GateRule.parse(rule), text)

    @property
    def is_for_all(self) -> bool:
        """Tell whether it is for all suites that have the metric."""
        return self.suite == ANY_SUITE

    def matches(self, suite: str, base: str = "") -> bool:
        """Tell whether it is for the suite of this name, which may be a variant of the suite ``base``."""
        return self.is_for_all or self.suite in (" ".join(suite.split()), " ".join(base.split()))

    def __str__(self) -> str:
        """Return the text that is read as this rule again: the rule alone if it is for every suite, unless that is
        ambiguous.
        """
        named = f"{self.suite}: {self.rule.text}"
        if self.suite != ANY_SUITE:
            return named
        return self.rule.text if GivenGate.parse(self.rule.text) == self else named


def _rule(value: object) -> object:
    if isinstance(value, GateRule):
        return value
    if not isinstance(value, str):
        raise expected_here("a rule such as accuracy >= 0.6; put one that holds ': ' in quotes")
    try:
        return GateRule.parse(value)
    except GateRuleError as error:
        raise refuse_here(str(error)) from None


def _distinct(rules: tuple[GateRule, ...]) -> tuple[GateRule, ...]:
    for place, rule in enumerate(rules):
        if any(rule.says_the_same(other) for other in rules[:place]):
            raise refuse_here(f"found the rule {quoted(rule.text)} twice, expected each rule once", place)
    return rules


Gates: TypeAlias = Annotated[
    tuple[
        Annotated[Any, BeforeValidator(_rule), WithJsonSchema({"type": "string", "pattern": whole(RULE_PATTERN)})],
        ...,
    ],
    FROM_LIST,
    AfterValidator(_distinct),
    Field(json_schema_extra={"uniqueItems": True}),
]
"""The rules of a suite, each a ``GateRule``."""


class PrimaryMetricSpec(Spec):
    """The metric by which a suite is compared with a baseline, and which direction of it is better."""

    name: str = Field(min_length=1, description="The metric's name.")
    better: Literal["higher", "lower"] | None = Field(
        None, description="Which direction is better; by default that of the metric, if known."
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        if isinstance(value, dict | PrimaryMetricSpec):
            return value
        if not isinstance(value, str) or not value:
            found = "an empty text" if value == "" else describe(value)
            raise refuse_here(f"found {found}, expected the name of a metric, or a mapping with name and better")
        return {"name": value}
