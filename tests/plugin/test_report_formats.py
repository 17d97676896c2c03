"""``--llm-report`` by suffix; and texts of a model that mean to do something where they are shown."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from pytest_llmeval.cli import main
from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY, SUMS, SUMS_REPLIES
from tests.reporting.html.pages import read_page
from tests.support import fake_model_conftest

LETTERS = """\
suite: letters
samples: [{id: q1, question: "Which?", choices: [one, two], target: 1}]
score: letter
"""

HOSTILE = "=1+1 | <b>bold</b>\n::add-mask::4\n##[error]no\n\x1b[2J@everyone"


@pytest.fixture
def both(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY, replies=SUMS_REPLIES))
    llm_pytester.makefile(".yaml", capitals=CAPITALS, sums=SUMS)
    return llm_pytester


def test_every_format_in_one_run(both: pytest.Pytester, workers: list[str]) -> None:
    names = ("a.json", "a.md", "a.csv", "a.jsonl")
    result = both.runpytest(*workers, *(f"--llm-report={name}" for name in names), "capitals.yaml", "sums.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"report: {name}" for name in names])
    ids = ["q1", "q2", "q3", "s1", "s2", "s3", "s4"]
    with (both.path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    assert [row["id"] for row in rows] == ids
    assert [row["status"] for row in rows] == [
        *("correct", "correct", "wrong"),
        *("correct", "wrong", "wrong", "correct"),
    ]
    assert [row["output"] for row in rows[3:]] == ["The answer is 2.", "4", "no idea", "9"]
    lines = (both.path / "a.jsonl").read_text(encoding="ascii").splitlines()
    records = json.loads((both.path / "a.json").read_text(encoding="ascii"))["records"]
    assert [json.loads(line) for line in lines] == records
    shown = (both.path / "a.md").read_text(encoding="utf-8").splitlines()
    assert "| s2 |  | wrong | 4 | 5 | 0 |" in shown
    assert "| s3 |  | wrong | no answer | 8 | 0 |" in shown
    assert any(line.startswith("| north | 1 | 0.000 |") for line in shown)


@pytest.mark.parametrize(("suites", "part"), [(["capitals.yaml"], ""), (["letters.yaml"], "mcq_")])
def test_a_folder_gets_a_report_of_its_own_name(both: pytest.Pytester, suites: list[str], part: str) -> None:
    both.makefile(".yaml", letters=LETTERS)
    for _ in range(2):
        assert both.runpytest("--llm-report=reports/new/", *suites).ret == 0
    names = [path.name for path in (both.path / "reports" / "new").glob("*.md")]
    assert len(names) == 2
    assert all(re.fullmatch(rf"eval_report_{part}fake_\d{{8}}_\d{{6}}(-2)?\.md", name) for name in names)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("out.xml", "--junitxml=FILE.xml is pytest's own"),
        ("out.txt", "expected a name that ends in .json, .md, "),
        ("conftest.py/new/out.md", "cannot write the report conftest.py/new/out.md: Not a directory"),
        ("conftest.py/new/", "cannot write the report to the folder conftest.py/new: Not a directory"),
    ],
)
def test_a_target_that_cannot_be_is_reported_before_the_run(both: pytest.Pytester, target: str, message: str) -> None:
    result = both.runpytest(f"--llm-report={target}", "sums.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()
    assert "Traceback" not in result.stderr.str()
    assert "capitals" not in result.stdout.str()


def test_a_model_does_nothing_where_its_text_is_shown(
    llm_pytester: pytest.Pytester, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = llm_pytester.path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    llm_pytester.makeconftest(
        fake_model_conftest(replies={"1 + 1": HOSTILE}, errors={"2 + 3": HOSTILE}, default_reply="9")
    )
    llm_pytester.makefile(".yaml", sums=SUMS.replace("score: number", "score: {pattern: {pattern: '(?s)(.+)'}}"))
    result = llm_pytester.runpytest(*workers, "--llm-report=a.md", "--llm-report=a.csv", "sums.yaml")
    assert result.ret == 1
    shown = result.stdout.str()
    assert "\x1b" not in shown
    start = next(place for place, line in enumerate(result.outlines) if "LLM evaluation" in line)
    lines = [line for line in result.outlines[start:] if line.lstrip().startswith("::") or "##[" in line]
    assert [line.split("title=")[0] for line in lines] == ["::error file=sums.yaml,"]
    for path in (llm_pytester.path / "a.md", summary):
        text = path.read_text(encoding="utf-8")
        assert "\x1b" not in text
        assert "<b>" not in text
        assert "@everyone" not in text
    with Path("a.csv").open(encoding="utf-8", newline="") as file:
        cells = [cell for row in csv.reader(file, strict=True) for cell in row]
    assert any("add-mask" in cell for cell in cells)
    assert not any(cell.startswith(("=", "+", "@")) for cell in cells)


def test_a_page_of_a_session(both: pytest.Pytester, workers: list[str]) -> None:
    targets = ("--llm-report=a.html", "--llm-report=a.json")
    result = both.runpytest(*workers, *targets, "capitals.yaml", "sums.yaml")
    assert result.ret == 0
    lines = result.stdout.lines
    assert lines.index("report: a.html") == lines.index("report: a.json") + 1
    page = read_page(both.path / "a.html")
    assert [row["id"] for row in page.samples] == ["q1", "q2", "q3", "s1", "s2", "s3", "s4"]
    texts = [dict(row["shown"]["texts"]) for row in page.samples]
    assert [one.get("output") for one in texts[3:]] == ["The answer is 2.", "4", "no idea", "9"]
    assert all("prompt" in one for one in texts)
    for command in (["export", "--to=html"], ["view", "--no-open"]):
        name, option = command
        assert main([name, option, str(both.path / "a.json"), "-o", str(both.path / "b.html")]) == 0
        assert (both.path / "b.html").read_bytes() == (both.path / "a.html").read_bytes()


@pytest.mark.parametrize("keeps", ["none", "hash"])
def test_a_page_without_prompts(both: pytest.Pytester, workers: list[str], keeps: str) -> None:
    assert both.runpytest(*workers, "--llm-report=a.html", f"--llm-report-prompts={keeps}", "sums.yaml").ret == 0
    texts = [dict(row["shown"]["texts"]) for row in read_page(both.path / "a.html").samples]
    prompts = [str(one.get("prompt"))[:7] for one in texts]
    assert {*prompts} == {"None" if keeps == "none" else "sha256:"}


def test_a_page_of_wrong_answers(both: pytest.Pytester, workers: list[str]) -> None:
    assert both.runpytest(*workers, "--llm-report=a.html", "--llm-report-records=wrong", "sums.yaml").ret == 0
    texts = [dict(row["shown"]["texts"]) for row in read_page(both.path / "a.html").samples]
    assert ["output" in one for one in texts] == [False, True, True, False]


def test_a_page_against_a_baseline(both: pytest.Pytester, workers: list[str]) -> None:
    assert both.runpytest("--llm-report=old.json", "sums.yaml").ret == 0
    both.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY, replies=dict.fromkeys(SUMS_REPLIES, "5")))
    both.runpytest(*workers, "--llm-report=a.html", "--llm-baseline=old.json", "sums.yaml")
    page = read_page(both.path / "a.html")
    changes = {row["id"]: page.names["changes"][row["change"]] for row in page.samples}
    assert changes == {"s1": "worse", "s2": "better", "s3": "", "s4": "worse"}
    assert "Against the baseline" in page.text
