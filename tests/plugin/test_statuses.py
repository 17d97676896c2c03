"""What a wrong answer, an error and a right answer are for pytest."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY, SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest, model_calls


@pytest.fixture
def capitals(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY))
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    return llm_pytester


def test_a_wrong_answer_is_shown_and_does_not_fail(capitals: pytest.Pytester, workers: list[str]) -> None:
    result = capitals.runpytest(*workers, "-v", "capitals.yaml")
    assert result.ret == 0
    result.stdout.re_match_lines_random([r".*(q1 PASSED|PASSED .*q1)", r".*(q3 WRONG|WRONG .*q3)"])
    result.stdout.fnmatch_lines(["*= 2 passed, 1 wrong in *"])


def test_short_letter_of_a_wrong_answer(capitals: pytest.Pytester) -> None:
    result = capitals.runpytest("capitals.yaml")
    result.stdout.fnmatch_lines(["capitals.yaml ..w*"])


def test_strict_makes_a_wrong_answer_a_failure(capitals: pytest.Pytester, workers: list[str]) -> None:
    result = capitals.runpytest(*workers, "--llm-strict", "capitals.yaml")
    assert result.ret == 1
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["*capitals: q3*", "wrong: expected 'Oslo', found 'Bern'", "question: Capital of Norway?"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_strict_shows_the_beginning_of_a_reply_of_megabytes(llm_pytester: pytest.Pytester) -> None:
    """Both in the terminal, where each failure also stays in memory, and in the JUnit file."""
    reply = "y" * 1_000_000
    llm_pytester.makepyfile(long=f"def reply(prompt): return {reply[:1]!r} * {len(reply)}")
    llm_pytester.makefile(".yaml", one="suite: one\nscore: exact\nsamples: [{id: a, question: q, target: x}]\n")
    result = llm_pytester.runpytest("--llm-strict", "--llm-model=python:long:reply", "--junitxml=out.xml", "one.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*wrong: expected 'x', found 'yyy*yyy'… (990,000 more characters are in the report)"])
    assert len(result.stdout.str()) < 40_000
    assert (llm_pytester.path / "out.xml").stat().st_size < 40_000


def test_strict_stops_at_the_first_wrong_answer_with_x(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES))
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest("--llm-strict", "-x", "sums.yaml")
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["sums*2/4*", "stopped early (stopping after 1 failures)*"])


def test_maxfail(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES))
    llm_pytester.makefile(".yaml", sums=SUMS)
    llm_pytester.runpytest("--llm-strict", "--maxfail=2", "sums.yaml").assert_outcomes(passed=1, failed=2)


def test_an_error_is_a_failure_and_unscored(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, errors={"2 + 3": "too hot to answer"}))
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest(*workers, "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "not scored: sums.yaml:4: sample 's2': too hot to answer",
            "sums*3/4*0.667*",
            "sums: no answer 1, unscored 1",
            "could not be scored: 1",
            "  sums.yaml::s2: too hot to answer",
            "*1 failed, 2 passed, 1 wrong in*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_an_exception_of_the_model_belongs_to_its_sample(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, raises={"2 + 3": "boom"}))
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest(*workers, "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*RuntimeError: boom*", "  sums.yaml::s2: RuntimeError: boom"])
    result.stdout.fnmatch_lines(["*1 failed, 2 passed, 1 wrong in*"])


def test_last_failed_reruns_wrong_answers_and_errors(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, errors={"5 + 4": "out of order"}))
    llm_pytester.makefile(".yaml", sums=SUMS)
    llm_pytester.runpytest(*workers, "sums.yaml")
    again = llm_pytester.runpytest("--lf", "-v", "sums.yaml")
    again.stdout.fnmatch_lines(["*s2*WRONG*", "*s3*WRONG*", "*s4*FAILED*"])
    again.stdout.no_fnmatch_line("*::s1*")
    llm_pytester.makeconftest(fake_model_conftest(replies={"2 + 3": "5", "4 + 4": "8", "5 + 4": "9"}))
    mended = llm_pytester.runpytest("--lf", "sums.yaml")
    mended.assert_outcomes(passed=3)
    llm_pytester.runpytest("--lf", "sums.yaml").stdout.fnmatch_lines(["*no previously failed tests*"])


def test_without_the_cache(capitals: pytest.Pytester, workers: list[str]) -> None:
    result = capitals.runpytest(*workers, "-p", "no:cacheprovider", "capitals.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*2 passed, 1 wrong*"])


def test_junit_file(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, errors={"2 + 3": "too hot"}))
    llm_pytester.makefile(".yaml", sums=SUMS)
    llm_pytester.runpytest(*workers, "--junitxml=out.xml", "sums.yaml")
    suite = ET.parse(llm_pytester.path / "out.xml").getroot()[0]
    assert {case.get("name"): [child.tag for child in case] for case in suite} == {
        "s1": [],
        "s2": ["failure"],
        "s3": ["properties"],  # a wrong answer passes, and says so: test_wrong_answers.py
        "s4": [],
    }


def test_durations(capitals: pytest.Pytester) -> None:
    result = capitals.runpytest("--durations=0", "-vv", "capitals.yaml")
    result.stdout.fnmatch_lines(["*slowest durations*", "*call*capitals.yaml::q1"])


def test_neighbours_are_answered_in_one_call(capitals: pytest.Pytester) -> None:
    capitals.runpytest("capitals.yaml")
    assert [len(call["prompts"]) for call in model_calls(capitals.path, "loglikelihood")] == [12]


def test_batch_size_bounds_what_is_computed_ahead(capitals: pytest.Pytester) -> None:
    capitals.runpytest("--llm-batch-size=2", "capitals.yaml")
    assert [len(call["prompts"]) for call in model_calls(capitals.path, "loglikelihood")] == [8, 4]
