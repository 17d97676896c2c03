"""The end of the session in the terminal."""

from __future__ import annotations

import re

import pytest

from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY, SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest


@pytest.fixture
def both(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY, replies=SUMS_REPLIES))
    llm_pytester.makefile(".yaml", capitals=CAPITALS, sums=SUMS)
    return llm_pytester


def test_tables(both: pytest.Pytester, workers: list[str]) -> None:
    result = both.runpytest(*workers, "capitals.yaml", "sums.yaml")
    result.stdout.fnmatch_lines(
        [
            "*= LLM evaluation: fake =*",
            "suite*n  accuracy*skill*Brier",
            "capitals*3  0.667 [[]0.208, 0.939]*0.556*",
            "sums*4  0.500 [[]0.150, 0.850]",
            "sums: no answer 1",
            "by category*n  accuracy*",
            "capitals",
            "  north*1  0.000*",
            "  south*1  1.000*",
            "  west*1  1.000*",
            "  mean of 3*0.667*",
        ]
    )


def test_a_narrow_terminal(both: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    result = both.runpytest_inprocess("-p", "no:xdist", "capitals.yaml", "sums.yaml")
    lines = result.outlines
    start = next(number for number, line in enumerate(lines) if "LLM evaluation" in line)
    assert all(len(line) <= 50 for line in lines[start:])
    result.stdout.fnmatch_lines(
        [
            "each number with its 95% interval",
            "suite     n  accuracy         skill",
            "--------  -  ---------------  ----------------",
            "capitals  3  0.667 .208–.939  0.556 -.056–.918",
            "sums      4  0.500 .150–.850",
            "",
            "suite     Brier",
            "--------  ---------",
            "capitals  0.125 0–1",
        ]
    )


@pytest.mark.parametrize("selecting", [("-k", "s1 or s2"), ("--llm-limit=first:2",), ("--lf",)])
def test_of_a_selection_it_is_said(both: pytest.Pytester, selecting: tuple[str, ...]) -> None:
    if selecting == ("--lf",):
        both.runpytest_inprocess("-p", "no:xdist", "sums.yaml")
    result = both.runpytest_inprocess("-p", "no:xdist", "--llm-report=out.md", *selecting, "sums.yaml")
    result.stdout.fnmatch_lines(["sums   2 of 4  0.*"])
    assert "| sums | 2 of 4 |" in (both.path / "out.md").read_text()


def test_colour_only_where_it_is_wanted(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(errors={"1 + 1": "no"}))
    llm_pytester.makefile(".yaml", sums=SUMS)
    assert "\x1b" not in llm_pytester.runpytest("--color=no", "sums.yaml").stdout.str()
    coloured = llm_pytester.runpytest("--color=yes", "sums.yaml").stdout.str()
    assert "\x1b[31mcould not be scored: 1\x1b[0m" in coloured


def test_without_a_summary_one_line_has_the_main_numbers(both: pytest.Pytester, workers: list[str]) -> None:
    """Other programs turn the summary off: PyCharm does."""
    result = both.runpytest(*workers, "--no-summary", "--llm-gate=accuracy >= 0.6", "--llm-report=out.json", ".")
    assert result.ret == 1
    (line,) = (line for line in result.outlines if "accuracy" in line)
    assert line == (
        "LLM evaluation: capitals accuracy 0.667 [0.208, 0.939], n 3; sums accuracy 0.500 [0.150, 0.850], n 4; "
        "gates: 1 failed, 1 passed"
    )
    result.stdout.no_fnmatch_line("report: *")
    both.runpytest(*workers, "--no-summary", "-k", "nothing").stdout.no_fnmatch_line("*LLM evaluation*")


def test_without_a_summary_many_suites_are_counted(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, errors={"5 + 4": "no"}))
    for number in range(5):
        (llm_pytester.path / f"s{number}.yaml").write_text(SUMS.replace("sums", f"sums{number}"))
    result = llm_pytester.runpytest_inprocess("-p", "no:xdist", "--no-summary", ".")
    result.stdout.fnmatch_lines(
        [
            "LLM evaluation: 5 suites, 15 samples; macro average accuracy 0.333 [[]0.*, 0.*]; 5 could not be scored",
        ]
    )


TLDR = """
import pytest

class Reporter:
    hasmarkup = isatty = False  # pytest-xdist asks for these, pytest for the next

    def __init__(self, config):
        self.config = config

    def write_line(self, line, **markup):
        print(line)
{more}
@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(Reporter(config), "terminalreporter")
"""
SUMMARISES = """
    def write_sep(self, sep, title=None, **markup):
        print(sep * 3, title)

    def pytest_sessionfinish(self, session, exitstatus):
        session.config.hook.pytest_terminal_summary(
            terminalreporter=self, exitstatus=exitstatus, config=session.config
        )
"""


@pytest.mark.parametrize("more", ["", SUMMARISES], ids=["without a summary", "with a summary"])
def test_a_reporter_of_another_class(both: pytest.Pytester, workers: list[str], more: str) -> None:
    """As pytest-tldr registers it: not a TerminalReporter, and without most of its attributes."""
    both.makepyfile(tldr_like=TLDR.format(more=more))
    arguments = ("--llm-gate=accuracy >= 0.6", "--llm-report=out.json", "--llm-report=out.md", "--junitxml=out.xml")
    result = both.runpytest_subprocess(*workers, "-p", "tldr_like", "-o", "pythonpath=.", *arguments, ".")
    assert result.ret == 1
    everything = result.stdout.str() + result.stderr.str()
    assert not re.search("Traceback|INTERNALERROR|AttributeError", everything)
    assert everything.count("gates: 1 failed, 1 passed") == 1
    result.stdout.fnmatch_lines(["failed: sums, *" if more else "LLM evaluation: *", "report: out.json", "report: *md"])
    assert (both.path / "out.json").exists()
    assert (both.path / "out.xml").exists()


def test_a_report_of_a_session_that_collected_nothing_is_named(
    llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    llm_pytester.makefile(".yaml", broken="suite: broken\nsmaples: []\nscore: exact\n")
    reports = ("--llm-report=out.html", "--llm-report=out.json", "--llm-report=of/")
    result = llm_pytester.runpytest(*workers, "broken.yaml", "--llm-model=demo", *reports)
    assert result.ret in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    result.stdout.fnmatch_lines(["*unknown key 'smaples'*", "report: out.json", "report: of/*.md", "report: out.html"])
    assert "LLM evaluation" not in result.stdout.str()
    for name in re.findall(r"(?m)^report: (.+)$", result.stdout.str()):
        assert (llm_pytester.path / name).is_file()


def test_a_report_of_a_session_that_pytest_gives_up_is_named(both: pytest.Pytester, workers: list[str]) -> None:
    with both.path.joinpath("conftest.py").open("a") as conftest:
        conftest.write("\n\ndef pytest_runtest_logfinish():\n    raise OSError('no more')\n")
    result = both.runpytest(*workers, "capitals.yaml", "--llm-report=out.html")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines(["INTERNALERROR> *no more", "report: out.html"])
    assert (both.path / "out.html").is_file()


@pytest.mark.parametrize("status", [0, 42])
def test_a_report_of_a_session_that_a_hook_ends_is_named_once(
    both: pytest.Pytester, workers: list[str], status: int
) -> None:
    with both.path.joinpath("conftest.py").open("a") as conftest:
        conftest.write("\n\nimport pytest\n\n\ndef pytest_runtest_logfinish():\n")
        conftest.write(f"    pytest.exit('enough', returncode={status})\n")
    result = both.runpytest(*workers, "capitals.yaml", "--llm-report=out.html")
    assert (both.path / "out.html").is_file()
    assert result.outlines.count("report: out.html") == 1
    both.runpytest("capitals.yaml", "--llm-report=out.html", "--no-summary").stdout.no_fnmatch_line("report: *")


BROKEN = "suite: broken\nsmaples: []\nscore: exact\n"


def test_no_report_is_named_where_none_was_written(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makefile(".yaml", broken=BROKEN)
    result = llm_pytester.runpytest(*workers, "broken.yaml", "--collect-only", "--llm-report=out.html")
    assert not (llm_pytester.path / "out.html").exists()
    result.stdout.no_fnmatch_line("report: *")


def test_a_report_is_named_where_a_gate_is_of_a_suite_that_could_not_be_collected(
    llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    llm_pytester.makefile(".yaml", broken=BROKEN)
    arguments = ("--llm-model=demo", "--llm-gate=none: accuracy > 0", "--llm-report=out.html")
    result = llm_pytester.runpytest(*workers, "broken.yaml", *arguments)
    assert (llm_pytester.path / "out.html").is_file()
    assert result.outlines.count("report: out.html") == 1


def test_nothing_is_said_in_a_run_without_suites(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makepyfile("def test_passes(): pass")
    llm_pytester.runpytest().stdout.no_fnmatch_line("*LLM evaluation*")


def test_names_from_data_cannot_move_the_cursor(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest())
    samples = '[{question: a, target: 1, kind: "x\\e[2J"}, {question: b, target: 2, kind: "y"}]'
    llm_pytester.makefile(".yaml", odd=f"suite: odd\nsamples: {samples}\nscore: number\ncategory: kind\n")
    shown = llm_pytester.runpytest("odd.yaml").stdout.str()
    assert "\x1b" not in shown
