"""Gates against thresholds on hand-made reports: what passes, and that whatever is not known to hold does not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.gates import thresholds
from pytest_llmeval.gates.options import GateOptions, Given, Selection
from pytest_llmeval.gates.thresholds import number_beside
from pytest_llmeval.reporting.report.records import SuiteInfo
from pytest_llmeval.reporting.report.report import GateResult, Report, SuiteReport, Summary
from pytest_llmeval.scoring.metrics.summary import Metric
from pytest_llmeval.suites.format.gates_spec import GateRule, GivenGate

ACCURACY = Metric(value=0.65, n=200, kind="proportion", stderr=0.034, ci_low=0.581, ci_high=0.713)
BRIER = Metric(value=0.2, n=200, kind="mean", stderr=0.01, ci_low=0.18, ci_high=0.22)
COUNT = Metric(value=130.0, n=200, kind="count")
METRICS = {"accuracy": ACCURACY, "brier": BRIER, "correct": COUNT}


def decide_thresholds(
    found: Report,
    given: Given,
    *,
    allow_unscored: int = 0,
    require: bool = False,
    is_selection: bool = False,
    **selection: Any,
) -> tuple[GateResult, ...]:
    """``selection`` is ``Selection``'s."""
    options = GateOptions(given=tuple(given), allow_unscored=allow_unscored, require=require)
    return thresholds.decide_thresholds(found, options, Selection(is_partial=is_selection, **selection))


def summary(
    metrics: Mapping[str, Metric] = METRICS, *, expected: int = 200, scored: int = 200, unscored: int = 0
) -> Summary:
    return Summary(num_expected=expected, num_scored=scored, num_unscored=unscored, num_no_answer=0, metrics=metrics)


def suite(*gates: str, name: str = "boolq", num_samples: int | None = 200, **values: Any) -> SuiteReport:
    metrics = values.get("summary", summary()).metrics
    info = SuiteInfo(
        name=name,
        path=f"{name}.yaml",
        num_samples=num_samples,
        metrics=tuple(metrics),
        gates={text: 9 + place for place, text in enumerate(gates)},
    )
    return SuiteReport(**{"info": info, "summary": summary(), "categories": {}, "models": ("gpt2",), **values})


def report(*suites: SuiteReport, stopped: str | None = None) -> Report:
    return Report(
        created="",
        seconds=0.0,
        environment={},
        models=(),
        options={},
        exit_code=0,
        suites=suites,
        records=(),
        stopped=stopped,
    )


def asked(*texts: str, origin: Literal["ini", "option"] = "option") -> list[tuple[GivenGate, Literal["ini", "option"]]]:
    return [(GivenGate.parse(text), origin) for text in texts]


def only(results: tuple[GateResult, ...]) -> GateResult:
    (result,) = results
    return result


@pytest.mark.parametrize(
    ("rule", "outcome", "reason"),
    [
        ("accuracy >= 0.6", "passed", "accuracy 0.650 [0.581, 0.713], n 200"),
        ("accuracy >= 0.65", "passed", "accuracy 0.650 [0.581, 0.713], n 200"),
        ("accuracy > 0.65", "failed", "accuracy 0.650 [0.581, 0.713], n 200: not above 0.65"),
        ("accuracy >= 0.70", "failed", "accuracy 0.650 [0.581, 0.713], n 200: below 0.70"),
        ("brier <= 0.2", "passed", "brier 0.200 [0.180, 0.220], n 200"),
        ("brier < 0.2", "failed", "brier 0.200 [0.180, 0.220], n 200: not below 0.2"),
        ("brier <= 0.1", "failed", "brier 0.200 [0.180, 0.220], n 200: above 0.1"),
        ("ci_low(accuracy) >= 0.55", "passed", "accuracy 0.650 [0.581, 0.713], n 200"),
        ("ci_low(accuracy) >= 0.6", "failed", "accuracy 0.650 [0.581, 0.713], n 200: ci_low is below 0.6"),
        ("ci_high(brier) < 0.21", "failed", "brier 0.200 [0.180, 0.220], n 200: ci_high is not below 0.21"),
        ("correct >= 130", "passed", "correct 130.000, n 200"),
        ("correct >= 131", "failed", "correct 130.000, n 200: below 131"),
    ],
)
@pytest.mark.parametrize("origin", ["suite", "ini", "option"])
def test_what_is_found(rule: str, outcome: str, reason: str, origin: Any) -> None:
    own = (rule,) if origin == "suite" else ()
    given_gates = asked(f"boolq: {rule}", origin=origin) if origin != "suite" else []
    result = only(decide_thresholds(report(suite(*own)), given_gates))
    parsed = GateRule.parse(rule)
    assert result == GateResult(
        name=rule,
        kind="threshold",
        origin=origin,
        outcome=outcome,  # type: ignore[arg-type]
        reason=reason,
        suite="boolq",
        model="gpt2",
        path="boolq.yaml",
        line=9 if origin == "suite" else None,
        metric=parsed.subject,
        value=getattr(METRICS[parsed.subject], parsed.bound),
        threshold=parsed.threshold,
    )


@pytest.mark.parametrize(
    ("value", "rule", "text"),
    [
        (0.5999, "accuracy >= 0.6", "0.5999"),
        (0.59999999, "accuracy >= 0.6", "0.59999999"),
        (0.6 - 2**-53, "accuracy >= 0.6", "0.5999999999999999"),
        (0.6004, "accuracy >= 0.6004", "0.6004"),
        (0.20004, "brier <= 0.2", "0.20004"),
        (0.2, "brier < 0.2", "0.200"),
        (1234.4, "ter <= 1234", "1234.4000"),
        (1234.0, "ter <= 1234", "1,234"),
        (0.00001, "brier > 0", "0.00001"),
        (1e-30, "brier > 0", "1e-30"),
    ],
)
def test_no_number_is_rounded_to_the_other_side(value: float, rule: str, text: str) -> None:
    assert number_beside(value, GateRule.parse(rule)) == text


@given(
    st.floats(-1e9, 1e9), st.floats(-1e9, 1e9) | st.just(0.6), st.sampled_from([">=", ">", "<=", "<"]), st.booleans()
)
def test_what_is_shown_is_on_the_side_of_what_was_found(value: float, threshold: float, sign: str, near: bool) -> None:
    value = math.nextafter(threshold, value) if near else value
    rule = GateRule.parse(f"f1 {sign} {threshold!r}")
    assert rule.holds(float(number_beside(value, rule).replace(",", ""))) is rule.holds(value)


def test_categories_and_their_mean() -> None:
    half = Metric(value=0.5, n=40, kind="proportion", ci_low=0.35, ci_high=0.65)
    macro = Metric(value=0.575, n=2, kind="mean")
    parts = {"a.b\x1b": summary({"accuracy": half}, expected=40, scored=40), "c": summary()}
    found = suite(categories=parts, macro={"accuracy": macro})
    results = decide_thresholds(
        report(found),
        asked(
            "boolq: category.c.accuracy >= 0.6",
            "boolq: macro.accuracy >= 0.6",
            "boolq: ci_low(macro.accuracy) >= 0.5",
            "boolq: category.d.accuracy > 0",
            "boolq: macro.brier <= 1",
        ),
    )
    assert [(one.outcome, one.category, one.metric, one.value, one.reason) for one in results] == [
        ("passed", "c", "accuracy", 0.65, "category.c.accuracy 0.650 [0.581, 0.713], n 200"),
        ("failed", None, "accuracy", 0.575, "macro.accuracy 0.575, n 2: below 0.6"),
        ("failed", None, None, None, "macro.accuracy has no interval, n 2"),
        ("failed", None, None, None, "there is no category 'd'; expected one of a.b\x1b, c"),
        ("failed", None, None, None, "macro.brier was not measured in each category"),
    ]
    rule = GateRule("category.a.b\x1b.accuracy > 0", "category.a.b\x1b.accuracy", ">", 0.0)
    escaped = only(decide_thresholds(report(found), [(GivenGate("boolq", rule), "option")]))
    assert escaped.reason == "category.a.b\\x1b.accuracy 0.500 [0.350, 0.650], n 40"


NONE = Metric(value=None, n=0, kind="mean")
FAILS_CLOSED = {
    "nothing ran": (
        suite("accuracy < 2", num_samples=None, summary=summary({}, expected=0, scored=0)),
        "nothing ran",
    ),
    "all are skipped": (
        suite("accuracy < 2", summary=summary({"accuracy": NONE}, expected=0, scored=0), num_skipped=200),
        "nothing ran: 200 samples skipped",
    ),
    "unscored": (
        suite("accuracy < 2", summary=summary(scored=198, unscored=2)),
        "2 of 200 samples unscored",
    ),
    "missing": (suite("accuracy < 2", summary=summary(scored=199)), "1 of 200 samples without a result"),
    "missing beside unscored": (
        suite("accuracy < 2", summary=summary(scored=197, unscored=2)),
        "1 of 200 samples without a result",
    ),
    "no value": (suite("accuracy < 2", summary=summary({"accuracy": NONE})), "accuracy has no value, n 0"),
    "a count of nothing": (
        suite("no_answer <= 0", summary=summary({"no_answer": Metric(value=0.0, n=0, kind="count")})),
        "no_answer has no value, n 0",
    ),
    "NaN": (
        suite("accuracy < 2", summary=summary({"accuracy": replace(ACCURACY, value=math.nan)})),
        "accuracy has no value, n 200",
    ),
    "no interval": (
        suite("ci_low(accuracy) < 2", summary=summary({"accuracy": replace(ACCURACY, ci_low=None)})),
        "accuracy has no interval, n 200",
    ),
    "NaN as a bound": (
        suite("ci_high(accuracy) < 2", summary=summary({"accuracy": replace(ACCURACY, ci_high=math.nan)})),
        "accuracy has no interval, n 200",
    ),
    "a bound of a count": (
        suite("ci_low(correct) < 2000"),
        "correct is a count of samples, which has no interval; leave out ci_low",
    ),
    "no such metric": (
        suite("acuracy < 2"),
        "there is no metric 'acuracy'; did you mean 'accuracy'? Expected one of accuracy, brier, correct, cost, "
        "seconds, num_tokens, num_prompt_tokens",
    ),
    "no metrics": (suite("accuracy < 2", summary=summary({})), "accuracy was not measured"),
    "a category that did not run": (
        suite("category.x.accuracy < 2", categories={"y": summary()}),
        "there is no category 'x'; expected y",
    ),
    "unscored in the category": (
        suite(
            "category.y.accuracy < 2",
            summary=summary(scored=199, unscored=1),
            categories={"y": summary(expected=10, scored=9, unscored=1)},
        ),
        "1 of 10 samples unscored",
    ),
    "an unscored sample that may be of the category": (
        suite(
            "category.y.accuracy < 2",
            summary=summary(scored=199, unscored=1),
            categories={"y": summary(expected=100, scored=100), "x": summary(expected=99, scored=99)},
        ),
        "1 unscored sample without a known category, which may belong to this one",
    ),
    "an unscored sample under a mean over categories": (
        suite(
            "macro.accuracy < 2",
            summary=summary(scored=199, unscored=1),
            categories={"y": summary(expected=100, scored=100), "x": summary(expected=99, scored=99)},
            macro={"accuracy": ACCURACY},
        ),
        "1 of 200 samples unscored",
    ),
    "no rule": (suite("accuracy"), "'accuracy' is not a valid rule"),
}


@pytest.mark.parametrize(("found", "reason"), FAILS_CLOSED.values(), ids=FAILS_CLOSED.keys())
def test_what_is_not_known_to_hold_fails(found: SuiteReport, reason: str) -> None:
    result = only(decide_thresholds(report(found), []))
    assert (result.outcome, result.reason, result.value) == ("failed", reason, None)


def test_a_session_that_stopped_early() -> None:
    found = suite("accuracy < 2", summary=summary(expected=200, scored=40))
    result = only(decide_thresholds(report(found, stopped="stopping after 1 failures"), []))
    assert result.outcome == "failed"
    assert result.reason == "the session stopped early, after 40 of 200 samples: stopping after 1 failures"


def test_a_session_that_stopped_after_all_samples_of_a_suite() -> None:
    whole, cut = suite("accuracy < 2"), suite("accuracy < 2", name="cut", summary=summary(scored=0))
    results = decide_thresholds(report(whole, cut, stopped="stopping after 1 failures"), [])
    assert [(one.suite, one.outcome) for one in results] == [("boolq", "passed"), ("cut", "failed")]
    assert results[1].reason == "the session stopped early, after 0 of 200 samples: stopping after 1 failures"


def test_nobody_knows_how_many_samples_a_session_that_stopped_would_have_recorded() -> None:
    found = suite(num_samples=None, summary=summary(expected=1, scored=1))
    result = only(decide_thresholds(report(found, stopped="stopping after 1 failures"), asked("boolq: accuracy < 2")))
    assert result.outcome == "failed"
    assert result.reason == "the session stopped early, after 1 sample: stopping after 1 failures"


def test_unscored_samples_that_are_allowed_are_those_of_the_session() -> None:
    one = suite("accuracy < 2", summary=summary(scored=198, unscored=2))
    other = suite("accuracy < 2", name="other", summary=summary(scored=199, unscored=1))
    results = decide_thresholds(report(one, other), [], allow_unscored=3)
    assert [(result.outcome, result.notes[0]) for result in results] == [
        ("passed", "2 unscored samples allowed"),
        ("passed", "1 unscored sample allowed"),
    ]
    results = decide_thresholds(report(one, other), [], allow_unscored=2)
    assert [(result.outcome, result.reason) for result in results] == [
        ("failed", "2 of 200 samples unscored"),
        ("failed", "1 of 200 samples unscored"),
    ]


def test_an_unscored_sample_of_another_category() -> None:
    parts = {"x": summary(expected=10, scored=9, unscored=1), "y": summary(expected=190, scored=190)}
    found = suite(summary=summary(scored=199, unscored=1), categories=parts)
    gates = asked("boolq: category.x.accuracy < 2", "boolq: category.y.accuracy < 2")
    assert [result.outcome for result in decide_thresholds(report(found), gates)] == ["failed", "passed"]


def test_an_unscored_sample_that_may_be_of_any_category() -> None:
    """Of a sample whose process died nothing is known but that it has no score."""
    parts = {"x": summary(expected=9, scored=9), "y": summary(expected=190, scored=189, unscored=1)}
    found = suite(summary=summary(scored=198, unscored=2), categories=parts, macro={"accuracy": ACCURACY})
    gates = asked("boolq: category.x.accuracy < 2", "boolq: category.y.accuracy < 2", "boolq: macro.accuracy < 2")
    strict = decide_thresholds(report(found), gates, allow_unscored=1)
    assert {one.outcome for one in strict} == {"failed"}
    stray = "1 unscored sample without a known category allowed"
    tolerant = decide_thresholds(report(found), gates, allow_unscored=2)
    assert [(one.outcome, [note for note in one.notes if "unscored" in note]) for one in tolerant] == [
        ("passed", [stray]),
        ("passed", ["1 unscored sample allowed", stray]),
        ("passed", ["2 unscored samples allowed"]),
    ]


def test_no_allowance_covers_samples_that_are_gone() -> None:
    found = suite("accuracy < 2", summary=summary(scored=198, unscored=1))
    assert only(decide_thresholds(report(found), [], allow_unscored=9)).outcome == "failed"


def test_what_a_reader_has_to_know() -> None:
    own = {"wit": Metric(value=0.5, n=150, kind="mean", ci_low=0.4, ci_high=0.6)}
    reasons = {"wit": {"no joke": 30, "no claim": 20}}
    part = replace(summary(own), not_measurable=reasons)
    found = suite("wit > 0", num_samples=203, summary=part, num_skipped=3)
    result = only(decide_thresholds(report(found), asked("boolq: wit > 0")))
    assert result.outcome == "passed"
    assert result.reason == "wit 0.500 [0.400, 0.600], n 150"
    assert result.notes == ("3 samples skipped", "wit is not measurable on 50 of 200 samples")


@pytest.mark.parametrize("text", ["wit > 0", "ci_low(wit) > 0", "category.x.wit > 0", "macro.wit > 0"])
@pytest.mark.parametrize(("reasons", "num_missing"), [({}, 50), ({"no joke": 49}, 1), ({"no joke": 50}, 0)])
def test_a_metric_that_is_missing_passes_nothing(text: str, reasons: dict[str, int], num_missing: int) -> None:
    """A suite of one category that lacks the metric on 50 of 200 samples, and one that has it on all."""
    own = {"wit": Metric(value=0.5, n=150, kind="mean", ci_low=0.4, ci_high=0.6)}
    part = replace(summary(own), not_measurable={"wit": reasons} if reasons else {})
    rest = summary({"wit": replace(own["wit"], n=100)}, expected=100, scored=100)
    whole = replace(part, metrics={"wit": replace(own["wit"], n=250)}, num_expected=300, num_scored=300)
    found = suite(num_samples=300, summary=whole, categories={"x": part, "y": rest}, macro=own)
    result = only(decide_thresholds(report(found), asked(f"boolq: {text}")))
    assert result.outcome == ("failed" if num_missing else "passed")
    num_scored = 200 if text.startswith("category") else 300
    told = f"wit is missing on {num_missing} of {num_scored} scored samples: their scores have no value for it"
    assert result.reason.startswith(told) == bool(num_missing)


SELECTED = summary({"accuracy": replace(ACCURACY, n=10)}, expected=10, scored=10)


@pytest.mark.parametrize("origin", ["suite", "ini"])
def test_a_selection_of_a_suite_skips_its_own_gates_and_those_of_the_ini_file(origin: Any) -> None:
    found = suite(*(["accuracy >= 0.6"] if origin == "suite" else []), summary=SELECTED)
    given_gates = asked("accuracy >= 0.6", origin="ini") if origin == "ini" else []
    result = only(decide_thresholds(report(found), given_gates))
    assert (result.outcome, result.reason) == ("skipped", "a selection: 10 of 200 samples")
    result = only(decide_thresholds(report(found), given_gates, require=True))
    assert result.outcome == "failed"
    assert result.reason == "a selection: 10 of 200 samples; --llm-require-gates requires a decision"


@pytest.mark.parametrize("num_samples", [200, None])
@pytest.mark.parametrize("origin", ["suite", "ini"])
def test_samples_that_were_skipped_leave_a_gate_undecided(num_samples: int | None, origin: Any) -> None:
    found = suite(
        *(["accuracy >= 0.6"] if origin == "suite" else []),
        num_samples=num_samples,
        summary=summary({"accuracy": ACCURACY}, expected=1, scored=1),
        num_skipped=199,
    )
    gates = asked("accuracy >= 0.6", origin="ini") if origin == "ini" else []
    result = only(decide_thresholds(report(found), gates))
    assert (result.outcome, result.reason) == ("skipped", "199 of 200 samples skipped")
    result = only(decide_thresholds(report(found), gates, require=True))
    assert result.outcome == "failed"
    assert result.reason == "199 of 200 samples skipped; --llm-require-gates requires a decision"


def test_samples_that_were_skipped_of_a_selection() -> None:
    found = suite("accuracy >= 0.6", summary=SELECTED, num_skipped=5)
    result = only(decide_thresholds(report(found), []))
    assert (result.outcome, result.reason) == ("skipped", "a selection: 15 of 200 samples; 5 of 15 samples skipped")
    all_skipped = suite("accuracy >= 0.6", summary=summary({"accuracy": NONE}, expected=0, scored=0), num_skipped=5)
    assert only(decide_thresholds(report(all_skipped), [])).reason == "a selection: 5 of 200 samples"


@pytest.mark.parametrize(("rule", "outcome"), [("accuracy >= 0.6", "passed"), ("accuracy >= 0.7", "failed")])
def test_a_gate_of_an_option_decides_on_what_was_not_skipped(rule: str, outcome: str) -> None:
    found = suite(summary=SELECTED, num_skipped=189)
    result = only(decide_thresholds(report(found), asked(f"boolq: {rule}")))
    assert (result.outcome, result.notes) == (outcome, ("a selection: 199 of 200 samples", "189 samples skipped"))


def test_suites_that_were_met_without_a_model() -> None:
    found = suite("accuracy < 2", summary=summary({"accuracy": NONE}, expected=0, scored=0), num_skipped=200)
    result = only(decide_thresholds(report(found), [], has_model=False))
    assert (result.outcome, result.reason) == ("skipped", "no model: 200 samples skipped")
    assert only(decide_thresholds(report(found), [], has_model=False, require=True)).outcome == "failed"
    result = only(decide_thresholds(report(found), asked("accuracy < 2"), has_model=False))
    assert (result.outcome, result.reason) == ("failed", "nothing ran: 200 samples skipped")
    assert only(decide_thresholds(report(suite("accuracy > 0.7")), [], has_model=False)).outcome == "failed"


def test_a_gate_of_an_option_decides_on_a_selection() -> None:
    result = only(decide_thresholds(report(suite(summary=SELECTED)), asked("boolq: accuracy >= 0.6")))
    assert (result.outcome, result.notes) == ("passed", ("a selection: 10 of 200 samples",))
    result = only(decide_thresholds(report(suite(summary=SELECTED)), asked("boolq: accuracy >= 0.7")))
    assert (result.outcome, result.notes) == ("failed", ("a selection: 10 of 200 samples",))


@pytest.mark.parametrize(("is_selection", "outcome"), [(True, "skipped"), (False, "passed")])
def test_a_suite_whose_size_nobody_knows(is_selection: bool, outcome: str) -> None:
    found = suite(num_samples=None)
    gates = asked("accuracy >= 0.6", origin="ini")
    result = only(decide_thresholds(report(found), gates, is_selection=is_selection))
    assert result.outcome == outcome
    assert is_selection is (result.reason == "a selection of its tests")


def test_a_selection_elsewhere_does_not_disarm_a_whole_suite() -> None:
    assert only(decide_thresholds(report(suite("accuracy >= 0.7")), [], is_selection=True)).outcome == "failed"


def test_absent_suites() -> None:
    absent = [
        SuiteInfo(
            name="mmlu",
            path="mmlu.yaml",
            num_samples=100,
            metrics=("accuracy", "brier"),
            gates={"accuracy >= 0.5": 7},
        )
    ]
    gates = [*asked("*: brier <= 0.3", origin="ini"), *asked("mmlu: accuracy >= 0.4", "*: accuracy >= 0.1")]

    def outcomes(*, require: bool) -> list[tuple[str | None, str, str, str]]:
        results = decide_thresholds(report(suite()), gates, absent=absent, require=require)
        return [(one.suite, one.name, one.outcome, one.reason.partition(",")[0]) for one in results]

    ran = [
        ("boolq", "brier <= 0.3", "passed", "brier 0.200 [0.180"),
        ("boolq", "accuracy >= 0.1", "passed", "accuracy 0.650 [0.581"),
    ]
    nothing = "a selection: 0 of 100 samples"
    assert outcomes(require=False) == [
        *ran,
        ("mmlu", "accuracy >= 0.5", "skipped", nothing),
        ("mmlu", "brier <= 0.3", "skipped", nothing),
        ("mmlu", "accuracy >= 0.4", "failed", f"nothing ran; {nothing}"),
    ]
    asks = f"{nothing}; --llm-require-gates requires a decision"
    assert outcomes(require=True) == [
        *ran,
        ("mmlu", "accuracy >= 0.5", "failed", asks),
        ("mmlu", "brier <= 0.3", "failed", asks),
        ("mmlu", "accuracy >= 0.4", "failed", f"nothing ran; {nothing}"),
        ("mmlu", "accuracy >= 0.1", "failed", asks),
    ]


@pytest.mark.parametrize("star", ["*: accuracy >= 0.5", "accuracy >= 0.5"])
@pytest.mark.parametrize("named_in_ini", [False, True])
def test_a_gate_for_all_suites_decides_none_that_was_not_selected(star: str, named_in_ini: bool) -> None:
    """Also where the suite has a gate of the same text, which is skipped as the suite is."""
    own = {} if named_in_ini else {"accuracy >= 0.5": 7}
    absent = [SuiteInfo(name="mmlu", path="mmlu.yaml", num_samples=100, gates=own)]
    gates = [*asked(star), *(asked("mmlu: accuracy >= 0.5", origin="ini") if named_in_ini else [])]
    results = decide_thresholds(report(suite()), gates, absent=absent)
    assert [(one.suite, one.origin, one.outcome) for one in results] == [
        ("boolq", "option", "passed"),
        ("mmlu", "ini" if named_in_ini else "suite", "skipped"),
    ]
    assert [one.outcome for one in decide_thresholds(report(suite()), gates, absent=absent, require=True)] == [
        "passed",
        "failed",
    ]


def test_the_skipped_gate_of_a_suite_that_was_not_selected_decides_nothing_that_was_asked() -> None:
    absent = [SuiteInfo(name="mmlu", path="mmlu.yaml", num_samples=100, gates={"accuracy >= 0.5": 7})]
    results = decide_thresholds(report(), asked("accuracy >= 0.5"), absent=absent)
    assert [(one.suite, one.origin, one.outcome, one.reason) for one in results] == [
        ("mmlu", "suite", "skipped", "a selection: 0 of 100 samples"),
        (None, "option", "failed", "no suite ran"),
    ]


def test_gates_of_no_suite() -> None:
    gates = asked("bolq: accuracy >= 0.6", "*: acuracy >= 0.6", "zzz: accuracy > 0", "*: category.x.accuracy > 0")
    results = decide_thresholds(report(suite()), gates)
    assert [(one.name, one.suite, one.path, one.outcome, one.reason) for one in results] == [
        ("bolq: accuracy >= 0.6", None, None, "failed", "no suite 'bolq' ran; did you mean 'boolq'?"),
        ("acuracy >= 0.6", None, None, "failed", "no suite that ran has 'acuracy'; did you mean 'accuracy'?"),
        ("zzz: accuracy > 0", None, None, "failed", "no suite 'zzz' ran, only 'boolq'"),
        (
            "category.x.accuracy > 0",
            None,
            None,
            "failed",
            "no suite that ran has 'category.x.accuracy': the samples have no categories; add the key "
            "category to the suite",
        ),
    ]


def test_the_suites_that_a_gate_may_have_been_meant_for() -> None:
    absent = [SuiteInfo(name="mmlu", path="mmlu.yaml", num_samples=100)]
    results = decide_thresholds(report(suite()), asked("mlmu: accuracy > 0", "zzz: accuracy > 0"), absent=absent)
    assert [one.reason for one in results if one.suite is None] == [
        "no suite 'mlmu' ran; did you mean 'mmlu'?",
        "no suite 'zzz' ran, only 'boolq'",
    ]
    assert only(decide_thresholds(report(), asked("zzz: accuracy > 0"), absent=absent)).reason == "no suite 'zzz' ran"


def test_gates_of_no_suite_in_the_ini_file() -> None:
    gates = asked("bolq: accuracy >= 0.6", "*: ter < 1", origin="ini")
    results = decide_thresholds(report(suite()), gates)
    assert [(one.outcome, one.reason) for one in results] == [
        ("skipped", "no suite 'bolq' ran; did you mean 'boolq'?"),
        (
            "skipped",
            "no suite that ran has 'ter', only 'accuracy', 'brier', 'correct', 'cost', 'seconds', 'num_tokens', "
            "'num_prompt_tokens'",
        ),
    ]
    assert {one.outcome for one in decide_thresholds(report(suite()), gates, require=True)} == {"failed"}
    assert [one.reason for one in decide_thresholds(report(), asked("accuracy > 0", "s: accuracy > 0"))] == [
        "no suite ran",
        "no suite 's' ran",
    ]


def test_a_gate_of_the_ini_file_that_is_for_nothing_in_the_whole_project() -> None:
    parts = {"civil": summary(), "art": summary()}
    gates = asked(
        "bolq: accuracy > 0", "acuracy > 0", "category.civl.accuracy > 0", "boolq: accuracy > 0", origin="ini"
    )
    found = [
        (one.name, one.origin, one.outcome, one.reason)
        for one in decide_thresholds(report(suite(categories=parts)), gates, is_whole=True)
    ]
    assert found[0][:3] == ("accuracy > 0", "ini", "passed")
    assert found[1:] == [
        ("bolq: accuracy > 0", "ini", "failed", "no suite 'bolq' ran; did you mean 'boolq'?"),
        ("acuracy > 0", "ini", "failed", "no suite that ran has 'acuracy'; did you mean 'accuracy'?"),
        (
            "category.civl.accuracy > 0",
            "ini",
            "failed",
            "no suite that ran has 'category.civl.accuracy': there is no category 'civl'; did you mean 'civil'? "
            "Expected one of civil, art",
        ),
    ]
    assert [one.reason for one in decide_thresholds(report(), gates[:2], is_whole=True)] == [
        "no suite 'bolq' ran",
        "no suite ran",
    ]
    without = decide_thresholds(report(suite()), gates, is_whole=False)
    assert [one.outcome for one in without] == ["passed", "skipped", "skipped", "skipped"]


def test_a_whole_project_that_nobody_answered() -> None:
    found = suite(summary=summary({"accuracy": NONE}, expected=0, scored=0), num_skipped=200)
    gates = asked("bolq: accuracy > 0", "acuracy > 0", "boolq: accuracy > 0", origin="ini")
    results = decide_thresholds(report(found), gates, is_whole=True, has_model=False)
    assert {one.outcome for one in results} == {"skipped"}


def test_a_gate_of_every_suite_is_for_those_that_have_its_metric() -> None:
    other = suite(name="gsm8k", summary=summary({"accuracy": ACCURACY}))
    results = decide_thresholds(report(suite(), other), asked("*: brier <= 0.3"))
    assert [(one.suite, one.outcome) for one in results] == [("boolq", "passed")]


def test_numbers_that_could_not_be_computed_do_not_disarm_a_gate_of_every_suite() -> None:
    broken = suite(name="gsm8k", summary=summary({}))
    results = decide_thresholds(report(suite(), broken), asked("*: accuracy >= 0.6"))
    assert [(one.suite, one.outcome) for one in results] == [("boolq", "passed"), ("gsm8k", "failed")]


def test_two_models() -> None:
    first, second = suite("accuracy >= 0.6"), suite("accuracy >= 0.6", models=("new",))
    results = decide_thresholds(report(first, second), asked("boolq: brier <= 0.1"))
    assert [(one.model, one.name, one.outcome) for one in results] == [
        ("gpt2", "accuracy >= 0.6", "passed"),
        ("gpt2", "brier <= 0.1", "failed"),
        ("new", "accuracy >= 0.6", "passed"),
        ("new", "brier <= 0.1", "failed"),
    ]


RULE = "accuracy >= 0.6"


@pytest.mark.parametrize(
    ("own", "gates", "origin"),
    [
        (True, asked(RULE), "option"),
        (True, asked(f"boolq: {RULE}", origin="ini"), "suite"),
        (True, [*asked(RULE, origin="ini"), *asked(RULE)], "option"),
        (False, [*asked(RULE, origin="ini"), *asked(f"boolq: {RULE}")], "option"),
        (False, [*asked(RULE), *asked(RULE, origin="ini")], "option"),
        (False, asked(RULE, f"boolq: {RULE}", RULE), "option"),
    ],
)
def test_one_result_of_one_name(own: bool, gates: Any, origin: str) -> None:
    result = only(decide_thresholds(report(suite(*([RULE] if own else []))), gates))
    assert (result.name, result.origin, result.outcome) == (RULE, origin, "passed")
    assert result.line == (9 if origin == "suite" else None)


@pytest.mark.parametrize("gates", [asked("*: wit > 0", "boolq: wit > 0"), asked("boolq: wit > 0", "*: wit > 0")])
def test_a_gate_that_names_the_suite_is_not_lost_beside_one_of_every_suite(gates: Any) -> None:
    witty = suite(name="wits", summary=summary({"wit": BRIER}))
    results = decide_thresholds(report(suite(), witty), gates)
    assert [(one.suite, one.outcome) for one in results] == [("boolq", "failed"), ("wits", "passed")]


def test_two_rules_of_one_number_are_both_decided() -> None:
    results = decide_thresholds(report(suite("accuracy >= 0.6")), asked("boolq: accuracy >= 0.60"))
    assert [(one.name, one.origin) for one in results] == [
        ("accuracy >= 0.6", "suite"),
        ("accuracy >= 0.60", "option"),
    ]


def test_of_one_sample_no_interval_is_shown_unless_it_decides() -> None:
    one = summary(
        {"accuracy": Metric(value=0.0, n=1, kind="proportion", ci_low=0.0, ci_high=0.793)}, expected=1, scored=1
    )
    gates = ("accuracy >= 0.1", "ci_high(accuracy) >= 0.8")
    results = decide_thresholds(report(suite(*gates, num_samples=1, summary=one)), [])
    assert [result.reason for result in results] == [
        "accuracy 0.000, n 1: below 0.1",
        "accuracy 0.000 [0.000, 0.793], n 1: ci_high is below 0.8",
    ]
