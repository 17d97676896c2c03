"""What a summary says of how log-likelihoods were computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_llmeval.reporting.report.summaries import merged_uses
from pytest_llmeval.reporting.tables.session import engine_texts
from pytest_llmeval.types import EngineUse
from tests.reporting.made_reports import suite_report

TREE = EngineUse(engine="tree", reason="full attention", num_audited=4, largest_difference=1e-6, tolerance=1e-4)
OFF = EngineUse(engine="plain", reason="the tree differed", num_audited=4, largest_difference=2.0, tolerance=1e-4)
PLAIN = EngineUse(engine="plain", reason="ALiBi positions")


def engine_lines(uses: Sequence[tuple[str, EngineUse]]) -> list[str]:
    return [*engine_texts([replace(suite_report(name), engine=use) for name, use in uses], {})]


def test_one_line_for_one_way() -> None:
    assert engine_lines([("a", TREE), ("b", TREE)]) == [
        "log-likelihoods: tree (full attention); 8 requests were also scored plain, and differed by at most 1e-06"
    ]
    assert engine_lines([("a", PLAIN)]) == ["log-likelihoods: plain (ALiBi positions)"]
    assert engine_lines([]) == []


def test_a_check_that_did_not_happen_is_none() -> None:
    (line,) = engine_lines([("a", EngineUse(engine="tree", reason="full attention"))])
    assert line == "log-likelihoods: tree (full attention); no request could be audited against plain scoring"


def test_suites_are_named_where_ways_differ() -> None:
    first, second = engine_lines([("a", TREE), ("b", OFF)])
    assert first.startswith("log-likelihoods: tree (full attention) for a; 4 requests")
    assert second.startswith("log-likelihoods: plain (the tree differed) for b; 4 requests")


def test_workers_that_found_the_same_are_not_added_up() -> None:
    worse = EngineUse(engine="tree", reason="full attention", num_audited=4, largest_difference=3e-6, tolerance=1e-4)
    assert merged_uses(None, TREE) == TREE
    assert merged_uses(TREE, worse) == merged_uses(worse, TREE) == worse


def test_a_suite_that_workers_scored_in_two_ways_says_so() -> None:
    for found in (merged_uses(TREE, OFF), merged_uses(OFF, TREE), merged_uses(merged_uses(OFF, TREE), TREE)):
        assert found.engine == "plain"
        assert found.reason == "the tree differed; other workers passed the audit and used the tree"
