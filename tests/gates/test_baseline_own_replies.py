"""Samples whose replies are the baseline's own, from a store: they measure nothing of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pytest_llmeval.reporting.report.records import NEW_REPLIES, UNKNOWN_REPLIES
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.report.served_models import REPLIES, replies_identity
from tests.gates.reports_for_tests import COMMON, DEFAULT, Ran, compared, ran, report

KNOWN = {"name": "m", "fingerprint": "f" * 64, "details": {"known_by_content": True}}
REUSED = {"name": "m", "fingerprint": "f" * 64, "details": {"store": "replies are kept and reused"}}
NAMED: dict[str, Any] = {"name": "m", "fingerprint": None, "details": {}}
OTHER = {**KNOWN, "fingerprint": "e" * 64}


def kept(found: Ran, replies: Sequence[str | None], *, field: str = "kept_as") -> Ran:
    """The suite with what tells its replies from others."""
    records = [
        replace(record, **{field: reply})  # type: ignore[arg-type]
        for record, reply in zip(found.records, replies, strict=True)
    ]
    return Ran(found.suite, tuple(records))


def stored(replies: Sequence[str | None], model: Any = NAMED, *, right: bool = True, **more: Any) -> Report:
    return report(kept(ran([right] * len(replies)), replies), models=(model,), **more)


TWENTY = [str(number) for number in range(20)]
ANEW = [f"{number}'" for number in range(20)]


@pytest.mark.parametrize("settings", [DEFAULT, COMMON])
@pytest.mark.parametrize(
    ("before", "now"), [(NAMED, NAMED), (REUSED, REUSED), (KNOWN, OTHER), (KNOWN, NAMED), (KNOWN, REUSED)]
)
def test_all_of_them_decide_nothing(before: Any, now: Any, settings: Any) -> None:
    for require, outcome in ((False, "skipped"), (True, "failed")):
        result = compared(stored(TWENTY, before), stored(TWENTY, now), settings, require=require)[0]
        assert (result.outcome, result.regression) == (outcome, None)
        assert result.reason == (
            "20 of 20 samples are judged on the baseline's own replies, from a store, and nothing says that the model "
            "is the same: --llm-store-refresh asks again"
        )


@pytest.mark.parametrize("before", [KNOWN, REUSED])
def test_a_model_that_is_known_by_its_content_replies_the_same(before: Any) -> None:
    """The baseline's fingerprint is of the same kind, also where it does not say so."""
    (result,) = compared(stored(TWENTY, before), stored(TWENTY, KNOWN))
    assert result.outcome == "passed"
    told = "the same model: 20 of 20 samples are judged on the baseline's own replies, from a store"
    assert told in result.notes
    assert result.regression is not None
    assert result.regression.n == 20


def test_some_are_left_out_and_counted() -> None:
    (result,) = compared(stored(TWENTY), stored([*TWENTY[:5], *ANEW[5:]]))
    assert result.outcome == "passed"
    assert "5 of 20 samples are judged on the baseline's own replies, from a store: left out" in result.notes
    assert result.regression is not None
    assert (result.regression.n, result.regression.num_left_out) == (15, 10)
    worse = kept(ran([True] * 10 + [False] * 10), [*TWENTY[:10], *ANEW[10:]])
    (result,) = compared(stored(TWENTY), report(worse, models=(NAMED,)))
    assert (result.outcome, result.regression and result.regression.current) == ("failed", 0.0)
    assert compared(stored(TWENTY), stored([*TWENTY[:19], None]))[0].outcome == "skipped", "too few samples"


def test_replies_that_are_not_kept_are_evidence() -> None:
    for before, after in ((None, None), ("a", None), (None, "a"), ("a", "b")):
        (result,) = compared(stored([before] * 20), stored([after] * 20))
        assert (result.outcome, result.notes) == ("passed", ())


@pytest.mark.parametrize(
    ("before", "now", "outcome"),
    [
        *((before, UNKNOWN_REPLIES, "skipped") for before in (None, "a", NEW_REPLIES, UNKNOWN_REPLIES)),
        *((before, NEW_REPLIES, "passed") for before in (None, "a", NEW_REPLIES, UNKNOWN_REPLIES)),
        *((before, "a", "skipped") for before in (NEW_REPLIES, UNKNOWN_REPLIES)),
        *((before, None, "passed") for before in (NEW_REPLIES, UNKNOWN_REPLIES)),
    ],
)
def test_replies_that_are_unknown_are_evidence_where_the_session_asked_for_all(
    before: str | None, now: str | None, outcome: str
) -> None:
    (result,) = compared(stored([before] * 20), stored([now] * 20))[:1]
    assert result.outcome == outcome
    if outcome == "skipped":
        assert result.reason.startswith("20 of 20 samples may be judged on the baseline's own replies, from a store, ")


def test_schema_2_has_the_time_of_the_last_reply_alone() -> None:
    one = ran([True] * 20)
    earlier = report(kept(one, TWENTY, field="asked_at"), schema=2, models=(NAMED,))
    now = report(kept(kept(one, TWENTY, field="asked_at"), ANEW), models=(NAMED,))
    assert compared(earlier, now)[0].outcome == "skipped"
    later = report(kept(kept(one, ANEW, field="asked_at"), TWENTY), models=(NAMED,))
    assert compared(earlier, later)[0].outcome == "passed"
    same_time = report(kept(kept(one, TWENTY, field="asked_at"), TWENTY), models=(NAMED,))
    assert compared(same_time, now)[0].outcome == "passed", "the time is the judge's"


def test_a_reply_that_is_compared_with_itself_is_no_tie() -> None:
    before = stored(TWENTY)
    parts = {REPLIES: replies_identity(before, before.suites[0])}
    ties = ran([{"win_rate": 0.5}] * 20, metrics=("win_rate",), fingerprint_parts=parts)
    assert compared(before, report(kept(ties, TWENTY), models=(NAMED,)))[0].outcome == "skipped"
    assert compared(before, report(kept(ties, ANEW), models=(NAMED,)))[0].outcome == "passed"


def test_each_of_several_models_is_known_by_itself() -> None:
    def two(first: Any, second: Any) -> Report:
        suites = [kept(ran([True] * 20, model=name), TWENTY) for name in "xy"]
        return report(*suites, models=({**first, "name": "x"}, {**second, "name": "y"}))

    results = compared(two(KNOWN, KNOWN), two(KNOWN, OTHER))
    assert [one.outcome for one in results] == ["passed", "skipped"]
