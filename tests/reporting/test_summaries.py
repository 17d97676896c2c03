"""From records to numbers: averages over categories and suites, clusters, percentiles, what metrics' names mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import PerSample, Phases, SuiteReport, definitions_of
from pytest_llmeval.reporting.report.summaries import average_suites, compare_models, summarize_suite
from pytest_llmeval.reporting.tables.session import per_sample_table, phase_texts
from tests.reporting.reports import make_record, make_report


def suite_of(*values: float, name: str = "sums", model: str = "fake", cluster_size: int = 0) -> list[Record]:
    return [
        make_record(
            name,
            f"s{number}",
            model=model,
            status="correct" if value else "wrong",
            values={"accuracy": value},
            cluster=f"passage {number // cluster_size}" if cluster_size else None,
        )
        for number, value in enumerate(values)
    ]


def test_the_mean_over_categories_is_a_metric() -> None:
    records = [
        make_record(id_="s1", category="a"),
        make_record(id_="s2", category="a", status="wrong", values={"accuracy": 0.0}),
        make_record(id_="s3", category="b"),
    ]
    (suite,) = make_report(records).suites
    assert suite.macro["accuracy"].value == 0.75
    assert suite.macro["accuracy"].n == 2
    assert make_report(records[:2]).suites[0].macro == {}


def test_latency_and_speed_are_of_the_scored_samples_that_were_timed_by_themselves() -> None:
    seconds = [0.5, 0.0, 2.0, 1.0, 4.0]
    records = [
        make_record(id_=f"s{place}", seconds=value, num_prompt_tokens=10, num_tokens=2, is_timed=True)
        for place, value in enumerate(seconds)
    ]
    records[4] = make_record(id_="s4", status="unscored", values={}, seconds=4.0, is_timed=True)
    records.append(make_record(id_="share", seconds=8.0, num_prompt_tokens=10, num_tokens=2))
    (suite,) = make_report(records).suites
    assert suite.latency is not None
    assert suite.tokens_per_second is not None
    took = [0.5, 2.0, 1.0]
    speeds = [12 / value for value in took]
    for found, values in ((suite.latency, took), (suite.tokens_per_second, speeds)):
        assert found.n == 3
        assert found.mean == pytest.approx(np.mean(values))
        assert [found.p50, found.p95, found.p99] == pytest.approx(list(np.percentile(values, [50, 95, 99])))
    (none,) = make_report([make_record()]).suites
    assert (none.latency, none.tokens_per_second) == (None, None)


def test_phases_are_sums_over_the_samples_that_know_them() -> None:
    known: dict[str, Any] = {
        "num_prompt_tokens": 10,
        "num_tokens": 5,
        "seconds": 3.0,
        "prefill_seconds": 1.0,
        "num_decoded": 4,
    }
    records = [make_record(id_="a", **known), make_record(id_="b", **known), make_record(id_="c", seconds=9.0)]
    (suite,) = make_report(records).suites
    assert suite.phases == Phases(prefill_tokens=20, prefill_seconds=2.0, decode_tokens=8, decode_seconds=4.0)
    assert list(phase_texts([suite])) == ["generated texts: prefill 10.0 tokens/s, decode 2.00 tokens/s"]
    assert make_report(records[2:]).suites[0].phases is None


def test_clusters_are_those_of_the_records() -> None:
    values = [1.0, 1.0, 0.0, 0.0] * 6
    (clustered,) = make_report(suite_of(*values, cluster_size=2)).suites
    (independent,) = make_report(suite_of(*values)).suites
    assert clustered.summary.metrics["accuracy"].num_clusters == 12
    assert independent.summary.metrics["accuracy"].num_clusters is None
    one, other = clustered.summary.metrics["accuracy"].stderr, independent.summary.metrics["accuracy"].stderr
    assert one is not None
    assert other is not None
    assert one > other  # the two of a passage are right or wrong together
    by_model = {
        "one": suite_of(*values, cluster_size=2),
        "two": suite_of(*reversed(values), cluster_size=2),
    }
    (comparison,) = compare_models("sums", by_model, ["one", "two"], ["accuracy"])
    assert comparison.differences["accuracy"].num_clusters == 12
    # Each of 12 passages was all right and is all wrong, or the other way round: six each way.
    assert comparison.differences["accuracy"].p_value == 1.0
    by_model["two"] = suite_of(*[1.0] * 24, cluster_size=2)
    (comparison,) = compare_models("sums", by_model, ["one", "two"], ["accuracy"])
    assert comparison.differences["accuracy"].p_value == pytest.approx(2 * 0.5**6)


def test_averages_over_suites() -> None:
    records = [
        *suite_of(1.0, 1.0, 1.0, 0.0),
        *suite_of(0.0, 1.0, name="capitals"),
        make_record("texts", "t1", status="scored", values={"score": 2.0}),
    ]
    (averages,) = make_report(records).averages
    assert averages.model is None
    assert set(averages.macro) == set(averages.micro) == {"accuracy"}
    assert (averages.macro["accuracy"].value, averages.macro["accuracy"].n) == (0.625, 2)
    assert averages.micro["accuracy"].value == pytest.approx(4 / 6)
    assert averages.micro["accuracy"].n == 6
    assert make_report(records[:4]).averages == ()
    assert make_report([records[0], records[-1]]).averages == ()


def test_the_mean_over_suites_is_of_those_that_have_the_metric() -> None:
    """Of pass@2 a sample's score is right or wrong too where all of its replies are, and the suite has no accuracy."""
    passes = [
        make_record("passes", f"s{number}", status=status, values={"pass@2": value})
        for number, (status, value) in enumerate([("correct", 1.0), ("wrong", 0.0), ("scored", 0.5), ("correct", 1.0)])
    ]
    sums = suite_of(1.0, 0.0)
    assert make_report([*passes, *sums]).averages == ()
    (averages,) = make_report([*passes, *sums, *suite_of(1.0, 1.0, name="capitals")]).averages
    assert set(averages.macro) == set(averages.micro) == {"accuracy"}
    assert (averages.macro["accuracy"].value, averages.macro["accuracy"].n) == (0.75, 2)
    assert (averages.micro["accuracy"].value, averages.micro["accuracy"].n) == (0.75, 4)


def test_averages_of_several_models() -> None:
    suites: list[SuiteReport] = []
    records = []
    for model, right in (("one", 1.0), ("two", 0.0)):
        for name in ("sums", "capitals"):
            own = suite_of(right, 0.0, name=name, model=model)
            records += own
            info = SuiteInfo(name=name)
            suites.append(summarize_suite(info, own, num_expected=2, num_skipped=0, model=model))
    found = average_suites(suites, records)
    assert [(one.model, one.macro["accuracy"].value, one.micro["accuracy"].n) for one in found] == [
        ("one", 0.5, 4),
        ("two", 0.0, 4),
    ]


def test_definitions() -> None:
    records = [make_record(values={"accuracy": 1.0, "flexible.brier": 0.5, "mine": 3.0})]
    found = definitions_of(make_report(records).suites)
    assert {name: (one["kind"], one["higher_is_better"]) for name, one in found.items()} == {
        "accuracy": ("proportion", True),
        "flexible.brier": ("mean", False),
        "mine": ("mean", None),
    }
    assert all(one["version"] == 1 for one in found.values())


def test_speed_is_of_samples_whose_tokens_were_counted() -> None:
    records = [
        make_record(id_="a", seconds=2.0, num_tokens=10, is_timed=True),
        make_record(id_="b", seconds=1.0, is_timed=True),
    ]
    (suite,) = make_report(records).suites
    assert suite.latency is not None
    assert suite.tokens_per_second is not None
    assert (suite.latency.n, suite.tokens_per_second.n, suite.tokens_per_second.mean) == (2, 1, 5.0)


def test_the_time_of_a_sample_is_shown_of_all_suites_or_of_none() -> None:
    """The first call of a search builds its index; the time of the next is no less true for being short."""
    slow = make_record(id_="a", suite="one", seconds=0.5, cost=0.1)
    fast = make_record(id_="a", suite="two", seconds=0.0004, cost=0.1)
    found = per_sample_table(make_report([slow, fast]), {})
    headers, rows = found.headers, found.rows
    assert [row[headers.index("time")] for row in rows] == ["500 ms", "0.40 ms"]
    assert "time" not in per_sample_table(make_report([fast]), {}).headers


def test_what_a_sample_took_is_a_mean_over_those_that_were_scored() -> None:
    records = [
        make_record(id_="a", num_prompt_tokens=10, num_tokens=2, seconds=1.0, cost=0.5),
        make_record(id_="b", num_prompt_tokens=30, num_tokens=4, seconds=2.0),
        make_record(
            id_="c", status="unscored", values={}, num_prompt_tokens=100, num_tokens=100, seconds=9.0, cost=1.0
        ),
    ]
    report = make_report(records)
    (suite,) = report.suites
    assert suite.cost == 1.5, "what it cost that could not be scored was paid too"
    assert suite.num_priced == 2
    assert suite.per_sample == PerSample(
        n=2, num_prompt_tokens=20, num_tokens=3, seconds=1.5, cost=0.5, num_priced=1, num_counted=2
    )
    found = per_sample_table(report, {})
    headers, rows = found.headers, found.rows
    assert headers == ["suite", "n", "prompt tokens", "tokens", "time", "cost", "cost in all"]
    assert rows == [["sums", "2", "20", "3", "1.50 s", "0.5 (n 1)", "1.50 (n 2)"]]
    before = replace(report, suites=(replace(suite, num_priced=None),))
    assert per_sample_table(before, {}).rows[0][-1] == "1.50", "of an earlier version that did not count"
    assert not per_sample_table(make_report(records[1:2]), {}).rows
    assert make_report(records[2:]).suites[0].per_sample is None


def test_tokens_that_a_program_leaves_out_are_in_no_mean() -> None:
    records = [
        make_record(id_="a", num_tokens=2, seconds=1.0, cost=0.5),
        make_record(id_="b", num_tokens=4, seconds=1.0, cost=0.5),
        make_record(id_="c", seconds=1.0, cost=0.5),
    ]
    report = make_report(records)
    found = report.suites[0].per_sample
    assert found is not None
    assert (found.num_prompt_tokens, found.num_tokens, found.num_counted) == (0, 3, 2)
    table = per_sample_table(report, {})
    assert table.headers == ["suite", "n", "tokens", "time", "cost", "cost in all"]
    assert table.rows == [["sums", "3", "3 (n 2)", "1.00 s", "0.5", "1.50"]]
