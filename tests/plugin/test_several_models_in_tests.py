"""``--llm-model`` given several times, and hand-written tests that take ``llm_model``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.plugin.scripted_models import loads, scripted_models_conftest

MODELS = ("--llm-model=org/big", "--llm-model=small")

TONE = """
import pytest

@pytest.mark.llm_suite("tone")
@pytest.mark.parametrize("name", ["Ann", "Bob"])
def test_tone(name, llm_model, llm_record):
    reply = llm_model.generate([GenerateRequest(f"Dear {name},")])[0].text
    llm_record(suite="tone", id=name, correct="please" in reply, answer=reply)

def test_of_no_model():
    pass
"""
TONE = "from pytest_llmeval.types import GenerateRequest\n" + TONE


@pytest.fixture
def tests(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    scripts = {"org/big": {"Ann": "please", "Bob": "please"}, "small": {"Ann": "please", "Bob": "now!"}}
    llm_pytester.makeconftest(scripted_models_conftest(scripts))
    return llm_pytester


def read(pytester: pytest.Pytester) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((pytester.path / "out.json").read_text(encoding="ascii"))
    return report


def test_a_test_runs_on_each_model(tests: pytest.Pytester, workers: list[str]) -> None:
    tests.makepyfile(test_it=TONE)
    result = tests.runpytest(*workers, *MODELS, "--llm-report=out.json")
    assert result.ret == 0
    report = read(tests)
    assert {(record["model"], record["id"], record["status"]) for record in report["records"]} == {
        ("org/big", "Ann", "correct"),
        ("org/big", "Bob", "correct"),
        ("small", "Ann", "correct"),
        ("small", "Bob", "wrong"),
    }
    assert [(suite["name"], suite["models"], suite["num_expected"]) for suite in report["suites"]] == [
        ("tone", ["org/big"], 2),
        ("tone", ["small"], 2),
    ]
    assert report["problems"] == []
    result.stdout.fnmatch_lines(["against big, *", "tone*accuracy*2  1.000  0.500 (-0.500 *, +0 -1)"])
    assert sum(line.startswith("test_it.py::test_of_no_model") for line in report_ids(tests)) == 1


def report_ids(pytester: pytest.Pytester) -> list[str]:
    result = pytester.runpytest(*MODELS, "--collect-only", "-q")
    return [line for line in result.outlines if "::" in line]


def test_tests_are_in_the_order_of_their_models(tests: pytest.Pytester) -> None:
    tests.makepyfile(test_it=TONE)
    models = ["big" if "big" in nodeid else "small" for nodeid in report_ids(tests) if "test_tone" in nodeid]
    assert models == ["big", "big", "small", "small"]
    tests.runpytest(*MODELS)
    assert [(load["model"], load["alive"]) for load in loads(tests.path)] == [("org/big", []), ("small", [])]


def test_keywords_and_last_failed(tests: pytest.Pytester) -> None:
    tests.makepyfile(test_it=TONE)
    tests.runpytest(*MODELS, "-k", "test_tone and small").assert_outcomes(passed=1, deselected=3)
    result = tests.runpytest(*MODELS, "--lf", "-v")
    result.stdout.fnmatch_lines(["test_it.py::test_tone[[]small-Bob[]] WRONG*"])
    assert [load["model"] for load in loads(tests.path)] == ["small", "small"]


def test_one_model_changes_no_node_id(tests: pytest.Pytester) -> None:
    tests.makepyfile(test_it="def test_it(llm_model):\n    assert llm_model.identity.name == 'small'")
    result = tests.runpytest("--llm-model=small", "-v")
    result.stdout.fnmatch_lines(["test_it.py::test_it PASSED*"])


def test_a_model_that_cannot_be_loaded_leaves_its_tests_unscored(
    llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    llm_pytester.makeconftest(scripted_models_conftest({"a": {"Dear": "please"}, "b": {"cannot load": "no weights"}}))
    llm_pytester.makepyfile(test_it=TONE)
    arguments = (*workers, "--llm-model=a", "--llm-model=b", "--llm-report=out.json")
    assert llm_pytester.runpytest(*arguments).ret == 1
    report = read(llm_pytester)
    assert [(suite["models"], suite["num_expected"], suite["num_scored"]) for suite in report["suites"]] == [
        (["a"], 2, 2),
        (["b"], 2, 0),
    ]
    assert {record["reason"] for record in report["records"] if record["status"] == "unscored"} == {
        "model b: no weights"
    }


def test_a_fixture_may_build_on_the_model(tests: pytest.Pytester, workers: list[str]) -> None:
    tests.makepyfile(
        """
        import pytest

        @pytest.fixture
        def name(llm_model):
            return llm_model.identity.name

        def test_it(name, llm_model):
            assert name == llm_model.identity.name
        """
    )
    tests.runpytest(*workers, *MODELS).assert_outcomes(passed=2)


def test_a_fixture_of_wider_scope_cannot(tests: pytest.Pytester) -> None:
    tests.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def name(llm_model):
            return llm_model.identity.name

        def test_it(name):
            pass
        """
    )
    tests.runpytest("--llm-model=small").assert_outcomes(passed=1)
    result = tests.runpytest(*MODELS)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["ScopeMismatch: *function scoped fixture llm_model*session scoped*"])


def test_a_test_that_does_not_say_that_it_needs_a_model(tests: pytest.Pytester) -> None:
    tests.makepyfile("def test_it(request):\n    request.getfixturevalue('llm_model')")
    result = tests.runpytest(*MODELS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["test_it requests llm_model at run time, *let the test take llm_model as an argument*"]
    )


OWN_FIXTURE = """
import pytest

@pytest.fixture
def llm_model():
    return "mine"

def test_it(llm_model):
    assert llm_model == "mine"
"""

OWN_FIXTURE_OF_ANOTHER_NAME = """
import pytest

@pytest.fixture(name="llm_model")
def mine():
    return "mine"

def test_it(llm_model):
    assert llm_model == "mine"
"""

OWN_FIXTURE_IN_A_CLASS = """
import pytest

class Mine:
    @pytest.fixture
    def llm_model(self):
        return "mine"

class TestIt(Mine):
    def test_it(self, llm_model):
        assert llm_model == "mine"
"""

OWN_PARAMETERS = """
import pytest

@pytest.mark.parametrize("llm_model, number", [("mine", 1)])
def test_it(llm_model, number):
    assert llm_model == "mine"
"""


@pytest.mark.parametrize("source", [OWN_FIXTURE, OWN_FIXTURE_OF_ANOTHER_NAME, OWN_FIXTURE_IN_A_CLASS, OWN_PARAMETERS])
def test_a_model_of_the_tests_own_has_the_last_word(tests: pytest.Pytester, source: str) -> None:
    tests.makepyfile(source)
    tests.runpytest(*MODELS).assert_outcomes(passed=1)
    assert loads(tests.path) == []


def test_a_variable_and_another_class_are_no_fixture(tests: pytest.Pytester) -> None:
    tests.makepyfile(
        """
        import pytest

        class Other:
            @pytest.fixture
            def llm_model(self):
                return "mine"

        def test_it(llm_model):
            llm_model = llm_model.identity.name
            assert llm_model in ("org/big", "small")
        """
    )
    tests.runpytest(*MODELS).assert_outcomes(passed=2)


def test_a_module_can_wrap_each_model(tests: pytest.Pytester) -> None:
    tests.makepyfile(
        """
        import pytest

        @pytest.fixture(name="llm_model")
        def wrapped(llm_model):
            return [llm_model]

        def test_it(llm_model, request):
            (model,) = llm_model
            assert model.identity.name.endswith(request.node.callspec.id)
        """
    )
    tests.runpytest(*MODELS).assert_outcomes(passed=2)
    assert [load["model"] for load in loads(tests.path)] == ["org/big", "small"]


def test_without_a_use_of_the_model_nothing_is_loaded(tests: pytest.Pytester, workers: list[str]) -> None:
    tests.makepyfile("def test_it(): pass")
    tests.runpytest(*workers, *MODELS).assert_outcomes(passed=1)
    assert loads(tests.path) == []
