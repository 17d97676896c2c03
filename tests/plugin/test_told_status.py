"""What plugins and conftest files are told: the status that the session ends with, and gates as results before it."""

from __future__ import annotations

import json

import pytest

from tests.plugin.suites_for_tests import SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest

LISTENS = """
def write(*fact):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with CALLS.with_name("told.jsonl").open("a") as file:
            file.write(json.dumps(fact) + "\\n")

def pytest_runtest_logreport(report):
    if "gate[" in report.nodeid and report.when == "call":
        write(report.outcome, report.nodeid)

@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session, exitstatus):
    write("told", int(exitstatus), int(session.exitstatus), session.testsfailed)
"""
SKIPS_TESTS = "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_protocol():\n    return True\n"

FORGIVES = (
    "@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_makereport():\n    report = yield\n"
    "    report.outcome, report.longrepr = 'passed', None\n    return report\n"
)


@pytest.fixture
def sums(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, errors={"5 + 4": "too long"}) + LISTENS)
    llm_pytester.makefile(".yaml", sums=SUMS.replace('  - {id: s4, question: "5 + 4 =", target: 9}\n', ""))
    return llm_pytester


def add(pytester: pytest.Pytester, source: str) -> None:
    with (pytester.path / "conftest.py").open("a") as file:
        file.write(f"\n\n{source}")


def told(pytester: pytest.Pytester) -> list[list[object]]:
    return [json.loads(line) for line in (pytester.path / "told.jsonl").read_text().splitlines()]


def test_a_failed_gate(sums: pytest.Pytester, workers: list[str]) -> None:
    assert sums.runpytest(*workers, "--llm-gate=accuracy >= 0.9", "sums.yaml").ret == 1
    assert told(sums) == [["failed", "sums.yaml::gate[accuracy >= 0.9]"], ["told", 1, 1, 1]]


def test_gates_that_hold(sums: pytest.Pytester, workers: list[str]) -> None:
    assert sums.runpytest(*workers, "--llm-gate=accuracy >= 0.1", "sums.yaml").ret == 0
    assert told(sums) == [["passed", "sums.yaml::gate[accuracy >= 0.1]"], ["told", 0, 0, 0]]


def test_a_gate_beside_a_test_that_fails(sums: pytest.Pytester, workers: list[str]) -> None:
    sums.makepyfile("def test_one(): assert 0")
    assert sums.runpytest(*workers, "--llm-gate=accuracy >= 0.9", ".").ret == 1
    assert told(sums)[-1] == ["told", 1, 1, 2]


def test_nothing_selected(sums: pytest.Pytester, workers: list[str]) -> None:
    """A gate that is skipped is no test that ran."""
    sums.makefile(".yaml", sums=SUMS + "gates: [accuracy >= 0.9]\n")
    assert sums.runpytest(*workers, "-k", "nothing", ".").ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert told(sums) == [["skipped", "sums.yaml::gate[accuracy >= 0.9]"], ["told", 5, 5, 0]]


@pytest.mark.parametrize("number", [1, 2])
def test_samples_that_may_be_unscored(sums: pytest.Pytester, workers: list[str], number: int) -> None:
    """No test fails for them; whether there are too many is known when all have run."""
    sums.makefile(".yaml", sums=SUMS.replace("2 + 3", "5 + 4"))
    code = int(number == 1)
    assert sums.runpytest(*workers, f"--llm-allow-unscored={number}", "sums.yaml").ret == code
    assert told(sums) == [["told", code, code, code]]


def test_samples_without_a_result(sums: pytest.Pytester) -> None:
    add(sums, SKIPS_TESTS)
    assert sums.runpytest("-p", "no:xdist", "sums.yaml").ret == 1
    assert told(sums) == [["told", 1, 1, 1]]


def test_wrong_answers_that_another_plugin_forgives(sums: pytest.Pytester, workers: list[str]) -> None:
    add(sums, FORGIVES)
    assert sums.runpytest(*workers, "--llm-strict", "sums.yaml").ret == 1
    assert told(sums) == [["told", 1, 1, 1]]


def test_a_session_that_was_stopped(sums: pytest.Pytester, workers: list[str]) -> None:
    """Its status is that of what stopped it, and the gate is told of as well."""
    sums.makepyfile("def test_one(): assert 0")
    result = sums.runpytest(*workers, "-x", "--llm-gate=accuracy >= 0.9", "test_a_session_that_was_stopped.py", ".")
    gate, (name, status, *_) = told(sums)
    assert (gate[0], str(gate[1]).partition("::")[2]) == ("failed", "gate[accuracy >= 0.9]")
    assert (name, status) == ("told", result.ret)
    assert result.ret in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)


def test_every_worker_dies(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, kills=["+"]) + LISTENS)
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest("-n2", "--max-worker-restart=0", "--llm-gate=accuracy >= 0.1", "sums.yaml")
    assert result.ret == 1
    assert told(llm_pytester)[-1][:2] == ["told", 1]
    assert [fact[0] for fact in told(llm_pytester)] == ["failed", "told"]
