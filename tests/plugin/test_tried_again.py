"""``--llm-strict`` beside plugins that run again what failed: a model that guesses right in the end is not forgiven."""

from __future__ import annotations

import importlib.util
import json
import xml.etree.ElementTree as ET

import pytest

from tests.plugin.suites_for_tests import SUMS
from tests.plugin.test_other_plugins import RETRY, statuses
from tests.support import fake_model_conftest, model_calls

LEARNS = """
class Learns(FakeModel):
    asked = set()

    def _write(self, text, request):
        is_known, _ = text in self.asked, self.asked.add(text)
        return super()._write(text, request) if is_known or "1 + 1" in text else GenerateResponse(text="0")

@pytest.fixture(scope="session")
def llm_model():
    return Learns()
"""
"""Right at once for s1, and for all others when asked a second time."""

TRIES = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for is_last in (False, False, True):
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if is_last or not any(report.failed for report in reports):
            break
        for report in reports:
            {each}
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
"""
RERUN = """report.outcome = "rerun" if report.failed else report.outcome
            item.ihook.pytest_runtest_logreport(report=report)

def pytest_report_teststatus(report):
    return ("rerun", "R", "RERUN") if report.outcome == "rerun" else None

"""
WAYS = {
    "reruns are shown": TRIES.format(each=RERUN.partition("\n\n")[0]) + RERUN.partition("\n\n")[2],
    "only the last is shown": TRIES.format(each="pass"),
    "inside the report": RETRY[RETRY.index("@pytest.hookimpl") :],
}
RIGHT = {"1 + 1": "2", "2 + 3": "5", "4 + 4": "8", "5 + 4": "9"}


def conftest(way: str) -> str:
    return fake_model_conftest(replies=RIGHT) + LEARNS + WAYS[way]


@pytest.mark.parametrize("way", WAYS)
def test_a_wrong_answer_is_not_forgiven_by_a_rerun(llm_pytester: pytest.Pytester, workers: list[str], way: str) -> None:
    llm_pytester.makeconftest(conftest(way))
    llm_pytester.makefile(".yaml", sums=SUMS)
    arguments = ("--llm-strict", "--llm-batch-size=1", "--llm-report=out.json", "--junitxml=out.xml", "sums.yaml")
    result = llm_pytester.runpytest(*workers, *arguments)
    assert result.ret == 1
    assert result.outlines[-1].startswith("=")
    result.stdout.re_match_lines([r"=+ 3 failed, 1 passed, .*\b3 wrong\b.*"])
    assert statuses(llm_pytester) == {"s1": "correct", "s2": "wrong", "s3": "wrong", "s4": "wrong"}
    assert len(model_calls(llm_pytester.path, "generate")) == 4, "the first answer counts: none is asked for again"
    (suite,) = ET.parse(llm_pytester.path / "out.xml").getroot()
    assert suite.attrib["failures"] == "3"


@pytest.mark.parametrize("way", WAYS)
def test_a_hand_written_test_is_not_forgiven(llm_pytester: pytest.Pytester, workers: list[str], way: str) -> None:
    llm_pytester.makeconftest("import pytest\n" + WAYS[way])
    llm_pytester.makepyfile(
        """
        tries = []
        def test_it(llm_record):
            tries.append(1)
            llm_record(suite="tone", id="1", correct=len(tries) > 1, answer="x")
            llm_record(suite="tone", id="2", correct=True, answer="x")
            assert len(tries) > 1
        """
    )
    result = llm_pytester.runpytest(*workers, "--llm-strict", "--llm-report=out.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*WrongAnswer: wrong: sample '1' of suite 'tone': *", "*= 1 failed, *1 wrong*"])
    assert statuses(llm_pytester) == {"1": "wrong", "2": "correct"}


def test_an_error_may_be_tried_again(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """What fails for want of a reply is not wrong, and what was right in the first try was not wrong either."""
    llm_pytester.makeconftest("import pytest\n" + WAYS["reruns are shown"])
    llm_pytester.makepyfile(
        """
        tries = []
        def test_it(llm_record):
            tries.append(1)
            assert len(tries) > 1
            llm_record(suite="tone", id="1", correct=True)
        """
    )
    result = llm_pytester.runpytest(*workers, "--llm-strict")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*= 1 passed, 1 rerun in *"])


HIDES = """
@pytest.hookimpl(wrapper=True{order})
def pytest_runtest_makereport():
    report = yield
    if report.failed:
        report.outcome, report.longrepr = {outcome}
    return report
"""


@pytest.mark.parametrize("order", ["", ", tryfirst=True"], ids=["inside", "outside"])
@pytest.mark.parametrize("outcome", ["'passed', None", "'skipped', ('x', 1, 'Skipped: x')"], ids=["passed", "skipped"])
def test_a_result_that_another_plugin_changes_is_not_forgiven(
    llm_pytester: pytest.Pytester, workers: list[str], outcome: str, order: str
) -> None:
    hides = HIDES.format(order=order, outcome=outcome)
    llm_pytester.makeconftest(fake_model_conftest(replies={"1 + 1": "2"}, default_reply="0") + hides)
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest(*workers, "--llm-strict", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["problem: --llm-strict: wrong answers that did not fail their tests, *: sums.yaml::s2, sums.yaml::s3, *s4"]
    )
    if "passed" in outcome:
        result.stdout.fnmatch_lines(["*= 1 passed, 3 wrong in *"])


def test_a_process_for_each_try(llm_pytester: pytest.Pytester) -> None:
    """What one process has found wrong, the next does not know of."""
    tries = WAYS["reruns are shown"].replace("runtestprotocol(item", "in_child(item")
    child = """
import marshal

def in_child(item, nextitem, log):
    end, start = os.pipe()
    if not (child := os.fork()):
        try:
            reports = [{**one.__dict__, "nodeid": one.nodeid} for one in runtestprotocol(item, log=False)]
            for report in reports:
                report.pop("_id", None)
                report["longrepr"] = report["longrepr"] and str(report["longrepr"])
            os.write(start, marshal.dumps(reports))
        finally:
            os._exit(0)
    os.close(start)
    with open(end, "rb") as file:
        reports = [pytest.TestReport(**one) for one in marshal.loads(file.read())]
    os.waitpid(child, 0)
    num_tries.append(item.name)
    return reports

num_tries = []

@pytest.fixture(scope="session")
def llm_model():
    fake = FakeModel()
    fake._write = lambda text, request: GenerateResponse(text="2" if num_tries else "0")
    return fake
"""
    llm_pytester.makeconftest(fake_model_conftest() + tries + child)
    one = "suite: one\nsamples: [{id: s1, question: 1 + 1 =, target: 2}]\nscore: number\n"
    llm_pytester.makefile(".yaml", one=one)
    result = llm_pytester.runpytest("-p", "no:xdist", "--llm-strict", "one.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["problem: --llm-strict: * did not fail their tests, *: one.yaml::s1"])
    result.stdout.fnmatch_lines(["*= 1 rerun, 1 wrong in *"])


def test_a_sample_that_is_expected_to_fail(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    marks = "\ndef pytest_collection_modifyitems(items):\n    for item in items:\n        item.add_marker('xfail')\n"
    llm_pytester.makeconftest(conftest("reruns are shown") + marks)
    llm_pytester.makefile(".yaml", sums=SUMS)
    assert llm_pytester.runpytest(*workers, "--llm-strict", "sums.yaml").ret == 0


@pytest.mark.skipif(importlib.util.find_spec("pytest_rerunfailures") is None, reason="needs pytest-rerunfailures")
def test_pytest_rerunfailures(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=RIGHT) + LEARNS)
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest(*workers, "--llm-strict", "--reruns=2", "--llm-report=out.json", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*= 3 failed, 1 passed, 6 rerun, 3 wrong in *"])
    assert json.loads((llm_pytester.path / "out.json").read_text("utf-8"))["exit_code"] == 1
