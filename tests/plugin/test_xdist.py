"""Workers that die, and sessions that lose them."""

from __future__ import annotations

import json

import pytest

from tests.plugin.suites_for_tests import SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest


@pytest.fixture
def deadly(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, kills=["2 + 3"]))
    llm_pytester.makefile(".yaml", sums=SUMS)
    return llm_pytester


def test_a_sample_that_kills_its_worker_is_unscored(deadly: pytest.Pytester) -> None:
    result = deadly.runpytest_subprocess("-n2", "--llm-report=out.json", "sums.yaml")
    assert result.ret == 1
    report = json.loads((deadly.path / "out.json").read_text())
    statuses = {record["id"]: record["status"] for record in report["records"]}
    assert statuses == {"s1": "correct", "s2": "unscored", "s3": "wrong", "s4": "correct"}
    result.stdout.fnmatch_lines(["sums*3/4*", "  sums.yaml::s2: worker 'gw?' crashed while running 'sums.yaml::s2'"])


def test_what_is_lost_with_the_last_worker_is_counted(deadly: pytest.Pytester) -> None:
    options = ("-n1", "--max-worker-restart=0", "--llm-report=out.json")
    result = deadly.runpytest_subprocess(*options, "sums.yaml")
    assert result.ret != 0
    report = json.loads((deadly.path / "out.json").read_text())
    assert report["suites"][0]["num_expected"] == 4
    assert {record["id"]: record["status"] for record in report["records"]} == {
        "s1": "correct",
        "s2": "unscored",
        "s3": "unscored",
        "s4": "unscored",
    }
    result.stdout.fnmatch_lines(["problem: 2 of 4 samples did not come back"])


@pytest.mark.parametrize("mode", ["load", "loadscope", "loadfile", "loadgroup", "worksteal", "each"])
def test_every_distribution_mode(llm_pytester: pytest.Pytester, mode: str) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES))
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest_subprocess("-n2", "--dist", mode, "--llm-report=out.json", "sums.yaml")
    assert result.ret == 0
    report = json.loads((llm_pytester.path / "out.json").read_text())
    assert len(report["records"]) == 4
