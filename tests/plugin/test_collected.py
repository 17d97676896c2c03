"""What a worker of pytest-xdist sends of its collection arrives as it was."""

from __future__ import annotations

from pytest_llmeval.plugin.xdist_messages import Collected
from pytest_llmeval.reporting.report.records import SuiteInfo


def test_collected_goes_to_the_controller_and_back() -> None:
    collected = Collected(
        samples=[0, 2],
        suites=[SuiteInfo(name="a", path="\udcff/a.yaml", gates={"accuracy >= 0.5": 3}, metrics=("accuracy", "skill"))],
        absent=[SuiteInfo(name="b", path="b.yaml", num_samples=7)],
        num_deselected=4,
        unanswered="a.yaml",
        lacking={"judge": "a.yaml"},
        without_baseline="b.yaml",
        has_model=False,
        categories={"a": ["x: \udcff", "y"]},
        may_have_others=True,
        variants=["a: 2 variants (short, polite), 4 samples, 4 requests"],
    )
    text = collected.encode()
    assert text.isascii()
    assert Collected.decode(text) == collected
