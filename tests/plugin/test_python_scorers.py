"""Scorers that a conftest.py or an installed package registers, and benchmarks that are classes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_llmeval.cli import main
from tests.plugin.test_recipe_report import install
from tests.support import FAKE_MODEL_CONFTEST, fake_model_conftest

NEAR = """
def near(reply, target, tolerance=0.1):
    try:
        return abs(float(reply) - target) <= tolerance
    except ValueError:
        return None

def words(reply):
    return len(reply.split())

def several(reply, sample):
    return {"accuracy": float(reply == "2"), "words": len(reply.split()), "choices": len(sample.choices)}

def broken(reply):
    raise RuntimeError("no luck")

def pytest_llmeval_scorers():
    return {"near": near, "words": words, "several_values": several, "broken": broken, "odd": lambda reply: reply}
"""
SUITE = """
suite: sums
samples:
  - {id: a, question: one plus one, target: 2}
  - {id: b, question: two plus two, target: 4}
  - {id: c, question: three, target: 3}
score: SCORE
"""
REPLIES = {"one plus one": "2", "two plus two": "4.3", "three": "three"}


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(replies=REPLIES) + NEAR)
    return llm_pytester


def run(project: pytest.Pytester, score: str, *arguments: str) -> pytest.RunResult:
    project.makefile(".yaml", sums=SUITE.replace("SCORE", score))
    return project.runpytest(*arguments, "--llm-report=out.json")


def records(project: pytest.Pytester) -> dict[str, dict[str, object]]:
    report = json.loads((project.path / "out.json").read_text())
    return {record["id"]: record for record in report["records"]}


def test_a_function_judges_replies(project: pytest.Pytester, workers: list[str]) -> None:
    result = run(project, "near", *workers)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["sums*3  0.333*", "sums: no answer 1", "*1 passed, 2 wrong*"])
    found = records(project)
    assert [found[one]["status"] for one in "abc"] == ["correct", "wrong", "wrong"]
    assert [found[one]["no_answer"] for one in "abc"] == [False, False, True]


def test_its_settings_come_from_the_suite(project: pytest.Pytester, workers: list[str]) -> None:
    assert run(project, "{near: {tolerance: 0.5}}", *workers).ret == 0
    assert [one["status"] for one in records(project).values()] == ["correct", "correct", "wrong"]


def test_numbers_are_scores_without_right_or_wrong(project: pytest.Pytester, workers: list[str]) -> None:
    result = run(project, "words", *workers)
    result.stdout.fnmatch_lines(["*1.000*"])
    assert {one["status"] for one in records(project).values()} == {"scored"}
    report = json.loads((project.path / "out.json").read_text())
    assert report["suites"][0]["metrics"]["score"]["value"] == pytest.approx((1 + 1 + 1) / 3)


def test_a_mapping_gives_several_metrics(project: pytest.Pytester, workers: list[str]) -> None:
    assert run(project, "several_values", *workers).ret == 0
    metrics = json.loads((project.path / "out.json").read_text())["suites"][0]["metrics"]
    assert metrics["accuracy"]["value"] == pytest.approx(1 / 3)
    assert metrics["words"]["n"] == 3


def test_a_contradiction_is_no_score_and_the_report_stays_good(project: pytest.Pytester) -> None:
    both = """
from pytest_llmeval.types import Score

def both(reply, target):
    return Score(status="correct", values={"accuracy": float(reply == str(target))})

def pytest_llmeval_scorers():
    return {"both": both}
"""
    project.makeconftest(fake_model_conftest(replies=REPLIES) + both)
    result = run(project, "both", "-pno:xdist")
    result.assert_outcomes(passed=1, failed=2)
    reason = "the scorer both gave the status correct and accuracy = 0.0, expected accuracy = 1.0, or the status wrong"
    result.stdout.fnmatch_lines([f"*{reason}*"])
    assert [one["status"] for one in records(project).values()] == ["correct", "unscored", "unscored"]
    report = str(project.path / "out.json")
    assert main(["gate", report, "--gate", "accuracy > 0.5", "--allow-unscored", "2"]) == 0


def test_what_it_raises_costs_the_sample(project: pytest.Pytester, workers: list[str]) -> None:
    result = run(project, "broken", *workers)
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["*sample 'a': the scorer broken raised RuntimeError: no luck"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert result.ret == 1


def test_a_return_value_without_a_meaning(project: pytest.Pytester) -> None:
    result = run(project, "odd")
    result.stdout.fnmatch_lines(["*the scorer odd returned a str, expected True or False, a number, None, *"])


@pytest.mark.parametrize(
    ("score", "message"),
    [
        ("naer", "sums.yaml:6: score: there is no scorer 'naer'; did you mean 'near'?"),
        ("{near: {tolerence: 1}}", "*score: unknown key 'tolerence' in score.near; did you mean 'tolerance'?"),
    ],
)
def test_mistakes_in_the_suite(project: pytest.Pytester, score: str, message: str) -> None:
    result = run(project, score)
    result.stdout.fnmatch_lines([f"*{message}"])
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_a_name_that_is_ours_is_refused(project: pytest.Pytester) -> None:
    project.makeconftest("def pytest_llmeval_scorers(): return {'exact': print}")
    result = run(project, "exact")
    result.stdout.fnmatch_lines(["*'exact' is a scorer of pytest-llmeval-suites; rename yours"])


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("[print]", "pytest_llmeval_scorers: found a list, expected a mapping of names to scorers"),
        ("{'mine': 1}", "pytest_llmeval_scorers: 'mine' is a int, expected a function or a class"),
    ],
)
def test_what_the_hook_cannot_return(project: pytest.Pytester, workers: list[str], returned: str, message: str) -> None:
    project.makeconftest(fake_model_conftest() + f"def pytest_llmeval_scorers(): return {returned}")
    result = run(project, "exact", *workers)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*registered_scorers*")


def test_two_scorers_of_one_name_are_refused_with_their_files(project: pytest.Pytester, workers: list[str]) -> None:
    folder = project.mkdir("folder")
    (folder / "conftest.py").write_text("def pytest_llmeval_scorers(): return {'near': print}")
    (folder / "sums.yaml").write_text(SUITE.replace("SCORE", "near"))
    result = project.runpytest(*workers, "folder")
    result.assert_outcomes(errors=1)
    message = "*two scorers are called 'near', in conftest.py and folder/conftest.py; rename one of them"
    result.stdout.fnmatch_lines([message])


POLITE = "def polite(reply, target):\n    return 'please' in reply\n"


def install_scorer(site: Path, package: str, source: str = POLITE, name: str = "polite") -> None:
    """A package with the scorer ``name``, which is the function ``polite`` of its module."""
    project = f'[project.entry-points."pytest_llmeval.scorers"]\n{name} = "{package}:polite"\n'
    install(site, package=package, source=source, project=project)


@pytest.fixture
def site(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, for processes that start from now on."""
    site = project.mkdir("site")
    project.makeconftest(FAKE_MODEL_CONFTEST)
    monkeypatch.setenv("PYTHONPATH", str(site))
    return site


def test_an_installed_package_registers_by_entry_point(
    project: pytest.Pytester, workers: list[str], site: Path
) -> None:
    install_scorer(site, "polite_scorer")
    project.makefile(".yaml", sums=SUITE.replace("SCORE", "polite"))
    result = project.runpytest_subprocess(*workers)
    result.stdout.fnmatch_lines(["sums*3  0.000*"])


def test_two_packages_with_one_scorer_name_are_both_named(
    project: pytest.Pytester, workers: list[str], site: Path
) -> None:
    install_scorer(site, "one_package")
    install_scorer(site, "other_package")
    project.makefile(".yaml", sums=SUITE.replace("SCORE", "polite"), exact=SUITE.replace("SCORE", "exact"))
    result = project.runpytest_subprocess(*workers, "sums.yaml")
    result.assert_outcomes(errors=1)
    message = "the package one_package and the package other_package: both have a scorer called 'polite'; rename *"
    result.stdout.fnmatch_lines([message])
    assert project.runpytest_subprocess(*workers, "exact.yaml").ret == 0, "what it does not use does not stop it"


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("polite", "import nosuch", "the scorer 'polite' = bad:polite cannot be loaded: ModuleNotFoundError: No *"),
        ("polite", "polite = 1", "'polite' is a int, expected a function or a class"),
        ("number", POLITE, "'number' is a scorer of pytest-llmeval-suites; rename yours"),
    ],
)
def test_a_scorer_that_cannot_be_used_stops_its_suites_alone(
    project: pytest.Pytester, workers: list[str], site: Path, name: str, source: str, message: str
) -> None:
    install_scorer(site, "bad", source, name)
    project.makefile(".yaml", sums=SUITE.replace("SCORE", name), exact=SUITE.replace("SCORE", "exact"))
    result = project.runpytest_subprocess(*workers, "sums.yaml")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"the package bad: {message}"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert project.runpytest_subprocess(*workers, "exact.yaml").ret == 0


def test_a_package_and_a_conftest_with_one_scorer_name(project: pytest.Pytester, site: Path) -> None:
    install_scorer(site, "polite_scorer")
    project.makefile(".yaml", sums=SUITE.replace("SCORE", "polite"))
    same = "from polite_scorer import polite\ndef pytest_llmeval_scorers(): return {'polite': polite}\n"
    project.makeconftest(FAKE_MODEL_CONFTEST + same)
    assert project.runpytest_subprocess("-p", "no:xdist").ret == 0
    project.makeconftest(FAKE_MODEL_CONFTEST + same.replace("'polite': polite", "'polite': lambda reply: True"))
    result = project.runpytest_subprocess("-p", "no:xdist")
    result.stdout.fnmatch_lines(["pytest_llmeval_scorers and the package polite_scorer: both have a scorer called *"])


UNUSABLE = """
import pytest_llmeval.plugin.session
from pytest_llmeval.types import Score

def infinite(reply):
    return Score(status="correct", values={"a": float("inf")})

def credit(reply):
    return Score(status="correct" if reply == "2" else "scored", values={"credit": float(reply == "2")})

def pytest_llmeval_scorers():
    return {"infinite": infinite, "credit": credit}
"""
FAILING = """
summarized = pytest_llmeval.reporting.report.summaries.summarize_suite

def fails(info, *arguments, **named):
    if info.name == "other" and named.get("has_metrics", True):
        raise ArithmeticError("too much")
    return summarized(info, *arguments, **named)

pytest_llmeval.reporting.report.summaries.summarize_suite = fails


def pytest_unconfigure():
    pytest_llmeval.reporting.report.summaries.summarize_suite = summarized  # other tests share this process
"""


def test_a_score_that_is_no_number_costs_its_sample_and_not_the_report(
    project: pytest.Pytester, workers: list[str]
) -> None:
    project.makeconftest(fake_model_conftest(replies=REPLIES) + UNUSABLE)
    project.makefile(".yaml", other=SUITE.replace("SCORE", "infinite").replace("sums", "other"))
    result = run(project, "exact", *workers)
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(["*the scorer infinite gave a = inf, expected a finite number"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
    report = json.loads((project.path / "out.json").read_text())
    numbers = {suite["name"]: (suite["num_scored"], suite["num_unscored"]) for suite in report["suites"]}
    assert numbers == {"other": (0, 3), "sums": (3, 0)}


def test_a_score_of_its_own_has_no_accuracy_but_what_it_says(project: pytest.Pytester, workers: list[str]) -> None:
    project.makeconftest(fake_model_conftest(replies=REPLIES) + UNUSABLE)
    assert run(project, "credit", *workers).ret == 0
    metrics = json.loads((project.path / "out.json").read_text())["suites"][0]["metrics"]
    assert list(metrics) == ["credit"]
    assert metrics["credit"]["value"] == pytest.approx(1 / 3)


def test_a_suite_whose_metrics_fail_leaves_the_others_their_report(
    project: pytest.Pytester, workers: list[str]
) -> None:
    project.makeconftest(fake_model_conftest(replies=REPLIES) + UNUSABLE + FAILING)
    project.makefile(".yaml", other=SUITE.replace("SCORE", "exact").replace("sums", "other"))
    result = run(project, "exact", *workers)
    result.stdout.fnmatch_lines(["*suite 'other' has no metrics: ArithmeticError: too much*"])
    assert result.ret == 1
    report = json.loads((project.path / "out.json").read_text())
    assert [list(suite["metrics"]) for suite in report["suites"]] == [[], ["accuracy", "no_answer"]]
    assert [suite["num_scored"] for suite in report["suites"]] == [3, 3]
    assert report["exit_code"] == 1
    assert len(report["records"]) == 6
    assert report["problems"] == ["suite 'other' has no metrics: ArithmeticError: too much"]


CAPITALS = '''
from pytest_llmeval import Benchmark


class Capitals(Benchmark):
    """Capitals of Europe."""

    category = "area"

    def load(self):
        for line in (self.folder / "capitals.txt").read_text().splitlines():
            country, capital, area = line.split()
            yield {"id": country, "question": f"The capital of {country}", "target": capital, "area": area}

    def normalise(self, text):
        return text.strip(" .").lower()


class Sizes(Benchmark):
    score = "choice"

    def load(self):
        return [{"question": "Which is larger", "choices": ["ant", "elephant"], "target": 1}]


def test_of_my_own():
    pass
'''


@pytest.fixture
def capitals(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(
        fake_model_conftest(replies={"of France": " Paris.", "of Norway": "bergen", "of Greece": " "})
    )
    llm_pytester.makepyfile(test_capitals=CAPITALS)
    (llm_pytester.path / "capitals.txt").write_text("France Paris west\nNorway Oslo north\nGreece Athens south\n")
    return llm_pytester


def test_a_benchmark_in_python_is_collected_as_a_suite(capitals: pytest.Pytester, workers: list[str]) -> None:
    result = capitals.runpytest(*workers, "-v", "--llm-report=out.json")
    result.stdout.fnmatch_lines_random(
        [
            "*PASSED*test_capitals.py::Capitals::France*" if "-n2" in workers else "*::Capitals::France PASSED*",
            "*Capitals*3  0.333*",
            "*Sizes*1 *",
            "*no answer 1",
        ]
    )
    report = json.loads((capitals.path / "out.json").read_text())
    assert [(one["suite"], one["id"], one["status"]) for one in report["records"] if one["suite"] == "Capitals"] == [
        ("Capitals", "France", "correct"),
        ("Capitals", "Norway", "wrong"),
        ("Capitals", "Greece", "wrong"),
    ]
    info = report["suites"][0]
    assert (info["path"], info["description"]) == ("test_capitals.py::Capitals", "Capitals of Europe.")
    assert sorted(info["categories"]) == ["north", "south", "west"]


def test_one_sample_of_it_by_its_node_id(capitals: pytest.Pytester, workers: list[str]) -> None:
    result = capitals.runpytest(*workers, "test_capitals.py::Capitals::France")
    result.assert_outcomes(passed=1)


def test_its_wrong_answers_run_again(capitals: pytest.Pytester) -> None:
    capitals.runpytest()
    capitals.runpytest("--lf", "-v", "test_capitals.py::Capitals").stdout.fnmatch_lines(
        ["*Norway WRONG*", "*Greece WRONG*", "*2 wrong in *"]
    )


def test_overrides_reach_it(capitals: pytest.Pytester) -> None:
    override = "Capitals: prompt={template: 'Say it. {{ question }}'}"
    result = capitals.runpytest("--llm-set", override, "--llm-show-prompts")
    result.stdout.fnmatch_lines(["*Say it. The capital of France*"])


def test_a_benchmark_without_rows_and_one_with_a_broken_row(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(FAKE_MODEL_CONFTEST)
    llm_pytester.makepyfile(
        test_two="""
        from pytest_llmeval import Benchmark

        class Empty(Benchmark):
            def load(self):
                return []

        class Broken(Benchmark):
            def load(self):
                return [{"question": "q", "target": "t"}, "no mapping"]
        """
    )
    result = llm_pytester.runpytest()
    result.stdout.fnmatch_lines_random(
        [
            "test_two.py:3: samples: found an empty list, expected samples",
            "test_two.py:7: Broken.load: row 2 is a str, expected a mapping of columns, such as {'id': 'q1', *",
        ]
    )
    assert result.ret == pytest.ExitCode.INTERRUPTED


JUDGED = """
import os

def judged(reply):
    return bool(reply)

judged.judged_by = os.environ["JUDGED_BY"]

def pytest_llmeval_scorers():
    return {"judged": judged}
"""


def test_a_baseline_of_another_judge_is_refused_by_the_judges_names(
    llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=REPLIES) + JUDGED)
    monkeypatch.setenv("JUDGED_BY", "gpt-x, prompt 1")
    assert run(llm_pytester, "judged").ret == 0
    (llm_pytester.path / "out.json").rename(llm_pytester.path / "before.json")
    monkeypatch.setenv("JUDGED_BY", "llama-y, prompt 1")
    result = run(llm_pytester, "judged", "--llm-baseline=before.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*another judge: 'gpt-x, prompt 1' -> 'llama-y, prompt 1'*"])
