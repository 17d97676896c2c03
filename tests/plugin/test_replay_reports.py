"""``--llm-model replay:`` of this plugin's own reports: of the schema before, and of a run that was killed."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.reporting.storage.journal import Journal
from pytest_llmeval.reporting.storage.report_file import read_report
from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY, SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest

SCHEMA_1 = Path(__file__).parents[1] / "reporting" / "data" / "schema_1.json"


def statuses(records: list[Record]) -> dict[tuple[str, str], str]:
    return {(record.suite, record.id): record.status for record in records}


READ = """
import json, sys
from pathlib import Path
from pytest_llmeval.reporting.storage.report_file import read_report

report = read_report(Path(sys.argv[1]))
suites = [(one.info.name, one.summary.num_scored, one.summary.metrics["accuracy"].value) for one in report.suites]
statuses = [(record.suite, record.id, record.status) for record in report.records]
print(json.dumps({"stopped": report.stopped, "suites": suites, "statuses": statuses}))
"""


def read_in_a_process(pytester: pytest.Pytester, name: str) -> Any:
    """What is in a report. Not in this process: ``pytester`` forgets what a test imports, and numpy loads once."""
    done = pytester.run(sys.executable, "-c", READ, name)
    assert done.ret == 0
    return json.loads(done.outlines[-1])


@pytest.mark.parametrize("model", ["random", "majority"])
def test_schema_1(llm_pytester: pytest.Pytester, workers: list[str], model: str) -> None:
    shutil.copy(SCHEMA_1, llm_pytester.path / "old.json")
    llm_pytester.makefile(".yaml", capitals=CAPITALS, sums=SUMS)
    done = llm_pytester.runpytest(
        *workers, f"--llm-model=replay:old.json?model={model}", "--llm-report=out.json", "capitals.yaml", "sums.yaml"
    )
    assert done.ret == 0
    old = [record for record in read_report(SCHEMA_1).records if record.model == model]
    assert statuses(list(read_report(llm_pytester.path / "out.json").records)) == statuses(old)


def test_a_baseline_that_is_replayed_is_compared_with_itself(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """It passes, as it may be scored in another way, and says that the replies are the baseline's: also of a copy."""
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES))
    llm_pytester.makefile(".yaml", sums=SUMS)
    for name in ("base.json", "other.json"):
        assert llm_pytester.runpytest("-pno:xdist", f"--llm-report={name}", "sums.yaml").ret == 0
    (llm_pytester.path / "conftest.py").unlink()
    shutil.copy(llm_pytester.path / "base.json", llm_pytester.path / "copy.json")
    against = ("--llm-baseline=base.json", "--llm-gate-mode=margin", "--llm-max-drop=accuracy=0.1", "sums.yaml")
    told = "the baseline's own replies, scored again: nothing of a model is compared"
    for name, is_told in (("base", True), ("copy", True), ("other", False)):
        result = llm_pytester.runpytest(*workers, f"--llm-model=replay:{name}.json", *against, "--llm-report=now.json")
        assert result.ret == 0
        assert (told in " ".join(result.stdout.str().split())) == is_told
        options = ("--gate-mode=margin", "--max-drop=accuracy=0.1")
        compared = llm_pytester.run("llmeval", "compare", "base.json", "now.json", *options)
        assert compared.ret == 0
        assert (told in " ".join(compared.stdout.str().split())) == is_told


def test_a_run_that_was_killed(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """Its journal replays what it had finished; without ``partial`` it says what is missing."""
    kills = fake_model_conftest(likely=CAPITALS_LIKELY, replies=SUMS_REPLIES, kills=["5 + 4"])
    llm_pytester.makeconftest(kills)
    llm_pytester.makefile(".yaml", capitals=CAPITALS, sums=SUMS)
    run = ["-p", "no:xdist", "--llm-batch-size=1", "--llm-report=out.json", "capitals.yaml", "sums.yaml"]
    assert llm_pytester.runpytest_subprocess(*run).ret == 1
    assert not (llm_pytester.path / "out.json").exists()
    killed = read_in_a_process(llm_pytester, "out.json.journal")
    assert killed["stopped"] == "killed before its end"
    assert killed["suites"] == [["capitals", 3, 2 / 3], ["sums", 3, 1 / 3]]
    assert killed["statuses"] == [
        ["capitals", "q1", "correct"],
        ["capitals", "q2", "correct"],
        ["capitals", "q3", "wrong"],
        ["sums", "s1", "correct"],
        ["sums", "s2", "wrong"],
        ["sums", "s3", "wrong"],
    ]
    (llm_pytester.path / "conftest.py").unlink()
    replay = [*workers, "--llm-report=second.json", "capitals.yaml", "sums.yaml"]
    done = llm_pytester.runpytest_subprocess(*replay, "--llm-model=replay:out.json.journal")
    assert done.ret != 0
    done.stdout.fnmatch_lines(["*out.json.journal has no reply to 's4', of the 4 samples of suite 'sums'*"])
    done = llm_pytester.runpytest_subprocess(*replay, "--llm-model=replay:out.json.journal?partial=true")
    assert done.ret == 0
    assert read_in_a_process(llm_pytester, "second.json")["statuses"] == killed["statuses"]


def test_of_a_sample_that_was_run_again_the_last_reply_counts(
    llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    journal = Journal(llm_pytester.path / "out.json.journal", {"created": ""})
    for number, output in enumerate(["0", "7", "5", "8", "9", "2"]):
        id_ = f"s{(number - 1) % 4 + 1}" if number else "s1"
        journal.add(Record(suite="sums", id=id_, nodeid=id_, status="wrong", model="fake", output=output))
    journal.close(discard=False)
    with journal.path.open("ab") as file:
        file.write(b'{"record": {"suite": "sums", "id"')
    llm_pytester.makefile(".yaml", sums=SUMS)
    done = llm_pytester.runpytest(*workers, "--llm-model=replay:out.json.journal", "--llm-report=out.json", "sums.yaml")
    assert done.ret == 0
    outputs = {record.id: record.output for record in read_report(llm_pytester.path / "out.json").records}
    assert outputs == {"s1": "2", "s2": "5", "s3": "8", "s4": "9"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '{"schema": 2, "created": "", "journal": 1}\n',
            "out.json.journal holds no records: the run was killed before *",
        ),
        ("[]\n", "out.json.journal:1: found no line of a journal"),
        ('{"record": {"id": 1}}\n', "out.json.journal:1: found no line of a journal"),
    ],
)
def test_a_journal_without_replies(llm_pytester: pytest.Pytester, content: str, message: str) -> None:
    (llm_pytester.path / "out.json.journal").write_text(content)
    llm_pytester.makefile(".yaml", sums=SUMS)
    done = llm_pytester.runpytest("--llm-model=replay:out.json.journal", "sums.yaml")
    assert done.ret != 0
    done.stdout.fnmatch_lines([f"*model replay:out.json.journal: {message}"])
