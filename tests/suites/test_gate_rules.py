"""Rules of gates: what is read, what is refused, and that what is read reads the same again."""

from __future__ import annotations

import math
import operator
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.suites.format.gates_spec import RULE_PATTERN, GateRule, GateRuleError, GivenGate

subjects = st.text(st.characters(exclude_characters="<>=()", exclude_categories=["C", "Z"]) | st.just(" "), min_size=1)
numbers = st.floats(allow_nan=False, allow_infinity=False)
spaces = st.text(" \t", max_size=2)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("accuracy >= 0.6", GateRule("accuracy >= 0.6", "accuracy", ">=", 0.6)),
        ("  accuracy>=0.60 ", GateRule("accuracy >= 0.60", "accuracy", ">=", 0.6)),
        ("brier\t<  .2", GateRule("brier < .2", "brier", "<", 0.2)),
        ("brier <= 2e-1\n", GateRule("brier <= 2e-1", "brier", "<=", 0.2)),
        ("mcc > -0.5", GateRule("mcc > -0.5", "mcc", ">", -0.5)),
        ("pass@4 >= 1.", GateRule("pass@4 >= 1.", "pass@4", ">=", 1.0)),
        ("ci_low( accuracy )>0.55", GateRule("ci_low(accuracy) > 0.55", "accuracy", ">", 0.55, "ci_low")),
        (
            "ci_high (category.Law (UK).brier) < 1",
            GateRule("ci_high(category.Law (UK).brier) < 1", "category.Law (UK).brier", "<", 1.0, "ci_high"),
        ),
        ("category.a >= b.f1 > 0", GateRule("category.a >= b.f1 > 0", "category.a >= b.f1", ">", 0.0)),
        ("category.two  words.f1 > 0", GateRule("category.two words.f1 > 0", "category.two words.f1", ">", 0.0)),
        ("macro.accuracy >= 0.5", GateRule("macro.accuracy >= 0.5", "macro.accuracy", ">=", 0.5)),
    ],
)
def test_what_is_read(text: str, rule: GateRule) -> None:
    assert GateRule.parse(text) == rule


EXAMPLE = "expected a metric, >=, >, <= or <, and a number, such as 'accuracy >= 0.6' or 'ci_low(accuracy) > 0.55'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"found '', {EXAMPLE}"),
        ("accuracy", f"found 'accuracy', {EXAMPLE}"),
        (">= 0.6", f"found '>= 0.6', {EXAMPLE}"),
        ("accuracy = 0.6", f"found 'accuracy = 0.6', {EXAMPLE}"),
        ("accuracy == 0.6", f"found 'accuracy == 0.6', {EXAMPLE}"),
        ("accuracy => 0.6", f"found 'accuracy => 0.6', {EXAMPLE}"),
        ("accuracy =< 0.6", f"found 'accuracy =< 0.6', {EXAMPLE}"),
        ("accuracy > = 0.6", f"found 'accuracy > = 0.6', {EXAMPLE}"),
        ("accuracy <> 0.6", f"found 'accuracy <> 0.6', {EXAMPLE}"),
        ("a\x07b >= 0.6", f"found 'a\\x07b >= 0.6', {EXAMPLE}"),
        ("accuracy >= ", f"found 'accuracy >= ', in which '' is not a finite number; {EXAMPLE}"),
        (
            "accuracy >= 60%",
            "found 'accuracy >= 60%', in which '60%' is not a finite number; did you mean 0.6?",
        ),
        ("accuracy >= x%", f"found 'accuracy >= x%', in which 'x%' is not a finite number; {EXAMPLE}"),
        ("accuracy >= nan", f"found 'accuracy >= nan', in which 'nan' is not a finite number; {EXAMPLE}"),
        ("accuracy >= 1e999", f"found 'accuracy >= 1e999', in which '1e999' is not a finite number; {EXAMPLE}"),
        ("accuracy >= 0,6", f"found 'accuracy >= 0,6', in which '0,6' is not a finite number; {EXAMPLE}"),
        ("accuracy >= ٠", f"found 'accuracy >= ٠', in which '٠' is not a finite number; {EXAMPLE}"),
        ("0.6 <= accuracy", f"found '0.6 <= accuracy', in which 'accuracy' is not a finite number; {EXAMPLE}"),
        (
            "ci_lo(accuracy) > 0.5",
            "found 'ci_lo(accuracy) > 0.5': 'ci_lo' is not a known statistic; did you mean ci_low?",
        ),
        (
            "mean(accuracy) > 0.5",
            "found 'mean(accuracy) > 0.5': 'mean' is not a known statistic; expected ci_low, "
            "ci_high, sum, p50, p95 or p99",
        ),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(GateRuleError) as caught:
        GateRule.parse(text)
    assert str(caught.value) == message


@given(subjects, st.sampled_from([">=", ">", "<=", "<"]), numbers, st.sampled_from(["", "ci_low", "ci_high"]), spaces)
def test_a_rule_reads_the_same_again(subject: str, comparison: str, number: float, bound: str, space: str) -> None:
    plain = " ".join(subject.split())
    if not plain:
        return
    left = f"{bound}({space}{subject}{space})" if bound else subject
    text = f"{left}{space}{comparison}{space}{number!r}"
    rule = GateRule.parse(text)
    assert (rule.subject, rule.comparison, rule.threshold, rule.bound) == (plain, comparison, number, bound or "value")
    assert GateRule.parse(rule.text) == rule
    assert float(rule.written_threshold) == number
    assert re.fullmatch(RULE_PATTERN, text)


@given(st.text(" acur.y()<>=0123456789e+-%", max_size=30))
def test_the_pattern_of_the_schema_takes_what_is_read(text: str) -> None:
    try:
        GateRule.parse(text)
        problem = ""
    except GateRuleError as error:
        problem = str(error)
    # Which functions there are, and which numbers a float holds, is more than a pattern can say.
    if not problem.endswith(("expected ci_low or ci_high", "did you mean ci_low?")) and "finite" not in problem:
        assert bool(re.fullmatch(RULE_PATTERN, text)) is not bool(problem)


@given(
    st.sampled_from([(">=", operator.ge), (">", operator.gt), ("<=", operator.le), ("<", operator.lt)]),
    numbers,
    numbers,
)
def test_whether_it_holds(comparison: tuple[str, object], threshold: float, value: float) -> None:
    sign, compare = comparison
    rule = GateRule.parse(f"f1 {sign} {threshold!r}")
    assert callable(compare)
    assert rule.holds(value) is compare(value, threshold)
    assert rule.holds(threshold) is ("=" in sign)
    assert not rule.holds(math.nan)


def test_rules_that_say_the_same() -> None:
    rule = GateRule.parse("accuracy >= 0.6")
    assert rule.says_the_same(GateRule.parse("accuracy>=.60"))
    for other in ("accuracy > 0.6", "accuracy >= 0.61", "skill >= 0.6", "ci_low(accuracy) >= 0.6"):
        assert not rule.says_the_same(GateRule.parse(other))


@pytest.mark.parametrize(
    ("text", "suite", "rule"),
    [
        ("boolq: accuracy >= 0.6", "boolq", "accuracy >= 0.6"),
        ("boolq:accuracy >= 0.6", "boolq", "accuracy >= 0.6"),
        (" my suite : accuracy >= 0.6", "my suite", "accuracy >= 0.6"),
        ("accuracy >= 0.6", "*", "accuracy >= 0.6"),
        ("*: ci_low(accuracy) > 0.5", "*", "ci_low(accuracy) > 0.5"),
        ("a: b: accuracy >= 0.6", "a: b", "accuracy >= 0.6"),
        ("a:b: accuracy >= 0.6", "a:b", "accuracy >= 0.6"),
        ("s: time:ms >= 0.6", "s", "time:ms >= 0.6"),
        ("category.law: civil.f1 >= 0.6", "*", "category.law: civil.f1 >= 0.6"),
        ("a: b: category.law: civil.f1 >= 0.6", "a: b", "category.law: civil.f1 >= 0.6"),
        ("s:ci_low(category.a:b.f1) > 0", "s", "ci_low(category.a:b.f1) > 0"),
        ("lm_eval:arc: accuracy > 0", "lm_eval:arc", "accuracy > 0"),
    ],
)
def test_gates_from_outside(text: str, suite: str, rule: str) -> None:
    gate = GivenGate.parse(text)
    assert (gate.suite, gate.rule.text) == (suite, rule)
    assert GivenGate.parse(str(gate)) == gate


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("accuracy>0.9", "accuracy > 0.9"),
        ("*: accuracy > 0.9", "accuracy > 0.9"),
        ("boolq:accuracy > 0.9", "boolq: accuracy > 0.9"),
        ("category.law: civil.f1 >= 0.6", "category.law: civil.f1 >= 0.6"),
        ("*: time:ms >= 0.6", "*: time:ms >= 0.6"),
    ],
)
def test_a_gate_for_every_suite_is_shown_without_a_star_that_nobody_wrote(text: str, shown: str) -> None:
    gate = GivenGate.parse(text)
    assert str(gate) == shown
    assert GivenGate.parse(shown) == gate


def test_a_gate_without_the_name_before_its_colon() -> None:
    with pytest.raises(GateRuleError) as caught:
        GivenGate.parse(": accuracy >= 0.6")
    assert str(caught.value) == "found ': accuracy >= 0.6': the name of the suite is missing before the colon"


def test_which_suites_a_gate_is_for() -> None:
    assert GivenGate.parse("accuracy > 0").matches("any")
    assert GivenGate.parse("boolq: accuracy > 0").matches("boolq")
    assert not GivenGate.parse("boolq: accuracy > 0").matches("boolq_2")
    assert GivenGate.parse("a  b: accuracy > 0").matches("a  b")
