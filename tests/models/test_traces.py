"""Traces: whatever steps a program gives become JSON, and what a record keeps of them is bounded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.text.traces import MOST_CHARACTERS, MOST_STEPS, bounded_steps, trace_steps

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers(),
    lambda own: st.lists(own) | st.dictionaries(st.text() | st.integers(), own) | st.tuples(own),
    max_leaves=20,
)


@dataclass
class Step:
    tool: str


class Silent:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@given(st.lists(ANYTHING))
def test_every_step_is_json(steps: list[Any]) -> None:
    found = list(trace_steps(steps))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert trace_steps(found) == tuple(found), "what is JSON stays as it is"
    assert len(found) == len(steps)


def test_steps_that_refer_to_each_other_are_read_in_bounded_time() -> None:
    """A tree whose leaves know their parents has a number of ways through it that grows with every level."""
    parent: dict[str, Any] = {"name": "parent", "children": []}
    parent["children"] = [
        {"name": str(number), "parent": parent, "siblings": parent["children"]} for number in range(30)
    ]
    for child in parent["children"]:
        child["siblings"] = parent["children"]
    (found,) = trace_steps([parent])
    assert len(json.dumps(found)) < 1_000_000
    assert isinstance(found, dict)
    assert found["children"][0]["parent"] == "…"  # type: ignore[index, call-overload]
    (wide,) = trace_steps([list(range(20_000))])
    assert isinstance(wide, list)
    assert len(wide) == 10_000


def test_what_json_cannot_hold_becomes_text() -> None:
    np = pytest.importorskip("numpy")
    endless: list[Any] = []
    endless.append(endless)
    found = trace_steps([Step("search"), Silent(), np.float32(0.5), {1: float("nan")}, (1, {2}), "\ud800", 10**30])
    assert found == ("Step(tool='search')", "a Silent", 0.5, {"1": "nan"}, [1, [2]], "\ud800", str(10**30))
    assert "…" in json.dumps(trace_steps(endless), ensure_ascii=False)
    assert trace_steps("one") == ("one",)
    assert trace_steps({"tool": "search"}) == ({"tool": "search"},)
    assert trace_steps(None) == ()


@pytest.mark.parametrize("value", [3, {"a"}, object(), True])
def test_what_is_no_list_of_steps(value: object) -> None:
    with pytest.raises(ValueError, match="expected a list of steps: texts or mappings"):
        trace_steps(value)


def test_a_trace_holds_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "hush-hush-hush")
    step = {"call": ["key hush-hush-hush"], "login": {"password": "pa55", "key": "title"}, "mine": Step("own")}
    found = trace_steps([step])
    assert found == ({"call": ["key ***"], "login": {"password": "***", "key": "title"}, "mine": "Step(tool='own')"},)
    assert trace_steps(found) == found


@given(
    st.lists(st.text(max_size=400) | st.dictionaries(st.text(max_size=5), st.text(max_size=5)), max_size=300),
    st.integers(1_000, 5_000),
)
def test_a_bound_holds(steps: list[Any], characters: int) -> None:
    kept = bounded_steps(steps, characters)
    assert len(kept) <= MOST_STEPS
    assert sum(len(json.dumps(step)) for step in kept) <= characters
    if len(steps) <= MOST_STEPS and sum(len(json.dumps(step)) for step in steps) <= characters:
        assert kept == steps


def test_the_middle_is_left_out_and_said() -> None:
    kept = bounded_steps([f"step {number}" for number in range(500)])
    assert kept[0] == "step 0"
    assert kept[-1] == "step 499"
    assert len(kept) == MOST_STEPS - 1
    assert [step for step in kept if "left out" in str(step)] == ["(402 steps left out)"]
    first, long, last = bounded_steps(["go", {"found": "x" * 50_000}, "done"])
    assert (first, last) == ("go", "done")
    assert isinstance(long, str)
    assert "characters left out) x" in long
    assert len(long) <= MOST_CHARACTERS // 4
