"""Gates as results of pytest: what a user sees of them, wherever results of tests are seen."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from tests.plugin.suites_for_tests import SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest

GATED = SUMS + "gates:\n  - accuracy >= 0.5\n  - accuracy > 0.9\n"
"""Two of four are right: the first gate holds, the second does not."""
HELD, MISSED = "sums.yaml::gate[[]accuracy >= 0.5]", "sums.yaml::gate[[]accuracy > 0.9]"


@pytest.fixture
def sums(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES))
    llm_pytester.makefile(".yaml", sums=SUMS)
    return llm_pytester


@pytest.fixture
def gated(sums: pytest.Pytester) -> pytest.Pytester:
    sums.makefile(".yaml", sums=GATED)
    return sums


def gates_in(pytester: pytest.Pytester) -> dict[str, str]:
    report = json.loads((pytester.path / "out.json").read_text(encoding="ascii"))
    return {gate["name"]: gate["outcome"] for gate in report["gates"]}


def report_of(pytester: pytest.Pytester) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((pytester.path / "out.json").read_text(encoding="ascii"))
    return report


def test_a_gate_that_fails_fails_the_run(gated: pytest.Pytester, workers: list[str]) -> None:
    result = gated.runpytest(*workers, "--llm-report=out.json", "-rA", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "gates: 1 failed, 1 passed",
            f"PASSED {HELD}",
            f"FAILED {MISSED} - accuracy 0.500*",
            "*= 1 failed, 2 passed, 2 wrong in *",
        ]
    )
    report = report_of(gated)
    assert report["exit_code"] == 1
    assert gates_in(gated) == {"accuracy >= 0.5": "passed", "accuracy > 0.9": "failed"}


def test_gates_that_hold_leave_the_run_alone(sums: pytest.Pytester, workers: list[str]) -> None:
    sums.makefile(".yaml", sums=SUMS + "gates: [accuracy >= 0.5, ci_low(accuracy) > 0.1]\n")
    result = sums.runpytest(*workers, "-v", "sums.yaml")
    assert result.ret == 0
    result.stdout.re_match_lines_random([r".*(gate\[accuracy >= 0.5\] PASSED|PASSED .*gate\[accuracy >= 0.5\]).*"])
    result.stdout.fnmatch_lines(["gates: 2 passed", "*= 2 passed, 2 wrong in *"])
    assert "[1" + "2" not in result.stdout.str()  # no progress beyond 100%


@pytest.mark.parametrize("verbosity", ["-q", "-v", "-rA"])
def test_gates_are_counted_apart_from_the_samples(gated: pytest.Pytester, verbosity: str) -> None:
    """Of four samples two are right and two wrong: of the gates, the last line has the one that failed."""
    result = gated.runpytest_inprocess("-p", "no:xdist", verbosity, "sums.yaml")
    lines = [re.sub(r" +\[[ \d]+%\]|==+ | in [\d.]+s| ==+", "", line) for line in result.outlines]
    assert "1 failed, 2 passed, 2 wrong" in lines
    labelled = [f"{HELD.replace('[[]', '[')} PASSED", f"{MISSED.replace('[[]', '[')} FAILED"]
    if verbosity == "-v":
        assert set(labelled) < set(lines)
        assert not [line for line in lines if line.startswith("gates ")]
    else:
        assert lines[lines.index("gates .F") - 1].endswith(".ww.")


def test_a_gate_that_failed_is_reported_once_in_full(gated: pytest.Pytester) -> None:
    """Beside pytest's own line in its short summary, which it cuts off."""
    gated.makefile(".yaml", sums=SUMS + "gates: [accuracy > 0.9]\n")
    result = gated.runpytest_inprocess("-p", "no:xdist", "-rN", "sums.yaml")
    assert sum("accuracy 0.500 [" in line for line in result.outlines) == 1
    result.stdout.fnmatch_lines(
        [
            "*= FAILURES =*",
            "_* sums: accuracy > 0.9 _*",
            "sums.yaml:8: see what was found below, under gates",
            "*= LLM evaluation: *",
            "gates: 1 failed",
            "failed: sums, accuracy > 0.9: accuracy 0.500 [[]0.150, 0.850], n 4: *",
        ]
    )


def test_a_session_of_many_gates_that_failed_tells_all(gated: pytest.Pytester) -> None:
    """The summary lists 50 of them: then they are told where pytest shows what failed."""
    rules = ", ".join(f"accuracy > 0.9{number:02}" for number in range(1, 52))
    gated.makefile(".yaml", sums=SUMS + f"gates: [{rules}]\n")
    result = gated.runpytest_inprocess("-p", "no:xdist", "-rN", "sums.yaml")
    result.stdout.fnmatch_lines(
        ["_* sums: accuracy > 0.951 _*", "accuracy 0.500 *: not above 0.951", "gates: 51 failed", "… and 1 more*"]
    )


def test_the_heading_of_a_gate_that_failed_names_its_model(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makepyfile(models="def one(prompt): return '2'\ndef two(prompt): return '9'\n")
    llm_pytester.makefile(".yaml", sums=SUMS + "gates: [accuracy > 0.9]\n")
    models = ("--llm-model=python:models:one", "--llm-model=python:models:two")
    result = llm_pytester.runpytest_inprocess("-p", "no:xdist", "--llm-strict", *models, "sums.yaml")
    result.stdout.fnmatch_lines(
        [
            "_* sums (python:models:one): s2 _*",
            "_* sums (python:models:two): s1 _*",
            "_* sums (python:models:one): accuracy > 0.9 _*",
            "_* sums (python:models:two): accuracy > 0.9 _*",
        ]
    )


@pytest.mark.parametrize("how", ["yes", "no"])
def test_of_gates_those_that_failed_have_a_colour(gated: pytest.Pytester, how: str) -> None:
    shown = gated.runpytest_inprocess("-p", "no:xdist", f"--color={how}", "sums.yaml").stdout.str()
    assert ("\x1b" in shown) is (how == "yes")
    coloured = "gates: \x1b[31m1 failed\x1b[0m, 1 passed\n\x1b[31mfailed: sums, "
    assert coloured in shown if how == "yes" else "gates: 1 failed, 1 passed\nfailed: sums, " in shown


def test_gates_in_the_junit_file(gated: pytest.Pytester, workers: list[str]) -> None:
    gated.runpytest(*workers, "--junitxml=out.xml", "sums.yaml")
    suite = ET.parse(gated.path / "out.xml").getroot()[0]
    cases = {case.get("name"): case for case in suite}
    assert [child.tag for child in cases["gate[accuracy >= 0.5]"]] in ([], ["system-out"])
    (failure,) = cases["gate[accuracy > 0.9]"]
    assert failure.tag == "failure"
    assert (failure.get("message") or "").startswith("accuracy 0.500")
    assert (suite.get("tests"), suite.get("failures")) == ("6", "1")


@pytest.mark.parametrize("selecting", [("-k", "s1 or s2"), ("--llm-limit=2",), ("sums.yaml::s1",)])
def test_a_suites_own_gate_is_skipped_on_a_selection(
    gated: pytest.Pytester, workers: list[str], selecting: tuple[str, ...]
) -> None:
    arguments = selecting if "::" in selecting[0] else (*selecting, "sums.yaml")
    result = gated.runpytest(*workers, "-rs", *arguments)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["gates: 2 skipped", "SKIPPED * sums.yaml*: a selection: * of 4 samples"])


def test_a_selection_without_a_sample_of_the_suite(gated: pytest.Pytester, workers: list[str]) -> None:
    gated.makepyfile("def test_other(): pass")
    required = gated.runpytest(*workers, "-k", "test_other", "--llm-require-gates", ".")
    assert required.ret == 1
    required.stdout.fnmatch_lines([f"FAILED {HELD}*", f"FAILED {MISSED}*"])


def test_required_gates_fail_on_a_selection(gated: pytest.Pytester, workers: list[str]) -> None:
    result = gated.runpytest(*workers, "-k", "s1", "--llm-require-gates", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"FAILED {HELD} - a selection*", f"FAILED {MISSED} - a selection*"])


def test_required_gates_where_there_is_none(sums: pytest.Pytester, workers: list[str]) -> None:
    result = sums.runpytest(*workers, "--llm-require-gates", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["FAILED llmeval::gate[[]required] - there was no gate to decide*"])


def test_a_gate_of_the_command_line_decides_on_a_selection(sums: pytest.Pytester, workers: list[str]) -> None:
    right = sums.runpytest(*workers, "--llm-gate=sums: accuracy >= 1", "-k", "s1", "sums.yaml")
    assert right.ret == 0
    right.stdout.fnmatch_lines(["gates: 1 passed"])
    wrong = sums.runpytest(*workers, "--llm-gate=sums: accuracy >= 1", "-k", "s2", "sums.yaml")
    assert wrong.ret == 1


def test_a_gate_of_the_environment_decides_too(
    sums: pytest.Pytester, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_LLM_GATE", "sums: accuracy >= 1\naccuracy >= 0.1")
    result = sums.runpytest(*workers, "-k", "s2", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["gates: 2 failed"])


def test_gates_of_the_ini_file_add_to_the_command_lines(sums: pytest.Pytester, workers: list[str]) -> None:
    sums.makeini("[pytest]\nllm_gate =\n  sums: accuracy > 0.9\n")
    result = sums.runpytest(*workers, "--llm-gate=accuracy > 0.4", "--llm-report=out.json", "sums.yaml")
    assert result.ret == 1
    assert gates_in(sums) == {"accuracy > 0.9": "failed", "accuracy > 0.4": "passed"}
    selected = sums.runpytest(*workers, "-k", "s1", "--llm-report=out.json", "sums.yaml")
    assert selected.ret == 0
    assert gates_in(sums) == {"accuracy > 0.9": "skipped"}


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ("sumz: accuracy >= 0.1", "no suite 'sumz' was collected; did you mean 'sums'?"),
        ("bleu >= 0.5", "no suite has 'bleu', only 'accuracy', *"),
        ("sum(costs) <= 5", "no suite has 'costs'; did you mean 'cost'?"),
        ("p95(second) <= 5", "no suite has 'second'; did you mean 'seconds'?"),
        ("category.west.num_token <= 5", "no suite has 'category.west.num_token': * did you mean 'num_tokens'?*"),
        ("category.est.accuracy > 0.5", "no suite has 'category.est.accuracy': * did you mean 'west'?*"),
    ],
)
def test_a_gate_of_what_no_suite_has_is_refused_before_a_sample_runs(
    sums: pytest.Pytester, workers: list[str], gate: str, message: str
) -> None:
    sums.makefile(".yaml", sums=SUMS.replace("}\n", ", part: west}\n") + "category: part\n")
    result = sums.runpytest(*workers, f"--llm-gate={gate}", "sums.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: --llm-gate '{gate}': {message}"])
    for text in ("wrong in", "FAILED", "stopped early"):
        assert text not in result.stdout.str()


def test_a_gate_of_a_category_that_a_suite_has(sums: pytest.Pytester, workers: list[str]) -> None:
    sums.makefile(".yaml", sums=SUMS.replace("}\n", ", part: west}\n") + "category: part\n")
    result = sums.runpytest(*workers, "--llm-gate=category.west.accuracy >= 0.5", "sums.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["gates: 1 passed"])


def test_a_gate_of_a_suite_that_did_not_run_fails(sums: pytest.Pytester, workers: list[str]) -> None:
    """A hand-written test may record to the suite: it is not known before the end that none does."""
    sums.makepyfile("def test_one(): pass")
    result = sums.runpytest(*workers, "--llm-gate=sumz: accuracy >= 0.1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["FAILED llmeval::gate[[]sumz: accuracy >= 0.1] - *did you mean 'sums'?"])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--llm-gate=sums: accuracy", "*--llm-gate: found *accuracy*, expected a metric, >=*"),
        ("--llm-gate=accuracy >= many", "*--llm-gate: *'many' is not a finite number*"),
        ("--llm-max-drop=accuracy=0.1", "*--llm-max-drop applies to a comparison only: give --llm-baseline*"),
        ("--llm-alpha=0.05", "*--llm-alpha applies to a comparison only: give --llm-baseline*"),  # its default
        ("--llm-max-drop=accuracy=5", "*--llm-max-drop: *allows every drop*between 0 and 1; did you mean 0.05?"),
        ("--llm-baseline=nowhere.json", "*--llm-baseline: *nowhere.json*"),
        ("--llm-gate-mode=loose", "*--llm-gate-mode: expected significant, margin or non-inferior, found 'loose'*"),
        ("--llm-alpha=5", "*--llm-alpha: expected a number above 0 and below 0.5*"),
        ("--llm-shard=3/2", "*--llm-shard: expected I/N with I from 1 to N*"),
        ("--llm-allow-unscored=-1", "*--llm-allow-unscored: expected a whole number*"),
    ],
)
def test_options_that_cannot_be_used(sums: pytest.Pytester, workers: list[str], option: str, message: str) -> None:
    result = sums.runpytest(*workers, option, "sums.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines([message])
    assert "Traceback" not in result.stderr.str()


def test_a_gate_asks_for_a_model(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """A bare pytest skips suites that nobody answers; one with a gate has something to decide."""
    llm_pytester.makefile(".yaml", sums=SUMS)
    assert llm_pytester.runpytest(*workers).ret == 0
    result = llm_pytester.runpytest(*workers, "--llm-gate=accuracy > 0.5")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*sums.yaml needs a model*"])


@pytest.mark.parametrize("option", ["--collect-only", "--setup-plan", "--fixtures", "--llm-show-prompts"])
def test_nothing_is_decided_where_nothing_runs(gated: pytest.Pytester, option: str) -> None:
    result = gated.runpytest(option, "--llm-gate=accuracy > 0.99", "sums.yaml")
    assert result.ret == 0
    assert "gate[" not in result.stdout.str()


def test_nothing_selected(gated: pytest.Pytester, workers: list[str]) -> None:
    result = gated.runpytest(*workers, "-k", "nothing", "--llm-gate=accuracy > 0.1", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["FAILED *gate*"])


def test_required_gates_where_there_is_no_suite(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """In CI, where suites may have vanished, it is asked for on the command line; in the ini file it is for suites."""
    llm_pytester.makepyfile("def test_one(): pass")
    assert llm_pytester.runpytest(*workers, "--llm-require-gates").ret == 1
    llm_pytester.makeini("[pytest]\nllm_require_gates = true")
    assert llm_pytester.runpytest(*workers).ret == 0


def test_a_misspelt_gate_of_the_ini_file(sums: pytest.Pytester, workers: list[str]) -> None:
    """It fails where the session looked at everything, and is skipped where its suite may just not be among those."""
    sums.makeini("[pytest]\nllm_gate = sumz: accuracy > 0.1")
    whole = sums.runpytest(*workers)
    assert whole.ret == 1
    whole.stdout.fnmatch_lines(["FAILED llmeval::gate*did you mean 'sums'?"])
    assert sums.runpytest(*workers, "sums.yaml").ret == 0


def test_nothing_could_be_scored(sums: pytest.Pytester, workers: list[str]) -> None:
    sums.makeconftest(fake_model_conftest(errors={"+": "out of order"}))
    result = sums.runpytest(*workers, "--llm-allow-unscored=100", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["problem: no sample of suite 'sums' could be scored"])


def test_quiet_output(gated: pytest.Pytester, workers: list[str]) -> None:
    result = gated.runpytest(*workers, "-q", "sums.yaml")
    assert "gates .F" in result.outlines, "on a line of their own, without a percentage that goes back"
    assert not [line for line in result.outlines if line.startswith(".") and "%" in line and "100%" not in line]


def test_last_failed_knows_no_gates(gated: pytest.Pytester, workers: list[str]) -> None:
    gated.runpytest(*workers, "sums.yaml")
    cached = json.loads((gated.path / ".pytest_cache/v/cache/lastfailed").read_text())
    assert sorted(cached) == ["sums.yaml::s2", "sums.yaml::s3"]
    again = gated.runpytest(*workers, "--lf", "sums.yaml")
    assert again.ret == 0
    again.stdout.fnmatch_lines(["gates: 2 skipped"])


def test_stepwise_knows_no_gates(gated: pytest.Pytester) -> None:
    first = gated.runpytest("--sw", "sums.yaml")
    assert first.ret == 1
    again = gated.runpytest("--sw", "sums.yaml")
    again.stdout.fnmatch_lines(["gates: 1 failed, 1 passed"])
    assert "previously failed test not found" not in again.stdout.str()


def test_stopping_at_the_first_failure(gated: pytest.Pytester, workers: list[str]) -> None:
    """A gate comes when all has run: there is nothing left that -x could stop."""
    result = gated.runpytest(*workers, "-x", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["gates: 1 failed, 1 passed"])
    assert "stopping after" not in result.stdout.str()
    strict = gated.runpytest("-p", "no:xdist", "-x", "--llm-strict", "sums.yaml")
    strict.stdout.fnmatch_lines([f"FAILED {HELD} - *stopped early*"])


def test_an_unscored_sample_closes_gates(sums: pytest.Pytester, workers: list[str]) -> None:
    sums.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, errors={"4 + 4": "out of order"}))
    result = sums.runpytest(*workers, "--llm-gate=accuracy > 0.1", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["FAILED sums.yaml::gate[[]accuracy > 0.1] - *unscored*"])


def test_some_may_be_unscored(sums: pytest.Pytester, workers: list[str]) -> None:
    sums.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, errors={"4 + 4": "out of order"}))
    arguments = ["--llm-gate=accuracy > 0.1", "sums.yaml"]
    allowed = sums.runpytest(*workers, "--llm-allow-unscored=1", "-v", *arguments)
    assert allowed.ret == 0
    allowed.stdout.re_match_lines_random([r".*(s3 UNSCORED|UNSCORED .*s3)"])
    allowed.stdout.fnmatch_lines(["  sums.yaml::s3: out of order"])
    # in the order in which they came
    allowed.stdout.re_match_lines([r".*= 2 passed, 1 (wrong, 1 unscored|unscored, 1 wrong) in .*"])
    assert "unscored" in allowed.stdout.str().partition("gates: 1 passed")[2]
    again = sums.runpytest("--lf", "--llm-allow-unscored=1", "-v", "sums.yaml")
    again.stdout.fnmatch_lines(["*s2*WRONG*", "*s3*UNSCORED*"])


def test_more_may_not(sums: pytest.Pytester, workers: list[str]) -> None:
    sums.makeconftest(
        fake_model_conftest(replies=SUMS_REPLIES, errors={"4 + 4": "out of order", "5 + 4": "out of order"})
    )
    result = sums.runpytest(*workers, "--llm-allow-unscored=1", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["problem: 2 samples could not be scored, and --llm-allow-unscored allows 1"])


def test_a_worker_that_dies_closes_gates(sums: pytest.Pytester) -> None:
    sums.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, kills=["4 + 4"]))
    sums.makefile(".yaml", sums=SUMS + "gates: [accuracy >= 0.1]\n")
    result = sums.runpytest("-n2", "--llm-allow-unscored=0", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["FAILED sums.yaml::gate[[]accuracy >= 0.1] - *unscored*"])


def test_every_worker_dies(sums: pytest.Pytester) -> None:
    """The controller, which collects nothing, knows the gates of the suite all the same."""
    sums.makeconftest(fake_model_conftest(kills=["+"]))
    sums.makefile(".yaml", sums=SUMS + "gates: [accuracy >= 0.1]\n")
    result = sums.runpytest("-n2", "--max-worker-restart=0", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["FAILED sums.yaml::gate[[]accuracy >= 0.1] - *"])


def test_gates_of_several_models(sums: pytest.Pytester, workers: list[str]) -> None:
    sums.makeconftest("")
    for name, right in (("good", 4), ("bad", 1)):
        replies = [{"id": f"s{n}", "response": str([2, 5, 8, 9][n - 1] if n <= right else 0)} for n in range(1, 5)]
        (sums.path / f"{name}.jsonl").write_text("".join(json.dumps(reply) + "\n" for reply in replies))
    sums.makefile(".yaml", sums=SUMS + "gates: [accuracy >= 0.5]\n")
    models = ["--llm-model=replay:good.jsonl", "--llm-model=replay:bad.jsonl"]
    result = sums.runpytest(*workers, *models, "sums.yaml", "-rA")
    assert result.ret == 1
    result.stdout.re_match_lines_random(
        [
            r"PASSED sums.yaml::.*good.*::gate\[accuracy >= 0.5\]",
            r"FAILED sums.yaml::.*bad.*::gate\[accuracy >= 0.5\] - accuracy 0.250.*",
        ]
    )


def test_gates_of_hand_written_tests(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makepyfile(
        """
        def test_tone(llm_record):
            for number in range(4):
                llm_record(suite="tone", id=number, correct=number > 0)
        """
    )
    result = llm_pytester.runpytest(*workers, "--llm-gate=tone: accuracy >= 0.9")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["FAILED llmeval::gate[[]tone: accuracy >= 0.9] - accuracy 0.750*"])


def test_github_actions(gated: pytest.Pytester, workers: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    summary = gated.path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    result = gated.runpytest(*workers, "sums.yaml")
    (annotation,) = (line for line in result.outlines if line.startswith("::error"))
    assert "file=sums.yaml,line=10" in annotation
    assert "accuracy > 0.9" in annotation
    assert "sums" in summary.read_text(encoding="utf-8")


_ANNOTATES = """
class Annotates:
    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.failed and isinstance(report.longrepr, str):
            print(f"theirs: {report.location[0]}:{report.location[1] + 1}: {report.head_line}: {report.longrepr}")

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Annotates(), "annotate_errors")
"""


def test_another_plugin_that_annotates(
    gated: pytest.Pytester, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytest-github-actions-annotate-failures tells of gates as of tests: twice is too often."""
    summary = gated.path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    gated.makeconftest((gated.path / "conftest.py").read_text() + _ANNOTATES)
    result = gated.runpytest(*workers, "sums.yaml")
    result.stdout.fnmatch_lines(["*theirs: sums.yaml:10: sums: accuracy > 0.9: accuracy 0.500 *: not above 0.9"])
    result.stdout.no_fnmatch_line("*::error*")
    assert "sums" in summary.read_text(encoding="utf-8")


def test_github_actions_without_a_summary(
    gated: pytest.Pytester, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--no-summary`` is about the terminal."""
    summary = gated.path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    result = gated.runpytest(*workers, "--no-summary", "sums.yaml")
    assert sum(line.startswith("::error") for line in result.outlines) == 1
    assert summary.read_text(encoding="utf-8").count("# LLM evaluation") == 1
