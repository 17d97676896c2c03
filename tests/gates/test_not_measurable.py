"""A metric that has no meaning for some samples, in a comparison with a baseline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_llmeval.gates.options import BaselineSettings, Margin
from pytest_llmeval.gates.sample_pairs import kept_records
from pytest_llmeval.reporting.report.served_models import REPLIES, replies_identity
from pytest_llmeval.scoring.paired_metrics import needed_values
from tests.gates.reports_for_tests import COMMON, DEFAULT, Outcome, Ran, compared, ran, report

LACKING = 7
ALL: list[Outcome] = [{"wit": 0.5, "other": 1.0}] * 20


WIT: dict[str, Any] = {
    "primary_metric": "wit",
    "metrics": ("wit", "other"),
    "better": {"wit": "higher", "other": "higher"},
}
MARGIN, NON_INFERIOR = (
    BaselineSettings(mode=mode, margins=(Margin("*", "wit", 0.1),)) for mode in ("margin", "non-inferior")
)


def lacking(*, is_said: bool, num: int = LACKING, **info: Any) -> Ran:
    """A suite that has no wit on some samples."""
    found = ran([{"other": 1.0}] * num + ALL[num:], **{**WIT, **info})
    return unmeasured(found) if is_said else found


def unmeasured(found: Ran) -> Ran:
    """The suite, whose scorer says of samples without a value of its first metric that it has no meaning there."""
    lacks = [record.values.keys() == {"other"} for record in found.records]
    records = [
        replace(record, not_measurable={"*": "no joke"} if is_lacking else {})
        for record, is_lacking in zip(found.records, lacks, strict=True)
    ]
    return Ran(found.suite, tuple(records))


FULL = lacking(is_said=False, num=0)


@pytest.mark.parametrize(
    ("before", "after", "settings", "reason"),
    [
        (
            FULL,
            lacking(is_said=False),
            DEFAULT,
            "wit has no value now in 7 samples ('0', '1', '2', …) that had one in ",
        ),
        (FULL, lacking(is_said=False), COMMON, "wit has no value now in 7 samples ('0', '1', '2', …) that had one in "),
        (
            lacking(is_said=False),
            lacking(is_said=False),
            DEFAULT,
            "wit has no value now in 7 samples ('0', '1', '2', …)",
        ),
        (
            lacking(is_said=True),
            lacking(is_said=False, num=8),
            DEFAULT,
            "wit has no value now in 8 samples ('0', '1', '2', …)",
        ),
        (
            lacking(is_said=False),
            FULL,
            DEFAULT,
            "wit has no value in the baseline in 7 samples that it scored; --llm-c",
        ),
    ],
)
def test_what_is_missing_passes_nothing(before: Ran, after: Ran, settings: BaselineSettings, reason: str) -> None:
    (result,) = compared(report(before), report(after), settings)
    assert result.outcome == "failed"
    assert result.reason.startswith(reason)


@pytest.mark.parametrize("settings", [DEFAULT, COMMON, MARGIN, NON_INFERIOR])
@pytest.mark.parametrize(
    ("before", "after", "num_one_sided"), [(7, 7, 0), (7, 8, 0), (2, 0, 0), (0, 2, 0), (3, 0, 3), (0, 3, 3), (7, 9, 2)]
)
def test_pairs_that_one_side_lacks_belong_to_the_comparison(
    before: int, after: int, num_one_sided: int, settings: BaselineSettings
) -> None:
    """Those that both lack do not: where 7 and 9 of 20 lack it, it is 2 of 13, where 7 and 8 do, it is 1 of 13."""
    first, second = (report(lacking(is_said=True, num=num)) for num in (before, after))
    (result,) = compared(first, second, settings)
    most, least = max(before, after), min(before, after)
    if num_one_sided:
        assert (result.outcome, result.regression) == ("failed", None)
        sides = f"now: {max(0, after - before)}, in the baseline: {max(0, before - after)}"
        found = f"wit is not measurable on one side of {num_one_sided} of {20 - least} pairs ({sides}); a comparison"
        assert result.reason.startswith(found)
    else:
        assert result.outcome == "passed", result.reason
        assert f"{most} sample{'' if most == 1 else 's'} left out, on which wit is not measurable" in result.notes
        assert result.regression is not None
        assert (result.regression.n, result.regression.num_left_out) == (20 - most, most)


@pytest.mark.parametrize(("least", "outcome"), [(0.84, "passed"), (0.86, "failed")])
def test_the_suite_says_which_share_is_enough(least: float, outcome: str) -> None:
    first, second = (report(lacking(is_said=True, num=num, min_measurable=least)) for num in (0, 3))
    (result,) = compared(first, second)
    assert result.outcome == outcome


def test_each_metric_and_each_small_suite_has_its_own_share() -> None:
    """A metric of --llm-max-drop; suites that are tested together for being too small to be tested alone."""
    settings = BaselineSettings(margins=(Margin("*", "wit", 0.1),))
    first, second = (lacking(is_said=True, num=num, primary_metric="other") for num in (0, 3))
    found = {one.metric: one.outcome for one in compared(report(first), report(second), settings)}
    assert found == {"other": "passed", "wit": "failed"}
    small = [ran([{"wit": 0.5}] * 4, name, **WIT) for name in "abc"]
    broken = unmeasured(ran([{"other": 1.0}] * 3 + [{"wit": 0.5}], "a", **WIT))
    assert [one.outcome for one in compared(report(*small), report(*small))] == ["skipped"] * 3 + ["passed"]
    assert [one.outcome for one in compared(report(*small), report(broken, *small[1:]))] == [
        *("failed", "skipped", "skipped", "passed")
    ]


def test_a_reply_that_is_not_compared_with_the_baselines_is_no_tie() -> None:
    before = report(ran([True] * 20))
    parts = {REPLIES: replies_identity(before, before.suites[0])}
    for num, outcome in ((2, "passed"), (3, "failed")):
        outcomes = [{"other": 1.0}] * num + [{"win_rate": 0.5}] * (20 - num)
        after = unmeasured(ran(outcomes, metrics=("win_rate",), fingerprint_parts=parts))
        (result,) = compared(before, report(after))
        assert (result.outcome, result.metric) == (outcome, "win_rate"), result.reason


def test_unscored_and_not_measurable_pairs_count_together() -> None:
    before = report(lacking(is_said=True, num=0))
    for num, outcome in ((1, "passed"), (2, "failed")):
        now = lacking(is_said=True, num=num)
        records = [*now.records[:-1], replace(now.records[-1], status="unscored", values={})]
        after = report(Ran(replace(now.suite, summary=replace(now.suite.summary, num_unscored=1)), tuple(records)))
        (result,) = compared(before, after, allow_unscored=1)
        assert result.outcome == outcome
    assert result.reason.startswith(
        "wit is not measured on one side of 3 of 20 pairs (unscored: 1; not measurable now: 2, in the baseline: 0)"
    )


def test_a_metric_of_all_samples_together_has_its_share_too() -> None:
    whole = dict.fromkeys(needed_values("bleu_4"), 1.0)
    for num, outcome in ((2, "passed"), (3, "failed")):
        first = ran([whole] * 20, metrics=("bleu_4",))
        second = unmeasured(ran([{"other": 1.0}] * num + [whole] * (20 - num), metrics=("bleu_4",)))
        (result,) = compared(report(first), report(second))
        assert (result.outcome, result.metric) == (outcome, "bleu_4"), result.reason


def test_reasons_are_kept() -> None:
    made = report(lacking(is_said=True))
    found = kept_records(made, made.suites)["s", None]
    assert [kept.not_measurable for kept in found.values()] == [{"*": "no joke"}] * 7 + [{}] * 13
