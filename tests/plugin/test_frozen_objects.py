"""A session's items are left out of the garbage collector's passes, and nothing of that is left when it has ended."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from types import ModuleType

import pytest

from pytest_llmeval.data.garbage import FrozenObjects
from pytest_llmeval.models.hardware import importing_torch
from tests.support import fake_model_conftest

SUITE = """\
suite: capitals
prompt: {template: "{{ question }}"}
score: exact
samples:
  - {id: q1, question: France?, target: none}
"""
STATE = """\
import gc
import pytest


@pytest.mark.slow
def test_state():
    with open("state.txt", "w") as file:
        file.write(f"{gc.isenabled()} {gc.get_threshold()} {gc.get_freeze_count() > 0}")
"""


_COUNT = gc.get_freeze_count


@pytest.fixture
def llm_pytester(llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Give the sessions of this module the real count of frozen objects, which other tests save themselves."""
    monkeypatch.setattr(gc, "get_freeze_count", _COUNT)
    return llm_pytester


@pytest.fixture(autouse=True)
def _as_before(preloaded: None) -> Iterator[None]:
    """As in a process of its own: that of the tests has left objects out for itself."""
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    before = gc.isenabled(), gc.get_threshold(), 0
    assert before[0]
    yield
    assert (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()) == before
    if frozen:
        gc.freeze()


def run(llm_pytester: pytest.Pytester, *arguments: str, hook: str = "", code: int = 0) -> str:
    """What a test of the session saw: whether cycles are looked for, how often, and whether objects are left out."""
    llm_pytester.makepyfile(test_state=STATE)
    llm_pytester.makeconftest(fake_model_conftest(default_reply="none") + hook)
    assert llm_pytester.inline_run("-p", "no:xdist", *arguments).ret == code
    return (llm_pytester.path / "state.txt").read_text(encoding="utf-8")


def test_items_are_left_out_while_tests_run(llm_pytester: pytest.Pytester) -> None:
    (llm_pytester.path / "capitals.yaml").write_text(SUITE, encoding="utf-8")
    for _ in range(2):  # also in a process that has had such a session
        assert run(llm_pytester) == f"True {gc.get_threshold()} True"


def test_without_suites_nothing_is(llm_pytester: pytest.Pytester) -> None:
    assert run(llm_pytester) == f"True {gc.get_threshold()} False"


@pytest.mark.slow
def test_a_broken_suite_changes_nothing_of_that(llm_pytester: pytest.Pytester) -> None:
    (llm_pytester.path / "capitals.yaml").write_text(SUITE.replace("target: none", "target: []"), encoding="utf-8")
    assert run(llm_pytester, "--continue-on-collection-errors", code=1) == f"True {gc.get_threshold()} True"


@pytest.mark.slow
@pytest.mark.parametrize("error", ["KeyboardInterrupt", "RuntimeError", "pytest.UsageError"])
def test_a_session_that_does_not_get_so_far_leaves_nothing_behind(llm_pytester: pytest.Pytester, error: str) -> None:
    (llm_pytester.path / "capitals.yaml").write_text(SUITE, encoding="utf-8")
    llm_pytester.makeconftest(f"import pytest\n\ndef pytest_collection_modifyitems():\n    raise {error}('no')\n")
    assert llm_pytester.inline_run("-p", "no:xdist", no_reraise_ctrlc=True).ret != 0


@pytest.mark.slow
def test_a_conftest_that_switches_the_collector_off_keeps_it_off(llm_pytester: pytest.Pytester) -> None:
    (llm_pytester.path / "capitals.yaml").write_text(SUITE, encoding="utf-8")
    hook = "\nimport gc\n\ndef pytest_collection_modifyitems():\n    gc.disable()\n"
    try:
        assert run(llm_pytester, hook=hook).startswith("False ")
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.slow
def test_garbage_is_freed_before_it_would_be_left_out() -> None:
    class Node:
        pass

    lasting = FrozenObjects()
    node = Node()
    node.itself = node  # type: ignore[attr-defined]
    there = weakref.ref(node)
    del node
    lasting.freeze()
    assert there() is None
    lasting.close()


@pytest.mark.slow
def test_of_two_the_first_decides() -> None:
    first, second = FrozenObjects(), FrozenObjects()
    second.freeze()
    second.close()
    assert not gc.get_freeze_count()
    first.freeze()
    assert gc.get_freeze_count() > 0
    third = FrozenObjects()
    third.freeze()
    third.close()
    assert gc.get_freeze_count() > 0
    first.close()


def test_who_has_left_objects_out_keeps_that() -> None:
    """Not by their count: what is left out is freed like anything else once nothing refers to it."""
    before: list[None] = []
    gc.freeze()
    try:
        after: list[None] = []
        lasting = FrozenObjects()
        lasting.freeze()
        lasting.close()
        walked = {id(thing) for thing in gc.get_objects()}
        assert id(before) not in walked
        assert id(after) in walked
    finally:
        gc.unfreeze()


@pytest.mark.slow
def test_who_has_switched_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        lasting = FrozenObjects()
        lasting.freeze()
        lasting.close()
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.slow
def test_thresholds_that_somebody_sets_meanwhile_stay() -> None:
    before = gc.get_threshold()
    lasting = FrozenObjects()
    assert gc.get_threshold() != before
    try:
        gc.set_threshold(123, 4, 5)
        lasting.freeze()
        lasting.close()
        assert gc.get_threshold() == (123, 4, 5)
    finally:
        gc.set_threshold(*before)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["torch", "transformers", None])
def test_libraries_of_models_are_left_out_once_while_a_session_leaves_out_objects(
    monkeypatch: pytest.MonkeyPatch, library: str | None
) -> None:
    """The second time a model may be there, and it is to be freed when it is replaced."""
    for name in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    if library is not None:
        monkeypatch.delitem(sys.modules, library)
    made: list[list[None]] = []
    with importing_torch():
        made += ([] for _ in range(10_000))
    assert not gc.get_freeze_count(), "no session has left out objects"
    lasting = FrozenObjects()
    lasting.freeze()
    before = gc.get_freeze_count()
    freed = weakref.ref(cycle := Cycle())
    cycle.itself = cycle
    del cycle
    with importing_torch():
        made += ([] for _ in range(10_000))
    assert (gc.get_freeze_count() - before >= 10_000) is (library is not None)
    assert gc.isenabled()
    if library is not None:
        assert freed() is None
    lasting.close()
    assert not gc.get_freeze_count()


class Cycle:
    itself: object = None
