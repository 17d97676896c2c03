"""The gates and the primary metric of a suite, checked before any sample runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pytest_llmeval.gates.subjects import (
    BoundError,
    SubjectError,
    check_bound,
    exists,
    find_metric,
    find_subject,
    found_in_none,
    nearest_or_all,
)
from pytest_llmeval.reporting.report.records import SuiteInfo
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.suites.format.gates_spec import ANY_SUITE, GateRule, GivenGate
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.text.wording import quoted

__all__ = ["check_given_gates", "gate_lines", "higher_is_better", "unmatched_gates"]


def gate_lines(suite: Suite, metrics: Sequence[str]) -> dict[str, int | None]:
    """Return the suite's own gates, each with its line in the file; None where ``--llm-set`` brought it.

    ``metrics`` are its scorer's. Raises ``SuiteError`` for one that is about what the suite does not have.
    """
    categories = _categories(suite)
    lines: dict[str, int | None] = {}
    is_overridden = any(override.keys[0] == "gates" for override in suite.origin.overrides)
    for place, rule in enumerate(suite.spec.gates):
        keys = ("gates", place)
        try:
            _check(rule, metrics, categories)
        except (SubjectError, BoundError) as error:
            raise suite.error(f"{quoted(rule.text)}: {error}", keys=keys) from None
        lines[rule.text] = None if is_overridden else suite.origin.document.line(keys)
    return lines


def higher_is_better(suite: Suite, metrics: Sequence[str], better: Mapping[str, str]) -> bool | None:
    """Return the better direction of the suite's ``primary_metric``; None where it names none.

    ``metrics`` and ``better`` are its scorer's. Raises ``SuiteError`` for one that it does not have, that is a number
    of samples, or whose better direction is not known.
    """
    primary = suite.spec.primary_metric
    if primary is None:
        return None
    try:
        name = find_metric(primary.name, metrics)
    except SubjectError as error:
        raise suite.error(str(error), keys=("primary_metric",)) from None
    known = definition(name, better)
    if known.kind == "count":
        message = f"{name} is a count of samples, which cannot be compared; expected a metric with a value for each"
        raise suite.error(message, keys=("primary_metric",))
    if primary.better is not None:
        is_higher = primary.better == "higher"
        if known.higher_is_better is not None and known.higher_is_better != is_higher:
            direction = "higher" if known.higher_is_better else "lower"
            raise suite.error(f"{name} is better when it is {direction}; remove `better`", keys=("primary_metric",))
        return is_higher
    if known.higher_is_better is None:
        message = f"it is not known whether a higher {name} is better; write {{name: {name}, better: higher}}, or lower"
        raise suite.error(message, keys=("primary_metric",))
    return known.higher_is_better


def check_given_gates(suite: Suite, metrics: Sequence[str], given: Mapping[str, Iterable[GivenGate]]) -> None:
    """Raise ``SuiteError`` for a gate from outside that names this suite and is about what it does not have.

    ``given`` are the gates by where they come from, such as ``--llm-gate``. One for every suite is for those that have
    its metric.
    """
    categories: tuple[str, ...] | None = None
    for where, gates in given.items():
        for gate in gates:
            if not gate.matches(suite.name):
                continue
            categories = _categories(suite) if categories is None else categories
            try:
                _check(gate.rule, metrics, categories)
            except (SubjectError, BoundError) as error:
                if isinstance(error, SubjectError) and gate.suite == ANY_SUITE:
                    continue
                raise suite.origin.source.error(f"{where} {quoted(gate.text)}: {error}") from None


def unmatched_gates(
    given: Mapping[str, Iterable[GivenGate]], suites: Sequence[SuiteInfo], categories: Mapping[str, Collection[str]]
) -> list[str]:
    """Return a line for each gate of a suite that is not there, or about what no suite has; none where there is no
    suite.

    ``given`` is as ``check_given_gates`` takes it, ``categories`` are those of each suite by its name. For where all
    suites are known before anything runs: hand-written tests tell of theirs as they record.
    """
    names = [suite.name for suite in suites]
    has = [(suite.metrics, categories.get(suite.name, ())) for suite in suites]
    messages = []
    for where, gates in given.items():
        for gate in gates:
            subject = gate.rule.subject
            if names and not any(map(gate.matches, names)):
                hint = nearest_or_all(gate.suite, names, names)
                messages.append(f"{where} {quoted(gate.text)}: no suite {quoted(gate.suite)} was collected{hint}")
            elif has and gate.suite == ANY_SUITE and not any(exists(subject, *one) for one in has):
                end = found_in_none(subject, has)
                messages.append(f"{where} {quoted(gate.text)}: no suite has {quoted(subject)}{end}")
    return messages


def _check(rule: GateRule, metrics: Sequence[str], categories: Collection[str]) -> None:
    check_bound(rule, find_subject(rule.subject, metrics, categories))


def _categories(suite: Suite) -> tuple[str, ...]:
    """In the order of the samples, which is the same in every worker of pytest-xdist."""
    return tuple(dict.fromkeys(sample.category for sample in suite.samples if sample.category is not None))
