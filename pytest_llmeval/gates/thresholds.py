"""Decides gates against thresholds on a report. A gate that is not known to hold fails."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from pytest_llmeval.gates.options import GateOptions, Given, Selection
from pytest_llmeval.gates.subjects import (
    BoundError,
    GateSubject,
    SubjectError,
    check_bound,
    exists,
    find_compared,
    find_subject,
    found_in_none,
    nearest_or_all,
    no_variant,
)
from pytest_llmeval.reporting.report.records import SuiteInfo
from pytest_llmeval.reporting.report.report import GateOutcome, GateResult, Report, SuiteReport, Summary
from pytest_llmeval.reporting.tables.cells import number, small_number
from pytest_llmeval.reporting.tables.suites import reasons_text, why_no_value
from pytest_llmeval.scoring.metrics.definitions import WILDCARD
from pytest_llmeval.scoring.metrics.summary import Metric, num_missing
from pytest_llmeval.suites.format.gates_spec import ANY_SUITE, GateRule, GateRuleError, Statistic
from pytest_llmeval.text.escaping import printable
from pytest_llmeval.text.wording import quoted

if TYPE_CHECKING:
    from pytest_llmeval.gates.usage import UsedBySuite

__all__ = ["decide_thresholds", "number_beside"]


_FAILED: Mapping[str, str] = MappingProxyType({">=": "below", ">": "not above", "<=": "above", "<": "not below"})
_MAX_DECIMALS = 17


def _finding(rule: GateRule, subject: GateSubject, metric: Metric, decides: float) -> str:
    """Return ``accuracy 0.583 [0.512, 0.651], n 200: below 0.6``, without the end if the rule holds.

    ``decides`` is the metric's value, or the bound that the rule asks for. The interval of a single sample says
    nothing, and is shown only if the rule is about it.
    """
    write = small_number if subject.is_usage else number
    if rule.bound in get_args(Statistic):
        shown = number_beside(decides, rule, write)
        failed = "" if rule.holds(decides) else f": {_FAILED[rule.comparison]} {rule.written_threshold}"
        return f"{rule.bound}({printable(str(subject))}) {shown}, n {metric.n}{failed}"
    numbers = {"value": metric.value, "ci_low": metric.ci_low, "ci_high": metric.ci_high}
    texts = {name: "" if value is None else write(value) for name, value in numbers.items()}
    texts[rule.bound] = number_beside(decides, rule, write)
    has_interval = texts["ci_low"] and texts["ci_high"] and (metric.n > 1 or rule.bound != "value")
    interval = f" [{texts['ci_low']}, {texts['ci_high']}]" if has_interval else ""
    found = f"{printable(str(subject))} {texts['value']}{interval}, n {metric.n}"
    if rule.holds(decides):
        return found
    what = "" if rule.bound == "value" else f"{rule.bound} is "
    return f"{found}: {what}{_FAILED[rule.comparison]} {rule.written_threshold}"


def _missing_reason(metric: str, num_missing: int, num_scored: int) -> str:
    """Return why a gate fails on a metric that some samples lack."""
    lacking = f"{num_missing} of {num_scored} scored sample{'' if num_scored == 1 else 's'}"
    return (
        f"{printable(metric)} is missing on {lacking}: their scores have no value for it, and do not report it as not "
        "measurable (NotMeasurable, with the reason)"
    )


def _not_measurable_reason(subject: GateSubject, parts: Sequence[Summary]) -> str | None:
    """Return why a gate fails on a metric without any value, or None if no reason is known."""
    names = (subject.metric, f"{subject.metric.partition('.')[0]}.{WILDCARD}", WILDCARD)
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(next((part.not_measurable[name] for name in names if name in part.not_measurable), {}))
    if not counts:
        return None
    num_scored = sum(part.num_scored for part in parts)
    samples = f"{counts.total()} of {num_scored} sample{'' if num_scored == 1 else 's'}"
    return f"{printable(str(subject))} is not measurable on {samples} ({printable(reasons_text(counts))})"


def number_beside(value: float, rule: GateRule, write: Callable[[float], str] = number) -> str:
    """Return the value with enough digits to stand on its side of the rule's threshold: 0.5999, and not 0.600."""
    text = write(value)
    decimals = 4
    while rule.holds(float(text.replace(",", ""))) != rule.holds(value) and decimals <= _MAX_DECIMALS:
        text = f"{value:.{decimals}f}"
        decimals += 1
    return text if rule.holds(float(text.replace(",", ""))) == rule.holds(value) else repr(value)


_ROUNDING = 1e-9

Origin: TypeAlias = Literal["suite", "ini", "option"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gate:
    """One rule for one suite. ``rule`` is None if its text, in a report, is invalid. ``for_all``: it names no suite."""

    text: str
    rule: GateRule | None
    origin: Origin
    line: int | None = None
    for_all: bool = False


@dataclass(frozen=True)
class _Session:
    """The facts that hold for every gate of a session. ``is_tolerated``: not too many of its samples are unscored."""

    report: Report
    options: GateOptions
    selection: Selection
    is_tolerated: bool

    @cached_property
    def used(self) -> UsedBySuite:
        """Return what its samples used, read from the records when a gate names it."""
        from pytest_llmeval.gates.usage import UsedBySuite

        return UsedBySuite(self.report)


class _Fails(Exception):
    """An error that says why a gate fails without a comparison."""


class _Undecided(Exception):
    """An error that says why nothing can be decided."""


def decide_thresholds(report: Report, options: GateOptions, selection: Selection) -> tuple[GateResult, ...]:
    """Return the suites' own gates and the ``given`` ones, for every suite (and model) of the report.

    Gates of the ini file and of suites are for whole suites. They are skipped if only some of a suite's samples were
    selected, or if some were skipped while they ran; gates of an option decide on what ran. If the number of a suite's
    samples is not known, a partial selection counts as one of the suite. If the selection is whole, a gate of the ini
    file that matches no suite fails. Without a model, suites that were not named are skipped, and so are their gates.

    A gate also fails if nothing ran, if samples are missing or unscored (unless the whole session has at most
    ``allow_unscored`` of these; a sample without a category may be of any), or if there is no such number. If two gates
    of a suite have the same text, the option's is decided.
    """
    num_unscored = sum(suite.summary.num_unscored for suite in report.suites)
    session = _Session(report, options, selection, is_tolerated=num_unscored <= options.allow_unscored)
    results: list[GateResult] = []
    for suite in report.suites:
        decided = (_decide(gate, suite, session) for gate in _gates_of(suite.info, options.given))
        results += [result for result in decided if result is not None]
    for info in selection.absent:
        if info.name not in report.suite_names:
            results += _of_absent(info, session)
    results += _of_no_suite(results, session)
    return tuple(results)


def _gates_of(info: SuiteInfo, given: Given) -> Iterable[_Gate]:
    """Return the gates of one suite. If two have the same text, the option's counts, else the first."""
    found: dict[str, _Gate] = {}
    for text, line in info.gates.items():
        try:
            rule: GateRule | None = GateRule.parse(text)
        except GateRuleError:
            rule = None
        found[text] = _Gate(text=text, rule=rule, origin="suite", line=line)
    for gate, origin in given:
        if not gate.matches(info.name, info.base):
            continue
        text, for_all = gate.rule.text, gate.suite == ANY_SUITE
        known = found.get(text)
        if known is None:
            found[text] = _Gate(text=text, rule=gate.rule, origin=origin, for_all=for_all)
        else:
            wins = origin == "option" and known.origin != "option"
            found[text] = replace(
                known,
                origin=origin if wins else known.origin,
                line=None if wins else known.line,
                for_all=known.for_all and for_all,
            )
    return found.values()


def _decide(gate: _Gate, suite: SuiteReport, session: _Session) -> GateResult | None:
    """Decide a gate on a suite; None if it is for every suite, on a metric or category that this one does not have."""
    # If no metrics could be computed, ``exists`` finds every name, so that the gate fails and is not left out.
    if gate.for_all and gate.rule and not exists(gate.rule.subject, _all_metrics(suite), suite.categories):
        return None
    selection, skipped = _selection(suite, session), _skipped(suite)
    left_out = "; ".join(text for text in (selection, skipped) if text is not None)
    if gate.origin != "option" and left_out:
        return _result(gate, suite, session.options.undecided, _undecided(left_out, session))
    notes = [] if selection is None else [selection]
    if skipped is not None:
        notes.append(f"{_samples(suite.num_skipped)} skipped")
    try:
        if (rule := gate.rule) is None:
            raise _Fails(f"{quoted(gate.text)} is not a valid rule")
        _check_complete(suite, session)
        subject = _subject(rule, suite)
        if subject.is_usage:
            metric, value, told = _usage(rule, subject, suite, session)
            notes += told
        else:
            part, metric = _measured(subject, suite)
            notes += _notes(suite, subject, part, metric, session)
            value = _value(rule, subject, metric, part)
    except _Fails as error:
        return _result(gate, suite, "failed", str(error), notes=tuple(notes))
    except _Undecided as error:
        return _result(gate, suite, session.options.undecided, _undecided(str(error), session), notes=tuple(notes))
    outcome: GateOutcome = "passed" if rule.holds(value) else "failed"
    return _result(gate, suite, outcome, _finding(rule, subject, metric, value), subject, value, tuple(notes))


def _all_metrics(suite: SuiteReport) -> tuple[str, ...]:
    """Return the suite's metrics, and those that are not measurable on any of its samples."""
    return tuple(dict.fromkeys((*suite.summary.metrics, *suite.summary.not_measurable)))


def _selection(suite: SuiteReport, session: _Session) -> str | None:
    """Describe the selection ("5 of 72 samples"), or return None if the suite is complete."""
    num_samples = suite.info.num_samples
    if not session.selection.has_model and suite.summary.num_expected == 0:
        return f"no model: {_samples(suite.num_skipped)} skipped"
    if num_samples is None:
        return "a selection of its tests" if session.selection.is_partial else None
    return f"a selection: {suite.num_selected} of {num_samples} samples" if suite.is_selection else None


def _skipped(suite: SuiteReport) -> str | None:
    """Describe the samples that were skipped while others ran, or return None."""
    if not suite.num_skipped or suite.summary.num_expected == 0:
        return None
    return f"{suite.num_skipped} of {_samples(suite.num_selected)} skipped"


def _undecided(reason: str, session: _Session) -> str:
    return f"{reason}; --llm-require-gates requires a decision" if session.options.require else reason


def _check_complete(suite: SuiteReport, session: _Session) -> None:
    """Raise ``_Fails`` if samples have no record, or may have none: how many a test would record is not known."""
    summary = suite.summary
    num_run = summary.num_scored + summary.num_unscored
    if session.report.stopped is not None and (num_run < summary.num_expected or suite.info.num_samples is None):
        is_short = num_run < summary.num_expected
        shown = f"{num_run} of {_samples(summary.num_expected)}" if is_short else _samples(num_run)
        raise _Fails(f"the session stopped early, after {shown}: {session.report.stopped}")
    if summary.num_expected == 0:
        skipped = f": {_samples(suite.num_skipped)} skipped" if suite.num_skipped else ""
        raise _Fails(f"nothing ran{skipped}")
    num_missing = summary.num_expected - num_run
    if num_missing > 0:
        raise _Fails(f"{num_missing} of {_samples(summary.num_expected)} without a result")


def _subject(rule: GateRule, suite: SuiteReport) -> GateSubject:
    try:
        subject = find_subject(rule.subject, _all_metrics(suite), suite.categories)
        check_bound(rule, subject)
    except (SubjectError, BoundError) as error:
        raise _Fails(str(error)) from None
    return subject


def _measured(subject: GateSubject, suite: SuiteReport) -> tuple[Summary, Metric]:
    """Return the metric, and the part of the suite that it is taken over."""
    part = suite.summary if subject.category is None else suite.categories[subject.category]
    metric = (suite.macro if subject.is_macro else part.metrics).get(subject.metric)
    if metric is None:
        parts = list(suite.categories.values()) if subject.is_macro else [part]
        if (reason := _not_measurable_reason(subject, parts)) is not None:
            raise _Fails(reason)
        where = " in each category" if subject.is_macro else ""
        raise _Fails(f"{subject} was not measured{where}")
    return part, metric


def _usage(
    rule: GateRule, subject: GateSubject, suite: SuiteReport, session: _Session
) -> tuple[Metric, float, list[str]]:
    """Return what the samples used, the number that the rule is about, and notes. Raise ``_Fails``, ``_Undecided``."""
    from pytest_llmeval.gates.sample_pairs import Undecided
    from pytest_llmeval.gates.usage import UnknownUsage

    part = suite.summary if subject.category is None else suite.categories[subject.category]
    notes = [*_unscored_notes(suite, subject, part, session)]
    if notes and rule.bound == "sum":
        raise _Fails(f"{'; '.join(notes)}, but a sum needs all samples")
    try:
        used = session.used.of(suite, subject, rule.bound)
    except UnknownUsage as error:
        raise _Fails(str(error)) from None
    except Undecided as error:
        raise _Undecided(str(error)) from None
    value = used.number(rule.bound)
    if value is None:
        raise _Fails(f"{subject} has no interval, n {used.metric.n}")
    return used.metric, value, notes if used.note is None else [*notes, used.note]


def _unscored_notes(suite: SuiteReport, subject: GateSubject, part: Summary, session: _Session) -> Iterator[str]:
    """Yield notes on samples without a score. Raise ``_Fails`` if these are not allowed."""
    num_stray = 0 if subject.category is None else _num_stray(suite)
    if part.num_unscored and not session.is_tolerated:
        raise _Fails(f"{part.num_unscored} of {_samples(part.num_expected)} unscored")
    if num_stray and not session.is_tolerated:
        raise _Fails(f"{_samples(num_stray, 'unscored ')} without a known category, which may belong to this one")
    if part.num_unscored:
        yield f"{_samples(part.num_unscored, 'unscored ')} allowed"
    if num_stray:
        yield f"{_samples(num_stray, 'unscored ')} without a known category allowed"


def _notes(suite: SuiteReport, subject: GateSubject, part: Summary, metric: Metric, session: _Session) -> Iterator[str]:
    """Yield the notes that a reader of the number needs. Raise ``_Fails`` if unscored samples are not allowed."""
    yield from _unscored_notes(suite, subject, part, session)
    measured = list(suite.categories.values()) if subject.is_macro else [part]
    num_missing = sum(_num_missing(subject.metric, one) for one in measured)
    num_scored = sum(one.num_scored for one in measured)
    if num_missing:
        raise _Fails(_missing_reason(subject.metric, num_missing, num_scored))
    num_unmeasured = sum(sum(one.not_measurable.get(subject.metric, {}).values()) for one in measured)
    least = suite.info.min_measurable
    if session.options.require and num_unmeasured > (1 - least) * num_scored + _ROUNDING:
        raise _Fails(
            f"{subject.metric} is measurable on {num_scored - num_unmeasured} of {_samples(num_scored)}, and "
            f"--llm-require-gates needs a share of {least:g} (min_measurable)"
        )
    if num_unmeasured:
        yield f"{subject.metric} is not measurable on {num_unmeasured} of {_samples(num_scored)}"


def _num_missing(metric: str, part: Summary) -> int:
    found = part.metrics.get(metric)
    if found is None or found.value is None:
        return 0  # a metric without any value is reported as such
    return num_missing(metric, found, part.num_scored, part.not_measurable)


def _num_stray(suite: SuiteReport) -> int:
    """Count the unscored samples without a category, which is not known if the sample's process died."""
    return max(0, suite.summary.num_unscored - sum(part.num_unscored for part in suite.categories.values()))


def _value(rule: GateRule, subject: GateSubject, metric: Metric, part: Summary) -> float:
    value = metric.value if rule.bound == "value" else getattr(metric, rule.bound)
    if metric.n == 0 or metric.value is None or math.isnan(metric.value):
        why = why_no_value(subject.metric, part.metrics)
        raise _Fails(f"{subject} has no value, n {metric.n}" + ("" if why is None else f": {why}"))
    if value is None or math.isnan(value):
        raise _Fails(f"{subject} has no interval, n {metric.n}")
    return float(value)


def _of_absent(info: SuiteInfo, session: _Session) -> Iterator[GateResult]:
    """Yield results for a suite without selected samples. The command line's gates for all suites are not for it."""
    num_samples = "its" if info.num_samples is None else f"{info.num_samples}"
    reason = f"a selection: 0 of {num_samples} samples"
    given = session.options.given
    if not session.options.require:
        given = [one for one in given if one[1] != "option" or one[0].suite != ANY_SUITE]
    for gate in _gates_of(info, given):
        if gate.for_all and gate.rule is not None:
            try:
                find_compared(gate.rule.subject, info.metrics)
            except SubjectError:
                continue
        always = gate.origin == "option"
        failed = always or session.options.require
        shown = f"nothing ran; {reason}" if always and not gate.for_all else _undecided(reason, session)
        yield _result(gate, info, "failed" if failed else "skipped", shown)


def _of_no_suite(results: Sequence[GateResult], session: _Session) -> Iterator[GateResult]:
    """Yield results for given gates that match no suite. A skipped gate does not count as the command line's."""
    decided = {
        "ini": {result.name for result in results},
        "option": {result.name for result in results if result.origin == "option"},
    }
    suites, ran = session.report.suites, session.report.suite_names
    infos = [*(suite.info for suite in suites), *session.selection.absent]
    names = list(dict.fromkeys(info.name for info in infos))
    subjects = [(_all_metrics(suite), tuple(suite.categories)) for suite in suites]
    seen: set[str] = set()
    for gate, origin in sorted(session.options.given, key=lambda one: one[1] != "option"):
        if gate.suite == ANY_SUITE:
            if gate.rule.text in decided[origin]:
                continue
            subject = gate.rule.subject
            reason = f"no suite that ran has {quoted(subject)}{found_in_none(subject, subjects)}"
            reason = reason if suites else "no suite ran"
        elif any(gate.matches(info.name, info.base) for info in infos):
            continue
        else:
            reason = (
                no_variant(gate.suite, infos)
                or f"no suite {quoted(gate.suite)} ran{nearest_or_all(gate.suite, names, ran)}"
            )
        if str(gate) in seen:
            continue
        seen.add(str(gate))
        always = origin == "option" or (session.selection.is_whole and session.selection.has_model)
        failed = always or session.options.require
        shown = reason if always else _undecided(reason, session)
        yield GateResult(
            name=str(gate),
            kind="threshold",
            origin=origin,
            outcome="failed" if failed else "skipped",
            reason=shown,
            threshold=gate.rule.threshold,
        )


def _result(
    gate: _Gate,
    suite: SuiteReport | SuiteInfo,
    outcome: GateOutcome,
    reason: str,
    subject: GateSubject | None = None,
    value: float | None = None,
    notes: tuple[str, ...] = (),
) -> GateResult:
    info = suite.info if isinstance(suite, SuiteReport) else suite
    models = suite.models if isinstance(suite, SuiteReport) else ()
    return GateResult(
        name=gate.text,
        kind="threshold",
        origin=gate.origin,
        outcome=outcome,
        reason=reason,
        suite=info.name,
        model=models[0] if len(models) == 1 else None,
        path=info.path,
        line=gate.line,
        metric=None if subject is None else subject.metric,
        category=None if subject is None else subject.category,
        value=value,
        threshold=None if gate.rule is None else gate.rule.threshold,
        notes=notes,
    )


def _samples(number: int, kind: str = "") -> str:
    return f"{number} {kind}sample" if number == 1 else f"{number} {kind}samples"
