"""Wrong answers can be seen: in the terminal, in the JUnit file, on the page of pytest-html."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from fnmatch import fnmatch
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_llmeval.plugin.settings import Settings
from pytest_llmeval.plugin.shown_samples import WrongAnswers, mark_html_row
from pytest_llmeval.reporting.report.records import Record
from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY, SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest

ALONE = ("-p", "no:xdist")


@pytest.fixture
def suites(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    """q3 of capitals and s2 and s3 of sums are wrong."""
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY, replies=SUMS_REPLIES))
    llm_pytester.makefile(".yaml", capitals=CAPITALS, sums=SUMS)
    return llm_pytester


def section(result: pytest.RunResult) -> list[str]:
    """The lines of the section of wrong answers; none where there is no such section."""
    starts = [place for place, line in enumerate(result.outlines) if line.strip("= ") == "WRONG ANSWERS"]
    if not starts:
        return []
    lines = result.outlines[starts[0] + 1 :]
    return lines[: next(place for place, line in enumerate(lines) if line.startswith("==="))]


def test_vv_shows_them_whole(suites: pytest.Pytester, workers: list[str]) -> None:
    result = suites.runpytest(*workers, "-vv", "--llm-batch-size=1", "capitals.yaml", "sums.yaml")
    assert result.ret == 0
    lines = section(result)
    choices = lines.pop(2)
    assert lines == [
        "capitals.yaml::q3: wrong",
        "  question: Capital of Norway?",
        "  answer: Bern",
        "  expected: Oslo",
        "sums.yaml::s2: wrong",
        "  question: 2 + 3 =",
        "  output: 4",
        "  answer: 4",
        "  expected: 5",
        "sums.yaml::s3: wrong",
        "  question: 4 + 4 =",
        "  output: no idea",
        "  expected: 8",
    ]
    number = r"0\.\d{3}"
    assert re.fullmatch(
        rf"  choices: Paris: {number} \| Rome: {number} \| Oslo: {number} \(right\) \| Bern: {number} \(answered\)",
        choices,
    )


def test_without_being_asked_there_is_no_section(suites: pytest.Pytester) -> None:
    assert section(suites.runpytest_inprocess(*ALONE, "-v", "sums.yaml")) == []
    assert section(suites.runpytest_inprocess(*ALONE, "-vv", "-rA", "--llm-show-wrong=0", "sums.yaml")) == []
    assert section(suites.runpytest_inprocess(*ALONE, "-vv", "--llm-strict", "sums.yaml")) == []  # they are failures


def test_an_option_says_how_many_of_each_suite(suites: pytest.Pytester) -> None:
    lines = section(suites.runpytest_inprocess(*ALONE, "--llm-show-wrong=1", "capitals.yaml", "sums.yaml"))
    assert [line for line in lines if line.endswith(": wrong")] == ["capitals.yaml::q3: wrong", "sums.yaml::s2: wrong"]
    assert lines[-1] == "… and 1 more of sums: --llm-show-wrong N shows N of each suite"


@pytest.mark.parametrize("letters", ["A", "p"])
def test_r_lists_them_as_it_lists_what_passed(letters: str, suites: pytest.Pytester) -> None:
    result = suites.runpytest_inprocess(*ALONE, f"-r{letters}", "capitals.yaml", "sums.yaml")
    assert section(result) == [
        "WRONG capitals.yaml::q3 - expected 'Oslo', found 'Bern'",
        "WRONG sums.yaml::s2 - expected '5', found '4'",
        "WRONG sums.yaml::s3 - expected '8', found no answer in 'no idea'",
    ]


def test_the_first_ones_whatever_the_order_of_the_run(suites: pytest.Pytester) -> None:
    suites.makefile(".yaml", long=_long_suite(30))
    result = suites.runpytest_inprocess(*ALONE, "-rA", "long.yaml")
    lines = section(result)
    assert [line.split()[1] for line in lines[:-1]] == [f"long.yaml::n{number}" for number in range(20)]
    assert lines[-1].startswith("… and 10 more of long:")


def test_the_first_answer_counts_where_a_test_runs_again(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest("""
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):
            for _ in range(2):
                runtestprotocol(item, nextitem=nextitem)
            return True
    """)
    llm_pytester.makepyfile(
        test_tone="""
        runs = []

        def test_mends(llm_record):
            runs.append(1)
            llm_record(suite="tone", id="a", correct=len(runs) == 2, answer=len(runs), target=2)

        def test_stays(llm_record):
            runs.append(1)
            llm_record(suite="tone", id="b", correct=False, answer=len(runs), target=0)
    """
    )
    result = llm_pytester.runpytest_inprocess(*ALONE, "-rA", "test_tone.py")
    assert section(result) == [
        "WRONG test_tone.py::test_mends - expected '2', found '1'",
        "WRONG test_tone.py::test_stays - expected '0', found '3'",
    ]


class _Counted(str):
    """A node id that counts how often it is compared."""

    num_compared = 0

    def __eq__(self, other: object) -> bool:
        _Counted.num_compared += 1
        return super().__eq__(other)

    def __lt__(self, other: str) -> bool:
        _Counted.num_compared += 1
        return super().__lt__(other)

    __hash__ = str.__hash__


@pytest.mark.parametrize(("shown", "listed"), [(3, 3), (5_000, 1_000)])
def test_each_wrong_answer_costs_the_same(shown: int, listed: int, pytestconfig: pytest.Config) -> None:
    """But for the sorting: the list is not gone through for each."""
    wrong = WrongAnswers(pytestconfig, Settings(show_wrong=shown), lambda: ())
    group, count = ("s", None), 1_000
    _Counted.num_compared = 0
    lines: list[str] = []
    terminal: Any = SimpleNamespace(write_sep=lambda *_: None, write_line=lambda line, **_: lines.append(line))
    for number in reversed(range(count)):
        nodeid = _Counted(f"test_s.py::test_{number:04}")
        wrong.keep(group, Record(suite="s", id=f"q{number}", nodeid=nodeid, status="wrong", target=number))
    wrong.write(terminal, [group] * count)
    heads = [line for line in lines if line.endswith(": wrong")]
    assert heads[:3] == [f"test_s.py::test_{number:04}, sample q{number}: wrong" for number in range(3)]
    assert len(heads) == listed
    assert _Counted.num_compared < 50 * count


def _long_suite(count: int) -> str:
    rows = [{"id": f"n{number}", "question": f"x{number}", "target": 1} for number in range(count)]
    return f"suite: long\nsamples: {json.dumps(rows)}\nscore: number\n"


def test_texts_of_models_do_nothing_and_have_a_bound(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(default_reply="\x1b[2J\n::error::x\n" + "y" * 10_000))
    llm_pytester.makefile(".yaml", s="suite: s\nsamples: [{question: q, target: 1}]\nscore: exact\n")
    result = llm_pytester.runpytest_inprocess(*ALONE, "-vv", "s.yaml")
    lines = section(result)
    assert len(lines) == 5
    assert lines[2].startswith(r"  output: \x1b[2J\n::error::x\nyyy")  # a line break is none here: no command begins
    assert all(len(line) < 700 for line in lines)
    assert "\x1b" not in result.stdout.str()


def test_the_samples_of_a_hand_written_test_are_shown_up_to_ten(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makepyfile("""
        def test_tone(llm_record):
            for number in range(12):
                llm_record(suite="tone", id=f"s{number}", correct=True, output=f"reply {number}")
    """)
    lines = llm_pytester.runpytest_inprocess(*ALONE, "-vv").outlines
    assert [line for line in lines if line.startswith("  sample ")] == [f"  sample s{number}:" for number in range(10)]
    assert "  output: reply 9" in lines
    assert "  … and 2 more samples of this test" in lines


def test_below_lines_of_another_reporter_nothing_is_shown(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest("""
        import pytest
        from _pytest.terminal import TerminalReporter

        class Drawing(TerminalReporter):
            pass

        @pytest.hookimpl(trylast=True)
        def pytest_configure(config):
            own = config.pluginmanager.getplugin("terminalreporter")
            config.pluginmanager.unregister(own)
            config.pluginmanager.register(Drawing(config), "terminalreporter")
    """)
    llm_pytester.makepyfile("""
        def test_tone(llm_record):
            llm_record(suite="tone", id="a", correct=True, output="a reply")
    """)
    result = llm_pytester.runpytest_inprocess(*ALONE, "-vv")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*a reply*")


def test_a_hand_written_test(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makepyfile("""
        def test_tone(llm_record):
            llm_record(suite="tone", id="a", correct=False, answer="rude", target="polite")
            llm_record(suite="tone", id="b", correct=True)
    """)
    result = llm_pytester.runpytest_inprocess(*ALONE, "-rA", "--junitxml=out.xml")
    assert section(result) == [
        "WRONG test_a_hand_written_test.py::test_tone - expected 'polite', found 'rude'",
    ]
    assert _properties(llm_pytester)["test_tone"] == [
        ("llm_status", "wrong"),
        ("llm_wrong", "a: expected 'polite', found 'rude'"),
    ]


def _cases(pytester: pytest.Pytester) -> dict[str, ET.Element]:
    return {case.attrib["name"]: case for case in ET.parse(pytester.path / "out.xml").iter("testcase")}


def _properties(pytester: pytest.Pytester) -> dict[str, list[tuple[str, str]]]:
    return {
        name: [(one.attrib["name"], one.attrib["value"]) for one in case.iter("property")]
        for name, case in _cases(pytester).items()
    }


def test_the_junit_file_says_wrong(suites: pytest.Pytester, workers: list[str]) -> None:
    result = suites.runpytest(*workers, "sums.yaml", "--junitxml=out.xml", "-o", "junit_logging=system-out")
    assert result.ret == 0
    assert _properties(suites) == {
        "s1": [],
        "s2": [("llm_status", "wrong"), ("llm_wrong", "expected '5', found '4'")],
        "s3": [("llm_status", "wrong"), ("llm_wrong", "expected '8', found no answer in 'no idea'")],
        "s4": [],
    }
    written = _cases(suites)["s2"].findtext("system-out") or ""
    assert written.count("  question: 2 + 3 =\n  output: 4\n  answer: 4\n  expected: 5\n") == 1
    assert "question" not in (_cases(suites)["s1"].findtext("system-out") or "")


def test_the_junit_file_has_no_properties_where_passed_tests_are_to_leave_none(suites: pytest.Pytester) -> None:
    options = ("--junitxml=out.xml", "-o", "junit_log_passing_tests=false")
    suites.runpytest_inprocess(*ALONE, "sums.yaml", *options)
    assert not any(_properties(suites).values())


def test_a_wrong_answer_that_fails_and_a_sample_that_was_let_go_say_so_too(suites: pytest.Pytester) -> None:
    suites.runpytest_inprocess(*ALONE, "sums.yaml", "--junitxml=out.xml", "--llm-strict")
    assert _properties(suites)["s2"][0] == ("llm_status", "wrong")
    suites.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, errors={"2 + 3": "too hot"}))
    suites.runpytest_inprocess(*ALONE, "sums.yaml", "--junitxml=out.xml", "--llm-allow-unscored=1")
    found = _properties(suites)["s2"]
    assert found[0] == ("llm_status", "unscored")
    assert found[1][1].endswith("too hot")


class _Report:
    def __init__(self, status: str | None) -> None:
        if status is not None:
            self.llm_status = status


@pytest.mark.parametrize(("status", "shown"), [("wrong", "Wrong"), ("unscored", "Unscored"), (None, "Passed")])
def test_a_row_of_pytest_html_says_it_and_is_still_found_by_the_page(status: str | None, shown: str) -> None:
    """The page takes the outcome from the first cell, and its script never shows a row of an outcome of our own."""
    cells = ['<td class="col-result">Passed</td>', '<td class="col-testId">a</td>']
    mark_html_row(_Report(status), cells)  # type: ignore[arg-type]
    # As pytest-html 4.2 reads them (BaseReport._hydrate_data).
    name, data = re.search(r"col-(\w+)", cells[0]), re.search(r"<td.*?>(.*?)</td>", cells[0])
    assert [found and found[1] for found in (name, data)] == ["result", "Passed"]
    seen = re.findall(r'<td class="col-result".*?>(.*?)</td>', cells[0])
    assert seen == [shown]
    assert cells[1] == '<td class="col-testId">a</td>'


def test_a_row_that_is_no_passed_test_stays_as_it_is() -> None:
    for cells in ([], ['<td class="col-result">Failed</td>']):
        before = [*cells]
        mark_html_row(_Report("wrong"), cells)  # type: ignore[arg-type]
        assert cells == before


def test_the_page_of_pytest_html(suites: pytest.Pytester, workers: list[str]) -> None:
    pytest.importorskip("pytest_html")
    result = suites.runpytest(*workers, "sums.yaml", "--html=out.html", "--self-contained-html")
    assert result.ret == 0
    tests = _page_data(suites)["tests"]
    (wrong,), (right,) = tests["sums.yaml::s2"], tests["sums.yaml::s1"]
    assert (wrong["result"], right["result"]) == ("Passed", "Passed")
    assert ">Wrong</td>" in wrong["resultsTableRow"][0]
    assert ">Wrong</td>" not in right["resultsTableRow"][0]
    for text in ("question: 2 + 3 =", "output: 4", "expected: 5"):
        assert text in wrong["log"]
        assert text not in right["log"]


class _Data(HTMLParser):
    found = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found = dict(attrs).get("data-jsonblob") or self.found


def _page_data(pytester: pytest.Pytester) -> dict[str, dict[str, list[dict[str, str]]]]:
    parser = _Data()
    parser.feed((pytester.path / "out.html").read_text("utf-8"))
    data: dict[str, dict[str, list[dict[str, str]]]] = json.loads(parser.found)
    return data


def test_many_replies_without_an_answer(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies={"1 + 1": "2", "2 + 3": "Five, I think"}))
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest(*workers, "--llm-batch-size=1", "--llm-report=out.json", "sums.yaml")
    line = "sums: 3 of 4 replies had no number; the first was 'Five, I think'; try filters*"
    result.stdout.fnmatch_lines([line])
    llm_pytester.run("llmeval", "show", "out.json").stdout.fnmatch_lines([line])
    report = json.loads((llm_pytester.path / "out.json").read_text("utf-8"))
    assert [record["output"] for record in report["records"]] == ["2", "Five, I think", "", ""]


LONG = """
suite: long
samples: [{id: one, question: which, target: 1}]
prompt: {template: "{% for line in range(30) %}line {{ line }}\\n{% endfor %}?"}
score: number
"""


def test_vv_shows_each_prompt_and_reply_bounded(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """Below the line of each sample, right ones too; -v shows the line alone."""
    llm_pytester.makeconftest(fake_model_conftest(replies={"line 0": "1"}))
    llm_pytester.makefile(".yaml", long=LONG)
    result = llm_pytester.runpytest(*workers, "-vv", "long.yaml")
    assert result.ret == 0
    start = next(place for place, line in enumerate(result.outlines) if line.startswith("  prompt: "))
    assert "PASSED" in result.outlines[start - 1]
    assert result.outlines[start : start + 14] == [
        "  prompt: line 0",
        *(f"    line {number}" for number in range(1, 5)),
        "    … 21 lines …",
        *(f"    line {number}" for number in range(26, 30)),
        "    ?",
        "  output: 1",
        "  answer: 1",
        "  expected: 1",
    ]
    hashed = llm_pytester.runpytest(*workers, "-vv", "--llm-report-prompts=hash", "long.yaml")
    assert not any("prompt: " in line or "sha256" in line for line in hashed.outlines)
    hashed.stdout.fnmatch_lines(["  output: 1"])
    for quieter in ("-v", "-q"):
        shown = llm_pytester.runpytest(*workers, quieter, "long.yaml")
        assert not any("prompt: " in line or "output: " in line for line in shown.outlines)


def test_vv_leaves_hand_written_tests_and_failures_as_they_are(suites: pytest.Pytester) -> None:
    suites.makepyfile("def test_own():\n    assert True\n")
    result = suites.runpytest(*ALONE, "-vv", "--llm-strict", "--deselect=capitals.yaml")
    lines = result.outlines
    place = next(place for place, line in enumerate(lines) if "test_own PASSED" in line)
    assert not lines[place + 1].startswith("  ")
    failed = next(place for place, line in enumerate(lines) if "sums.yaml::s2" in line and "FAILED" in line)
    assert lines[failed + 1].startswith("  prompt: ")


MORE = "… and 7 more: --llm-show-wrong N shows N of each suite, --lf runs them again"


@pytest.mark.parametrize(
    ("arguments", "num_suites", "last"),
    [
        ((), 5, MORE),
        (("-q",), 5, MORE),
        ((), 4, None),
        (("-v",), 5, None),
        (("--llm-show-wrong=0",), 5, None),
        (("--llm-strict",), 5, None),
        (("-rA",), 5, "WRONG s4.yaml::s3 - expected '*', found *"),
    ],
)
def test_many_suites_show_a_few(
    llm_pytester: pytest.Pytester, workers: list[str], arguments: tuple[str, ...], num_suites: int, last: str | None
) -> None:
    """A short summary says what is wrong, too; an option that says how many are shown is obeyed."""
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES))
    for number in range(num_suites):
        (llm_pytester.path / f"s{number}.yaml").write_text(SUMS.replace("suite: sums", f"suite: s{number}"))
    lines = section(llm_pytester.runpytest(*workers, *arguments, "."))
    if last == MORE:
        *examples, end = lines
        assert end == MORE
        assert [line[: len("WRONG s0.yaml::s")] for line in examples] == [f"WRONG s{n}.yaml::s" for n in range(3)]
    else:
        assert fnmatch(lines[-1], last) if last else lines == [], lines
