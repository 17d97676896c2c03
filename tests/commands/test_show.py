"""``llmeval show``: the summary of a saved report, and its samples."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from pytest_llmeval.cli import main
from tests.commands.saved_reports import MODEL, info, report_of, sample, samples, saved
from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY, SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest

HOSTILE = "\x1b[2Jred\u202e ``` </details> \ud800\n```\n# heading"


@pytest.fixture
def report(tmp_path: Path) -> str:
    records = [
        sample("a", "q1", category="x", output="yes!", prompt="Is it?", choices=("yes", "no")),
        sample("a", "q2", "wrong", category="y", output=HOSTILE, answer=HOSTILE, prompt=HOSTILE),
        sample("a", "q3", "unscored", category="y", reason="RuntimeError: \x1b[31mboom"),
        sample("b", "q1", "wrong", answer=None, no_answer=True, output="long " * 200),
    ]
    return saved(tmp_path, "report.json", report_of(records))


def show(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["show", *arguments]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


def heads(text: str) -> list[str]:
    """The samples that are shown."""
    return re.findall(r"^(\w+ \(\w+), demo.*\): (?:correct|wrong|unscored)", text, re.MULTILINE)


def test_the_summary_is_what_the_session_printed(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(
        fake_model_conftest(likely=CAPITALS_LIKELY, replies=SUMS_REPLIES, errors={"5 + 4": "full"})
    )
    gate = "gates: [accuracy >= 0.5, accuracy >= 0.9]\n"
    llm_pytester.makefile(".yaml", capitals=CAPITALS + gate, sums=SUMS)
    session = llm_pytester.runpytest(*workers, "capitals.yaml", "sums.yaml", "--llm-report=out.json")
    printed = session.outlines
    first = next(place for place, line in enumerate(printed) if "LLM evaluation" in line)
    last = next(place for place, line in enumerate(printed) if line.startswith("report: "))
    done = llm_pytester.run("llmeval", "show", "out.json")
    assert done.ret == 0
    shown = done.outlines
    assert shown[0].strip("= ") == printed[first].strip("= ") == "LLM evaluation: fake"
    assert shown[1:] == printed[first + 1 : last]
    assert any("could not be scored: 1" in line for line in shown)
    assert any("accuracy >= 0.9" in line for line in shown)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--samples", "all"], ["q1 (a", "q2 (a", "q3 (a", "q1 (b"]),
        (["--samples", "wrong"], ["q2 (a", "q1 (b"]),
        (["--samples", "correct"], ["q1 (a"]),
        (["--samples", "unscored"], ["q3 (a"]),
        (["--samples", "no_answer"], ["q1 (b"]),
        (["--samples", "wrong", "--suite", "a"], ["q2 (a"]),
        (["--category", "y"], ["q2 (a", "q3 (a"]),
        (["--category", "y", "--samples", "wrong"], ["q2 (a"]),
        (["--id", "q1"], ["q1 (a", "q1 (b"]),
        (["--id", "q1", "--id", "q3", "--suite", "a"], ["q1 (a", "q3 (a"]),
        (["--samples", "correct", "--suite", "b"], []),
    ],
)
def test_which_samples(
    arguments: list[str], expected: list[str], report: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = show(capsys, report, *arguments)
    assert heads(out) == expected
    assert out.splitlines()[-1] == f"{len(expected)} sample{'' if len(expected) == 1 else 's'}"
    chosen = json.loads(show(capsys, report, *arguments, "--format", "json"))
    assert [f"{one['id']} ({one['suite']}" for one in chosen] == expected
    markdown = show(capsys, report, *arguments, "--format", "markdown")
    assert [line[4 : 4 + len("q1 (a")] for line in markdown.splitlines() if line.startswith("### ")] == expected


def test_one_sample_whole(report: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(capsys, report, "--id", "q1", "--suite", "a").splitlines() == [
        "q1 (a, demo, category x): correct",
        "  question: question q1?",
        "  prompt: Is it?",
        "  choices: yes (right, answered)",
        "    no",
        "  output: yes!",
        "  answer: yes",
        "  expected: yes",
        "  scores: accuracy 1",
        "",
        "1 sample",
    ]


def test_long_texts_are_cut_but_for_a_sample_that_is_asked_for(report: str, capsys: pytest.CaptureFixture[str]) -> None:
    cut = show(capsys, report, "--samples", "no_answer")
    assert "long long" in cut
    assert "…" in cut
    assert len(cut) < 600
    assert "long " * 199 in show(capsys, report, "--id", "q1", "--suite", "b")


def test_prompts_are_shown_where_they_are_asked_for(report: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "prompt:" not in show(capsys, report, "--samples", "correct")
    assert "prompt: Is it?" in show(capsys, report, "--samples", "correct", "--prompts")


@pytest.mark.parametrize("arguments", [["--samples", "all", "--prompts"], ["--id", "q2", "--id", "q3"], []])
@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_texts_of_models_are_escaped(
    arguments: list[str], form: str, report: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = show(capsys, report, *arguments, "--format", form)
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e\ud800]", out)
    if form != "markdown" or not arguments:
        return
    fences = [line for line in out.splitlines() if re.fullmatch("`{3,}", line)]
    opened = 0
    for line in out.splitlines():  # CommonMark: a fence is closed by one that is at least as long, and by nothing else
        length = len(line) if line in fences else 0
        if opened:
            opened = 0 if length >= opened else opened
        else:
            opened = length
            assert not line.startswith("# ")
    assert not opened


def test_parts_of_the_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = [MODEL, {**MODEL, "name": "other"}]
    records = [
        record for suite in ("a", "b") for model in ("demo", "other") for record in samples(suite, "cw", model=model)
    ]
    path = saved(tmp_path, "two.json", report_of(records, models=models))
    whole = show(capsys, path)
    for text in ("a (demo)", "a (other)", "b (demo)", "b (other)"):
        assert text in whole
    assert len(json.loads(show(capsys, path, "--suite", "a", "--format", "json"))["suites"]) == 2
    (one,) = json.loads(show(capsys, path, "--suite", "a", "--model", "other", "--format", "json"))["suites"]
    assert (one["name"], one["models"]) == ("a", ["other"])
    assert show(capsys, path, "--suite", "b").count("b (") < whole.count("b (") + whole.count("a (")
    assert "a (" not in show(capsys, path, "--suite", "b")
    assert heads(show(capsys, path, "--samples", "wrong", "--model", "demo")) == ["q2 (a", "q2 (b"]


def test_the_averages_of_the_only_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, "one.json", report_of([*samples("a", "cw"), *samples("b", "cc")]))
    assert "macro average over suites" in show(capsys, path)
    assert show(capsys, path, "--model", "demo") == show(capsys, path)
    assert "average over suites" not in show(capsys, path, "--suite", "a")


def test_what_could_not_be_scored(report: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = r"  suites/a.yaml::q3: RuntimeError: \x1b[31mboom"
    assert line in show(capsys, report).splitlines()
    assert line in show(capsys, report, "--suite", "a").splitlines()
    assert "could not be scored" not in show(capsys, report, "--suite", "b")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--suite", "c"], "the report has no suite 'c'; expected one of a, b"),
        (["--model", "dem"], "the report has no model 'dem'; did you mean 'demo'?"),
        (["--category", "z"], "the report has no category 'z'; expected one of x, y"),
        (["--category", "x", "--suite", "b"], "the report has no category 'x'; expected none"),
        (["--id", "q4"], "the report has no sample 'q4'"),
        (["--id", "q2", "--suite", "b"], "the report has no sample 'q2'"),
    ],
)
def test_what_is_not_there(arguments: list[str], told: str, report: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", report, *arguments]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"llmeval show: {told}")
    assert shown.err.count("\n") == 1


def test_chat_prompts_and_several_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is it?"}]
    records = [sample("a", "q1", prompt=chat, target=["yes", "yeah"]), sample("a", "q2", target=4)]
    path = saved(tmp_path, "chat.json", report_of(records))
    out = show(capsys, path, "--id", "q1", "--id", "q2")
    assert "  prompt: system: Be brief.\n    user: Is it?\n" in out
    assert "  expected: yes | yeah\n" in out
    assert "  expected: 4\n" in out


def test_the_installed_command(report: str, tmp_path: Path, pytester: pytest.Pytester) -> None:
    assert shutil.which("llmeval")
    done = pytester.run("llmeval", "show", report, "--samples", "wrong")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["q2 (a, demo, category y): wrong", "2 samples"])


def test_a_run_that_was_killed(llm_pytester: pytest.Pytester) -> None:
    """Its journal is a report of what it had finished: shown, exported, and never past a gate."""
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, kills=["5 + 4"]))
    llm_pytester.makefile(".yaml", sums=SUMS)
    arguments = ("-p", "no:xdist", "sums.yaml", "--llm-report=out.json", "--llm-batch-size=1")
    assert llm_pytester.runpytest_subprocess(*arguments).ret == 1  # the code that the process was ended with
    assert not (llm_pytester.path / "out.json").exists()
    journal = "out.json.journal"
    assert heads_of(llm_pytester, "show", journal, "--samples", "all") == ["s1", "s2", "s3"]
    shown = llm_pytester.run("llmeval", "show", journal)
    assert shown.ret == 0
    shown.stdout.fnmatch_lines(["sums * 3/4 *", "stopped early*"])
    exported = llm_pytester.run("llmeval", "export", journal, "--to", "jsonl")
    assert [json.loads(line)["id"] for line in exported.outlines] == ["s1", "s2", "s3"]
    gated = llm_pytester.run("llmeval", "gate", journal, "--gate", "accuracy >= 0.1")
    assert gated.ret == 1
    gated.stdout.fnmatch_lines(["failed: sums, accuracy >= 0.1: the session stopped early*"])


def heads_of(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    done = pytester.run("llmeval", *arguments)
    assert done.ret == 0
    return [line.split()[0] for line in done.outlines if re.match(r"\w+ \(", line)]


def test_samples_that_are_tied_and_that_are_neither_right_nor_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        sample("a", "q1"),
        sample("a", "q2", "scored", values={"accuracy": 0.5, "ties": 1.0}),
        sample("a", "q3", "scored", values={"accuracy": 0.5, "ties": 0.0}),
        sample("a", "q4", values={"accuracy": 1.0, "judge.ties": 1.0}),
    ]
    path = saved(tmp_path, "ties.json", report_of(records))
    for which, expected in (("tied", ["q2", "q4"]), ("scored", ["q2", "q3"])):
        assert re.findall(r"^(q\d) ", show(capsys, path, "--samples", which), re.MULTILINE) == expected


def test_a_sample_that_is_asked_for_shows_all_of_its_replies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replies = ["one\nand more", "two", HOSTILE]
    epochs = [
        {"status": "wrong", "answer": "one"},
        {"status": "correct", "answer": "two"},
        {"status": "wrong", "answer": None, "no_answer": True},
    ]
    details = {"epochs": epochs, "outputs": replies}
    many = {"epochs": [epochs[0]] * 200, "outputs": ["long " * 2000] * 200}
    records = [
        sample("a", "q1", "scored", output=replies[0], details=details),
        sample("a", "q2", "scored", output=replies[0], details=many),
        sample("a", "q3", output="whole", details={"epochs": [3], "outputs": "odd"}),
    ]
    path = saved(tmp_path, "epochs.json", report_of(records))
    shown = show(capsys, path, "--id", "q1").splitlines()
    start = shown.index("  output 1 of 3 (wrong): one")
    assert shown[start + 1 : start + 3] == ["    and more", "  output 2 of 3 (correct): two"]
    assert shown[start + 3].startswith("  output 3 of 3 (wrong, no answer): ")
    assert not any(line.startswith("  output:") for line in shown)
    bounded = show(capsys, path, "--id", "q2")
    assert len(bounded) < 40_000
    assert "  output 20 of 200 (wrong): " in bounded
    assert "180 more are in the report" in bounded
    assert "  output: whole" in show(capsys, path, "--id", "q3")


@pytest.mark.parametrize("arguments", [["--samples", "wrong"], ["--category", "x"], ["--id", "q1"]])
def test_a_distribution_is_of_whole_suites(
    report: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["show", report, "--distribution", *arguments])
    assert caught.value.code == 2
    assert f"--distribution is of whole suites: not with {arguments[0]}" in capsys.readouterr().err


def test_a_distribution_in_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [sample("a", f"q{number}", values={"ndcg": number / 4}, status="scored") for number in range(5)]
    path = saved(tmp_path, "report.json", report_of(records, [info("a", metrics=("ndcg",))]))
    shown = show(capsys, path, "--distribution", "--format", "markdown")
    assert "## Distribution of metrics over samples" in shown
    assert re.search(r"\| a +\| ndcg +\| +5 \| +0.500 \|", shown)
    assert "## Distribution" not in show(capsys, path, "--format", "markdown")
