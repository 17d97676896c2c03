"""A report that somebody edited: one value of a wrong type anywhere costs one line, and no traceback."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.reporting.report.report import Comparison, GateResult, Regression
from pytest_llmeval.reporting.storage.report_file import read_report, write_report
from pytest_llmeval.reporting.writers.exports import write_csv
from pytest_llmeval.reporting.writers.formats import final_path
from pytest_llmeval.reporting.writers.markdown import write_markdown
from pytest_llmeval.reporting.writers.text_report import summary_lines
from pytest_llmeval.scoring.metrics.calibration import ReliabilityBin
from pytest_llmeval.scoring.metrics.summary import Percentiles
from pytest_llmeval.scoring.model_differences import Difference
from pytest_llmeval.types import EngineUse
from tests.reporting.reports import make_record, make_report

WRONG: tuple[Any, ...] = (None, True, 10**400, float("1e308") * 10, "x", [3], {"x": 3})
FURTHER: tuple[Any, ...] = (-1, 0, 1.5, "", [], {})

DIFFERENCE = Difference(n=2, kind="proportion", first=0.5, second=1.0, difference=0.5, num_gained=1, num_lost=0)
REGRESSION = Regression(
    mode="significant",
    metric="accuracy",
    higher_is_better=True,
    n=2,
    baseline=1.0,
    current=0.5,
    difference=-0.5,
    ci_low=None,
    ci_high=None,
    drop=0.5,
    margin=0.0,
    method="mcnemar",
    p_value=0.5,
    p_adjusted=0.5,
    p_improved=1.0,
    p_improved_adjusted=1.0,
    family=1,
    alpha=0.05,
)


def whole_report(path: Path) -> dict[str, Any]:
    """A small report that has every part."""
    report = make_report(
        [
            make_record("a", "q1", category="x", question="?", choices=("b", "c"), output="b", answer="b", seconds=0.5),
            make_record("a", "q2", category="y", status="unscored", reason="odd", values={}, target="c"),
            make_record("b", "q1", values={"accuracy": 0.0}, status="wrong", prompt="?", num_tokens=3),
        ]
    )
    spread = Percentiles(n=2, mean=1.0, p50=1.0, p95=1.0, p99=1.0)
    first = replace(
        report.suites[0],
        engine=EngineUse(engine="tree", reason="as told", largest_difference=0.0),
        reliability=(ReliabilityBin(low=0.0, high=1.0, n=1, confidence=0.5, accuracy=1.0),),
        latency=spread,
        tokens_per_second=spread,
        num_tokens=2,
    )
    gate = GateResult(
        name="g",
        kind="baseline",
        origin="suite",
        outcome="failed",
        reason="fell",
        suite="a",
        notes=("one",),
        regression=REGRESSION,
    )
    comparisons = tuple(
        Comparison(suite=suite, first="fake", second="other", differences={"accuracy": DIFFERENCE}) for suite in "ab"
    )
    write_report(replace(report, suites=(first, report.suites[1]), gates=(gate,), comparisons=comparisons), path)
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def places(value: object, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where values stand in it; of a list its first."""
    if at:
        yield at
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*at, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*at, 0))


def use(path: Path) -> None:
    """What a user does with a report."""
    report = read_report(path)
    list(report.records)
    list(summary_lines(report, width=120))
    final_path(path.parent, report)
    # no suffix .md: to draw figures each time would take minutes
    for write, name in ((write_markdown, "out"), (write_csv, "out.csv"), (write_report, "again.json")):
        write(report, path.with_name(name))


@pytest.mark.parametrize(
    "wrong",
    [*WRONG, *(pytest.param(one, marks=pytest.mark.slow) for one in FURTHER)],
    ids=lambda wrong: repr(wrong)[:12],
)
def test_one_wrong_value_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: object) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)  # hundreds of files
    whole = whole_report(tmp_path / "in.json")
    use(tmp_path / "in.json")
    tracebacks, num_refused = [], 0
    for place in places(whole):
        data = copy.deepcopy(whole)
        part: Any = data
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = wrong
        path = tmp_path / "edited.json"
        path.write_text(json.dumps(data).replace("Infinity", "1e999"), encoding="ascii")
        try:
            use(path)
        except LLMEvalError as error:
            num_refused += 1
            if "\n" in str(error) or "edited.json" not in str(error):
                tracebacks.append(f"{place}: {error}")
        except Exception as error:
            tracebacks.append(f"{place}: {error!r}")
    assert tracebacks == []
    assert num_refused > 20
