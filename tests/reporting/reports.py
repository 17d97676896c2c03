"""Reports and records for the tests of this folder, made by hand and by Hypothesis."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hypothesis import strategies as st

from pytest_llmeval.reporting.report.records import Record, SuiteInfo
from pytest_llmeval.reporting.report.report import (
    Averages,
    Comparison,
    GateResult,
    PerSample,
    Phases,
    Regression,
    Report,
    StoreUse,
    SuiteReport,
    Summary,
    VariantComparison,
    definitions_of,
)
from pytest_llmeval.reporting.report.summaries import average_suites, summarize_suite
from pytest_llmeval.scoring.metrics.calibration import ReliabilityBin
from pytest_llmeval.scoring.metrics.summary import Metric, Percentiles
from pytest_llmeval.scoring.model_differences import Difference
from pytest_llmeval.types import JSON, EngineUse

__all__ = ["make_record", "make_report", "reports", "sealed"]


def make_record(suite: str = "sums", id_: str = "s1", **values: Any) -> Record:
    """A record of a right answer, unless told otherwise."""
    known: dict[str, Any] = {"status": "correct", "model": "fake", "values": {"accuracy": 1.0}}
    return Record(suite=suite, id=id_, nodeid=f"{suite}.yaml::{id_}", **{**known, **values})


def make_report(records: list[Record], **values: Any) -> Report:
    """The report of a session of one model that gave these records."""
    suites = []
    for name in dict.fromkeys(record.suite for record in records):
        own = [record for record in records if record.suite == name]
        info = SuiteInfo(name=name, path=f"{name}.yaml", metrics=())
        suites.append(summarize_suite(info, own, num_expected=len(own), num_skipped=0))
    known: dict[str, Any] = {
        "created": "2026-01-01T00:00:00+00:00",
        "seconds": 1.5,
        "environment": {"python": "3.11"},
        "models": ({"name": "fake"},),
        "options": {},
        "exit_code": 0,
        "definitions": definitions_of(suites),
        "suites": tuple(suites),
        "averages": average_suites(suites, records),
        "records": tuple(records),
    }
    return Report(**{**known, **values})


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a report with the digest that it should have: nobody can tell that it was changed."""
    document = {key: value for key, value in document.items() if key != "digest"}
    return {**document, "digest": hashlib.sha256(json.dumps(document).encode()).hexdigest()}


# Any report, as far as its types say what it is. What JSON does not keep (tuples in it, NaN) is not in it.

text = st.text(max_size=12)  # of characters that have a UTF-8 form
names = st.text(min_size=1, max_size=8)
counts = st.integers(0, 10**6)
numbers = st.floats(allow_nan=False, allow_infinity=False)
optional_numbers = st.none() | numbers
json_values: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | numbers | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
mappings = st.dictionaries(names, json_values, max_size=3)

metrics = st.dictionaries(
    names,
    st.builds(
        Metric,
        value=optional_numbers,
        n=counts,
        kind=st.sampled_from(["proportion", "mean", "count", "pooled", "corpus"]),
        stderr=optional_numbers,
        ci_low=optional_numbers,
        ci_high=optional_numbers,
        num_clusters=st.none() | counts,
    ),
    max_size=3,
)


@st.composite
def summaries(draw: st.DrawFn) -> Summary:
    return Summary(
        num_expected=draw(counts),
        num_scored=draw(counts),
        num_unscored=draw(counts),
        num_no_answer=draw(counts),
        metrics=draw(metrics),
    )


percentiles = st.builds(Percentiles, n=counts, mean=numbers, p50=numbers, p95=numbers, p99=numbers)


phases = st.builds(Phases, prefill_tokens=counts, prefill_seconds=numbers, decode_tokens=counts, decode_seconds=numbers)

per_sample = st.builds(
    PerSample,
    n=counts,
    num_prompt_tokens=numbers,
    num_tokens=numbers,
    seconds=numbers,
    cost=optional_numbers,
    num_priced=counts,
)


@st.composite
def suite_reports(draw: st.DrawFn) -> SuiteReport:
    summary = draw(summaries())
    info = SuiteInfo(
        name=draw(names),
        path=draw(st.none() | text),
        description=draw(text),
        scorer=draw(st.none() | text),
        settings=draw(mappings),
        fingerprint=draw(st.none() | text),
        num_samples=draw(st.none() | counts),
        metrics=tuple(summary.metrics),
        overridden=tuple(draw(st.lists(names, max_size=2))),
        gates=draw(st.dictionaries(names, st.none() | counts, max_size=2)),
        primary_metric=draw(st.none() | names),
        higher_is_better=draw(st.none() | st.booleans()),
        cluster=draw(st.none() | names),
        judge=draw(st.none() | names),
        judged_by=tuple(draw(st.lists(names, max_size=2))),
        fingerprint_parts=draw(st.dictionaries(names, text, max_size=2)),
        variant=draw(st.none() | names),
    )
    bins = st.builds(
        ReliabilityBin, low=numbers, high=numbers, n=counts, confidence=optional_numbers, accuracy=optional_numbers
    )
    engines = st.builds(
        EngineUse,
        engine=st.sampled_from(["tree", "plain"]),
        reason=text,
        num_audited=counts,
        largest_difference=optional_numbers,
        tolerance=optional_numbers,
    )
    return SuiteReport(
        info=info,
        summary=summary,
        categories=draw(st.dictionaries(names, summaries(), max_size=2)),
        macro=draw(metrics),
        num_skipped=draw(counts),
        models=tuple(draw(st.lists(names, max_size=2))),
        num_prompt_tokens=draw(counts),
        num_tokens=draw(counts),
        seconds=draw(numbers),
        engine=draw(st.none() | engines),
        reliability=draw(st.none() | st.lists(bins, max_size=2).map(tuple)),
        latency=draw(st.none() | percentiles),
        tokens_per_second=draw(st.none() | percentiles),
        phases=draw(st.none() | phases),
        cost=draw(optional_numbers),
        per_sample=draw(st.none() | per_sample),
    )


differences = st.builds(
    Difference,
    n=counts,
    kind=st.sampled_from(["proportion", "mean", "pooled", "corpus"]),
    first=numbers,
    second=numbers,
    difference=numbers,
    stderr=optional_numbers,
    ci_low=optional_numbers,
    ci_high=optional_numbers,
    num_gained=st.none() | counts,
    num_lost=st.none() | counts,
    num_clusters=st.none() | counts,
    p_value=st.none() | st.floats(0, 1),
)
comparisons = st.builds(
    Comparison,
    suite=names,
    first=names,
    second=names,
    differences=st.dictionaries(names, differences, max_size=2),
)
variants = st.builds(
    VariantComparison,
    suite=names,
    first=names,
    second=names,
    differences=st.dictionaries(names, differences, max_size=2),
    model=st.none() | names,
    metric=st.none() | names,
    p_value=st.none() | st.floats(0, 1),
    p_adjusted=st.none() | st.floats(0, 1),
    family=counts,
    note=st.none() | names,
)
averages = st.builds(Averages, model=st.none() | names, macro=metrics, micro=metrics)
regressions = st.builds(
    Regression,
    mode=st.sampled_from(["significant", "margin", "non-inferior"]),
    metric=names,
    higher_is_better=st.booleans(),
    n=counts,
    baseline=numbers,
    current=numbers,
    difference=numbers,
    ci_low=optional_numbers,
    ci_high=optional_numbers,
    drop=numbers,
    margin=numbers,
    method=st.sampled_from(["mcnemar", "sign-flip"]),
    p_value=numbers,
    p_adjusted=numbers,
    p_improved=numbers,
    p_improved_adjusted=numbers,
    family=counts,
    alpha=numbers,
    num_draws=st.none() | counts,
    num_clusters=st.none() | counts,
    smallest_drop=optional_numbers,
    false_alarm_rate=optional_numbers,
)
gates = st.builds(
    GateResult,
    name=names,
    kind=st.sampled_from(["threshold", "baseline"]),
    origin=st.sampled_from(["suite", "ini", "option"]),
    outcome=st.sampled_from(["passed", "failed", "skipped"]),
    reason=text,
    suite=st.none() | names,
    model=st.none() | names,
    path=st.none() | names,
    line=st.none() | counts,
    metric=st.none() | names,
    category=st.none() | names,
    value=optional_numbers,
    threshold=optional_numbers,
    notes=st.lists(text, max_size=2).map(tuple),
    regression=st.none() | regressions,
)

records = st.builds(
    Record,
    suite=names,
    id=names,
    nodeid=text,
    status=st.sampled_from(["correct", "wrong", "scored", "unscored"]),
    model=st.none() | names,
    category=st.none() | names,
    reason=st.none() | text,
    question=st.none() | text,
    prompt=json_values,
    choices=st.lists(text, max_size=3).map(tuple),
    target=json_values,
    output=st.none() | text,
    answer=st.none() | text,
    no_answer=st.booleans(),
    values=st.dictionaries(names, numbers, max_size=3),
    chance=optional_numbers,
    details=mappings,
    num_prompt_tokens=counts,
    num_tokens=counts,
    seconds=numbers,
    is_timed=st.booleans(),
    prefill_seconds=optional_numbers,
    num_decoded=st.none() | counts,
    fingerprint=st.none() | text,
    cluster=st.none() | text,
    asked_at=st.none() | text,
)

reports = st.builds(
    Report,
    created=text,
    seconds=numbers,
    environment=mappings,
    models=st.lists(st.builds(lambda name, other: {**other, "name": name}, names, mappings), max_size=2).map(tuple),
    options=mappings,
    exit_code=st.integers(0, 5),
    definitions=st.dictionaries(names, mappings, max_size=2),
    suites=st.lists(suite_reports(), max_size=2).map(tuple),
    comparisons=st.lists(comparisons, max_size=2).map(tuple),
    variants=st.lists(variants, max_size=2).map(tuple),
    averages=st.lists(averages, max_size=2).map(tuple),
    gates=st.lists(gates, max_size=2).map(tuple),
    store=st.none() | st.builds(StoreUse, folder=text, num_samples=counts, num_reused=counts, oldest=st.none() | text),
    records=st.lists(records, max_size=3).map(tuple),
    stopped=st.none() | text,
    problems=st.lists(text, max_size=2).map(tuple),
)
