"""Who has the last word on the exit code: a conftest.py may forgive an empty selection, but not a failed gate."""

from __future__ import annotations

import json

import pytest

from tests.plugin.suites_for_tests import SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest

_FORGIVE = """
import sys
import pytest
{decorator}
def {hook}:
    {before}
    session.exitstatus = {code}
"""


def forgive(code: str, decorator: str = "", before: str = "pass") -> str:
    hook = "pytest_sessionfinish(session, exitstatus)"
    return _FORGIVE.format(decorator=decorator, hook=hook, before=before, code=code)


WAYS = {
    "the idiom": forgive("0 if exitstatus == 5 else exitstatus"),
    "always": forgive("0"),
    "no code": forgive("None"),
    "five": forgive("5"),
    "first of all": forgive("0", "@pytest.hookimpl(tryfirst=True)"),
    "last of all": forgive("0", "@pytest.hookimpl(trylast=True)"),
    "a wrapper": forgive("0", "@pytest.hookimpl(wrapper=True, tryfirst=True)", before="yield"),
    "pytest.exit": forgive("0", before="pytest.exit('fine', returncode=0)"),
    "sys.exit": forgive("0", before="sys.exit()"),
    "after the session": "import pytest\n@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
    "def pytest_cmdline_main(config):\n    yield\n    return 0\n",
}


def conftest(pytester: pytest.Pytester, source: str, errors: dict[str, str] | None = None) -> None:
    pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, errors=errors) + source)


def exit_code(pytester: pytest.Pytester) -> int:
    code: int = json.loads((pytester.path / "out.json").read_text(encoding="ascii"))["exit_code"]
    return code


@pytest.mark.parametrize("way", WAYS)
def test_a_failed_gate_is_not_forgiven(llm_pytester: pytest.Pytester, way: str) -> None:
    conftest(llm_pytester, WAYS[way])
    llm_pytester.makefile(".yaml", sums=SUMS + "gates: [accuracy > 0.9]\n")
    exits = way in ("pytest.exit", "sys.exit")  # nothing is written or closed after these, by pytest neither
    run = llm_pytester.runpytest_subprocess if exits else llm_pytester.runpytest_inprocess
    result = run("-p", "no:xdist", "--llm-report=out.json", "sums.yaml")
    assert result.ret == 1
    if not exits:
        assert exit_code(llm_pytester) == 1
        result.stdout.fnmatch_lines(["*= 1 failed, 2 passed, 2 wrong in *"])


def test_an_unscored_sample_is_not_forgiven(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    conftest(llm_pytester, WAYS["a wrapper"], errors={"4 + 4": "too long"})
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest_subprocess(*workers, "--llm-report=out.json", "sums.yaml")
    assert result.ret == 1
    assert exit_code(llm_pytester) == 1
    result.stdout.fnmatch_lines(["*= 1 failed, 2 passed, 1 wrong in *"])


def test_nothing_selected_does_not_decide_a_gate(llm_pytester: pytest.Pytester) -> None:
    """The idiom's own case, with a gate asked for: it fails, since nothing ran."""
    conftest(llm_pytester, WAYS["the idiom"])
    llm_pytester.makefile(".yaml", sums=SUMS)
    arguments = ("-p", "no:xdist", "-k", "nothing", "--llm-report=out.json", "sums.yaml")
    assert llm_pytester.runpytest_inprocess(*arguments, "--llm-gate=accuracy >= 0.5").ret == 1
    assert exit_code(llm_pytester) == 1
    assert llm_pytester.runpytest_inprocess(*arguments).ret == 0
    assert exit_code(llm_pytester) == 0


@pytest.mark.parametrize("hook", ["tryfirst=True", "wrapper=True, tryfirst=True"])
def test_a_hook_of_a_folder_that_ends_the_session_before_samples_are_counted(
    llm_pytester: pytest.Pytester, hook: str
) -> None:
    """A conftest.py below the first is loaded late, and is asked before us."""
    conftest(llm_pytester, "")
    folder = llm_pytester.mkdir("suites")
    (folder / "sums.yaml").write_text(SUMS + "gates: [accuracy > 0.9]\n", encoding="utf-8")
    ends = f"import pytest\n@pytest.hookimpl({hook})\ndef pytest_sessionfinish():\n    pytest.exit('x', returncode=0)\n"
    (folder / "conftest.py").write_text(ends + "    yield\n" * ("wrapper" in hook), encoding="utf-8")
    assert llm_pytester.runpytest_inprocess("-p", "no:xdist", ".").ret == 1


def test_what_could_not_be_collected_is_not_forgiven_where_samples_were_to_run(llm_pytester: pytest.Pytester) -> None:
    conftest(llm_pytester, WAYS["always"])
    llm_pytester.makefile(".yaml", sums=SUMS, broken="suite: broken\nsamples: 3\n")
    assert llm_pytester.runpytest_inprocess("-p", "no:xdist", ".").ret == 1


def test_what_is_not_ours_can_be_forgiven(llm_pytester: pytest.Pytester) -> None:
    conftest(llm_pytester, WAYS["always"])
    llm_pytester.makefile(".yaml", sums=SUMS + "gates: [accuracy >= 0.5]\n")
    llm_pytester.makepyfile("def test_fails(): assert False")
    result = llm_pytester.runpytest_inprocess("-p", "no:xdist", ".")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*= 1 failed, 2 passed, 2 wrong in *"])


def test_a_conftest_that_loads_the_plugin(llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS")
    conftest(llm_pytester, WAYS["a wrapper"] + "\npytest_plugins = ['pytest_llmeval.plugin']\n")
    llm_pytester.makefile(".yaml", sums=SUMS + "gates: [accuracy > 0.9]\n")
    assert llm_pytester.runpytest_subprocess("sums.yaml").ret == 1
