"""``llmeval gate`` and ``llmeval compare``: saved reports are judged as a session is, with its exit codes."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.cli import main
from pytest_llmeval.gates.baseline import compare_reports
from pytest_llmeval.gates.earlier_reports import EarlierReports
from pytest_llmeval.gates.options import GateOptions, Selection, parse_alpha
from pytest_llmeval.reporting.report.records import Record
from pytest_llmeval.text.escaping import markdown_text
from tests.commands.saved_reports import info, report_of, sample, samples, saved
from tests.support import fake_model_conftest


@pytest.fixture
def report(tmp_path: Path) -> str:
    """Suite ``a`` has 3 of 4 right and gates of its own, ``b`` has 1 of 2."""
    gates = {"accuracy >= 0.5": 7, "accuracy >= 0.9": 8}
    records = [*samples("a", "cccw"), *samples("b", "cw")]
    return saved(tmp_path, "report.json", report_of(records, [info("a", gates=gates), info("b")]))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code, out, _ = run(capsys, *arguments, "--format", "json")
    found = json.loads(out)
    assert found["exit_code"] == code
    gates: list[dict[str, Any]] = found["gates"]
    return code, gates


# Thresholds


@pytest.mark.parametrize(
    ("gates", "code", "outcomes"),
    [
        (["a: accuracy >= 0.7"], 0, {("a", "passed")}),
        (["a: accuracy > 0.75"], 1, {("a", "failed")}),
        (["accuracy >= 0.5"], 0, {("a", "passed"), ("b", "passed")}),
        (["accuracy >= 0.6"], 1, {("a", "passed"), ("b", "failed")}),
        (["a: accuracy >= 0.7", "b: accuracy >= 0.5"], 0, {("a", "passed"), ("b", "passed")}),
        (["a: ci_low(accuracy) >= 0.7"], 1, {("a", "failed")}),
    ],
)
def test_other_gates_than_the_session_had(
    gates: list[str], code: int, outcomes: set[tuple[str, str]], report: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, results = as_json(capsys, "gate", report, *(text for gate in gates for text in ("--gate", gate)))
    assert found == code
    assert {(result["suite"], result["outcome"]) for result in results} == outcomes


def test_the_suites_own_gates_anew(report: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "gate", report)
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        "gates: 1 failed, 1 passed",
        "failed: a, accuracy >= 0.9: accuracy 0.750 [0.301, 0.954], n 4: below 0.9",
        "passed: a, accuracy >= 0.5: accuracy 0.750 [0.301, 0.954], n 4",
    ]


@pytest.mark.parametrize("gate", ["c: accuracy >= 0.1", "a: acuracy >= 0.1", "f1 >= 0.1", "category.x.accuracy > 0"])
def test_a_gate_about_nothing_fails(gate: str, report: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, results = as_json(capsys, "gate", report, "--gate", gate)
    assert code == 1
    assert {result["outcome"] for result in results} == {"failed"}


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_nothing_to_decide_is_no_pass(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, "plain.json", report_of(samples("a", "cc")))
    code, _, err = run(capsys, "gate", path, "--format", form)
    assert code == 1
    assert err == (
        "llmeval gate: no gate was decided: the suites have no gates of their own that the report can decide, and "
        "gates of the command line or the ini file are not saved in a report; give them as "
        "--gate 'boolq: accuracy >= 0.6'\n"
    )


def test_a_selection_does_not_decide_a_suites_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = report_of(samples("a", "cc"), [info("a", gates={"accuracy >= 0.5": 1})], num_whole={"a": 9})
    path = saved(tmp_path, "part.json", part)
    code, results = as_json(capsys, "gate", path)
    assert (code, [result["outcome"] for result in results]) == (1, ["skipped"])
    _, _, err = run(capsys, "gate", path)
    assert err == "llmeval gate: no gate was decided: all were skipped, for the reasons given\n"
    code, results = as_json(capsys, "gate", path, "--require")
    assert (code, [result["outcome"] for result in results]) == (1, ["failed"])
    code, results = as_json(capsys, "gate", path, "--gate", "accuracy >= 0.5")
    assert (code, [result["outcome"] for result in results]) == (0, ["passed"])


def test_unscored_samples_and_what_is_tolerated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, "unscored.json", report_of(samples("a", "ccuu")))
    gate = ("gate", path, "--gate", "accuracy >= 0.5")
    assert as_json(capsys, *gate)[0] == 1
    assert as_json(capsys, *gate, "--allow-unscored", "1")[0] == 1
    code, results = as_json(capsys, *gate, "--allow-unscored", "2")
    assert code == 0
    assert "2" in " ".join(results[0]["notes"])


def test_a_run_that_was_stopped_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Though all samples of the suites that it tells of ran: there can have been more suites."""
    path = saved(tmp_path, "stopped.json", replace(report_of(samples("a", "cc")), stopped="interrupted"))
    arguments = ("gate", path, "--gate", "accuracy >= 0.1")
    assert as_json(capsys, *arguments)[0] == 1
    code, out, _ = run(capsys, *arguments)
    assert code == 1
    assert out.splitlines()[-2:] == [
        "problem: the run stopped early: interrupted",
        "a report with problems does not pass, whatever its gates say",
    ]


# Baselines


def worse(records: list[Record], num: int) -> list[Record]:
    """The same samples, the first ``num`` of them wrong now."""
    return [
        replace(one, **({"status": "wrong", "values": {"accuracy": 0.0}} if place < num else {}))  # type: ignore[arg-type]
        for place, one in enumerate(records)
    ]


@pytest.fixture
def reports(tmp_path: Path) -> dict[str, str]:
    """40 samples, all right; the same again, one of them wrong, 12 of them wrong; and another suite of the name."""
    before = samples("a", "c" * 40)
    return {
        "base": saved(tmp_path, "base.json", report_of(before)),
        "same": saved(tmp_path, "same.json", report_of(before)),
        "one": saved(tmp_path, "one.json", report_of(worse(before, 1))),
        "twelve": saved(tmp_path, "twelve.json", report_of(worse(before, 12))),
        "other": saved(
            tmp_path,
            "other.json",
            report_of(
                [*before[:30], *(replace(one, fingerprint="new") for one in before[30:])],
                [info("a", fingerprint="new")],
            ),
        ),
    }


@pytest.mark.parametrize(
    ("now", "options", "code"),
    [
        ("same", [], 0),
        ("one", [], 0),
        ("twelve", [], 1),
        ("twelve", ["--max-drop", "accuracy=0.5"], 0),
        ("twelve", ["--max-drop", "a: accuracy=0.2"], 1),
        ("twelve", ["--alpha", "0.0001"], 0),
        ("one", ["--gate-mode", "margin"], 1),
        ("one", ["--gate-mode", "margin", "--max-drop", "accuracy=0.1"], 0),
        ("one", ["--gate-mode", "non-inferior", "--max-drop", "accuracy=0.01"], 1),
        ("one", ["--gate-mode", "non-inferior", "--max-drop", "accuracy=0.5"], 0),
        ("other", [], 1),
        ("other", ["--compare", "common"], 0),
        ("same", ["--max-drop", "f1=0.1"], 1),
    ],
)
def test_compare_and_the_gate_judge_alike(
    now: str, options: list[str], code: int, reports: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    found, results = as_json(capsys, "compare", reports["base"], reports[now], *options)
    assert found == code
    assert as_json(capsys, "gate", reports[now], "--baseline", reports["base"], *options) == (found, results)


def test_options_are_known_by_pytests_names_too(reports: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A message that names ``--llm-compare common``, and the arguments of a CI job, can be used as they are."""
    short = ("--gate-mode", "margin", "--max-drop", "accuracy=0.3", "--compare", "common", "--alpha", "0.1")
    long = tuple(text.replace("--", "--llm-", 1) if text.startswith("--") else text for text in short)
    both = [as_json(capsys, "compare", reports["base"], reports["other"], *options) for options in (short, long)]
    assert both[0] == both[1]
    assert both[0][1][0]["regression"]["mode"] == "margin"
    gated = ("--llm-baseline", reports["base"], "--llm-gate", "accuracy > 0.9", "--llm-allow-unscored", "1")
    _, results = as_json(capsys, "gate", reports["one"], *gated, "--llm-require-gates", *long)
    assert {one["kind"] for one in results} == {"threshold", "baseline"}
    with pytest.raises(SystemExit):
        main(["gate", "--help"])
    assert "--llm-" not in capsys.readouterr().out


def test_the_numbers_are_the_engines(reports: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    from pytest_llmeval.reporting.storage.report_file import read_report

    _, results = as_json(capsys, "compare", reports["base"], reports["twelve"])
    base, now = read_report(Path(reports["base"])), read_report(Path(reports["twelve"]))
    (found,) = compare_reports(EarlierReports.of([("base.json", base)]), now, GateOptions(), Selection())
    expected = json.loads(json.dumps(asdict(found)))
    expected["regression"]["false_alarm_rate"] = None
    assert results == [expected]
    assert results[0]["regression"]["num_worse"] == 12
    assert results[0]["regression"]["p_value"] == pytest.approx(0.5**12)  # exact McNemar, one-sided


@pytest.mark.parametrize("mode", ["significant", "margin", "non-inferior"])
def test_the_false_alarm_rate_is_that_of_the_margin(
    mode: str, reports: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, (result,) = as_json(capsys, "compare", reports["base"], reports["twelve"], "--gate-mode", mode)
    assert (result["regression"]["false_alarm_rate"] is not None) == (mode == "margin")


def test_every_result_is_shown_with_its_numbers(reports: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "compare", reports["base"], reports["twelve"])
    assert (code, err) == (1, "")
    shown = " ".join(out.split())
    assert "gates: 1 failed" in shown
    assert "a, accuracy vs baseline" in shown
    for number in ("1.000 -> 0.700", "-0.300 [-0.454, -0.181]", "p = 0.0002", "12 sam", "n 40", "90% power"):
        assert number in shown


def test_a_refusal_says_what_differs(reports: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "compare", reports["base"], reports["other"])
    assert code == 1
    assert "10 samples are changed ('q31', 'q32', 'q33', …)" in " ".join(out.split())
    _, results = as_json(capsys, "compare", reports["base"], reports["other"], "--compare", "common")
    assert results[0]["regression"]["n"] == 30


def test_a_suite_that_is_gone_fails(
    tmp_path: Path, reports: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    both = [*samples("a", "c" * 40), *samples("b", "cc")]
    base = saved(tmp_path, "both.json", report_of(both))
    code, results = as_json(capsys, "compare", base, reports["same"])
    assert code == 1
    assert {(one["suite"], one["outcome"]) for one in results} == {("a", "passed"), ("b", "failed")}


def test_what_cannot_be_decided_can_be_made_to_fail(
    tmp_path: Path, reports: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    more = saved(tmp_path, "more.json", report_of([*samples("a", "c" * 40), *samples("b", "cc")]))
    code, results = as_json(capsys, "compare", reports["base"], more)
    assert (code, [one["outcome"] for one in results]) == (0, ["passed", "skipped"])
    code, results = as_json(capsys, "compare", reports["base"], more, "--require")
    assert (code, [one["outcome"] for one in results]) == (1, ["passed", "failed"])


@pytest.mark.parametrize(
    ("margin", "told"),
    [
        ("acuracy=0.1", "there is no metric 'acuracy'; did you mean 'accuracy'?"),
        ("aa: accuracy=0.1", "there is no suite 'aa'"),
        ("a: acuracy=0.1", "there is no metric 'acuracy'; did you mean 'accuracy'?"),
    ],
)
def test_a_margin_of_nothing_is_shown_first(
    margin: str, told: str, reports: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "compare", reports["base"], reports["twelve"], "--max-drop", margin)
    assert code == 1
    suite = "a, " if margin.startswith("a:") else ""
    gates = out[out.index("gates: ") :]  # below the samples that changed
    assert " ".join(gates.split()).startswith(f"gates: 2 failed failed: {suite}max drop {margin}: {told}")


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_a_report_with_problems_does_not_pass(
    form: str, tmp_path: Path, reports: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    problems = ("the report lacks shard 3/3", "two tests recorded \x1b[31m")
    path = saved(tmp_path, "problems.json", report_of(samples("a", "c" * 40), problems=problems))
    for command in (["gate", path, "--gate", "accuracy >= 0.5"], ["compare", reports["base"], path]):
        code, out, _ = run(capsys, *command, "--format", form)
        assert code == 1
        assert "\x1b" not in out
        if form == "json":
            found = json.loads(out)
            assert (found["exit_code"], found["problems"]) == (1, list(problems))
            assert [one["outcome"] for one in found["gates"]] == ["passed"]
        elif form == "text":
            assert out.splitlines()[-3:] == [
                "problem: the report lacks shard 3/3",
                r"problem: two tests recorded \x1b[31m",
                "a report with problems does not pass, whatever its gates say",
            ]
        else:
            assert "- problem: the report lacks shard 3/3" in out
            assert "exit code 1" in out


def test_nothing_in_common(tmp_path: Path, reports: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    base, other = reports["base"], saved(tmp_path, "b.json", report_of(samples("b", "cc")))
    for options in ([], ["--compare", "common"]):
        code, out, err = run(capsys, "compare", base, other, *options)
        assert code == 1
        assert err == f"llmeval compare: {base} (a) and {other} (b) have no suite in common\n"
        assert "a, accuracy vs baseline: in the baseline, and did not run" in " ".join(out.split())
        assert "b, accuracy vs baseline: not in the baseline" in " ".join(out.split())


def test_a_report_with_itself(reports: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "compare", reports["base"], reports["base"])
    assert code == 0
    assert err == f"llmeval compare: {reports['base']} is compared with itself: nothing in it can have changed\n"
    assert "a, accuracy vs baseline: accuracy 1.000 -> 1.000" in " ".join(out.split())
    assert run(capsys, "compare", reports["base"], reports["same"])[2] == ""


# Where results go


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_a_file_in_the_place_of_standard_output(
    form: str, report: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("gate", report, "--gate", "accuracy >= 0.6", "--format", form)
    _, out, _ = run(capsys, *arguments)
    output = tmp_path / "results"
    for _ in range(2):  # what a command made it makes again
        assert run(capsys, *arguments, "-o", str(output)) == (1, "", "")
        assert output.read_text(encoding="utf-8") == out


def test_markdown_has_the_gates_and_the_numbers(report: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "gate", report, "--gate", "accuracy >= 0.6", "--format", "markdown")
    assert "## Gates" in out
    assert f"| failed | b | {markdown_text('accuracy >= 0.6')} |" in out
    assert "exit code 1" in out


def test_a_comparison_of_many_suites_fits_a_comment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """GitHub takes 65,536 characters: what failed is all there, however late it stands, and the rest is counted."""
    num, worse = 400, ("s391", "s398")
    before = [one for number in range(num) for one in samples(f"s{number}", "c" * 12, category=f"part {number % 3}")]
    now = [replace(one, status="wrong", values={"accuracy": 0.0}) if one.suite in worse else one for one in before]
    paths = [saved(tmp_path, f"{name}.json", report_of(records)) for name, records in (("a", before), ("b", now))]
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    code, out, _ = run(capsys, "compare", *paths, "--gate-mode", "margin", "--format", "markdown")
    assert code == 1
    for text in (out, (tmp_path / "summary.md").read_text("utf-8")[1:]):
        assert 60_000 < len(text) <= 65_536
        shown = [line for line in text.splitlines() if line.startswith(("| failed |", "| skipped |", "| passed |"))]
        assert [line.split(" | ")[1] for line in shown[:2]] == ["s391", "s398"]
        (left_out,) = re.findall(r"^… and ([\d,]+) more gates$", text, re.MULTILINE)
        num_gates = sum(map(int, re.findall(r"\d+", text[text.index("gates: ") :].splitlines()[0])))
        assert len(shown) + int(left_out) == num_gates >= num
        assert text.endswith("\nLeft out to stay within 65,536 characters, which is what GitHub takes of a comment.\n")
    code, whole, _ = run(capsys, "show", paths[1], "--format", "markdown")
    assert "Left out" not in whole


def test_in_github_actions(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    code, out, err = run(capsys, "gate", report, "--gate", "b: accuracy >= 0.6", "--format", "json")
    assert code == 1
    assert json.loads(out)["exit_code"] == 1  # annotations are on the other stream
    assert err.startswith("::error ")
    assert "gate accuracy >= 0.6" in err
    assert "| failed | b |" in summary.read_text(encoding="utf-8")


# Wrong calls


ALPHA = "expected a number above 0 and below 0.5, such as 0.05"


def test_alpha_is_what_pytest_takes() -> None:
    with pytest.raises(ValueError, match=f"^{ALPHA}$"):
        parse_alpha("0.5")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["gate"], "the following arguments are required: report"),
        (["gate", "r.json", "--gate", "accuracy => 1"], "found 'accuracy => 1'"),
        (["gate", "r.json", "--gate", "accuracy >= \x1b[31m"], r"\x1b[31m"),
        (["gate", "r.json", "--max-drop", "accuracy=0.1"], "--max-drop applies to a comparison only"),
        (["gate", "r.json", "--alpha", "0.1"], "--alpha applies to a comparison only"),
        (["gate", "r.json", "--allow-unscored", "-1"], "expected a whole number of 0 or more, found '-1'"),
        (["compare", "a.json", "b.json", "--alpha", "1"], f"{ALPHA}, found '1'"),
        (["compare", "a.json", "b.json", "--alpha", "0.5"], f"{ALPHA}, found '0.5'"),
        (["gate", "a.json", "--llm-alpha", "0"], f"{ALPHA}, found '0'"),
        (["compare", "a.json", "b.json", "--alpha", "nan"], f"{ALPHA}, found 'nan'"),
        (["compare", "a.json", "b.json", "--max-drop", "accuracy"], "found 'accuracy', expected a metric, ="),
        (["compare", "a.json", "b.json", "--gate-mode", "x"], "invalid choice: 'x'"),
        (["compare", "a.json"], "the following arguments are required: report"),
    ],
)
def test_wrong_calls_are_exit_2_and_one_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert shown.startswith(f"llmeval {arguments[0]}: ")
    assert shown.count("\n") == 1
    assert "\x1b" not in shown


@pytest.mark.parametrize("command", ["compare", "gate"])
def test_a_report_that_is_none(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")
    arguments = [str(path), str(path)] if command == "compare" else [str(path)]
    assert main([command, *arguments]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"llmeval {command}: cannot read the report {path}: ")
    assert shown.count("\n") == 1


# Through pytest


def test_a_session_and_the_commands_agree(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    rows = [sample("sums", f"q{place}") for place in range(30)]
    lines = "\n".join(f"  - {{id: {row.id}, question: '{row.id}x?', target: 'yes'}}" for row in rows)
    llm_pytester.makefile(".yaml", sums=f"suite: sums\nscore: exact\nsamples:\n{lines}\n")
    llm_pytester.makeconftest(fake_model_conftest(default_reply="yes"))
    assert llm_pytester.runpytest(*workers, "sums.yaml", "--llm-report=base.json").ret == 0
    llm_pytester.makeconftest(fake_model_conftest(replies={f"q{n}x": "no" for n in range(12)}, default_reply="yes"))
    gates = ("--llm-baseline=base.json", "--llm-gate=accuracy > 0.9")
    session = llm_pytester.runpytest(*workers, "sums.yaml", "--llm-report=new.json", *gates)
    assert session.ret == 1
    told = told_of_gates(session.outlines)
    assert len(told) == 3
    gate = llm_pytester.run("llmeval", "gate", "new.json", "--baseline", "base.json", "--gate", "accuracy > 0.9")
    assert (gate.ret, told_of_gates(gate.outlines)) == (1, told)
    done = llm_pytester.run("llmeval", "compare", "base.json", "new.json")
    assert done.ret == 1
    assert told_of_gates(done.outlines)[1:] == [line for line in told[1:] if "vs baseline" in line]
    assert llm_pytester.run("llmeval", "compare", "base.json", "base.json").ret == 0


def told_of_gates(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith(("gates: ", "failed: ", "passed: "))]
