"""Finds the metric and the category that a gate is about, and checks gates before any sample runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from pytest_llmeval.reporting.report.records import SuiteInfo
from pytest_llmeval.scoring.metrics.definitions import WILDCARD, definition
from pytest_llmeval.suites.format.gates_spec import ANY_SUITE, GateRule, GivenGate, Statistic
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.text.wording import MAX_LISTED, nearest, quoted

__all__ = [
    "SECONDS",
    "USAGE_METRICS",
    "BoundError",
    "GateSubject",
    "SubjectError",
    "check_bound",
    "check_given_gates",
    "exists",
    "find_compared",
    "find_metric",
    "find_subject",
    "found_in_none",
    "gate_lines",
    "higher_is_better",
    "nearest_or_all",
    "no_variant",
    "unmatched_gates",
]


SECONDS = "seconds"
USAGE_METRICS = ("cost", SECONDS, "num_tokens", "num_prompt_tokens")
"""Metrics of usage: every suite has them. Less of each is better, and none is below 0. They are in no summary: gates
compute them from the records, and only if one of them is named (``usage.py``). A metric of a suite's own that has one
of these names hides ours."""

_CATEGORY, _MACRO = "category.", "macro."
_PERCENT = "_pct"


class SubjectError(LookupError):
    """A metric or category does not exist. The message names the nearest spelling, and what there is."""


class BoundError(ValueError):
    """A gate asks for the bound of an interval, or for a number, that a metric does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSubject:
    """A metric of the whole suite, of one category, or its mean over the categories (``is_macro``).

    ``is_usage``: it is one of ``USAGE_METRICS``, which are computed from the records and stand in no summary.
    """

    metric: str
    category: str | None = None
    is_macro: bool = False
    is_usage: bool = False

    def __str__(self) -> str:
        if self.is_macro:
            return f"{_MACRO}{self.metric}"
        return self.metric if self.category is None else f"{_CATEGORY}{self.category}.{self.metric}"


def find_subject(text: str, metrics: Sequence[str], categories: Collection[str]) -> GateSubject:
    """Return the metric, or the category's metric, that ``text`` names in a suite. Raises ``SubjectError``.

    It is a metric, ``macro.METRIC``, or ``category.NAME.METRIC``, in which both names may hold dots; white space counts
    as a single space. ``metrics`` are the scorer's: if they are empty, or have an open name (``*``, ``b.*``), every
    name is found that it can stand for. A metric with the whole name is preferred to one of a category, and a longer
    category to a shorter one. Every suite has ``USAGE_METRICS``, unless its scorer names its own metric so.
    """
    wanted = _plain(text)
    if (whole := _listed(wanted, metrics)) is not None:
        return GateSubject(metric=whole)
    if wanted in USAGE_METRICS:
        return GateSubject(metric=wanted, is_usage=True)
    if wanted.startswith(_MACRO):
        if (usage := wanted.removeprefix(_MACRO)) in USAGE_METRICS and _listed(usage, metrics) is None:
            raise SubjectError(f"{usage} has no mean over categories; leave out {_MACRO}, or name a category")
        metric = find_metric(usage, metrics)
        if len(categories) < 2:
            found = f"all are in {quoted(next(iter(categories)))}" if categories else "none of them is in a category"
            raise SubjectError(f"{quoted(wanted)} is a mean over the categories of the samples, and {found}")
        if definition(metric).kind == "count":
            raise SubjectError(f"{metric} is a count of samples, which has no mean over categories")
        return GateSubject(metric=metric, is_macro=True)
    if wanted.startswith(_CATEGORY):
        return _of_category(wanted.removeprefix(_CATEGORY), metrics, categories)
    return GateSubject(metric=find_metric(wanted, metrics, others=USAGE_METRICS))


def exists(text: str, metrics: Sequence[str], categories: Collection[str]) -> bool:
    """Tell whether ``find_subject`` finds what ``text`` names."""
    try:
        find_subject(text, metrics, categories)
    except SubjectError:
        return False
    return True


def find_metric(text: str, metrics: Sequence[str], *, others: Sequence[str] = ()) -> str:
    """Return the metric of the suite that ``text`` names. Raises ``SubjectError``, which lists ``others`` too."""
    wanted = _plain(text)
    if (listed := _listed(wanted, metrics)) is not None:
        return listed
    if wanted and _is_open_to(wanted, metrics):
        return wanted
    share = wanted.removesuffix(_PERCENT)
    if share != wanted and (listed := _listed(share, metrics)) is not None:
        raise SubjectError(
            f"there is no metric {quoted(wanted)}: it is 100 times {listed}, which is a share of 1; write {listed}, "
            "and 0.7 for 70 percent"
        )
    raise SubjectError(f"there is no metric {quoted(wanted)}{_known(wanted, (*metrics, *others))}")


def found_in_none(text: str, suites: Sequence[tuple[Sequence[str], Collection[str]]]) -> str:
    """Return the end of a message on a subject that no suite has: the nearest spelling, else what they have.

    Each suite is given by its metrics and its categories, as ``find_subject`` takes them.
    """
    wanted = _plain(text)
    metrics = tuple(dict.fromkeys(name for names, _ in suites for name in names))
    if not wanted.startswith((_CATEGORY, _MACRO)):
        names = list(dict.fromkeys((*(name for name in metrics if not _is_open(name)), *USAGE_METRICS)))
        return nearest_or_all(wanted, names, names)
    try:
        find_subject(text, metrics, tuple(dict.fromkeys(name for _, names in suites for name in names)))
    except SubjectError as error:
        return f": {error}"
    return ""


def nearest_or_all(word: str, known: Iterable[str], there: Sequence[str]) -> str:
    """Return the end of a message on an unknown name: ``; did you mean 'boolq'?``, else ``, only 'boolq'``.

    ``known`` are the names that may have been meant, ``there`` the names to list.
    """
    near = nearest(word, known)
    if near is not None:
        return f"; did you mean {quoted(near)}?"
    listed = ", ".join(map(quoted, there[:MAX_LISTED])) + (", …" if len(there) > MAX_LISTED else "")
    return f", only {listed}" if listed else ""


def check_bound(rule: GateRule, subject: GateSubject) -> None:
    """Raise ``BoundError`` if the rule asks for a bound of a count, which has no interval, or for the sum or a
    percentile of what is no usage.
    """
    if rule.bound in get_args(Statistic) and not subject.is_usage:
        *names, last = USAGE_METRICS
        raise BoundError(f"{rule.bound} is for {', '.join(names)} and {last}, and not for {subject.metric}")
    if rule.bound != "value" and definition(subject.metric).kind == "count":
        raise BoundError(f"{subject.metric} is a count of samples, which has no interval; leave out {rule.bound}")


def _check_threshold(rule: GateRule, subject: GateSubject) -> None:
    """Raise ``BoundError`` for a number that the metric cannot have: the gate would always pass, or never."""
    limits = definition(subject.metric)
    if not subject.is_usage and not limits.lowest <= rule.threshold <= limits.highest:
        span = f"at most {limits.highest:g}" if limits.lowest == -math.inf else f"at least {limits.lowest:g}"
        if math.inf not in (-limits.lowest, limits.highest):
            span = f"from {limits.lowest:g} to {limits.highest:g}"
        raise BoundError(f"{subject.metric} is {span}; {rule.threshold:g} decides nothing")


def find_compared(text: str, metrics: Sequence[str]) -> tuple[str, bool]:
    """Return the metric of the suite that ``text`` names, and whether it is one of ``USAGE_METRICS``.

    Raises ``SubjectError``.
    """
    wanted = _plain(text)
    if wanted in USAGE_METRICS and _listed(wanted, metrics) is None:
        return wanted, True
    return find_metric(wanted, metrics, others=USAGE_METRICS), False


def _of_category(text: str, metrics: Sequence[str], categories: Collection[str]) -> GateSubject:
    """Return the subject that is written ``NAME.METRIC``."""
    splits = [(name, text[len(_plain(name)) + 1 :]) for name in categories if text.startswith(f"{_plain(name)}.")]
    splits.sort(key=lambda split: -len(split[0]))
    for name, rest in splits:
        if (listed := _listed(rest, metrics)) is not None:
            return GateSubject(metric=listed, category=name)
    for name, rest in splits:
        if rest in USAGE_METRICS:
            return GateSubject(metric=rest, category=name, is_usage=True)
        if rest and _is_open_to(rest, metrics):
            return GateSubject(metric=rest, category=name)
    if not categories:
        raise SubjectError("the samples have no categories; add the key category to the suite")
    if splits:
        name, rest = splits[0]
        known = _known(rest, (*metrics, *USAGE_METRICS))
        raise SubjectError(f"there is no metric {quoted(rest)} of the category {quoted(name)}{known}")
    endings = [metric for metric in metrics if text.endswith(f".{metric}")]
    name = text[: -len(max(endings, key=len)) - 1] if endings else text.rpartition(".")[0] or text
    raise SubjectError(f"there is no category {quoted(name)}{_known(name, categories)}")


def _listed(wanted: str, metrics: Iterable[str]) -> str | None:
    return next((name for name in metrics if _plain(name) == wanted and not _is_open(name)), None)


def _is_open(name: str) -> bool:
    return name == WILDCARD or name.endswith(f".{WILDCARD}")


def _is_open_to(wanted: str, metrics: Sequence[str]) -> bool:
    """Tell whether the suite may have this metric, by an open name; see ``summary.expanded``."""
    if not metrics or WILDCARD in metrics:
        return True
    return any(_is_open(name) and wanted.startswith(name.removesuffix(WILDCARD)) for name in metrics)


def _known(word: str, words: Iterable[str]) -> str:
    """Return the end of a message on an unknown word: the word that was probably meant, and the known ones."""
    names = list(dict.fromkeys(name for name in words if not _is_open(name)))
    near = nearest(word, names)
    listed = ", ".join(names[:MAX_LISTED]) + (", …" if len(names) > MAX_LISTED else "")
    hint = f"; did you mean {quoted(near)}?" if near is not None else ""
    if not names:
        return "; there is none"
    expected = f"xpected {'one of ' if len(names) > 1 else ''}{listed}"
    return f"{hint} E{expected}" if hint and len(names) > 1 else hint or f"; e{expected}"


def _plain(text: str) -> str:
    return " ".join(text.split())


def gate_lines(suite: Suite, metrics: Sequence[str]) -> dict[str, int | None]:
    """Return the suite's own gates, each with its line in the file, or None if ``--llm-set`` gave it.

    ``metrics`` are its scorer's. Raise ``SuiteError`` for a gate on a subject that the suite does not have.
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
    """Return the better direction of the suite's ``primary_metric``, or None if it names none.

    ``metrics`` and ``better`` are its scorer's. Raise ``SuiteError`` if it does not have this metric, or if the metric
    is a number of samples, or if its better direction is not known.
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
    """Raise ``SuiteError`` for a gate from outside that names this suite, on a subject that it does not have.

    ``given`` are the gates by where they come from, such as ``--llm-gate``. A gate for every suite applies to those
    that have its metric.
    """
    categories: tuple[str, ...] | None = None
    for where, gates in given.items():
        for gate in gates:
            if not gate.matches(suite.name, suite.spec.suite):
                continue
            categories = _categories(suite) if categories is None else categories
            try:
                _check(gate.rule, metrics, categories)
            except (SubjectError, BoundError) as error:
                if isinstance(error, SubjectError) and gate.suite == ANY_SUITE:
                    continue
                raise suite.origin.source.error(f"{where} {quoted(gate.text)}: {error}") from None


def no_variant(name: str, suites: Iterable[SuiteInfo]) -> str | None:
    """Return what is wrong with ``boolq@polite`` where the suite boolq has no such variant; None for other names."""
    base, at, variant = name.rpartition("@")
    own = [suite for suite in suites if suite.base == base]
    if not at or not own:
        return None
    known = list(dict.fromkeys(suite.variant for suite in own if suite.variant is not None))
    if not known:
        return f"suite {quoted(base)} has no variants"
    return f"suite {quoted(base)} has no variant {quoted(variant)}{nearest_or_all(variant, known, known)}"


def unmatched_gates(
    given: Mapping[str, Iterable[GivenGate]], suites: Sequence[SuiteInfo], categories: Mapping[str, Collection[str]]
) -> list[str]:
    """Return a line for each gate on a suite that was not collected, or on a subject that no suite has.

    There are none without suites. ``given`` is the same as for ``check_given_gates``, ``categories`` are those of each
    suite by its name. Use it only if all suites are known before anything runs, which hand-written tests' are not.
    """
    names = [suite.name for suite in suites]
    has = [(suite.metrics, categories.get(suite.name, ())) for suite in suites]
    messages = []
    for where, gates in given.items():
        for gate in gates:
            subject = gate.rule.subject
            if names and not any(gate.matches(suite.name, suite.base) for suite in suites):
                hint = nearest_or_all(gate.suite, names, names)
                problem = no_variant(gate.suite, suites) or f"no suite {quoted(gate.suite)} was collected{hint}"
                messages.append(f"{where} {quoted(gate.text)}: {problem}")
            elif has and gate.suite == ANY_SUITE and not any(exists(subject, *one) for one in has):
                end = found_in_none(subject, has)
                messages.append(f"{where} {quoted(gate.text)}: no suite has {quoted(subject)}{end}")
    return messages


def _check(rule: GateRule, metrics: Sequence[str], categories: Collection[str]) -> None:
    subject = find_subject(rule.subject, metrics, categories)
    check_bound(rule, subject)
    _check_threshold(rule, subject)


def _categories(suite: Suite) -> tuple[str, ...]:
    """Return the categories in the order of the samples, which is the same in every worker of pytest-xdist."""
    return tuple(dict.fromkeys(sample.category for sample in suite.samples if sample.category is not None))
