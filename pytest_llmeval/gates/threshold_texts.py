"""What a gate against a threshold found, in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pytest_llmeval.gates.subjects import GateSubject
from pytest_llmeval.reporting.report.report import Summary
from pytest_llmeval.reporting.tables.cells import number
from pytest_llmeval.reporting.tables.suites import reasons_text
from pytest_llmeval.scoring.metrics.definitions import WILDCARD
from pytest_llmeval.scoring.metrics.summary import Metric
from pytest_llmeval.suites.format.gate_rules import GateRule
from pytest_llmeval.text.escaping import printable

__all__ = ["finding", "missing_reason", "not_measurable_reason", "number_beside"]

_FAILED: Mapping[str, str] = MappingProxyType({">=": "below", ">": "not above", "<=": "above", "<": "not below"})
_MAX_DECIMALS = 17


def finding(rule: GateRule, subject: GateSubject, metric: Metric) -> str:
    """``accuracy 0.583 [0.512, 0.651], n 200: below 0.6``; without the end where the rule holds.

    The metric has a value, and the bound that the rule asks for. The interval of one sample says nothing, and is
    reported only where the rule is about it.
    """
    numbers = {"value": metric.value, "ci_low": metric.ci_low, "ci_high": metric.ci_high}
    texts = {name: "" if value is None else number(value) for name, value in numbers.items()}
    decides = numbers[rule.bound]
    if decides is None:
        raise ValueError(f"{subject} has no {rule.bound}")
    texts[rule.bound] = number_beside(decides, rule)
    has_interval = texts["ci_low"] and texts["ci_high"] and (metric.n > 1 or rule.bound != "value")
    interval = f" [{texts['ci_low']}, {texts['ci_high']}]" if has_interval else ""
    found = f"{printable(str(subject))} {texts['value']}{interval}, n {metric.n}"
    if rule.holds(decides):
        return found
    what = "" if rule.bound == "value" else f"{rule.bound} is "
    return f"{found}: {what}{_FAILED[rule.comparison]} {rule.written_threshold}"


def missing_reason(metric: str, num_missing: int, num_scored: int) -> str:
    """Return why a gate fails on a metric that some samples lack."""
    lacking = f"{num_missing} of {num_scored} scored sample{'' if num_scored == 1 else 's'}"
    return (
        f"{printable(metric)} is missing on {lacking}: their scores have no value for it, and do not report it as not "
        "measurable (NotMeasurable, with the reason)"
    )


def not_measurable_reason(subject: GateSubject, parts: Sequence[Summary]) -> str | None:
    """Return why a gate fails on what has no value at all; None where not even a reason is known."""
    names = (subject.metric, f"{subject.metric.partition('.')[0]}.{WILDCARD}", WILDCARD)
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(next((part.not_measurable[name] for name in names if name in part.not_measurable), {}))
    if not counts:
        return None
    num_scored = sum(part.num_scored for part in parts)
    samples = f"{counts.total()} of {num_scored} sample{'' if num_scored == 1 else 's'}"
    return f"{printable(str(subject))} is not measurable on {samples} ({printable(reasons_text(counts))})"


def number_beside(value: float, rule: GateRule) -> str:
    """Return the value with as many digits as it takes to stand on its side of the rule's threshold: 0.5999, and not
    0.600.
    """
    text = number(value)
    decimals = 4
    while rule.holds(float(text.replace(",", ""))) != rule.holds(value) and decimals <= _MAX_DECIMALS:
        text = f"{value:.{decimals}f}"
        decimals += 1
    return text if rule.holds(float(text.replace(",", ""))) == rule.holds(value) else repr(value)
