"""What a gate against a threshold found, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pytest_llmeval.reporting.escape import printable
from pytest_llmeval.reporting.tables import number
from pytest_llmeval.scoring.gate_subjects import GateSubject
from pytest_llmeval.scoring.metrics import Metric
from pytest_llmeval.suites.gate_rules import GateRule

__all__ = ["finding", "number_beside"]

_FAILED: Mapping[str, str] = MappingProxyType({">=": "below", ">": "not above", "<=": "above", "<": "not below"})
_MAX_DECIMALS = 17


def finding(rule: GateRule, subject: GateSubject, metric: Metric) -> str:
    """``accuracy 0.583 [0.512, 0.651], n 200: below 0.6``; without the end where the rule holds.

    The metric has a value, and the bound that the rule asks for.
    """
    numbers = {"value": metric.value, "ci_low": metric.ci_low, "ci_high": metric.ci_high}
    texts = {name: "" if value is None else number(value) for name, value in numbers.items()}
    decides = numbers[rule.bound]
    if decides is None:
        raise ValueError(f"{subject} has no {rule.bound}")
    texts[rule.bound] = number_beside(decides, rule)
    interval = f" [{texts['ci_low']}, {texts['ci_high']}]" if texts["ci_low"] and texts["ci_high"] else ""
    found = f"{printable(str(subject))} {texts['value']}{interval}, n {metric.n}"
    if rule.holds(decides):
        return found
    what = "" if rule.bound == "value" else f"{rule.bound} is "
    return f"{found}: {what}{_FAILED[rule.comparison]} {rule.written_threshold}"


def number_beside(value: float, rule: GateRule) -> str:
    """The value with as many digits as it takes to stand on its side of the rule's threshold: 0.5999, and not 0.600."""
    text = number(value)
    decimals = 4
    while rule.holds(float(text.replace(",", ""))) != rule.holds(value) and decimals <= _MAX_DECIMALS:
        text = f"{value:.{decimals}f}"
        decimals += 1
    return text if rule.holds(float(text.replace(",", ""))) == rule.holds(value) else repr(value)
