"""The part of the suite format that says what fails a run: gates, and the metric that is compared with a baseline."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from pytest_llmeval.data.spec import FROM_LIST, Spec, expected_here, refuse_here, whole
from pytest_llmeval.suites.format.gate_rules import RULE_PATTERN, GateRule, GateRuleError
from pytest_llmeval.text.wording import describe, quoted

__all__ = ["Gates", "PrimaryMetricSpec"]


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
