"""What a conftest.py can return from ``llm_model``, and what it can do wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.plugin.suites_for_tests import CAPITALS, SUMS
from tests.support import fake_model_conftest

ANSWERS = """
import pytest
from pytest_llmeval.types import GenerateResponse, LoglikelihoodResponse

class Mine:
    calls = []
    def generate(self, requests):
        {before}
        self.calls.append(len(requests))
        return [GenerateResponse(text={text}) for request in requests]

@pytest.fixture(scope="{scope}")
def llm_model():
    yield Mine()

def pytest_sessionfinish():
    print("calls", Mine.calls)
"""


def conftest(before: str = "pass", text: str = "'2'", scope: str = "session") -> str:
    return ANSWERS.format(before=before, text=text, scope=scope)


def report_of(pytester: pytest.Pytester) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((pytester.path / "out.json").read_text())
    return report


def test_a_function_scoped_model_is_asked_for_each_sample_once(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(conftest(scope="function"))
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest("-s", "sums.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*calls [[]4, 1, 1, 1]"])


def test_a_model_that_skips_has_not_answered(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    before = "any('4 + 4' in request.prompt for request in requests) and pytest.skip('no quota')"
    llm_pytester.makeconftest(conftest(before))
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest(*workers, "--llm-report=out.json", "sums.yaml")
    assert result.ret == 1
    statuses = {record["id"]: (record["status"], record["reason"]) for record in report_of(llm_pytester)["records"]}
    assert statuses == {
        "s1": ("correct", None),
        "s2": ("wrong", None),
        "s3": ("unscored", "the model skipped: no quota"),
        "s4": ("wrong", None),
    }


def test_sys_exit_belongs_to_its_sample(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    before = "any('4 + 4' in request.prompt for request in requests) and exit(0)"
    llm_pytester.makeconftest(conftest(before))
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest(*workers, "--llm-report=out.json", "sums.yaml")
    assert result.ret == 1
    unscored = {record["id"] for record in report_of(llm_pytester)["records"] if record["status"] == "unscored"}
    assert unscored == {"s3"}


def test_a_text_that_is_none_is_the_models_mistake(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(conftest(text="None"))
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest(*workers, "--llm-report=out.json", "sums.yaml")
    assert result.ret == 1
    result.stdout.no_fnmatch_line("*Traceback*")
    reasons = {record["reason"] for record in report_of(llm_pytester)["records"]}
    assert reasons == {"model Mine: generate returned a response whose text is None, expected a str"}
    assert report_of(llm_pytester)["models"][0]["name"] == "Mine"


def test_a_model_exception_shows_the_models_code_and_not_ours(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(conftest("raise KeyError('quota')"))
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest("sums.yaml")
    result.stdout.fnmatch_lines(["*raise KeyError('quota')*", "E   *KeyError: 'quota'"])
    result.stdout.no_fnmatch_line("*batcher.py*")
    result.stdout.no_fnmatch_line("*During handling*")


def test_each_folder_may_have_its_own_model(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    for name in ("one", "two"):
        folder = llm_pytester.mkdir(name)
        (folder / "conftest.py").write_text(
            conftest().replace("class Mine", f"class {name.title()}").replace("Mine", name.title())
        )
        (folder / f"{name}.yaml").write_text(SUMS.replace("suite: sums", f"suite: {name}"))
    result = llm_pytester.runpytest(*workers, "--llm-report=out.json", "one", "two")
    assert result.ret == 0
    report = report_of(llm_pytester)
    assert {suite["name"]: suite["models"] for suite in report["suites"]} == {"one": ["One"], "two": ["Two"]}
    assert {(record["suite"], record["model"]) for record in report["records"]} == {("one", "One"), ("two", "Two")}
    result.stdout.fnmatch_lines(["*LLM evaluation: One; Two*", "one (One)*", "two (Two)*"])


def test_suites_outside_of_the_rootdir(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """Files outside of the rootdir have no path in pytest's node ids."""
    (llm_pytester.mkdir("ci") / "pytest.ini").write_text("[pytest]\n")
    suites = llm_pytester.mkdir("suites")
    (suites / "conftest.py").write_text(fake_model_conftest(replies={"1 + 1": "2", "5 + 5": "10"}))
    for name, question, target in (("a", "1 + 1", 2), ("b", "5 + 5", 10)):
        sample = {"question": question, "target": target}
        (suites / f"{name}.yaml").write_text(f"suite: {name}\nscore: number\nsamples: {json.dumps([sample])}\n")
    options = (*workers, "-c", "ci/pytest.ini", "--llm-report=out.json")
    result = llm_pytester.runpytest(*options, "suites/a.yaml", "suites/b.yaml")
    assert result.ret == 0
    report = report_of(llm_pytester)
    assert {suite["name"]: suite["metrics"]["accuracy"]["value"] for suite in report["suites"]} == {"a": 1, "b": 1}
    assert {suite["name"]: suite["num_expected"] for suite in report["suites"]} == {"a": 1, "b": 1}
    (suites / "conftest.py").unlink()
    without = llm_pytester.runpytest(*options, "suites/a.yaml")
    assert without.ret == 4
    without.stderr.fnmatch_lines(["ERROR: ../suites/a.yaml needs a model: *"])


def test_a_worker_that_dies_first_does_not_take_its_suite_along(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(kills=["France"]))
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    llm_pytester.runpytest("-n1", "--llm-report=out.json", "capitals.yaml")
    (suite,) = report_of(llm_pytester)["suites"]
    assert suite["scorer"] == "choice"
    assert suite["metrics"]["brier"]["n"] == 2


def test_a_suite_whose_model_skips_is_in_the_report(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(
        "import pytest\n@pytest.fixture(scope='session')\ndef llm_model():\n    pytest.skip('no server today')\n"
    )
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest(*workers, "--llm-report=out.json", "sums.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["sums: skipped 4", "*4 skipped*"])
    (suite,) = report_of(llm_pytester)["suites"]
    assert (suite["name"], suite["num_skipped"], suite["num_scored"]) == ("sums", 4, 0)


def test_setup_only_measures_nothing(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(conftest())
    llm_pytester.makefile(".yaml", sums=SUMS)
    assert llm_pytester.runpytest("--setup-only", "sums.yaml").ret == 0
