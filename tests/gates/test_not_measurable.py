"""A metric that has no meaning for some samples, in a comparison with a baseline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_llmeval.gates.baseline.sample_pairs import kept_records
from pytest_llmeval.gates.options import BaselineSettings
from tests.gates.reports_for_tests import COMMON, DEFAULT, Outcome, Ran, compared, ran, report

LACKING = 7
ALL: list[Outcome] = [{"wit": 0.5, "other": 1.0}] * 20


def lacking(*, is_said: bool, num: int = LACKING) -> Ran:
    """A suite that has no wit on some samples."""
    found = ran(
        [{"other": 1.0}] * num + ALL[num:], primary_metric="wit", higher_is_better=True, metrics=("wit", "other")
    )
    if not is_said:
        return found
    records = [
        replace(record, not_measurable={} if "wit" in record.values else {"*": "no joke"}) for record in found.records
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
            "wit has no value now in 1 sample ('7') that had",
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


@pytest.mark.parametrize("settings", [DEFAULT, COMMON])
@pytest.mark.parametrize(("before", "after"), [(True, True), (True, False), (False, True)])
def test_what_is_not_measurable_is_left_out_and_told(before: bool, after: bool, settings: BaselineSettings) -> None:
    first, second = (report(lacking(is_said=True) if is_lacking else FULL) for is_lacking in (before, after))
    (result,) = compared(first, second, settings)
    assert result.outcome == "passed"
    assert "7 samples left out, on which wit is not measurable" in result.notes
    assert result.regression is not None
    assert (result.regression.n, result.regression.num_left_out) == (13, 7)


def test_reasons_are_kept() -> None:
    found = kept_records(report(lacking(is_said=True)), {("s", None): {"wit"}})["s", None]
    assert [kept.not_measurable for kept in found.values()] == [{"*": "no joke"}] * 7 + [{}] * 13
