"""Settings of the scorer of mathematical answers."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from pytest_llmeval.data.spec import FROM_LIST, refuse
from pytest_llmeval.suites.format.score_settings.scorer_settings import ScorerSettings

__all__ = ["Extract", "MathCompare", "MathSettings"]

MathCompare: TypeAlias = Literal["math_verify", "hendrycks", "minerva"]

Extract: TypeAlias = Literal["boxed", "answer", "math", "number", "dollars", "minerva", "whole", "math_verify"]


class MathSettings(ScorerSettings):
    """The final mathematical expression of the reply equals that of the target."""

    kind: Literal["math"] = "math"
    scorer = "mathematics.scorer:MathScorer"
    compare: MathCompare = Field(
        "math_verify",
        description="What equal means: math_verify compares values (1/2 and 0.5, sets in any order, intervals); "
        "hendrycks compares texts as lm-eval's hendrycks_math does, minerva texts and then differences as its "
        "minerva_math does.",
    )
    extract: Annotated[tuple[Extract, ...] | None, FROM_LIST] = Field(
        None,
        json_schema_extra={"minItems": 1},
        description="Where the reply's answer is looked for: the first of these that finds one. boxed: the last "
        "complete \\boxed{} or \\fbox{}. answer: after the last 'answer is', 'answer:' or '####'. math: the last "
        "expression between $ $, \\( \\) or \\[ \\]. number: the last number. dollars: between the first and the "
        "last $, else the whole reply. minerva: between 'Final Answer: The final answer is' and '. I hope it is "
        "correct.'. whole: the whole reply. math_verify: Math-Verify searches reply and target itself. By default "
        "boxed, answer, math, number for compare math_verify; dollars for hendrycks; minerva for minerva.",
    )
    rel_tol: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="How far two numbers may be apart, as a part of the larger one (0.01: 1%), also in sets, "
        "intervals, tuples and matrices; for compare math_verify. By default rational numbers are compared exactly "
        "(1/3 is not 0.33), and a decimal equals an irrational number if it is within a millionth of it.",
    )
    timeout_s: float = Field(
        5.0,
        gt=0,
        le=3600,
        description="Seconds of processor time that one comparison may take; a reply that needs more is wrong.",
    )
    memory_mb: int = Field(
        512,
        ge=64,
        description="MiB that one comparison may take beyond its libraries (on Linux; elsewhere its time alone is "
        "bounded); a reply that needs more is wrong.",
    )

    @property
    def unsaid(self) -> tuple[str, ...]:
        """The key, in suites that do without it."""
        return ("rel_tol",) if self.rel_tol is None else ()

    @model_validator(mode="after")
    def _a_tolerance_is_for_values(self) -> MathSettings:
        if self.rel_tol is not None and (self.compare != "math_verify" or self.extract == ("math_verify",)):
            raise refuse(
                "score.math.rel_tol: found a tolerance with a published comparison, which has its own rule; remove it, "
                "or use compare: math_verify"
            )
        return self

    @model_validator(mode="after")
    def _extraction_and_comparison_agree(self) -> MathSettings:
        if self.extract is None:
            return self
        if not self.extract:
            raise refuse("score.math.extract: found an empty list, expected one name or more, such as [boxed, answer]")
        if "math_verify" in self.extract and (len(self.extract) > 1 or self.compare != "math_verify"):
            raise refuse(
                "score.math.extract: math_verify searches both reply and target: use it alone, with compare: "
                "math_verify"
            )
        return self
