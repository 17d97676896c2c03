"""What a bare ``pytest`` runs here, and with how many workers; the command line overrules ``tests/conftest.py``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import REPOSITORY

_PROJECT = """\
[pytest]
testpaths = tests
markers = slow
"""
_CONFTEST = """\
from tests.conftest import pytest_cmdline_main

def pytest_report_header(config):
    return f"workers: {config.getoption('numprocesses', None)}, OMP_NUM_THREADS {os.environ['OMP_NUM_THREADS']}"
"""
_TESTS = """\
import re
from pathlib import Path

import pytest

@pytest.mark.slow
def test_slow(): pass

def test_quick(): pass

@pytest.mark.odd
@pytest.mark.slow
def test_odd(): pass
"""


@pytest.fixture
def project(llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project whose tests folder has the hooks of this one's, on a machine of three cores."""
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "3")
    llm_pytester.makeini(_PROJECT + "    odd\n")
    llm_pytester.mkdir("tests").joinpath("conftest.py").write_text("import os\n" + _CONFTEST)
    llm_pytester.path.joinpath("tests", "test_it.py").write_text(_TESTS)
    return llm_pytester


@pytest.mark.parametrize(
    ("arguments", "workers", "names"),
    [
        ((), "3", ["test_quick"]),
        (("-m", "slow or not slow"), "3", ["test_odd", "test_quick", "test_slow"]),
        (("-m", "slow"), "3", ["test_odd", "test_slow"]),
        (("-m", "odd"), "3", ["test_odd"]),
        (("-n0",), "0", ["test_quick"]),
        (("-n1",), "1", ["test_quick"]),
        (("-p", "no:xdist"), "None", ["test_quick"]),
        (("--pdb",), "None", ["test_quick"]),
        (("tests",), "None", ["test_quick"]),
        (("tests/test_it.py",), "None", ["test_quick"]),
        (("tests/test_it.py::test_slow",), "None", ["test_slow"]),
    ],
    ids=" ".join,
)
def test_tiers_and_workers(
    project: pytest.Pytester, arguments: tuple[str, ...], workers: str, names: list[str]
) -> None:
    result = project.runpytest(*arguments, "-rA")
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"workers: {workers}, OMP_NUM_THREADS 1"])
    passed = sorted(line.rpartition("::")[2] for line in result.outlines if line.startswith("PASSED "))
    assert passed == names
    ran_on = {line.split()[0] for line in result.outlines if line.startswith("created: ")}
    assert bool(ran_on) == (workers not in ("None", "0"))


def test_collecting_starts_no_workers(project: pytest.Pytester) -> None:
    result = project.runpytest("--collect-only")
    result.stdout.fnmatch_lines(["workers: None*", "*1/3 tests collected (2 deselected)*"])
    result.stdout.no_fnmatch_line("created: *")


def test_most_sessions_with_two_workers_are_slow(
    llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways where data crosses from workers (``test_record`` is such a module); elsewhere among the tests of the
    plugin the first of a module.
    """
    monkeypatch.setattr("tests.conftest._TESTS", llm_pytester.path)
    llm_pytester.makeini(_PROJECT)
    hooks = "pytest_cmdline_main, pytest_collection_modifyitems, workers"
    llm_pytester.makeconftest(f"from tests.conftest import {hooks}")
    source = "def test_one(workers): pass\ndef test_two(workers): pass\ndef test_plain(): pass\n"
    files = ("plugin/test_record.py", "plugin/test_other.py", "servers/test_third.py")
    for name in files:
        (llm_pytester.path / name).parent.mkdir(exist_ok=True)
        (llm_pytester.path / name).write_text(source)
    result = llm_pytester.runpytest("-n0", "-rA", *files)
    passed = {line.partition(" ")[2] for line in result.outlines if line.startswith("PASSED ")}
    both = {f"test_{name}[{way}]" for name in ("one", "two") for way in ("one-process", "n2")} | {"test_plain"}
    assert passed == {
        *(f"{files[0]}::{name}" for name in both),
        *(f"{files[1]}::{name}" for name in both - {"test_two[n2]"}),
        *(f"{files[2]}::{name}" for name in both - {"test_one[n2]", "test_two[n2]"}),
    }


_PROPERTY = """\
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.properties import examples

@pytest.mark.campaign
def test_long(): pass

@pytest.mark.slow
def test_slow(): pass

def test_quick(): pass

@given(st.integers())
def test_property(number):
    with Path("examples").open("a") as file:
        file.write(f"{examples(1000)}\\n")
"""


@pytest.mark.parametrize(
    ("chosen", "names", "num_examples"),
    [
        ((), ["property", "quick"], 30),
        (("-m", "slow and not campaign"), ["slow"], 0),
        (("-m", "campaign"), ["long", "property"], 100),
        (("-m", "slow"), ["long", "property", "slow"], 100),
        (("-m", "slow or not slow"), ["long", "property", "quick", "slow"], 100),
    ],
    ids=str,
)
def test_campaigns_and_properties_with_all_their_examples(
    llm_pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    chosen: tuple[str, ...],
    names: list[str],
    num_examples: int,
) -> None:
    """A campaign is slow without saying so; a property has three tenths of its examples where no campaign runs."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    llm_pytester.makeini("[pytest]\nmarkers =\n    slow\n    campaign\n")
    hooks = "pytest_cmdline_main, pytest_configure, pytest_collection_modifyitems"
    llm_pytester.makeconftest(
        f"import tests.conftest\nfrom pathlib import Path\nfrom tests.conftest import {hooks}\n"
        "tests.conftest._TESTS = Path(__file__).parent\n"
    )
    llm_pytester.makepyfile(_PROPERTY)
    result = llm_pytester.runpytest_subprocess("-p", "no:xdist", "-rA", *chosen)
    assert result.ret == 0
    passed = sorted(line.rpartition("::test_")[2] for line in result.outlines if line.startswith("PASSED "))
    assert passed == names
    tried = llm_pytester.path / "examples"
    found = tried.read_text().split() if tried.exists() else []
    assert len(found) == num_examples
    assert set(found) == ({str(num_examples * 10)} if num_examples else set())


def test_only_other_peoples_modules_may_be_missing() -> None:
    """A module of ours that cannot be imported fails its tests: skipped, nobody would see it."""
    of_ours = re.compile(r"importorskip\(\s*[\"'](tests|pytest_llmeval)\b")
    assert not [str(path) for path in Path(__file__).parent.rglob("*.py") if of_ours.search(path.read_text("utf-8"))]
