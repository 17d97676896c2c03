"""A session that is stopped or killed: what the model had answered by then is in the report, or in the journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SUITE = """\
suite: sums
dataset: {path: sums.jsonl}
prompt: {template: "{{ question }} ="}
score: number
"""

AGENTS = '''
import os, pathlib, signal, time

JOURNAL = pathlib.Path("report.json.journal")
num_calls = 0


def journaled():
    return JOURNAL.read_text().count('"record"') if JOURNAL.exists() else 0


def answer(prompt):
    global num_calls
    num_calls += 1
    return str(eval(prompt.removesuffix("=")))


def ctrl_c(prompt):
    if num_calls == 10:
        raise KeyboardInterrupt
    return answer(prompt)


def killed(prompt):
    """Ends the process that writes the journal, once ten replies are there, however busy the machine is."""
    if num_calls == 10:
        end = time.monotonic() + 600
        while journaled() < 10 and time.monotonic() < end:
            time.sleep(0.05)
        if "PYTEST_XDIST_WORKER" in os.environ:
            os.kill(os.getppid(), signal.SIGKILL)
        os._exit(9)
    return answer(prompt)


def speaks(prompt):
    raise KeyboardInterrupt("password=Fq8Fq8zz of " + prompt)


class Batched:
    """Is asked for many at once, and yields its responses."""

    def generate(self, requests):
        from pytest_llmeval.types import GenerateResponse
        for request in requests:
            yield GenerateResponse(text=ctrl_c(request.prompt))


class Waits:
    """Answers a whole chunk, of 80 samples here, at once."""

    def generate(self, requests):
        from pytest_llmeval.types import GenerateResponse
        return [GenerateResponse(text=answer(request.prompt)) for request in requests]
'''

NO_XDIST = ["-p", "no:xdist"]


def run(pytester: pytest.Pytester, model: str, *options: str) -> pytest.RunResult:
    pytester.makefile(".yaml", sums=SUITE)
    rows = [{"id": f"s{number}", "question": f"{number} + 1", "target": number + 1} for number in range(160)]
    (pytester.path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    pytester.makepyfile(my_agents=AGENTS)
    model = f"--llm-model=python:my_agents:{model}"
    return pytester.runpytest_subprocess(*options, model, "--llm-report=report.json", "sums.yaml")


def records_in(file: Path) -> list[Any]:
    if file.suffix == ".json":
        return list(json.loads(file.read_text(encoding="utf-8"))["records"])
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [line["record"] for line in lines if "record" in line]


def test_ctrl_c_leaves_what_a_function_had_answered(llm_pytester: pytest.Pytester) -> None:
    result = run(llm_pytester, "ctrl_c", *NO_XDIST)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["sums *10/160*", "*10 passed*"])
    assert [record["id"] for record in records_in(llm_pytester.path / "report.json")] == [f"s{n}" for n in range(10)]


def test_ctrl_c_leaves_what_a_batched_model_had_finished(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """Though pytest did not come to run their tests. With workers, one that is stopped tells the controller."""
    result = run(llm_pytester, "Batched", *workers)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    report = json.loads((llm_pytester.path / "report.json").read_text(encoding="utf-8"))
    if workers == NO_XDIST:
        assert [record["id"] for record in report["records"]] == [f"s{n}" for n in range(10)]
        assert report["stopped"] == "interrupted; 10 samples that the model had answered were scored then"
        result.stdout.fnmatch_lines(["stopped early (interrupted; 10 samples that the model had answered were scored*"])
    assert 10 <= len(report["records"]) <= 20
    assert {record["status"] for record in report["records"]} == {"correct"}
    assert [model["name"] for model in report["models"]] == ["python:my_agents:Batched"]
    assert [suite["num_scored"] for suite in report["suites"]] == [len(report["records"])]


def test_ctrl_c_between_two_tests_leaves_replies_that_wait(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(
        """
        def pytest_runtest_teardown(item):
            if item.name == "s2":
                raise KeyboardInterrupt
        """
    )
    result = run(llm_pytester, "Waits", *NO_XDIST)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    report = json.loads((llm_pytester.path / "report.json").read_text(encoding="utf-8"))
    assert len(report["records"]) == 80
    assert report["stopped"] == "interrupted; 77 samples that the model had answered were scored then"


INTERRUPTED_AT_THE_END = """
def pytest_runtest_teardown(item):
    if item.name == {first!r}:
        raise KeyboardInterrupt

def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput"):
        return
    from pytest_llmeval.reporting.storage import atomic_write
    calls, whole = iter(range(9)), atomic_write._file_mode

    def file_mode(path):  # all of a report is in its temporary file then
        if next(calls) == {num_written}:
            raise KeyboardInterrupt
        return whole(path)

    atomic_write._file_mode = file_mode
"""


@pytest.mark.parametrize(("first", "num_written"), [("s2", 0), (None, 1), ("s2", 2)])
def test_ctrl_c_while_reports_are_written_says_which_are_missing(
    llm_pytester: pytest.Pytester, workers: list[str], first: str | None, num_written: int
) -> None:
    """Be it the first or the second one. What was to be written over stays whole."""
    llm_pytester.makeconftest(INTERRUPTED_AT_THE_END.format(first=first, num_written=num_written))
    names = ["report.jsonl", "report.csv", "report.json"]
    for name in names:
        (llm_pytester.path / name).write_text("older")
    result = run(llm_pytester, "Waits", *workers, "--llm-report=report.jsonl", "--llm-report=report.csv")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "Traceback" not in result.stderr.str() + result.stdout.str()
    *_, line = result.errlines
    missing = ", ".join(names[num_written:])
    what = f"the report {missing} was written" if num_written == 2 else f"these reports were written: {missing}"
    journal = llm_pytester.path / "report.jsonl.journal"
    assert line == f"interrupted before {what}; the finished samples are in {journal}: llmeval show {journal}"
    for place, name in enumerate(names):
        assert ((llm_pytester.path / name).read_text() == "older") == (place >= num_written)
    assert not list(llm_pytester.path.glob(".llmeval-*"))
    assert len(records_in(journal)) >= 80


def test_ctrl_c_while_what_waits_is_scored(llm_pytester: pytest.Pytester) -> None:
    """The second one does without the rest of it, and the report is that of an interrupted run."""
    llm_pytester.makeconftest(
        """
        from pytest_llmeval.plugin.sample_item import SampleItem

        def pytest_runtest_teardown(item):
            if item.name == "s2":
                raise KeyboardInterrupt

        waiting = SampleItem.record_answered

        def record_answered(item, *others):
            if item.name == "s9":
                raise KeyboardInterrupt
            return waiting(item, *others)

        SampleItem.record_answered = record_answered
        """
    )
    result = run(llm_pytester, "Waits", *NO_XDIST)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "Traceback" not in result.stderr.str()
    report = json.loads((llm_pytester.path / "report.json").read_text(encoding="utf-8"))
    assert [record["id"] for record in report["records"]] == [f"s{n}" for n in range(9)]
    assert report["stopped"].startswith("interrupted")


def test_a_killed_session_leaves_a_journal_of_each_reply(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    run(llm_pytester, "killed", *workers)
    records = records_in(llm_pytester.path / "report.json.journal")
    assert len(records) >= 10
    if workers == NO_XDIST:
        assert [record["id"] for record in records] == [f"s{n}" for n in range(10)]


@pytest.mark.parametrize("options", [NO_XDIST, ["-n2"]], ids=["one process", "workers"])
def test_ctrl_c_again_makes_the_same_report(llm_pytester: pytest.Pytester, options: list[str]) -> None:
    """A second one comes while pytest tells its plugins of the first."""
    llm_pytester.makeconftest(
        "import os\n\ndef pytest_keyboard_interrupt():\n"
        "    if 'PYTEST_XDIST_WORKER' not in os.environ:\n        raise KeyboardInterrupt\n"
    )
    result = run(llm_pytester, "ctrl_c", *options)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["stopped early (interrupted*): these numbers cover only what had run"])
    result.stdout.no_fnmatch_line("*could not be scored*")
    report = json.loads((llm_pytester.path / "report.json").read_text())
    assert report["stopped"].startswith("interrupted")
    assert report["problems"] == []
    assert report["exit_code"] == pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize("options", [NO_XDIST, [*NO_XDIST, "--full-trace"]], ids=["line", "trace"])
def test_the_text_of_a_keyboard_interrupt_has_no_secrets(llm_pytester: pytest.Pytester, options: list[str]) -> None:
    result = run(llm_pytester, "speaks", *options)
    result.stdout.fnmatch_lines(["*KeyboardInterrupt: password=[*][*][*] of 0 + 1 =*"])
    assert "Fq8Fq8zz" not in result.stdout.str() + result.stderr.str()
