"""The JSON report: what is in it, and when it is written."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.reporting.storage.report_file import read_report
from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY, SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest


def read(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "out.json").read_text(encoding="ascii"))
    return report


@pytest.fixture
def both(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY, replies=SUMS_REPLIES))
    llm_pytester.makefile(".yaml", capitals=CAPITALS, sums=SUMS)
    return llm_pytester


def test_contents(both: pytest.Pytester, workers: list[str]) -> None:
    assert both.runpytest(*workers, "--llm-report=out.json", "capitals.yaml", "sums.yaml").ret == 0
    report = read(both.path)
    assert report["schema"] == 3
    assert report["exit_code"] == 0
    assert report["stopped"] is None
    assert report["problems"] == []
    assert [model["name"] for model in report["models"]] == ["fake"]
    assert report["options"] == {"report": ["out.json"]}
    assert report["environment"]["versions"]["pytest"] == pytest.__version__
    suites = {suite["name"]: suite for suite in report["suites"]}
    assert suites["capitals"]["metrics"]["accuracy"]["value"] == pytest.approx(2 / 3)
    assert suites["capitals"]["metrics"]["accuracy"]["n"] == 3
    assert sorted(suites["capitals"]["categories"]) == ["north", "south", "west"]
    assert suites["capitals"]["num_expected"] == suites["capitals"]["num_scored"] == 3
    assert suites["capitals"]["num_samples"] == 3
    assert len(suites["capitals"]["fingerprint"]) == 64
    assert suites["sums"]["num_no_answer"] == 1
    records = {(record["suite"], record["id"]): record for record in report["records"]}
    assert len(records) == 7
    assert records["capitals", "q3"]["status"] == "wrong"
    assert records["capitals", "q3"]["nodeid"] == "capitals.yaml::q3"
    assert records["capitals", "q3"]["target"] == "Oslo"
    assert records["capitals", "q3"]["prompt"] == "Question: Capital of Norway?\nAnswer:"
    assert records["capitals", "q1"]["chance"] == 0.25
    assert records["sums", "s1"]["output"] == "The answer is 2."
    assert records["sums", "s3"]["no_answer"] is True


def test_the_same_numbers_with_and_without_workers(both: pytest.Pytester) -> None:
    reports = []
    for workers in (["-p", "no:xdist"], ["-n2"], ["-n", "3", "--dist", "loadfile"]):
        both.runpytest(*workers, "--llm-report=out.json", "capitals.yaml", "sums.yaml")
        report = read(both.path)
        report["records"].sort(key=lambda record: (record["suite"], record["id"]))
        report["suites"].sort(key=lambda suite: str(suite["name"]))
        for key in ("digest", "created", "seconds"):
            del report[key]
        reports.append(report)
    assert reports[0] == reports[1] == reports[2]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("none", None),
        ("full", "Question: Capital of France?\nAnswer:"),
        ("hash", "sha256:" + hashlib.sha256(b"Question: Capital of France?\nAnswer:").hexdigest()),
    ],
)
def test_prompts(both: pytest.Pytester, how: str, expected: str | None) -> None:
    both.runpytest("--llm-report=out.json", f"--llm-report-prompts={how}", "capitals.yaml::q1")
    assert read(both.path)["records"][0]["prompt"] == expected


def test_failures_are_in_the_report(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, errors={"2 + 3": "too hot"}))
    llm_pytester.makefile(".yaml", sums=SUMS)
    llm_pytester.runpytest(*workers, "--llm-report=out.json", "sums.yaml")
    report = read(llm_pytester.path)
    assert report["exit_code"] == 1
    assert (report["suites"][0]["num_expected"], report["suites"][0]["num_scored"]) == (4, 3)
    record = next(record for record in report["records"] if record["id"] == "s2")
    assert (record["status"], record["reason"], record["values"]) == ("unscored", "too hot", {})


def test_a_model_that_raises_in_the_fixture(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(
        "import pytest\n@pytest.fixture(scope='session')\ndef llm_model():\n    raise RuntimeError('no weights')\n"
    )
    llm_pytester.makefile(".yaml", sums=SUMS)
    assert llm_pytester.runpytest(*workers, "--llm-report=out.json", "sums.yaml").ret == 1
    assert {record["reason"] for record in read(llm_pytester.path)["records"]} == {"RuntimeError: no weights"}
    assert len(read(llm_pytester.path)["records"]) == 4


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("capitals.yaml/a/out.json", "cannot write the report capitals.yaml/a/out.json: Not a directory"),
        ("out.txt", "--llm-report: expected a name that ends in .json, .md, "),
        ("out.xml", "--junitxml=FILE"),
    ],
)
def test_an_unwritable_path_is_found_before_the_run(
    both: pytest.Pytester, workers: list[str], path: str, message: str
) -> None:
    result = both.runpytest(*workers, f"--llm-report={path}", "capitals.yaml")
    assert result.ret == 4
    assert message in result.stderr.str()
    assert not (both.path / "model_calls.jsonl").exists()


def test_an_old_report_survives_a_write_that_fails(both: pytest.Pytester) -> None:
    both.runpytest("--llm-report=out.json", "capitals.yaml")
    before = (both.path / "out.json").read_bytes()
    both.makepyfile(
        broken_disk="""
        import os
        def fail(*args):
            raise OSError(28, "No space left on device")
        def pytest_collection_finish():
            os.fsync = fail
        """
    )
    result = both.runpytest_subprocess("-p", "broken_disk", "--llm-report=out.json", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["problem: cannot write the report *out.json: No space left on device"])
    assert (both.path / "out.json").read_bytes() == before
    assert [path.name for path in both.path.iterdir() if path.name.endswith(".tmp")] == []


@pytest.mark.parametrize(("num_written", "said"), [(2, "2 of the 4 finished"), (9, "the finished")])
def test_samples_that_a_full_disk_did_not_take_are_not_said_to_be_there(
    both: pytest.Pytester, workers: list[str], num_written: int, said: str
) -> None:
    both.makepyfile(
        full_disk=f"""
        import os
        from pytest_llmeval.reporting.storage.journal import Journal

        def fail(*args):
            raise OSError(28, "No space left on device")

        class Full:
            def __init__(self, file):
                self._file = file
            write = fail
            def __getattr__(self, name):
                return getattr(self._file, name)

        def add(journal, record, add=Journal.add):
            if len(journal) == {num_written}:
                journal._file = Full(journal._file)
            return add(journal, record)

        Journal.add = add

        def pytest_sessionfinish():
            os.fsync = fail
        """
    )
    result = both.runpytest_subprocess(*workers, "-p", "full_disk", "--llm-report=out.json", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"problem: {said} samples are in *out.json.journal: llmeval show *out.json.journal"])
    assert len(read_report(both.path / "out.json.journal").records) == min(num_written, 4)


def test_a_test_that_changes_the_directory_does_not_move_the_report(both: pytest.Pytester) -> None:
    both.makepyfile("import os\n\ndef test_moves(tmp_path):\n    os.chdir(tmp_path)")
    both.runpytest("--llm-report=out.json", ".")
    assert len(read(both.path)["records"]) == 7


def test_secrets_do_not_reach_the_report(
    llm_pytester: pytest.Pytester, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "very-secret-value")
    llm_pytester.makeconftest(
        fake_model_conftest(raises={"1 + 1": "no access for very-secret-value at https://me:pass@host/"})
    )
    llm_pytester.makefile(".yaml", sums=SUMS)
    llm_pytester.runpytest(*workers, "--llm-report=out.json", "sums.yaml")
    text = (llm_pytester.path / "out.json").read_text()
    assert "RuntimeError: no access for *** at https://host/" in text
    assert "very-secret" not in text
    assert "me:pass" not in text


def test_collect_only_writes_no_report(both: pytest.Pytester) -> None:
    both.runpytest("--collect-only", "--llm-report=out.json", "capitals.yaml")
    assert not (both.path / "out.json").exists()


def test_ctrl_c_leaves_a_report_of_what_had_run(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(
        """
        import time, pytest
        from pathlib import Path
        from pytest_llmeval.types import GenerateResponse

        class Slow:
            def generate(self, requests):
                if "5 + 4" in requests[0].prompt:
                    Path("waiting").touch()
                    time.sleep(1000)  # until it is interrupted, on a busy machine too
                return [GenerateResponse(text="2") for _ in requests]

        @pytest.fixture(scope="session")
        def llm_model():
            return Slow()
        """
    )
    llm_pytester.makefile(".yaml", sums=SUMS)
    command = [sys.executable, "-m", "pytest", "--llm-batch-size=1", "--llm-report=out.json", "sums.yaml"]
    process = subprocess.Popen(
        command,
        cwd=llm_pytester.path,
        stdout=subprocess.PIPE,
        text=True,
        # What a shell starts in the background ignores the signal, and so does all that is started there.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not (llm_pytester.path / "waiting").exists():
        assert process.poll() is None, "the run ended before the slow sample"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 2
    assert "stopped early (interrupted)" in output
    report = read(llm_pytester.path)
    assert [record["id"] for record in report["records"]] == ["s1", "s2", "s3"]
    assert report["stopped"] == "interrupted"
    assert (report["suites"][0]["num_expected"], report["suites"][0]["num_scored"]) == (4, 3)


REPLY = "a\x00b\ud800c\x1b[31mred\u202eevil"


def test_replies_that_no_terminal_should_see(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(
        f"""
        import pytest
        from pytest_llmeval.types import GenerateResponse

        class Odd:
            def generate(self, requests):
                return [GenerateResponse(text={REPLY!r}) for _ in requests]

        @pytest.fixture(scope="session")
        def llm_model():
            return Odd()
        """
    )
    llm_pytester.makefile(
        ".yaml",
        odd="suite: odd\nscore: exact\nsamples: [{id: one, question: q, target: t}, {question: q, id: two, target: t}]",
    )
    result = llm_pytester.runpytest(*workers, "--llm-strict", "--llm-report=out.json", "odd.yaml")
    assert result.ret == 1
    shown = result.stdout.str()
    assert "found 'a\\x00b\\ud800c\\x1b[31mred\\u202eevil'" in shown
    assert not {"\x00", "\x1b", "\u202e"} & set(shown)
    assert {record["output"] for record in read(llm_pytester.path)["records"]} == {REPLY}


def test_fingerprints_follow_what_is_asked_and_how_it_is_judged(both: pytest.Pytester) -> None:
    def fingerprints(*options: str) -> tuple[str, dict[str, str]]:
        both.runpytest(*options, "--llm-report=out.json", "capitals.yaml")
        report = read(both.path)
        return report["suites"][0]["fingerprint"], {one["id"]: one["fingerprint"] for one in report["records"]}

    plain = fingerprints()
    assert fingerprints() == plain
    assert fingerprints("-k", "q1")[0] == plain[0], "a selection does not change the suite"
    changed = fingerprints("--llm-set", "capitals: score.choice.normalize=sum")
    assert changed[0] != plain[0]
    edited = fingerprints("--llm-set", "capitals: samples.0.question='Capital of Gaul?'")
    assert edited[0] != plain[0]
    assert {key for key in plain[1] if plain[1][key] != edited[1][key]} == {"q1"}
    both.makefile(".yaml", capitals=CAPITALS + "description: other words\n")
    assert fingerprints() == plain, "a description decides nothing"


@pytest.mark.parametrize(
    "arguments",
    [
        ["capitals.yaml", "--llm-gate=acuracy > 1"],
        ["capitals.yaml", "absent.yaml"],
        ["capitals.yaml::absent"],
        ["capitals.yaml", "--llm-model=demo", "--llm-model-arg=devise=cpu"],
    ],
)
def test_a_usage_error_leaves_an_earlier_report_alone(
    llm_pytester: pytest.Pytester, workers: list[str], arguments: list[str]
) -> None:
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY))
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    report = llm_pytester.path / "out.json"
    report.write_text("an earlier one")
    result = llm_pytester.runpytest(*workers, *arguments, "--llm-report=out.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert report.read_text() == "an earlier one"
    assert [path.name for path in llm_pytester.path.iterdir() if "out.json" in path.name] == ["out.json"]
