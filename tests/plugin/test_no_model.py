"""Suites, and nothing to answer them."""

from __future__ import annotations

import pytest

from tests.plugin.suites_for_tests import CAPITALS
from tests.support import FAKE_MODEL_CONFTEST


def test_a_bare_run_skips_with_one_reason(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    llm_pytester.makepyfile(test_own="def test_passes(): pass")
    result = llm_pytester.runpytest(*workers, "-rs")
    assert result.ret == 0
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(["SKIPPED [[]3] *no model: give --llm-model, or override the fixture llm_model*"])


@pytest.mark.parametrize("argument", ["capitals.yaml", ".", "capitals.yaml::q1"])
def test_a_named_suite_stops_with_one_line(llm_pytester: pytest.Pytester, workers: list[str], argument: str) -> None:
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    result = llm_pytester.runpytest(*workers, argument)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: capitals.yaml needs a model: give --llm-model (--llm-model demo ships*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stderr.no_fnmatch_line("*Traceback*")


def test_an_overridden_fixture_is_a_model(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    suites = llm_pytester.mkdir("suites")
    (suites / "conftest.py").write_text(FAKE_MODEL_CONFTEST)
    (suites / "capitals.yaml").write_text(CAPITALS)
    result = llm_pytester.runpytest(*workers, "suites")
    assert result.ret == 0


@pytest.mark.parametrize(
    ("conftest", "code"),
    [
        ("from elsewhere import llm_model", 0),
        ("import pytest\n@pytest.fixture(name='llm_model', scope='session')\ndef mine():\n    return object()\n", 1),
        ("from elsewhere import *", 0),
        ("from math import *", 4),
        ("# def llm_model(): not any more", 4),
        ("def test_helper(llm_model): pass", 4),
    ],
)
def test_what_counts_as_an_override(
    llm_pytester: pytest.Pytester, workers: list[str], conftest: str, code: int
) -> None:
    suites = llm_pytester.mkdir("suites")
    (llm_pytester.path / "elsewhere.py").write_text(FAKE_MODEL_CONFTEST)
    (suites / "conftest.py").write_text(conftest)
    (suites / "capitals.yaml").write_text(CAPITALS)
    llm_pytester.makeini("[pytest]\npythonpath = .")
    assert llm_pytester.runpytest(*workers, "suites").ret == code


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("./missing", "ERROR: model ./missing: there is no folder *missing"),
        ("", "ERROR: --llm-model: expected some text, found ''"),
        ("a b", "ERROR: --llm-model 'a b': expected demo, a Hugging Face id (org/name), a checkpoint folder, replay:*"),
    ],
)
def test_a_model_that_cannot_be_is_refused_before_the_run(
    llm_pytester: pytest.Pytester, workers: list[str], model: str, message: str
) -> None:
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    result = llm_pytester.runpytest(*workers, f"--llm-model={model}", "capitals.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines([message])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_hand_written_tests_skip_too(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makepyfile("def test_model(llm_model): pass")
    llm_pytester.runpytest().assert_outcomes(skipped=1)
