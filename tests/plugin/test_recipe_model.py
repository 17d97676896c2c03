"""CONTRIBUTING.md's recipe for a kind of model, followed literally: a package of its own, with an entry point."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval import ModelKind
from pytest_llmeval.errors import OptionError
from pytest_llmeval.models.registry import KINDS, with_kinds
from tests.plugin.suites_for_tests import CAPITALS, SUMS
from tests.support import REPOSITORY

RECIPE = (
    (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8").partition("\n## Add a kind of model\n")[2].partition("\n## ")[0]
)
(CODE,) = re.findall(r"```python\n(.*?)```", RECIPE, re.DOTALL)
(ENTRY_POINT,) = re.findall(r"the entry point `(\w+) = \"(\w+)\"` in the group `pytest11`", RECIPE)


@pytest.fixture
def project(llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.Pytester:
    """A suite, and what an installer makes of the package; sessions in processes of their own find it."""
    name, module = ENTRY_POINT
    info = tmp_path / "site" / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (info.parent / f"{module}.py").write_text(CODE)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[pytest11]\n{name} = {module}\n")
    monkeypatch.setenv("PYTHONPATH", str(info.parent))
    llm_pytester.makefile(".yaml", sums=SUMS)
    return llm_pytester


def report(project: pytest.Pytester) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.path / "out.json").read_text())
    return found


def test_the_recipe_is_short() -> None:
    assert len([line for line in RECIPE.splitlines() if line.strip()]) <= 15


def test_the_recipe(project: pytest.Pytester, workers: list[str]) -> None:
    arguments = ("--llm-model=fixed:2", "--llm-report=out.json", "sums.yaml")
    result = project.runpytest_subprocess(*workers, *arguments)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["llm-model: fixed:2 (fixed)", "sums*4  0.250*"])
    written = report(project)
    assert [(model["name"], model["backend"]) for model in written["models"]] == [("fixed:2", "types.SimpleNamespace")]
    assert {one["id"]: (one["model"], one["status"]) for one in written["records"]} == {
        "s1": ("fixed:2", "correct"),
        "s2": ("fixed:2", "wrong"),
        "s3": ("fixed:2", "wrong"),
        "s4": ("fixed:2", "wrong"),
    }


def test_in_a_conftest_beside_other_models_and_with_arguments(
    llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    llm_pytester.makeconftest(CODE)
    llm_pytester.makefile(".yaml", sums=SUMS)
    models = ["fixed:2", "fixed:5?times=1&api_key=hush", "majority"]
    result = llm_pytester.runpytest(
        *workers, *(f"--llm-model={model}" for model in models), "--llm-report=out.json", "sums.yaml"
    )
    assert result.ret == 0
    written = report(llm_pytester)
    shown = ["fixed:2", "fixed:5?times=1&api_key=***", "majority"]
    assert [model["name"] for model in written["models"]] == shown
    correct = [(one["model"], one["id"]) for one in written["records"] if one["status"] == "correct"]
    assert correct == [(shown[0], "s1"), (shown[1], "s2"), (shown[2], "s1")]
    assert "hush" not in result.stdout.str() + json.dumps(written)


def test_a_suite_that_needs_more_than_it_has(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(CODE)
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    result = llm_pytester.runpytest("--llm-model=fixed:2", "capitals.yaml")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["*model fixed:2: has no method loglikelihood(requests), which this suite's *"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--llm-model=fixed:", "--llm-model fixed:: expected fixed:LOCATION"),
        ("--llm-model=fixde:2", "*there is no kind 'fixde'; did you mean fixed:2?"),
        ("--llm-model=other:2", f"*{KINDS[-1].shown_usage()} or fixed:LOCATION"),
    ],
)
def test_what_it_does_not_take(llm_pytester: pytest.Pytester, workers: list[str], given: str, message: str) -> None:
    llm_pytester.makeconftest(CODE)
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest(*workers, given, "sums.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{message}"])


def test_a_conftest_that_is_read_too_late(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.mkdir("sub").joinpath("conftest.py").write_text(CODE)
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest("--llm-model=fixed:2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    hint = "a conftest.py adds kinds only from the rootdir, or from a folder named"
    result.stderr.fnmatch_lines([f"*{KINDS[-1].shown_usage()}; {hint} *"])


def test_a_prefix_belongs_to_one_kind(project: pytest.Pytester, workers: list[str]) -> None:
    project.makeconftest(CODE.replace("SimpleNamespace(", "dict(").replace("Fixed", "Mine"))
    result = project.runpytest_subprocess(*workers, "--llm-model=fixed:2", "sums.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    message = result.stderr.str()
    assert "two kinds of models are called 'fixed': " in message
    assert "fixed_models.Fixed" in message
    assert "conftest.Mine" in message


FAILS = """
from pytest_llmeval import ModelKind

def fail():
    raise ValueError("no luck")

class Mine(ModelKind):
    name = "mine"
    def METHOD:
        RESULT

def pytest_llmeval_models():
    return [Mine()]
"""


@pytest.mark.parametrize(
    ("method", "result", "message"),
    [
        ("recognizes(self, text)", "fail()", "conftest.Mine.recognizes failed: ValueError: no luck (conftest.py:4)"),
        ("parse(self, text)", "fail()", "conftest.Mine.parse failed: ValueError: no luck (conftest.py:4)"),
        ("parse(self, text)", "pass", "conftest.Mine.parse returned a NoneType, expected a ModelSpec"),
        ("key(self, spec)", "fail()", "conftest.Mine.key failed: ValueError: no luck (conftest.py:4)"),
        ("key(self, spec)", "return []", "conftest.Mine.key failed: TypeError: unhashable type: 'list' (*)"),
        ("shown_usage(self)", "fail()", "conftest.Mine.shown_usage failed: ValueError: no luck (conftest.py:4)"),
        ("check(self, *_)", "fail()", "conftest.Mine.check failed: ValueError: no luck (conftest.py:4)"),
        ("check(self, *_)", "open('nosuch')", "model mine:x: cannot read its files: *No such file or directory*"),
        ("describe(self, *_)", "fail()", "conftest.Mine.describe failed: ValueError: no luck (conftest.py:4)"),
    ],
)
def test_a_kind_that_fails_is_named_in_one_line(
    llm_pytester: pytest.Pytester, workers: list[str], method: str, result: str, message: str
) -> None:
    llm_pytester.makeconftest(FAILS.replace("METHOD", method).replace("RESULT", result))
    llm_pytester.makefile(".yaml", sums=SUMS)
    model = "mime:x" if "usage" in method else "mine:x"
    found = llm_pytester.runpytest(*workers, f"--llm-model={model}", "sums.yaml")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines([f"ERROR: {message}"])
    found.stdout.no_fnmatch_line("*INTERNALERROR*")


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("fail()", "pytest_llmeval_models failed: ValueError: no luck (conftest.py:4)"),
        ("yield fail()", "pytest_llmeval_models failed: ValueError: no luck (conftest.py:4)"),
        ("return Mine()", "pytest_llmeval_models: found a Mine, expected a list of kinds of models"),
        ("return [Mine]", "pytest_llmeval_models: found the class Mine, expected an object: Mine()"),
    ],
)
def test_a_hook_that_fails_is_named_in_one_line(
    llm_pytester: pytest.Pytester, workers: list[str], result: str, message: str
) -> None:
    source = FAILS.replace("METHOD", "unused(self)").replace("RESULT", "pass").replace("return [Mine()]", result)
    llm_pytester.makeconftest(source)
    llm_pytester.makefile(".yaml", sums=SUMS)
    found = llm_pytester.runpytest(*workers, "--llm-model=mine:x", "sums.yaml")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_a_kind_that_fails_when_a_suite_is_collected(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    source = FAILS.replace("METHOD", "lacks_method(self, spec, method)").replace("RESULT", "fail()")
    llm_pytester.makeconftest(source.replace('name = "mine"', 'name, shows_methods = "mine", True'))
    llm_pytester.makefile(".yaml", sums=SUMS)
    found = llm_pytester.runpytest(*workers, "--llm-model=mine:x", "sums.yaml")
    found.assert_outcomes(errors=1)
    found.stdout.fnmatch_lines(["conftest.Mine.lacks_method failed: ValueError: no luck (conftest.py:4)"])


class Replay(ModelKind):
    name = "replay"


class Openai(ModelKind):
    name = "openai"


class Loud(ModelKind):
    name = "LOUD"


class Nameless(ModelKind):
    pass


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Replay(), r"'replay': pytest_llmeval\.models\.replay\.kind\.Replay and .*test_recipe_model\.Replay; rename"),
        (Openai(), r"two kinds of models are called 'openai'"),
        (Loud(), r"Loud has the name 'LOUD', expected two or more of a-z"),
        (Nameless(), r"Nameless has the name '', expected"),
        (Replay, r"found the class Replay, expected an object: Replay\(\)"),
        ("replay", "found a str, expected a ModelKind"),
    ],
)
def test_what_is_no_kind_of_its_own(kind: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        with_kinds([kind])
