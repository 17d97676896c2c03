"""``llmeval export``: the samples of a report for other programs."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.cli import main
from pytest_llmeval.reporting.report.report import Report
from tests.commands.saved_reports import MODEL, info, report_of, sample, samples, saved
from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY, SUMS, SUMS_REPLIES
from tests.support import clean_environment, fake_model_conftest


@pytest.fixture
def report(tmp_path: Path) -> str:
    records = [
        sample("a", "q1", question="Is it\nso?", target=["yes", "yeah"], values={"accuracy": 1.0, "seconds": 2.5}),
        sample("a", "q2", "wrong", answer="\ud800=1+1", details={"n": [1]}),
        sample("a", "q3", "wrong", answer=None, no_answer=True),
        sample("a", "q4", "unscored", answer="half an answer", reason="boom"),
        sample("b", "q1", "scored", answer="text", values={"f1": 0.5}),
    ]
    return saved(tmp_path, "report.json", report_of(records))


def export(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["export", *arguments]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


def test_questions(report: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(export(capsys, report, "--to", "questions")) == [
        {
            "benchmark": "a",
            "metrics": {"accuracy": 1 / 4, "credit": 1, "correct": 1, "total": 4, "unscored": 1},
            "questions": [
                {"qid": "q1", "question": "Is it\nso?", "gold": "yes | yeah", "pred": "yes", "correct": True},
                {"qid": "q2", "question": "question q2?", "gold": "yes", "pred": "\ud800=1+1", "correct": False},
                {"qid": "q3", "question": "question q3?", "gold": "yes", "pred": None, "correct": False},
                {"qid": "q4", "question": "question q4?", "gold": "yes", "pred": None, "correct": None},
            ],
        },
        {
            "benchmark": "b",
            "metrics": {"accuracy": None, "credit": 0, "correct": 0, "total": 0, "unscored": 0},
            "questions": [{"qid": "q1", "question": "question q1?", "gold": "yes", "pred": "text", "correct": None}],
        },
    ]


def test_questions_of_several_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        record
        for number, statuses in enumerate(("cw", "wc", "cc"))  # as a session that goes from sample to sample has them
        for model, letter in zip(("demo", "other"), statuses, strict=True)
        for record in samples("a", letter, start=number, model=model)
    ]
    path = saved(tmp_path, "two.json", report_of(records, models=[MODEL, {**MODEL, "name": "other"}]))
    found = json.loads(export(capsys, path, "--to", "questions"))
    assert [(one["benchmark"], one["model"], one["metrics"]["correct"]) for one in found] == [
        ("a", "demo", 2),
        ("a", "other", 2),
    ]
    assert [[question["correct"] for question in one["questions"]] for one in found] == [
        [True, False, True],
        [False, True, True],
    ]


def test_questions_that_are_not_known_to_be_right_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = report_of(samples("a", "ccu"))
    metrics = questions(tmp_path, whole, capsys)["metrics"]
    assert metrics == {"accuracy": 2 / 3, "credit": 2, "correct": 2, "total": 3, "unscored": 1}
    suite = replace(whole.suites[0], summary=replace(whole.suites[0].summary, num_expected=10))
    stopped = replace(whole, suites=(suite,), stopped="interrupted")
    metrics = questions(tmp_path, stopped, capsys)["metrics"]
    assert metrics == {"accuracy": 0.2, "credit": 2, "correct": 2, "total": 10, "unscored": 8}
    nothing = questions(tmp_path, report_of(samples("a", "uu")), capsys)["metrics"]
    assert nothing == {"accuracy": 0.0, "credit": 0, "correct": 0, "total": 2, "unscored": 2}


@pytest.mark.parametrize("metric", ["accuracy", "pass@2"])
def test_questions_that_are_partly_right_count(metric: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ties and questions that are asked several times: what the report's mean is taken over."""
    credits = {"q1": 1.0, "q2": 0.0, "q3": 0.25, "q4": 0.5}
    records = [
        sample("a", id, {1.0: "correct", 0.0: "wrong"}.get(credit, "scored"), values={metric: credit})
        for id, credit in credits.items()
    ]
    records.append(sample("a", "q5", "unscored"))
    report = report_of(records, [info("a", metrics=(metric, "pass@4"))])
    mean = report.suites[0].summary.metrics[metric]
    assert (mean.value, mean.n) == (1.75 / 4, 4)
    found = questions(tmp_path, report, capsys)
    assert found["metrics"] == {"accuracy": 1.75 / 5, "credit": 1.75, "correct": 1, "total": 5, "unscored": 1}
    assert [one["correct"] for one in found["questions"]] == [True, False, None, None, None]


def test_questions_that_are_all_partly_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [sample("a", f"q{number}", "scored", values={"accuracy": 0.25}) for number in range(4)]
    metrics = questions(tmp_path, report_of(records), capsys)["metrics"]
    assert metrics == {"accuracy": 0.25, "credit": 1, "correct": 0, "total": 4, "unscored": 0}


def questions(folder: Path, report: Report, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Of a report of one suite: an object, and not a list of one."""
    found = json.loads(export(capsys, saved(folder, "one.json", report), "--format", "questions"))
    assert isinstance(found, dict)
    assert found["benchmark"] == "a"
    return found


@pytest.mark.parametrize("kind", ["csv", "jsonl", "md", "questions"])
def test_folders_are_made(kind: str, report: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "no" / "none" / "exported"
    assert export(capsys, report, "--to", kind, "-o", str(output)) == ""
    assert output.read_text(encoding="utf-8")


def test_a_report_without_samples_is_an_empty_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, "empty.json", report_of([], []))
    assert json.loads(export(capsys, path, "--to", "questions")) == []
    assert export(capsys, path, "--to", "jsonl") == ""
    assert export(capsys, path, "--to", "csv").startswith("suite,model,id,")


def test_questions_of_a_session(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY, replies=SUMS_REPLIES))
    llm_pytester.makefile(".yaml", capitals=CAPITALS, sums=SUMS)
    llm_pytester.runpytest(*workers, "capitals.yaml", "sums.yaml", "--llm-report=out.json")
    done = llm_pytester.run("llmeval", "export", "out.json", "--to", "questions")
    capitals, sums = json.loads(done.stdout.str())
    assert capitals["metrics"] == {"accuracy": 2 / 3, "credit": 2, "correct": 2, "total": 3, "unscored": 0}
    assert capitals["questions"][2] == {
        "qid": "q3",
        "question": "Capital of Norway?",
        "gold": "Oslo",
        "pred": "Bern",
        "correct": False,
    }
    assert sums["metrics"] == {"accuracy": 0.5, "credit": 2, "correct": 2, "total": 4, "unscored": 0}
    assert [question["pred"] for question in sums["questions"]] == ["2", "4", None, "9"]
    assert [question["gold"] for question in sums["questions"]] == ["2", "5", "8", "9"]


def test_what_could_not_be_scored_keeps_its_gold(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    errors = {"Italy": "boom", "4 + 4": "boom"}
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY, replies=SUMS_REPLIES, errors=errors))
    llm_pytester.makefile(".yaml", capitals=CAPITALS, sums=SUMS)
    llm_pytester.runpytest(*workers, "capitals.yaml", "sums.yaml", "--llm-report=out.json")
    done = llm_pytester.run("llmeval", "export", "out.json", "--to", "questions")
    capitals, sums = json.loads(done.stdout.str())
    assert [capitals["questions"][1][key] for key in ("gold", "pred", "correct")] == ["Rome", None, None]
    assert [sums["questions"][2][key] for key in ("gold", "pred", "correct")] == ["8", None, None]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "md", "questions"])
def test_standard_output_and_a_file_hold_the_same(
    kind: str, report: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["export", report, "--to", kind]) == 0
    out = capfdbinary.readouterr().out
    assert out
    output = tmp_path / "exported"
    for _ in range(2):  # what a command made it makes again
        assert main(["export", report, "--to", kind, "-o", str(output)]) == 0
        assert output.read_bytes() == out
    assert capfdbinary.readouterr() == (b"", b"")


def test_json_lines_are_the_records(report: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = export(capsys, report, "--to", "jsonl").splitlines()
    assert [json.loads(line) for line in lines] == json.loads(Path(report).read_text())["records"]


def test_parquet_has_what_csv_has(report: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    output = tmp_path / "out.parquet"
    assert export(capsys, report, "--to", "parquet", "-o", str(output)) == ""
    rows: list[dict[str, Any]] = parquet.read_table(output).to_pylist()
    table = list(csv.DictReader(io.StringIO(export(capsys, report, "--to", "csv"), newline="")))
    assert [list(row) for row in rows] == [list(row) for row in table]
    assert [[_text(value) for value in row.values()] for row in rows] == [
        [value.removeprefix("'") for value in row.values()] for row in table
    ]
    assert [row["accuracy"] for row in rows] == [1.0, 0.0, 0.0, None, None]
    assert rows[0]["values.seconds"] == 2.5  # a metric that is called as a field is
    assert rows[0]["seconds"] == 0.5
    assert rows[1]["answer"] == "\\ud800=1+1"
    assert json.loads(rows[1]["details"]) == {"n": [1]}


LIMITED = """
import resource, sys
from pytest_llmeval.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))  # Python gets an error then, as of a disk that is full
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", ["csv", "jsonl", "md", "questions"])
def test_a_temporary_folder_that_is_full(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("resource")
    path = saved(tmp_path, "large.json", report_of([sample("a", f"q{n}", answer="x" * 500) for n in range(100)]))
    # -B: a compiled module that is cut off at the limit would stay behind.
    call = [sys.executable, "-B", "-c", LIMITED, "export", path, "--to", kind]
    done = subprocess.run(call, env=clean_environment(), capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("llmeval export: cannot write ")
    assert "standard output" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize("to_file", [True, False])
@pytest.mark.parametrize("kind", ["csv", "jsonl", "md", "questions"])
def test_a_temporary_folder_that_is_not_there(
    kind: str,
    to_file: bool,
    report: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    output = tmp_path / "exported"
    code = main(["export", report, "--to", kind, *(["-o", str(output)] if to_file else [])])
    shown = capsys.readouterr()
    if to_file:  # it needs none
        assert (code, shown) == (0, ("", ""))
        return
    assert code == 1
    assert shown.out == ""
    assert shown.err.startswith("llmeval export: cannot ")
    assert "No such file or directory" in shown.err
    assert "exported" not in shown.err  # that file is not what is wrong
    assert shown.err.count("\n") == 1
    assert not output.exists()


def _text(value: object) -> str:
    return "" if value is None else str(value)


def test_without_pyarrow(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["export", report, "--to", "parquet", "-o", str(tmp_path / "out.parquet")]) == 1
    assert capsys.readouterr().err == (
        "llmeval export: Parquet needs pyarrow, which is not installed: pip install 'pytest-llmeval-suites[datasets]'\n"
    )


def test_wrong_calls(report: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, told in (
        (["--to", "parquet"], "--to parquet needs a file: name one with --output"),
        (["--to", "xml"], "invalid choice: 'xml'"),
        ([], "the following arguments are required: --to"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(["export", report, *arguments])
        assert caught.value.code == 2
        shown = capsys.readouterr().err
        assert told in shown
        assert shown.count("\n") == 1


@pytest.mark.parametrize("kind", ["csv", "questions", "parquet"])
def test_what_cannot_be_written(kind: str, report: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = Path(report).read_bytes()
    for output, told in ((report, "is one of the reports that are read"), (f"{report}/no/x", "Not a directory")):
        assert main(["export", report, "--to", kind, "-o", output]) == 1
        shown = capsys.readouterr().err
        assert told in shown
        assert shown.count("\n") == 1
    assert Path(report).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
