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


EARLY = {
    "configure": "pytest_configure(config)",
    "start": "pytest_sessionstart(session)",
    "header": "pytest_report_header(config)",
    "collection": "pytest_collection(session)",
    "items": "pytest_collection_modifyitems(items)",
    "collected": "pytest_report_collectionfinish(config)",
    "command": "pytest_cmdline_main(config)",
}


@pytest.mark.parametrize("hook", EARLY)
def test_gates_that_were_asked_for_are_not_decided(llm_pytester: pytest.Pytester, hook: str) -> None:
    action = "return 0" if hook == "command" else "pytest.exit('fine', returncode=0)"
    source = f"\n@pytest.hookimpl(tryfirst=True)\ndef {EARLY[hook]}:\n    {action}\n"
    conftest(llm_pytester, source)
    llm_pytester.makefile(".yaml", sums=SUMS)
    arguments = ("-p", "no:xdist", "sums.yaml")
    assert llm_pytester.runpytest_inprocess(*arguments, "--llm-gate=accuracy >= 0").ret == 1
    assert llm_pytester.runpytest_inprocess(*arguments, "--llm-gate=accuracy >= 0", "--collect-only").ret in (0, 1)


@pytest.mark.parametrize("hook", ["items", "collected"])
def test_suites_that_were_collected_and_came_to_nothing(
    llm_pytester: pytest.Pytester, hook: str, workers: list[str]
) -> None:
    source = f"\n@pytest.hookimpl(tryfirst=True)\ndef {EARLY[hook]}:\n    pytest.exit('fine', returncode=0)\n"
    conftest(llm_pytester, source)
    llm_pytester.makefile(".yaml", sums=SUMS)
    assert llm_pytester.runpytest(*workers, "sums.yaml").ret != 0
    llm_pytester.path.joinpath("sums.yaml").unlink()
    llm_pytester.makepyfile("def test_one(): pass")
    if not workers[0].startswith("-n"):
        assert llm_pytester.runpytest_inprocess(*workers).ret == 0  # not ours


@pytest.mark.parametrize("code", ["0", "None", "3"])
def test_a_conftest_that_exits_when_it_is_loaded(llm_pytester: pytest.Pytester, code: str) -> None:
    conftest(llm_pytester, f"\nimport sys\nsys.exit({code})\n")
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest_subprocess("-p", "no:xdist", "sums.yaml")
    assert result.ret == (3 if code == "3" else pytest.ExitCode.USAGE_ERROR)
    if code != "3":
        result.stderr.fnmatch_lines(["ERROR: a conftest.py or a plugin called sys.exit() when it was loaded: *"])
    assert llm_pytester.runpytest_subprocess("-p", "no:xdist", ".").ret == (3 if code == "3" else 0)  # not ours


@pytest.mark.parametrize("hook", ["logstart(nodeid)", "logfinish(nodeid)", "logreport(report)"])
def test_a_hook_that_ends_the_session_as_a_gate_is_logged(llm_pytester: pytest.Pytester, hook: str) -> None:
    """A gate that fails has failed before others hear of it. In the loop sys.exit() is an internal error for pytest."""
    nodeid = "report.nodeid" if "report" in hook else "nodeid"
    ends = f"\nimport sys\ndef pytest_runtest_{hook}:\n    if 'gate[' in {nodeid}:\n        sys.exit(0)\n"
    conftest(llm_pytester, ends)
    llm_pytester.makefile(".yaml", sums=SUMS + "gates: [accuracy > 0.9]\n")
    result = llm_pytester.runpytest_subprocess("-p", "no:xdist", "--llm-report=out.json", "sums.yaml")
    assert result.ret == exit_code(llm_pytester) == pytest.ExitCode.INTERNAL_ERROR


@pytest.mark.parametrize(
    "text",
    ["suite: sums\nsamples: 3\n", SUMS + "gates: [accuracies > 0]\n", "- no suite\n"],
    ids=["broken", "gate", "none"],
)
def test_a_suite_that_cannot_be_collected_is_not_forgiven(
    llm_pytester: pytest.Pytester, workers: list[str], text: str
) -> None:
    conftest(llm_pytester, WAYS["always"])
    llm_pytester.makefile(".yaml", sums=text)
    assert llm_pytester.runpytest(*workers, "sums.yaml").ret == 1
    assert llm_pytester.runpytest(*workers, "sums.yaml", "--collect-only").ret == 0
    llm_pytester.path.joinpath("sums.yaml").unlink()
    llm_pytester.makepyfile("1 / 0")
    assert llm_pytester.runpytest(*workers).ret == 0  # not ours


STOPS = {
    "in the middle": "def pytest_runtest_teardown(item):\n    item.session.shouldstop = 'enough'\n",
    "Ctrl-C": "def pytest_runtest_setup(item):\n    if item.name == 's2':\n        raise KeyboardInterrupt\n",
    "at the end": "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_protocol():\n    return True\n",
}


@pytest.mark.parametrize("stop", STOPS)
def test_samples_that_a_stop_has_left_out_are_not_forgiven(llm_pytester: pytest.Pytester, stop: str) -> None:
    source = WAYS["last of all"]
    if stop == "at the end":
        source = source.replace("trylast=True", "wrapper=True, tryfirst=True")
        source = source.replace("    pass\n", "    session.shouldstop = 'enough'\n    yield\n")
    conftest(llm_pytester, source + STOPS[stop])
    llm_pytester.makefile(".yaml", sums=SUMS)
    assert llm_pytester.runpytest_inprocess("-p", "no:xdist", "--llm-batch-size=1", "sums.yaml").ret == 1


def test_samples_that_a_hook_takes_away(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """All of them; one that says so with ``pytest_deselected`` does what options do."""
    drop = (
        "\n@pytest.hookimpl(tryfirst=True)\ndef pytest_collection_modifyitems(config, items):\n"
        "    samples = [item for item in items if item.name != 'test_one']\n"
        "    items[:] = [item for item in items if item.name == 'test_one']\n"
    )
    conftest(llm_pytester, drop)
    llm_pytester.makefile(".yaml", sums=SUMS)
    llm_pytester.makepyfile("def test_one(): pass")
    assert llm_pytester.runpytest(*workers).ret == pytest.ExitCode.NO_TESTS_COLLECTED
    conftest(llm_pytester, drop + "    config.hook.pytest_deselected(items=samples)\n")
    assert llm_pytester.runpytest(*workers).ret == 0


BREAKS = "\n@pytest.fixture(scope='session')\ndef llm_model():\n    raise RuntimeError('no weights')\n"
HIDES = {
    "xfail": "\ndef pytest_collection_modifyitems(items):\n    for item in items:\n        item.add_marker('xfail')\n",
    "skipped": "\n@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_makereport():\n    report = yield\n"
    "    if report.failed:\n        report.outcome, report.longrepr = 'skipped', ('x', 1, 'Skipped: x')\n"
    "    return report\n",
    "passed": "\n@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_makereport():\n    report = yield\n"
    "    if report.failed:\n        report.outcome, report.longrepr = 'passed', None\n    return report\n",
}


@pytest.mark.parametrize("way", HIDES)
def test_an_error_before_the_model_is_asked_is_no_skip(
    llm_pytester: pytest.Pytester, workers: list[str], way: str
) -> None:
    conftest(llm_pytester, BREAKS + HIDES[way])
    llm_pytester.makefile(".yaml", sums=SUMS)
    assert llm_pytester.runpytest(*workers, "--llm-report=out.json", "sums.yaml").ret == 1
    report = json.loads((llm_pytester.path / "out.json").read_text("utf-8"))
    assert {record["reason"] for record in report["records"]} == {"RuntimeError: no weights"}


def test_a_mark_that_keeps_samples_from_running_is_a_skip(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    marks = HIDES["xfail"].replace("'xfail'", "pytest.mark.xfail(run=False)")
    conftest(llm_pytester, marks)
    llm_pytester.makefile(".yaml", sums=SUMS)
    assert llm_pytester.runpytest(*workers, "sums.yaml").ret == 0


def test_a_test_that_is_expected_to_fail_and_records_nothing(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makepyfile(
        "import pytest\n"
        "def test_a(llm_record): llm_record(suite='own', id=1, correct=True)\n"
        "@pytest.mark.xfail\ndef test_b(llm_record): 1 / 0\n"
        "@pytest.mark.xfail\ndef test_c(): 1 / 0\n"
    )
    result = llm_pytester.runpytest(*workers, "--llm-gate=own: accuracy >= 0")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*1 of 2 samples unscored*"])


def test_a_folder_that_takes_the_place_of_a_report(llm_pytester: pytest.Pytester) -> None:
    conftest(llm_pytester, "\ndef pytest_runtest_teardown():\n    os.makedirs('out.json', exist_ok=True)\n")
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest_inprocess("-p", "no:xdist", "--llm-report=out.json", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*cannot write the report out.json: a folder has taken its place*"])


@pytest.mark.parametrize("part", ["final-hooks", "reporting", "strict", "distribution"])
def test_no_part_of_the_plugin_can_be_switched_off(llm_pytester: pytest.Pytester, part: str) -> None:
    conftest(llm_pytester, "")
    llm_pytester.makefile(".yaml", sums=SUMS)
    llm_pytester.makeini(f"[pytest]\naddopts = -p no:llmeval-{part}\n")
    result = llm_pytester.runpytest_inprocess("-p", "no:xdist", "--llm-strict", "sums.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: -p no:llmeval-{part}: a part cannot be switched off; *"])


ENDS_EARLY = "import pytest\n@pytest.hookimpl({how})\ndef {hook}():\n    pytest.exit('x', returncode=0)\n"


@pytest.mark.parametrize("hook", ["pytest_sessionstart", "pytest_collection"])
@pytest.mark.parametrize("how", ["tryfirst=True", pytest.param("trylast=True", marks=pytest.mark.slow)])
def test_a_hook_that_ends_the_session_before_suites_are_collected(
    llm_pytester: pytest.Pytester, hook: str, how: str, workers: list[str]
) -> None:
    llm_pytester.makeconftest(fake_model_conftest() + ENDS_EARLY.format(hook=hook, how=how))
    llm_pytester.makefile(".yaml", sums=SUMS)
    llm_pytester.makepyfile("def test_passes(): pass")
    run = llm_pytester.runpytest_subprocess
    # pytest-xdist makes an internal error of a worker that exits while it collects
    assert run(*workers, "sums.yaml").ret in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERNAL_ERROR)
    assert run(*workers, "--llm-batch-size=3").ret in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERNAL_ERROR)
    if how == "tryfirst=True":
        assert run(*workers).ret == 0, "nothing says that there are suites"


def test_showing_the_cache_runs_nothing(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", sums=SUMS)
    assert llm_pytester.runpytest_inprocess("--cache-show", "--llm-batch-size=3").ret == 0


@pytest.mark.slow  # pytest-xdist waits for its workers
def test_no_loop_with_workers(llm_pytester: pytest.Pytester) -> None:
    """Also where nothing of the workers has reached the session."""
    conftest(
        llm_pytester, "\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtestloop():\n    return True\n" + WAYS["always"]
    )
    llm_pytester.makefile(".yaml", sums=SUMS)
    assert llm_pytester.runpytest("-n2", "sums.yaml").ret == 1
    llm_pytester.makepyfile("def test_one(): pass")
    assert llm_pytester.runpytest("-n2", "test_no_loop_with_workers.py").ret == 0  # not ours


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("--llm-gate=accuracy > 0.9", "None"),
        ("--llm-gate=accuracy > 0.9", "['accuracy > 0']"),
        ("--llm-baseline=none.json", "None"),
        ("--llm-require-gates", "None"),
        ("--llm-strict", "False"),
    ],
)
def test_a_conftest_that_changes_a_rule(
    llm_pytester: pytest.Pytester, workers: list[str], rule: str, value: str
) -> None:
    flag = rule.partition("=")[0]
    name = flag.removeprefix("--").replace("-", "_")
    conftest(llm_pytester, f"\ndef pytest_configure(config):\n    config.option.{name} = {value}\n")
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest(*workers, rule, "sums.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {flag} was given, and a conftest.py or a plugin has changed it in *"])


def test_a_conftest_that_adds_a_rule(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    conftest(llm_pytester, "\ndef pytest_configure(config):\n    config.option.llm_gate = ['accuracy > 0.9']\n")
    llm_pytester.makefile(".yaml", sums=SUMS)
    assert llm_pytester.runpytest(*workers, "sums.yaml").ret == 1


def test_wrong_answers_are_not_forgiven_where_they_fail(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    conftest(llm_pytester, WAYS["always"])
    llm_pytester.makefile(".yaml", sums=SUMS)
    assert llm_pytester.runpytest(*workers, "--llm-strict", "sums.yaml").ret == 1
    assert llm_pytester.runpytest(*workers, "sums.yaml").ret == 0
    conftest(llm_pytester, WAYS["always"] + HIDES["xfail"])
    assert llm_pytester.runpytest(*workers, "--llm-strict", "sums.yaml").ret == 0, "expected to fail"
