"""What a report says of a session that left tests out, and what such a report is worth as a baseline."""

from __future__ import annotations

import json
from typing import Any

import pytest

ROWS = "".join(f"- {{id: q{n}, question: '{n}', target: x, kind: {'hard' if n % 2 else 'easy'}}}\n" for n in range(20))
SUITE = f"suite: s\nsamples:\n{ROWS}score: exact\ncategory: kind\n"
AGENTS = """
def half(prompt): return "x" if int(prompt) % 2 else "wrong"
def late(prompt): return "x" if int(prompt) < 10 else "wrong"
def none(prompt): return "wrong"
"""
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(20))
def test_it(llm_record, llm_model, number):
    llm_record(suite="own", id=number, correct=llm_model.generate(str(number)).text == "x")
"""
REMOVES = """
def pytest_collection_modifyitems(config, items):
    kept = [item for item in items if item.name in ("q2", "q4")]
    {ANNOUNCES}
    items[:] = kept
"""

MARKS = """
def pytest_configure(config):
    config.addinivalue_line("markers", "smoke: a few")

def pytest_itemcollected(item):
    if item.name in ("q2", "q4"):
        item.add_marker("smoke")
"""


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makepyfile(agents=AGENTS)
    llm_pytester.makefile(".yaml", s=SUITE)
    return llm_pytester


def ran(project: pytest.Pytester, model: str, *arguments: str) -> pytest.RunResult:
    places = () if any(one.startswith(("s.yaml", "test_own.py")) for one in arguments) else ("s.yaml",)
    return project.runpytest(f"--llm-model=python:agents:{model}", *arguments, *places)


def selection(project: pytest.Pytester, name: str = "base.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.path / name).read_text())["selection"]
    return found


WAYS = {
    # arguments, what the report says, conftest
    "keyword": (("-k", "q2 or q4"), "-k q2 or q4", ""),
    "mark": (("-m", "smoke"), "-m smoke", MARKS),
    "deselect": (("--deselect", "s.yaml::q1", "--deselect", "s.yaml::q3"), "--deselect s.yaml::q1, s.yaml::q3", ""),
    "ids": (("s.yaml::q2", "s.yaml::q4"), "s.yaml::q2, s.yaml::q4", ""),
    "limit": (("--llm-limit=4",), "--llm-limit 4", ""),
    "shard": (("--llm-shard=1/3",), "--llm-shard 1/3", ""),
    "hook": ((), "a hook or another plugin", REMOVES.replace("{ANNOUNCES}", "")),
    "hook that says so": (
        (),
        "a hook or another plugin",
        REMOVES.replace("{ANNOUNCES}", "config.hook.pytest_deselected(items=[i for i in items if i not in kept])"),
    ),
}


_SIBLINGS = ("mark", "deselect", "hook that says so")  # of ways that are tried by default


@pytest.mark.parametrize("way", [pytest.param(one, marks=[pytest.mark.slow] * (one in _SIBLINGS)) for one in WAYS])
def test_a_selection_is_told_and_is_no_baseline_of_the_whole(
    project: pytest.Pytester, workers: list[str], way: str
) -> None:
    arguments, told, conftest = WAYS[way]
    project.makeconftest(conftest)
    result = ran(project, "half", *workers, *arguments, "--llm-report=base.json")
    assert result.ret == 0
    assert selection(project) == {"by": [told], "is_by_outcome": False}
    assert f"a selection ({told}): these numbers cover only" in " ".join(result.stdout.str().split())
    project.makeconftest("")
    against = ("--llm-baseline=base.json", "--llm-report=now.json")
    result = ran(project, "half", *workers, *against, "--llm-require-gates")
    assert result.ret == 1
    text = " ".join(result.stdout.str().split())
    assert "the baseline is a selection, " in text
    assert f"of 20 samples ({told}), and this run is not the same one: make it of the whole suite" in text
    project.makeconftest(conftest)
    assert ran(project, "half", *workers, *arguments, "--llm-report=same.json").ret == 0
    project.makeconftest("")
    for command, code in (
        (("compare", "base.json", "now.json"), 1),
        (("compare", "base.json", "now.json", "--require"), 1),
        (("gate", "now.json", "--baseline", "base.json"), 1),
        (("compare", "base.json", "same.json", "--gate-mode=margin"), 0),
    ):
        found = project.run("llmeval", *command)
        assert found.ret == code, command
        expected = "this run is the same one" if code == 0 else "and this run is not the same one"
        assert expected in " ".join(found.stdout.str().split())


@pytest.mark.parametrize("option", ["--lf", "--sw"])
def test_samples_that_were_wrong_are_never_a_baseline(
    project: pytest.Pytester, workers: list[str], option: str
) -> None:
    ran(project, "late", *workers, *(["--llm-strict", "--sw"] if option == "--sw" else []))
    ran(project, "late", *workers, option, "--llm-report=base.json")
    assert selection(project) == {"by": [option], "is_by_outcome": True}
    for model in ("late", "none"):
        result = ran(project, model, *workers, "--llm-baseline=base.json", "--llm-require-gates")
        assert result.ret == 1
        assert "selected because they were wrong cannot become worse" in " ".join(result.stdout.str().split())


def test_a_whole_session_says_nothing(project: pytest.Pytester, workers: list[str]) -> None:
    result = ran(project, "half", *workers, "-k", "q", "--ff", "--nf", "--llm-report=base.json")
    assert result.ret == 0
    assert selection(project) == {"by": [], "is_by_outcome": False}
    assert "a selection" not in result.stdout.str()
    assert ran(project, "half", *workers, "--llm-baseline=base.json", "--llm-require-gates").ret == 0


def test_hand_written_tests_alone(project: pytest.Pytester, workers: list[str]) -> None:
    """Nothing counts them but pytest: the controller of workers hears from these how many were left out."""
    project.makepyfile(test_own=TESTS)
    result = ran(project, "half", *workers, "-k", "1", "--llm-report=base.json", "test_own.py")
    assert result.ret == 0
    assert selection(project) == {"by": ["-k 1"], "is_by_outcome": False}
    result = ran(project, "half", *workers, "--llm-baseline=base.json", "test_own.py")
    assert result.ret == 1
    assert "the baseline is a selection, 11 samples (-k 1), and" in " ".join(result.stdout.str().split())
    result = ran(project, "half", *workers, "-k", "1", "--llm-baseline=base.json", "test_own.py")
    assert result.ret == 0


def test_shards_that_make_the_whole_are_whole(project: pytest.Pytester) -> None:
    for number in (1, 2, 3):
        assert ran(project, "half", f"--llm-shard={number}/3", f"--llm-report={number}.json").ret == 0
    assert project.run("llmeval", "merge", "1.json", "2.json", "3.json", "-o", "base.json").ret == 0
    assert selection(project) == {"by": [], "is_by_outcome": False}
    assert ran(project, "half", "--llm-baseline=base.json", "--llm-require-gates").ret == 0
    assert project.run("llmeval", "merge", "--partial", "1.json", "2.json", "-o", "part.json").ret == 0
    assert selection(project, "part.json")["by"] == ["--llm-shard 1/3, 2/3"]
    for number in (1, 2, 3):
        ran(project, "half", "-k", "q1", f"--llm-shard={number}/3", f"--llm-report={number}.json")
    assert project.run("llmeval", "merge", "1.json", "2.json", "3.json", "-o", "base.json").ret == 0
    assert selection(project) == {"by": ["-k q1"], "is_by_outcome": False}
    assert ran(project, "half", "--llm-baseline=base.json", "--llm-require-gates").ret == 1
