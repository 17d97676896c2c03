"""Hand-written tests: ``llm_model``, ``llm_record``, and how they join the summary and the report."""

from __future__ import annotations

import json

import pytest

from tests.plugin.suites_for_tests import SUMS
from tests.support import FAKE_MODEL_CONFTEST, fake_model_conftest

POLITE = """
    def test_polite(llm_model, llm_record):
        for number, word in enumerate(["please", "thanks"]):
            llm_record(suite="tone", id=number, correct=number == 0, answer=word, chance=0.5, category="words")
"""


@pytest.fixture
def tests(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(FAKE_MODEL_CONFTEST)
    return llm_pytester


def test_records_join_summary_and_report(tests: pytest.Pytester, workers: list[str]) -> None:
    tests.makepyfile(test_tone=POLITE)
    result = tests.runpytest(*workers, "-v", "--llm-report=out.json")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*test_tone.py::test_polite*", "tone*2  0.500*0.000*", "*= 1 wrong in *"])
    report = json.loads((tests.path / "out.json").read_text())
    assert [(one["id"], one["status"], one["answer"]) for one in report["records"]] == [
        ("0", "correct", "please"),
        ("1", "wrong", "thanks"),
    ]
    assert report["suites"][0]["num_expected"] == 2


def test_records_stand_beside_suites(tests: pytest.Pytester, workers: list[str]) -> None:
    tests.makepyfile(test_tone=POLITE)
    tests.makefile(".yaml", sums=SUMS)
    result = tests.runpytest(*workers, ".")
    result.stdout.fnmatch_lines_random(["sums*4  0.000*", "tone*2  0.500*"])


def test_a_wrong_record_is_run_again_by_last_failed(tests: pytest.Pytester) -> None:
    tests.makepyfile(test_tone=POLITE, test_other="def test_passes(): pass")
    tests.runpytest()
    tests.runpytest("--lf").assert_outcomes(passed=0)
    tests.runpytest("--lf", "-v").stdout.fnmatch_lines(["*test_polite WRONG*"])


def test_strict_fails_at_the_end_with_all_samples_recorded(tests: pytest.Pytester, workers: list[str]) -> None:
    tests.makepyfile(test_tone=POLITE.replace("number == 0", "number == 1"))
    result = tests.runpytest(*workers, "--llm-strict")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*wrong: sample 0 of suite 'tone': expected None, found 'please'", "tone*2  0.500*"])


def test_records_through_getfixturevalue(tests: pytest.Pytester, workers: list[str]) -> None:
    tests.makepyfile(
        """
        def test_it(request):
            request.getfixturevalue("llm_record")(suite="tone", id="1", correct=False, answer="x")
        """
    )
    result = tests.runpytest(*workers)
    result.stdout.fnmatch_lines(["tone*1  0.000*", "*1 wrong*"])


def test_records_from_a_fixture_count_although_the_test_fails(tests: pytest.Pytester, workers: list[str]) -> None:
    tests.makepyfile(
        """
        import pytest
        @pytest.fixture
        def judged(llm_record):
            llm_record(suite="tone", id="1", correct=True, answer="x")
        def test_it(judged):
            assert 0
        """
    )
    result = tests.runpytest(*workers)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["tone*1  1.000*"])
    result.stdout.no_fnmatch_line("*could not be scored*")


def test_a_flaky_test_that_passes_in_the_end_is_scored(tests: pytest.Pytester) -> None:
    tests.makepyfile(
        rerun="""
        import pytest
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            if any(report.failed for report in reports):
                for report in reports:
                    report.outcome = "rerun" if report.failed else report.outcome
                    item.ihook.pytest_runtest_logreport(report=report)
                item._initrequest()
                reports = runtestprotocol(item, nextitem=nextitem, log=False)
            for report in reports:
                item.ihook.pytest_runtest_logreport(report=report)
            return True
        """,
        test_flaky="""
        tries = []
        def test_it(llm_record):
            tries.append(1)
            assert len(tries) > 1
            llm_record(suite="tone", id="1", correct=True, answer="x")
        """,
    )
    result = tests.runpytest_subprocess("-p", "rerun", "test_flaky.py")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["tone*1  1.000*"])


def test_values_of_any_kind_are_recorded_as_text_and_numbers(tests: pytest.Pytester, workers: list[str]) -> None:
    tests.makepyfile(
        """
        import numpy
        from pathlib import Path
        def test_it(llm_record):
            quarter = numpy.float32(0.25)
            llm_record(suite="s", id=1, correct=True, question=Path("a/b"), chance=quarter, target=Path("t"))
        """
    )
    assert tests.runpytest(*workers, "--llm-report=out.json").ret == 0
    (record,) = json.loads((tests.path / "out.json").read_text())["records"]
    assert (record["question"], record["chance"], record["target"], record["no_answer"]) == ("a/b", 0.25, "t", False)


def test_a_suite_of_a_file_is_not_a_suite_of_tests(tests: pytest.Pytester, workers: list[str]) -> None:
    tests.makefile(".yaml", sums=SUMS)
    tests.makepyfile(test_it="def test_it(llm_record): llm_record(suite='sums', id='x', correct=True, answer='x')")
    result = tests.runpytest(*workers)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["problem: suite 'sums' is sums.yaml, and test_it.py::test_it records to it too*"])


@pytest.mark.parametrize(
    ("source", "suite"),
    [
        ("def test_broken(llm_record):\n    assert 0, 'never got there'", "tone"),
        (
            "import pytest\n@pytest.mark.llm_suite('manners')\ndef test_broken(llm_record):\n    raise KeyError(1)",
            "manners",
        ),
    ],
)
def test_a_test_that_fails_first_is_unscored(
    tests: pytest.Pytester, workers: list[str], source: str, suite: str
) -> None:
    (tests.path / "test_tone.py").write_text(
        "def test_fine(llm_record):\n    llm_record(suite='tone', id='1', correct=True, answer='x')\n" + source + "\n"
    )
    result = tests.runpytest(*workers, "--llm-report=out.json")
    assert result.ret == 1
    report = json.loads((tests.path / "out.json").read_text())
    record = next(record for record in report["records"] if record["status"] == "unscored")
    assert (record["suite"], record["id"]) == (suite, "test_broken")
    result.stdout.fnmatch_lines(["could not be scored: 1", "  test_tone.py::test_broken: *"])


def test_the_suite_of_tests_that_fail_first_is_the_one_of_their_file(tests: pytest.Pytester) -> None:
    tests.makepyfile(
        test_tone="""
        import pytest

        @pytest.mark.llm_suite("manners")
        def test_marked(llm_record):
            raise KeyError(1)

        def test_without(llm_record):
            raise KeyError(2)
        """
    )
    assert tests.runpytest("--llm-report=out.json").ret == 1
    records = json.loads((tests.path / "out.json").read_text())["records"]
    assert {record["id"]: record["suite"] for record in records} == {
        "test_marked": "manners",
        "test_without": "manners",
    }


def test_a_number_without_right_or_wrong(tests: pytest.Pytester) -> None:
    tests.makepyfile(
        """
        def test_it(llm_record):
            for i in range(4):
                llm_record(suite="style", id=i, score=i / 4, values={"length": 10.0 * i})
        """
    )
    result = tests.runpytest()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["suite*n*score*length", "style*4  0.375*15.000*", "*1 passed*"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("suite='s', id='1'", "ValueError: llm_record: give correct=True or False, or a score"),
        ("suite='', id='1', correct=True", "TypeError: llm_record: suite must be a name on one line, found ''"),
        ("suite='s', id=None, correct=True", "TypeError: llm_record: id must be text or a whole number, found None"),
        ("suite='s', id='1', correct='yes'", "TypeError: llm_record: correct must be True or False, found 'yes'"),
        ("suite='s', id='1', score=float('nan')", "ValueError: llm_record: score must be finite, found nan*"),
        ("suite='s', id='1', correct=True, values=[1]", "TypeError: llm_record: values must map metric names*"),
        ("suite='s', id='1', correct=True, values={'accuracy': 0.5}", "ValueError: llm_record: 'accuracy' is not for*"),
        ("suite='s', id='1', correct=True, chance=1", "ValueError: llm_record: chance must be at least 0 and below 1*"),
        (
            "suite='s', id='1', score=1, values={'brier': 5}",
            "ValueError: llm_record: brier must be from 0 to 1, found 5*",
        ),
    ],
)
def test_what_cannot_be_recorded(tests: pytest.Pytester, arguments: str, message: str) -> None:
    tests.makepyfile(f"def test_it(llm_record):\n    llm_record({arguments})")
    result = tests.runpytest()
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"E*{message}"])


def test_numpy_and_torch_booleans_are_booleans(tests: pytest.Pytester) -> None:
    tests.makepyfile(
        """
        import numpy
        def test_it(llm_record):
            llm_record(suite="s", id=1, correct=numpy.float64(1) == numpy.float64(1), answer="x")
        """
    )
    assert tests.runpytest().ret == 0


def test_one_sample_recorded_by_two_tests(tests: pytest.Pytester, workers: list[str]) -> None:
    tests.makepyfile(
        """
        def test_one(llm_record):
            llm_record(suite="s", id=1, correct=True, answer="x")
        def test_two(llm_record):
            llm_record(suite="s", id=1, correct=True, answer="x")
        """
    )
    result = tests.runpytest(*workers)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["problem: sample '1' of suite 's' was recorded by *::test_* and by *: only the first counts"]
    )


def test_generate_in_a_hand_written_test(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies={"Dear": "please"}))
    llm_pytester.makepyfile(
        """
        from pytest_llmeval.types import GenerateRequest
        def test_it(llm_model):
            (reply,) = llm_model.generate([GenerateRequest("Dear customer,")])
            assert reply.text == "please"
        """
    )
    llm_pytester.runpytest().assert_outcomes(passed=1)
