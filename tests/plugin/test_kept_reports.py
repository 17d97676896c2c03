"""Which test reports the terminal keeps to the end of a session: of a sample no more than is shown or asked for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support import fake_model_conftest

SUITE = """\
suite: capitals
prompt: {template: "{{ question }}"}
score: exact
samples:
  - {id: q1, question: France?, target: none}
  - {id: q2, question: Peru?, target: Lima}
"""

HOOK = """

def pytest_terminal_summary(terminalreporter):
    kept = [(report.nodeid, report.when) for report in terminalreporter.stats.get("", ())]
    terminalreporter.write_line(f"kept: {sorted(kept)}")
"""

HAND_WRITTEN = [("test_own.py::test_own", "setup"), ("test_own.py::test_own", "teardown")]
OF_SAMPLES = [(f"capitals.yaml::q{number}", when) for number in (1, 2) for when in ("setup", "teardown")]


def run(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    (pytester.path / "capitals.yaml").write_text(SUITE, encoding="utf-8")
    pytester.makepyfile(test_own="def test_own():\n    pass\n")
    pytester.makeconftest(fake_model_conftest(default_reply="none") + HOOK)
    result = pytester.runpytest(*arguments)
    assert result.ret == 0
    result.assert_outcomes(passed=2)  # q2 is wrong
    return result.outlines


def test_what_passed_beside_the_call_is_not_kept(llm_pytester: pytest.Pytester, workers: Sequence[str]) -> None:
    assert f"kept: {HAND_WRITTEN}" in run(llm_pytester, *workers)


@pytest.mark.parametrize("asked", [("--durations=0", "-vv"), ("-o", "console_output_style=times")])
def test_what_shows_it_has_it(llm_pytester: pytest.Pytester, workers: Sequence[str], asked: tuple[str, str]) -> None:
    lines = run(llm_pytester, *workers, *asked)
    assert f"kept: {sorted([*OF_SAMPLES, *HAND_WRITTEN])}" in lines
    if asked[0] == "--durations=0":
        assert sum("setup    capitals.yaml::" in line for line in lines) == 2


NOISY = """

@pytest.fixture(autouse=True)
def noisy():
    yield
    print("said by the tear-down")
"""


def test_what_a_tear_down_prints_is_shown(llm_pytester: pytest.Pytester, workers: Sequence[str]) -> None:
    (llm_pytester.path / "capitals.yaml").write_text(SUITE, encoding="utf-8")
    llm_pytester.makeconftest(fake_model_conftest(default_reply="none") + NOISY)
    result = llm_pytester.runpytest(*workers, "--llm-strict")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*capitals: q2*", "*Captured stdout teardown*", "said by the tear-down"])
