"""Gates, clusters and primary metrics of a suite as pytest collects them, and the mistakes in them that stop it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY, SUMS
from tests.support import fake_model_conftest

ROWS = "".join(f"  - {{question: {place} + 1 =, target: {place + 1}, passage: {place % 10}}}\n" for place in range(20))
CLUSTERED = f"suite: clustered\nsamples:\n{ROWS}score: number\ncluster: passage\nprimary_metric: accuracy\n"
BENCHMARK = """\
from pytest_llmeval import Benchmark

class Sums(Benchmark):
    cluster = "passage"
    gates = ["accuracy > 0.1", "no_answer < 5"]
    primary_metric = {"name": "accuracy", "better": "higher"}

    def load(self):
        return [{"question": f"{place} + 1 =", "target": place + 1, "passage": place % 10} for place in range(20)]
"""


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY, replies={"9 + 1": "10"}, default_reply="1"))
    return llm_pytester


def report_of(project: pytest.Pytester) -> Any:
    return json.loads((project.path / "out.json").read_text())


MISTAKES = {
    "a metric of the suite": (
        "gates:\n- accuracy >= 0.6\n- acuracy >= 0.6\n",
        [],
        "capitals.yaml:11: gates.1: 'acuracy >= 0.6': there is no metric 'acuracy'; did you mean 'accuracy'? Expected*",
    ),
    "a rule": (
        "gates: [accuracy]\n",
        [],
        "capitals.yaml:9: gates.0: found 'accuracy', expected a metric, >=, >, <= or <, and a number, *",
    ),
    "a category": (
        "gates: [category.est.accuracy > 0]\n",
        [],
        "capitals.yaml:9: gates.0: *: there is no category 'est'; did you mean 'west'? Expected one of west, *",
    ),
    "clusters": (
        "cluster: part\n",
        [],
        "capitals.yaml:9: cluster: found 3 clusters in 3 samples, expected at least 10: *",
    ),
    "a primary metric": (
        "primary_metric: f1\n",
        [],
        "capitals.yaml:9: primary_metric: there is no metric 'f1'; expected *",
    ),
    "a gate from outside": (
        "",
        ["--llm-gate=sums: accuracy > 0", "--llm-gate=capitals: acuracy >= 0.6"],
        "capitals.yaml: --llm-gate 'capitals: acuracy >= 0.6': there is no metric 'acuracy'; did you mean 'accuracy'*",
    ),
    "a count's interval": (
        "",
        ["--llm-gate=ci_low(no_answer) >= 1"],
        "sums.yaml: --llm-gate 'ci_low(no_answer) >= 1': no_answer is a count of samples, *",
    ),
    "what llm-set sets": (
        "",
        ["--llm-set=capitals: gates=[acuracy > 0]"],
        "capitals.yaml: --llm-set 'capitals: gates=[[]acuracy > 0[]]': gates.0: 'acuracy > 0': there is no metric *",
    ),
}


@pytest.mark.parametrize(("text", "arguments", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_errors_of_the_collection(
    project: pytest.Pytester, workers: list[str], text: str, arguments: list[str], message: str
) -> None:
    project.makefile(".yaml", capitals=CAPITALS + text, sums=SUMS + "gates: [no_answer < 9]\n")
    result = project.runpytest(*workers, *arguments)
    assert result.ret in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.TESTS_FAILED)
    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_gate_of_the_ini_file_is_checked_too(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", capitals=CAPITALS)
    project.makeini("[pytest]\nllm_gate =\n    capitals: acuracy > 0\n")
    result = project.runpytest(*workers)
    result.stdout.fnmatch_lines(
        ["capitals.yaml: llm_gate of the ini file 'capitals: acuracy > 0': there is no metric *"]
    )


def test_what_the_report_says_of_a_suite(project: pytest.Pytester, workers: list[str]) -> None:
    gates = "gates:\n- accuracy>0.04\n- ci_high( accuracy ) < 1\n"
    project.makefile(".yaml", clustered=CLUSTERED + gates)
    project.runpytest(*workers, "--llm-report=out.json")
    report = report_of(project)
    (suite,) = report["suites"]
    assert suite["gates"] == {"accuracy > 0.04": 27, "ci_high(accuracy) < 1": 28}
    assert (suite["cluster"], suite["primary_metric"], suite["higher_is_better"]) == ("passage", "accuracy", True)
    assert suite["judge"] is None
    assert {name: len(part) for name, part in suite["fingerprint_parts"].items()} == {
        "questions": 64,
        "prompt": 64,
        "fewshot": 0,
        "scorer": 64,
        "judging": 64,
    }
    assert [record["cluster"] for record in report["records"]] == [str(place % 10) for place in range(20)]


def test_unscored_samples_have_their_cluster(project: pytest.Pytester, workers: list[str]) -> None:
    project.makeconftest(fake_model_conftest(errors={"13 + 1": "no"}, default_reply="1"))
    project.makefile(".yaml", clustered=CLUSTERED)
    project.runpytest(*workers, "--llm-report=out.json")
    (record,) = [record for record in report_of(project)["records"] if record["status"] == "unscored"]
    assert record["cluster"] == "3"


def test_a_benchmark_in_python(project: pytest.Pytester, workers: list[str]) -> None:
    (project.path / "test_sums.py").write_text(BENCHMARK)
    project.runpytest(*workers, "--llm-report=out.json")
    report = report_of(project)
    (suite,) = report["suites"]
    assert suite["gates"] == {"accuracy > 0.1": 3, "no_answer < 5": 3}
    assert (suite["cluster"], suite["primary_metric"], suite["higher_is_better"]) == ("passage", "accuracy", True)
    assert [record["cluster"] for record in report["records"]] == [str(place % 10) for place in range(20)]


def test_a_scorer_that_asks_a_judge(project: pytest.Pytester, workers: list[str]) -> None:
    scorer = """
def mine(reply):
    return True

def pytest_llmeval_scorers():
    mine.judged_by = os.environ["JUDGE"]
    return {"mine": mine}
"""
    project.makeconftest(fake_model_conftest() + scorer)
    project.makefile(".yaml", s="suite: s\nsamples: [{question: q, target: a}]\nscore: mine\n")
    found = []
    for judge in ("one", "two"):
        project._monkeypatch.setenv("JUDGE", judge)
        project.runpytest(*workers, "--llm-report=out.json")
        (suite,) = report_of(project)["suites"]
        found.append((suite["judge"], suite["fingerprint"], suite["fingerprint_parts"]))
    (judge, *parts), (other, *other_parts) = found
    assert len(judge) == 64
    assert judge != other
    assert parts == other_parts


def test_a_gate_of_a_metric_that_nobody_knows_before_the_run(project: pytest.Pytester, workers: list[str]) -> None:
    project.makeconftest(
        fake_model_conftest() + "\ndef pytest_llmeval_scorers(): return {'mine': lambda reply: {'wit': 0.5}}\n"
    )
    text = "suite: s\nsamples: [{question: q, target: a}, {question: r, target: b}]\nscore: mine\n"
    project.makefile(".yaml", s=text + "gates: [wit >= 0.5, wits >= 0.5]\n")
    result = project.runpytest(*workers, "-rA", "--llm-report=out.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert [(gate["name"], gate["outcome"], gate["reason"]) for gate in report_of(project)["gates"]] == [
        ("wit >= 0.5", "passed", "wit 0.500, n 2"),
        (
            "wits >= 0.5",
            "failed",
            "there is no metric 'wits'; did you mean 'wit'? Expected one of wit, cost, seconds, num_tokens, "
            "num_prompt_tokens",
        ),
    ]


OWN = "gates: [accuracy >= 0.3]\n"


def outcomes(project: pytest.Pytester) -> list[tuple[Any, ...]]:
    return [(gate["suite"], gate["name"], gate["outcome"]) for gate in report_of(project)["gates"]]


def test_samples_that_are_skipped_as_they_run_leave_a_suites_own_gate_undecided(
    project: pytest.Pytester, workers: list[str]
) -> None:
    """A gate on what is left would be one on a few samples that somebody's fixture lets through."""
    conftest = (project.path / "conftest.py").read_text(encoding="utf-8")
    skips = "\nimport pytest\ndef pytest_runtest_setup(item):\n    if item.name != 'q1': pytest.skip('not today')\n"
    project.makeconftest(conftest + skips)
    project.makefile(".yaml", capitals=CAPITALS + OWN)
    result = project.runpytest(*workers, "--llm-gate=accuracy > 0.9", "--llm-report=out.json")
    assert result.ret == 0
    own, asked = report_of(project)["gates"]
    assert (own["outcome"], own["reason"]) == ("skipped", "2 of 3 samples skipped")
    assert (asked["outcome"], asked["notes"]) == ("passed", ["2 samples skipped"])
    required = project.runpytest(*workers, "--llm-require-gates")
    assert required.ret == 1
    required.stdout.fnmatch_lines(["FAILED capitals.yaml::gate[[]accuracy >= 0.3] - 2 of 3 samples skipped; *"])


def test_a_sample_whose_worker_died_may_be_of_any_category(project: pytest.Pytester) -> None:
    project.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY, kills=["Norway"]))
    project.makefile(".yaml", capitals=CAPITALS + "gates: [category.west.accuracy >= 0.5]\n")
    project.runpytest("-n2", "--llm-report=out.json")
    (gate,) = report_of(project)["gates"]
    assert gate["outcome"] == "failed"
    assert gate["reason"] == "1 unscored sample without a known category, which may belong to this one"
    project.runpytest("-n2", "--llm-allow-unscored=1", "--llm-report=out.json")
    (gate,) = report_of(project)["gates"]
    assert (gate["outcome"], gate["notes"]) == ("passed", ["1 unscored sample without a known category allowed"])


def test_a_gate_for_all_suites_is_not_for_one_that_was_not_selected(
    project: pytest.Pytester, workers: list[str]
) -> None:
    project.makefile(".yaml", capitals=CAPITALS + OWN, sums=SUMS + OWN)
    arguments = ["-k", "capitals", "--llm-gate=accuracy >= 0.3", "--llm-report=out.json"]
    assert project.runpytest(*workers, *arguments).ret == 0
    assert outcomes(project) == [
        ("capitals", "accuracy >= 0.3", "passed"),
        ("sums", "accuracy >= 0.3", "skipped"),
    ]


def test_a_session_that_stops_at_its_last_sample_has_run_its_suites(project: pytest.Pytester) -> None:
    """The third and last sample is wrong, which is a failure under --llm-strict."""
    project.makefile(".yaml", capitals=CAPITALS + OWN)
    arguments = ["-p", "no:xdist", "-x", "--llm-strict", "--llm-report=out.json"]
    result = project.runpytest(*arguments)
    result.stdout.fnmatch_lines(["*stopping after 1 failures*"])
    assert outcomes(project) == [("capitals", "accuracy >= 0.3", "passed")]
    project.makefile(".yaml", sums=SUMS + OWN)
    project.runpytest(*arguments)
    assert outcomes(project) == [
        ("capitals", "accuracy >= 0.3", "passed"),
        ("sums", "accuracy >= 0.3", "failed"),
    ]


def test_a_perfect_model_passes_a_gate_on_an_interval(project: pytest.Pytester, workers: list[str]) -> None:
    """All samples have one value: 1 - 0.025^(1/20) is 0.168."""
    rows = "".join(f"  - {{question: q{place}, target: '1'}}\n" for place in range(20))
    project.makefile(".yaml", s=f"suite: s\nsamples:\n{rows}score: f1\ngates: [ci_low(f1) >= 0.8, ci_low(f1) > 0.84]\n")
    project.runpytest(*workers, "--llm-report=out.json")
    assert [(gate["outcome"], gate["reason"]) for gate in report_of(project)["gates"]] == [
        ("passed", "f1 1.000 [0.832, 1.000], n 20"),
        ("failed", "f1 1.000 [0.832, 1.000], n 20: ci_low is not above 0.84"),
    ]
