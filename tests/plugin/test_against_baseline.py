"""``score: {pairwise: {against: {baseline: true}}}``: replies against those of ``--llm-baseline``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_llmeval.cli import main

NUM_SAMPLES = 12
ROWS = "".join(f"  - {{id: s{n}, question: Question {n}, target: good}}\n" for n in range(NUM_SAMPLES))
SUITE = f"suite: pairs\nsamples:\n{ROWS}prompt: {{template: '{{{{ question }}}}'}}\n"
PAIRWISE = "score: {pairwise: {against: {baseline: true}}}\n"
EXACT = "--llm-set=pairs: score=exact"
NEW = "--llm-model=python:models:new"
OLD = "--llm-model=python:models:old"
JUDGE = "--llm-judge=python:models:judge"
BASELINE = "--llm-baseline=old.json"
REPORT = "--llm-report=new.json"
ALONE = ("-p", "no:xdist")
MODELS = """
import json, re

def old(prompt):
    return "good"

def new(prompt):
    return "<think>so</think>better" if int(prompt.split()[-1]) % 4 else "bad"

def worse(prompt):
    return "bad"

WORTH = {"bad": 0, "good": 1, "better": 2}

def judge(prompt):
    system, user = (turn["content"] for turn in prompt)
    first, second = (re.search(rf"Reply {name}:\\n```\\n(.*?)\\n```", user, re.S)[1] for name in "AB")
    one, two = (WORTH[text.rpartition(">")[2]] for text in (first, second))
    label = "tie" if one == two else "A" if one > two else "B"
    return json.dumps({"reason": "by its worth", "better": label})
"""


_old_report: list[bytes] = []
"""Made once for all tests here."""


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    """The suite, models, and ``old.json``, the report of another scorer on the model ``old``."""
    llm_pytester.makepyfile(models=MODELS)
    llm_pytester.makefile(".yaml", pairs=SUITE + PAIRWISE)
    old = llm_pytester.path / "old.json"
    if _old_report:
        old.write_bytes(_old_report[0])
        return llm_pytester
    result = llm_pytester.runpytest(*ALONE, OLD, EXACT, "--llm-report=old.json", "pairs.yaml")
    assert result.ret == 0, result.stdout.str()
    _old_report.append(old.read_bytes())
    return llm_pytester


def report_of(project: pytest.Pytester, name: str = "new.json") -> dict[str, Any]:
    report: dict[str, Any] = json.loads((project.path / name).read_text("utf-8"))
    return report


def records_of(project: pytest.Pytester, name: str = "new.json") -> dict[str, Any]:
    return {record["id"]: record for record in report_of(project, name)["records"]}


def metrics_of(project: pytest.Pytester) -> dict[str, Any]:
    return {name: metric["value"] for name, metric in report_of(project)["suites"][0]["metrics"].items()}


def baseline_gate(project: pytest.Pytester, name: str = "new.json") -> dict[str, Any]:
    (gate,) = [gate for gate in report_of(project, name)["gates"] if gate["kind"] == "baseline"]
    found: dict[str, Any] = gate
    return found


def test_replies_are_compared_with_the_baselines(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, NEW, JUDGE, BASELINE, REPORT, "pairs.yaml")
    assert result.ret == 0, result.stdout.str()
    assert metrics_of(project)["win_rate"] == pytest.approx(0.75)
    assert metrics_of(project)["order_consistency"] == 1
    records = records_of(project)
    assert {name: record["answer"] for name, record in records.items()} == {
        f"s{n}": "reply" if n % 4 else "other" for n in range(NUM_SAMPLES)
    }
    assert {record["details"]["other_reply"] for record in records.values()} == {"good"}
    gate = baseline_gate(project)
    assert (gate["name"], gate["outcome"]) == ("win_rate vs baseline", "passed")
    assert gate["regression"]["baseline"] == 0.5
    assert gate["regression"]["current"] == pytest.approx(0.75)
    assert "each reply was judged against the baseline's: 0.5 is as good" in gate["notes"]


def test_a_model_that_is_worse_fails(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, "--llm-model=python:models:worse", JUDGE, BASELINE, REPORT, "pairs.yaml")
    assert result.ret == 1
    gate = baseline_gate(project)
    assert gate["outcome"] == "failed"
    assert gate["reason"].startswith("win_rate 0.500 -> 0.000: -0.500")


def test_its_own_report_can_be_the_next_baseline(project: pytest.Pytester) -> None:
    """Its win rate is over another opponent, and is not compared: the replies are."""
    assert project.runpytest_inprocess(*ALONE, NEW, JUDGE, BASELINE, REPORT, "pairs.yaml").ret == 0
    again = ("--llm-baseline=new.json", "--llm-report=next.json", "pairs.yaml")
    result = project.runpytest_inprocess(*ALONE, NEW, JUDGE, *again)
    assert result.ret == 0, result.stdout.str()
    gate = baseline_gate(project, "next.json")
    assert (gate["outcome"], gate["value"], gate["regression"]["baseline"]) == ("passed", 0.5, 0.5)
    assert records_of(project, "next.json")["s1"]["details"]["other_reply"] == "better"
    fingerprints = {report_of(project, name)["suites"][0]["fingerprint"] for name in ("new.json", "next.json")}
    assert len(fingerprints) == 2, "the replies that it is compared with are part of it"


def test_saved_reports_are_compared_by_whose_replies_they_saw(
    project: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    assert project.runpytest_inprocess(*ALONE, NEW, JUDGE, BASELINE, REPORT, "pairs.yaml").ret == 0
    capsys.readouterr()
    assert main(["compare", "old.json", "new.json"]) == 0
    assert "win_rate 0.500 -> 0.750" in capsys.readouterr().out
    other = project.runpytest_inprocess(*ALONE, NEW, EXACT, "--llm-report=other.json", "pairs.yaml")
    assert other.ret == 0
    capsys.readouterr()
    assert main(["compare", "other.json", "new.json"]) == 1
    assert "its replies were compared with those of another report" in capsys.readouterr().out


def test_samples_that_cannot_be_compared(project: pytest.Pytester, workers: list[str]) -> None:
    """A question that is new is out of n; one that changed under its id is an error, and no gate passes."""
    new = SUITE.replace("Question 3,", "Question 103,") + PAIRWISE
    project.makefile(".yaml", pairs=new.replace("prompt:", "  - {id: s99, question: Question 99, target: t}\nprompt:"))
    result = project.runpytest(*workers, NEW, JUDGE, BASELINE, REPORT, "pairs.yaml", "--llm-gate=win_rate >= 0")
    assert result.ret == 1
    records = records_of(project)
    assert (records["s3"]["status"], records["s3"]["reason"]) == (
        "unscored",
        "the baseline has another question under this id",
    )
    assert records["s99"]["not_measurable"] == {"*": "the baseline has no reply to the sample"}
    assert metrics_of(project)["win_rate"] == pytest.approx(8 / 11)
    assert baseline_gate(project)["outcome"] == "failed"
    result.stdout.fnmatch_lines(["*win_rate not measurable 1 (the baseline has no reply to the sample)*"])


def test_a_sample_of_the_baseline_that_is_gone_is_missed(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", pairs=SUITE.replace("  - {id: s3, question: Question 3, target: good}\n", "") + PAIRWISE)
    result = project.runpytest(*workers, NEW, JUDGE, BASELINE, REPORT, "pairs.yaml")
    assert result.ret == 1
    gate = baseline_gate(project)
    assert (gate["outcome"], gate["reason"]) == ("failed", "1 sample that the baseline scored has no score now ('s3')")
    assert project.runpytest(*workers, NEW, JUDGE, BASELINE, REPORT, "pairs.yaml", "--llm-compare=common").ret == 0
    assert "1 sample of the baseline left out, not in this run" in baseline_gate(project)["notes"]


def test_questions_that_the_baseline_does_not_say(project: pytest.Pytester) -> None:
    """Rows without a question are known by all of them: where one has changed, none can be told to be the same."""
    suite = SUITE.replace("question: Q", "text: Q").replace("{ question }", "{ text }")
    assert "text: Question 3" in suite
    project.makefile(".yaml", pairs=suite + PAIRWISE)
    assert project.runpytest_inprocess(*ALONE, OLD, EXACT, "--llm-report=old.json", "pairs.yaml").ret == 0
    result = project.runpytest_inprocess(*ALONE, NEW, JUDGE, BASELINE, REPORT, "pairs.yaml")
    assert result.ret == 0, result.stdout.str()
    assert metrics_of(project)["win_rate"] == pytest.approx(0.75)
    project.makefile(".yaml", pairs=suite.replace("Question 3,", "Question 103,") + PAIRWISE)
    assert project.runpytest_inprocess(*ALONE, NEW, JUDGE, BASELINE, REPORT, "pairs.yaml").ret == 1
    reasons = {record["reason"] for record in records_of(project).values()}
    assert reasons == {"the questions have changed since the baseline, and it does not say what it asked here"}


def test_filters_hold_for_both_replies(project: pytest.Pytester) -> None:
    assert project.runpytest_inprocess(*ALONE, NEW, EXACT, "--llm-report=old.json", "pairs.yaml").ret == 0
    whole = "generate: {reasoning: false}\n"
    project.makefile(".yaml", pairs=SUITE + PAIRWISE + whole + "filters: [drop_reasoning]\n")
    result = project.runpytest_inprocess(*ALONE, NEW, JUDGE, BASELINE, REPORT, "pairs.yaml")
    assert result.ret == 0, result.stdout.str()
    assert records_of(project)["s1"]["details"]["other_reply"] == "better"
    assert records_of(project)["s1"]["details"]["filtered"] == "better"


def one_line(result: pytest.RunResult, words: str) -> None:
    text = result.stdout.str() + result.stderr.str()
    assert len([line for line in (*result.outlines, *result.errlines) if words in line]) == 1, text
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text


def test_without_a_baseline_nothing_runs(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, NEW, JUDGE, "pairs.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    one_line(result, "pairs.yaml compares its replies with those of a baseline: give --llm-baseline REPORT.json;")
    assert project.runpytest(*ALONE, "--collect-only", "-q", "pairs.yaml").ret == 0


def test_a_session_that_asks_for_no_suite_skips_it(project: pytest.Pytester) -> None:
    project.makefile(".yaml", pairs=SUITE.replace("target: good", "response: good") + PAIRWISE)
    project.makeconftest(
        "import pytest, models\nfrom pytest_llmeval.types import GenerateResponse\n"
        "@pytest.fixture(scope='session')\ndef llm_judge():\n    raise RuntimeError('nobody needs it')\n"
    )
    result = project.runpytest_inprocess(*ALONE, "-rs")
    result.stdout.fnmatch_lines(["*no baseline: give --llm-baseline*", f"*{NUM_SAMPLES} skipped*"])
    assert result.ret == 0


def test_a_baseline_without_the_suite(project: pytest.Pytester) -> None:
    project.makefile(".yaml", pairs=(SUITE + PAIRWISE).replace("suite: pairs", "suite: others"))
    result = project.runpytest_inprocess(*ALONE, NEW, JUDGE, BASELINE, "pairs.yaml")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    one_line(result, "pairs.yaml:16: score.pairwise.against: cannot compare with old.json: it has no suite 'others'")


def test_it_stands_alone(project: pytest.Pytester) -> None:
    several = "{several: {scorers: {a: {score: exact}, b: {score: {pairwise: {against: {baseline: true}}}}}}}"
    project.makefile(".yaml", pairs=f"{SUITE}score: {several}\n")
    result = project.runpytest_inprocess(*ALONE, NEW, JUDGE, BASELINE, "pairs.yaml")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    where = "pairs.yaml:16: score.several.scorers.b.score.pairwise.against"
    one_line(result, f"{where}: a comparison with the replies of a baseline stands alone; give it a suite of its own")


def test_a_baseline_of_several_models(project: pytest.Pytester, workers: list[str]) -> None:
    """The replies of the same model; where there is none, nothing says with whose."""
    both = (OLD, NEW, EXACT, "--llm-report=old.json", "pairs.yaml")
    assert project.runpytest(*workers, *both).ret == 0
    result = project.runpytest(*workers, NEW, JUDGE, BASELINE, REPORT, "pairs.yaml")
    assert result.ret == 0, result.stdout.str()
    assert metrics_of(project)["win_rate"] == 0.5
    result = project.runpytest(*workers, "--llm-model=python:models:worse", JUDGE, BASELINE, "pairs.yaml")
    assert result.ret != 0
    words = "the baseline has this suite on 'python:models:old', 'python:models:new', and not on 'python:models:worse'"
    result.stdout.fnmatch_lines([f"pairs.yaml:16: score.pairwise.against: cannot compare with old.json: {words}"])


def test_several_models_against_one(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, NEW, "--llm-model=python:models:worse", JUDGE, BASELINE, REPORT, "pairs.yaml")
    assert result.ret == 1
    found = {
        gate["model"]: (gate["outcome"], gate["value"])
        for gate in report_of(project)["gates"]
        if gate["kind"] == "baseline"
    }
    assert found == {"python:models:new": ("passed", 0.75), "python:models:worse": ("failed", 0.0)}


def test_a_margin_of_time_for_other_suites_fails_nothing(project: pytest.Pytester) -> None:
    given = (BASELINE, NEW, JUDGE, REPORT, "--llm-max-drop=seconds=10%", "--llm-gate-mode=margin")
    result = project.runpytest(*ALONE, *given, "pairs.yaml")
    outcomes = {gate["metric"]: gate["outcome"] for gate in report_of(project)["gates"]}
    assert outcomes["seconds"] == "skipped", result.stdout.str()
