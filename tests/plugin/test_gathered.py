"""What a session has gathered, where there are many suites: each sample is looked at once, not once for each suite."""

from __future__ import annotations

import pytest

from pytest_llmeval.plugin import session_records as module
from pytest_llmeval.plugin.session_records import Gathered
from pytest_llmeval.reporting.report.records import SuiteInfo
from pytest_llmeval.text.names import SampleNode


def test_samples_of_many_suites_are_counted_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    class Counting(SampleNode):
        @classmethod
        def parse(cls, nodeid: str) -> SampleNode:
            parsed.append(nodeid)
            return SampleNode.parse(nodeid)

    monkeypatch.setattr(module, "SampleNode", Counting)
    paths = {f"s{number}": f"s{number}.yaml" for number in range(50)} | {"own": "test_own.py::Own"}
    infos = {name: SuiteInfo(name=name, path=path, metrics=()) for name, path in paths.items()}
    session = Gathered(compared=("a", "b"), model_of_node={"a": "a", "b": "b"}, suites=infos)
    session.expected.update({f"{path}::{model}::q{n}": None for path in paths.values() for model in "ab" for n in "12"})
    for name, info in infos.items():
        assert session.num_expected(info) == {(name, "a"): 2, (name, "b"): 2}
    assert len(parsed) == len(session.expected)
    assert [session.group_at(f"{path}::b::q1") for path in paths.values()] == [(name, "b") for name in paths]
    session.expected["s0.yaml::a::q3"] = None  # from another worker
    assert session.num_expected(infos["s0"]) == {("s0", "a"): 3, ("s0", "b"): 2}
    assert session.num_expected(SuiteInfo(name="hand-written", metrics=())) == {}
