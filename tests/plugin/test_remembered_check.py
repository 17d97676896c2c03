"""The check of the tree at loading is done once: a later session knows that it was right, and so do other workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.plugin.suites_for_tests import CAPITALS

pytestmark = pytest.mark.forks_torch

_COUNTS = """
from pathlib import Path
import pytest

PROBLEM = {problem!r}
FILE = Path(__file__).with_name("checks.txt")


@pytest.fixture(scope="session")
def llm_device(llm_device):
    from pytest_llmeval.models.huggingface import model

    check = model.self_check

    def counted(*arguments, **settings):
        with FILE.open("a") as file:
            file.write("checked\\n")
        return PROBLEM or check(*arguments, **settings)

    model.self_check = counted
    yield llm_device
    model.self_check = check
"""


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    """A suite, and a conftest.py that counts the checks."""
    llm_pytester.makeconftest(_COUNTS.format(problem=None))
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    return llm_pytester


def num_checks(project: pytest.Pytester, *options: str) -> int:
    """How many checks one session makes, in all of its processes."""
    file = project.path / "checks.txt"
    file.write_text("", encoding="utf-8")
    result = project.runpytest_subprocess("--llm-model=demo", *options, "capitals.yaml")
    assert result.ret == 0, result.stdout.str()
    return len(file.read_text(encoding="utf-8").splitlines())


def cached(project: pytest.Pytester) -> Path:
    """The file of pytest's cache."""
    return project.path / ".pytest_cache" / "v" / "llmeval" / "trees_that_are_right"


def test_a_later_session_does_not_check_again(project: pytest.Pytester) -> None:
    assert num_checks(project) == 1
    assert num_checks(project) == 0
    assert num_checks(project, "--cache-clear") == 1


@pytest.mark.slow
def test_under_other_conditions_it_is_checked(project: pytest.Pytester) -> None:
    assert num_checks(project) == 1
    for _ in range(2):
        assert num_checks(project, "-p", "no:cacheprovider") == 1
    assert num_checks(project, "--llm-batch-size=2") == 1
    assert num_checks(project) == 0


def test_workers_check_once(project: pytest.Pytester) -> None:
    assert num_checks(project, "-n2") == 1
    assert num_checks(project, "-n2") == 0, "what workers found is kept"


_DAMAGED = (
    *("{", "[" * 100_000),
    *(pytest.param(one, marks=pytest.mark.slow) for one in ('{"a": 1}', "[1, null]", "\udcff", "")),
)


@pytest.mark.parametrize("content", _DAMAGED)
def test_a_damaged_cache_is_ignored(project: pytest.Pytester, content: str) -> None:
    cached(project).parent.mkdir(parents=True)
    cached(project).write_bytes(content.encode("utf-8", "surrogateescape"))
    assert num_checks(project) == 1
    assert num_checks(project) == 0


def test_of_a_cache_the_newest_keys_are_kept(project: pytest.Pytester) -> None:
    """Others than hashes are dropped: halves of a surrogate pair could not be written again."""
    keys = [f"{number:064x}" for number in range(400)]
    cached(project).parent.mkdir(parents=True)
    cached(project).write_text(json.dumps([*keys, "short", "\ud800" * 64, "A" * 64]), encoding="ascii")
    assert num_checks(project) == 1
    kept = json.loads(cached(project).read_text(encoding="utf-8"))
    assert kept[:-1] == keys[-255:]
    assert num_checks(project) == 0


@pytest.mark.slow
def test_a_problem_is_looked_at_again(project: pytest.Pytester) -> None:
    project.makeconftest(_COUNTS.format(problem="in a check at loading, the tree differed by 1.0e+00"))
    for _ in range(2):
        assert num_checks(project, "--llm-report=out.json") == 1
        assert "the tree differed by 1.0e+00" in (project.path / "out.json").read_text(encoding="ascii")
    assert num_checks(project, "-n2") == 1, "workers agree"
    project.makeconftest(_COUNTS.format(problem=None))
    assert num_checks(project) == 1
