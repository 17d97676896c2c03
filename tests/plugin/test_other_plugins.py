"""Other plugins beside ours: what theirs do to a test, in small, and plugins of pytest's own that are switched off."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.plugin.suites_for_tests import SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest, model_calls

RETRY = """
import pytest

class Flaky(FakeModel):
    num_failures = {}

    def generate(self, requests):
        for part in ("1 + 1", "2 + 3"):
            if any(part in request.prompt for request in requests) and self.num_failures.get(part, 0) < 2:
                self.num_failures[part] = self.num_failures.get(part, 0) + 1
                raise RuntimeError("overloaded")
        return super().generate(requests)

@pytest.fixture(scope="session")
def llm_model():
    return Flaky()

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):  # as pytest-retry 1.7 does it
    report = yield
    while call.when == "call" and report.failed and item.stash.setdefault(attempts, 3):
        item.stash[attempts] -= 1
        report.outcome = "retried"
        item.ihook.pytest_runtest_logreport(report=report)
        other = pytest.Class.from_parent(item.session, name="Other")
        pytest.CallInfo.from_call(
            lambda: item.ihook.pytest_runtest_teardown(item=item, nextitem=other), when="teardown"
        )
        item._initrequest()
        pytest.CallInfo.from_call(lambda: item.ihook.pytest_runtest_setup(item=item), when="setup")
        call = pytest.CallInfo.from_call(lambda: item.ihook.pytest_runtest_call(item=item), when="call")
        again = pytest.TestReport.from_item_and_call(item, call)
        report.outcome, report.longrepr = again.outcome, again.longrepr
    return report

attempts = pytest.StashKey()
"""

FORK = """
import marshal
import os
import pytest
from _pytest.runner import runtestprotocol

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):  # as pytest-forked 1.7 does it
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    end, start = os.pipe()
    child = os.fork()
    if not child:
        try:
            reports = [{**report.__dict__, "nodeid": report.nodeid} for report in runtestprotocol(item, log=False)]
            for report in reports:
                report.pop("_id", None)  # of pytest 9.2, under which pytest-forked 1.7 fails for every test
                report["longrepr"] = report["longrepr"] and str(report["longrepr"])
            os.write(start, marshal.dumps(reports))
        finally:
            os._exit(0)
    os.close(start)
    with open(end, "rb") as file:
        reports = marshal.loads(file.read())
    os.waitpid(child, 0)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=pytest.TestReport(**report))
    item.session._setupstate.teardown_exact(nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
"""


def records(pytester: pytest.Pytester) -> dict[str, dict[str, Any]]:
    report = json.loads((pytester.path / "out.json").read_text(encoding="utf-8"))
    return {record["id"]: record for record in report["records"]}


def statuses(pytester: pytest.Pytester) -> dict[str, str]:
    return {sample_id: record["status"] for sample_id, record in records(pytester).items()}


def test_a_sample_that_is_tried_again_counts_as_its_last_try(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """s1 is right and s2 is wrong once the model answers; both are shown as what they are."""
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES) + RETRY)
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest(*workers, "--llm-report=out.json", "sums.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*= 2 passed, * retried, 2 wrong in *"])
    assert statuses(llm_pytester) == {"s1": "correct", "s2": "wrong", "s3": "wrong", "s4": "correct"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_process_for_each_test(llm_pytester: pytest.Pytester) -> None:
    """Each is asked alone: what one process computes for the next is lost with it."""
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, errors={"5 + 4": "too long"}) + FORK)
    llm_pytester.makefile(".yaml", sums=SUMS)
    llm_pytester.makepyfile("def test_own(llm_record): llm_record(suite='own', id='1', correct=True)")
    result = llm_pytester.runpytest("-p", "no:xdist", "--llm-report=out.json", ".")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*= 1 failed, 2 passed, 2 wrong in *"])
    expected = {"s1": "correct", "s2": "wrong", "s3": "wrong", "s4": "unscored"}
    assert statuses(llm_pytester) == expected | {"1": "correct"}
    assert records(llm_pytester)["s4"]["reason"] == "too long"
    calls = model_calls(llm_pytester.path, "generate")
    assert [len(call["prompts"]) for call in calls] == [1] * 4
    assert len({call["pid"] for call in calls}) == 4


def test_a_process_for_each_test_that_records(llm_pytester: pytest.Pytester) -> None:
    """Also where there is no suite."""
    llm_pytester.makeconftest(FORK)
    llm_pytester.makepyfile("def test_own(llm_record): llm_record(suite='own', id='1', correct=False)")
    result = llm_pytester.runpytest_inprocess("-p", "no:xdist", "--llm-report=out.json")
    assert result.ret == 0
    assert statuses(llm_pytester) == {"1": "wrong"}


@pytest.mark.parametrize("plugin", ["logging", "cacheprovider", "terminal", "junitxml", "capture", "skipping"])
def test_a_plugin_of_pytest_s_own_that_is_switched_off(llm_pytester: pytest.Pytester, plugin: str) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES))
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest_inprocess(
        "-p", "no:xdist", "-p", f"no:{plugin}", "--llm-report=out.json", "sums.yaml"
    )
    assert result.ret == 0
    assert len(statuses(llm_pytester)) == 4


def test_hooks_of_a_conftest_see_the_samples_below_it_alone(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES))
    for name in ("first", "second"):
        folder = llm_pytester.mkdir(name)
        folder.joinpath(f"{name}.yaml").write_text(SUMS.replace("suite: sums", f"suite: {name}"), encoding="utf-8")
        folder.joinpath("conftest.py").write_text(
            "from pathlib import Path\n"
            "def pytest_runtest_call(item):\n"
            "    with Path(__file__).with_name('seen').open('a') as file:\n"
            "        file.write(item.nodeid + '\\n')\n",
            encoding="utf-8",
        )
    llm_pytester.runpytest(*workers, "first", "second")
    for name in ("first", "second"):
        seen = (llm_pytester.path / name / "seen").read_text().splitlines()
        assert sorted(seen) == [f"{name}/{name}.yaml::s{number}" for number in (1, 2, 3, 4)]
