"""The baseline that a session leaves to later ones: whether it may be written, and what of the report it has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from pytest_llmeval.data.code_version import SOURCE
from pytest_llmeval.gates.options import Margin
from pytest_llmeval.gates.sample_pairs import num_unscored
from pytest_llmeval.gates.suite_plans import compared_metrics, compared_usage
from pytest_llmeval.gates.usage import USAGE_FIELDS
from pytest_llmeval.reporting.report.records import FINGERPRINT_DIGITS, Record, SuiteInfo
from pytest_llmeval.reporting.report.report import (
    GateResult,
    Group,
    Report,
    SuiteReport,
    Summary,
    compared_models,
    group_of_record,
    group_of_suite,
    use_of_model,
)
from pytest_llmeval.reporting.report.served_models import REPLIES
from pytest_llmeval.reporting.report.summaries import leading_metric
from pytest_llmeval.reporting.tables.cells import small_number
from pytest_llmeval.scoring.metrics.definitions import WILDCARD
from pytest_llmeval.scoring.paired_metrics import needed_values
from pytest_llmeval.text.wording import counted, quoted
from pytest_llmeval.types import COSTS_NOTHING, IS_KNOWN, JSON, REPLAYED, ServerUse

__all__ = ["Replies", "Texts", "changed_values", "keeps_replies", "kept_report", "removed_suites", "why_not_kept"]

Texts: TypeAlias = tuple[str | None, str | None]
"""The question and the reply of a sample."""

Replies: TypeAlias = Mapping[tuple[Group, str], Texts]
"""Texts of samples, by group and id."""

_NO_TEXTS: Texts = (None, None)

_ACCEPT_HINT = "--llm-update-baseline=accept writes it nevertheless"
_MAX_NAMED = 3


def why_not_kept(report: Report, earlier: Report | None, *, absent: Collection[SuiteInfo], accepts: bool) -> str | None:
    """Return the first reason why the session of this report leaves no baseline, or None if it ended well.

    ``earlier`` is the baseline that it was compared with, ``absent`` are suites that it collected and ran no sample of.
    With ``accepts`` the comparison may have failed, and suites of the earlier baseline may be missing.
    """
    return next(_reasons(report, earlier, absent, accepts=accepts), None)


def _reasons(report: Report, earlier: Report | None, absent: Collection[SuiteInfo], *, accepts: bool) -> Iterator[str]:
    yield from _incomplete(report, absent)
    failed = [gate for gate in report.gates if gate.outcome == "failed"]
    if thresholds := [_named(gate) for gate in failed if gate.kind == "threshold"]:
        yield f"a gate failed: {_listed(thresholds)}"
    gone = None if earlier is None else removed_suites(report, earlier)
    if failed and not accepts:
        if earlier is None:
            yield f"there is no earlier file to compare with, and --llm-require-gates requires one; {_ACCEPT_HINT}"
        removes = "" if gone is None else f", and removes {gone}"
        named = _listed([*map(_named, failed)])
        yield f"the comparison with the earlier file failed: {named}; {_ACCEPT_HINT}{removes}"
    if gone is not None and not accepts:
        yield f"it would lose what did not run: {gone}; {_ACCEPT_HINT}"
    if number := report.num_failed_tests:
        yield f"{counted(number, 'test')} failed"
    if report.exit_code and not (failed and report.exit_code == 1):
        why = ": --llm-strict fails wrong answers" if report.options.get("strict") and report.exit_code == 1 else ""
        yield f"the session ended with exit code {report.exit_code}{why}"


def _named(gate: GateResult) -> str:
    """Return the gate with its suite. The name of one without suite and metric says nothing: then its reason."""
    if gate.suite is None:
        return gate.name if gate.metric is not None or gate.kind == "threshold" else gate.reason
    return f"{gate.suite}, {gate.name}"


def _incomplete(report: Report, absent: Collection[SuiteInfo]) -> Iterator[str]:
    """Yield the reasons why not every sample of the suites has a score."""
    if report.stopped is not None:
        yield f"the session stopped early: {report.stopped}"
    if report.problems:
        yield f"the session has problems: {_listed([*map(quoted, report.problems)])}"
    if not report.records:
        yield "no sample ran"
    by = f" ({', '.join(report.selection.by)})" if report.selection.by else ""
    if report.selection.is_by_outcome:
        yield f"samples were selected by how they had come out before{by}"
    for suite in report.suites:
        name, num_samples = quoted(suite.info.name), suite.info.num_samples
        if number := num_unscored(suite.summary):
            yield f"{number:,} of {counted(suite.summary.num_expected, 'sample')} of {name} unscored"
        if suite.num_skipped or (by if num_samples is None else suite.summary.num_expected < num_samples):
            ran = (
                "" if num_samples is None else f"{suite.summary.num_expected:,} of {counted(num_samples, 'sample')} of "
            )
            yield f"a selection: {ran}{name}{by}"
    if absent:
        yield f"a selection: no sample of {_listed([quoted(info.name) for info in absent])}{by}"


def removed_suites(report: Report, earlier: Report) -> str | None:
    """Return which suites of an earlier baseline this session's would lack, with their sizes; None if it has all.

    A suite has its model's name if the earlier baseline has several models.
    """
    names = set(report.suite_names)
    on_models = {(suite.info.name, model) for suite in report.suites for model in suite.models}
    removed = []
    for suite in earlier.suites:
        name, model = group_of_suite(suite, compared_models(earlier))
        if name in names and (model is None or (name, model) in on_models):
            continue
        on_model = "" if model is None else f" on {quoted(model)}"
        removed.append(f"{quoted(name)}{on_model} ({counted(suite.summary.num_expected, 'sample')})")
    return _listed(removed) if removed else None


def changed_values(report: Report, earlier: Report) -> Iterator[str]:
    """Yield a line for each suite whose first metric of comparisons has another value than in an earlier baseline."""
    before = {group_of_suite(suite, compared_models(earlier)): suite.summary.metrics for suite in earlier.suites}
    for suite in report.suites:
        name, model = group = group_of_suite(suite, compared_models(report))
        metric = leading_metric(suite.info, suite.info.metrics)
        first, second = (metrics.get(metric or "") for metrics in (before.get(group, {}), suite.summary.metrics))
        if first is None or second is None or first.value is None or second.value is None:
            continue
        if first.value != second.value:
            on_model = "" if model is None else f" on {model}"
            yield f"{name}{on_model}: {metric} {small_number(first.value)} -> {small_number(second.value)}"


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _MAX_NAMED
    return ", ".join([*texts[:_MAX_NAMED], *([f"and {more} more"] if more > 0 else [])])


def keeps_replies(info: SuiteInfo) -> bool:
    """Tell whether a baseline has the suite's replies: a scorer compares later ones with them.

    That scorer cannot make the first baseline. Then ``--llm-set`` has put another in its place.
    """
    changed = (text.partition("=")[0].rpartition(":")[2].strip() for text in info.overridden)
    return REPLIES in info.fingerprint_parts or any(key.partition(".")[0] == "score" for key in changed)


def kept_report(report: Report, margins: Sequence[Margin], replies: Replies) -> Report:
    """Return what later comparisons need of a report, in an order that does not depend on how it was run.

    Of the metrics it has those that are compared: each suite's primary one, and those that ``margins`` name. Of texts
    it has how each suite asks, and ``replies``.
    """
    compared = compared_models(report)
    places = {model: place for place, model in enumerate(compared)}

    def place(group: Group) -> tuple[str, int]:
        name, model = group
        return name, -1 if model is None else places[model]

    suites = {group_of_suite(suite, compared): suite for suite in report.suites}
    metrics = {group: compared_metrics(suite, margins) for group, suite in suites.items()}
    usage = {group: compared_usage(suite, margins) for group, suite in suites.items()}
    values = {group: frozenset().union(*map(needed_values, names)) for group, names in metrics.items()}
    records = [(group_of_record(record, compared), record) for record in report.records]
    records.sort(key=lambda one: (*place(one[0]), one[1].id))
    return Report(
        is_brief=True,
        created=report.created,
        seconds=report.seconds,
        exit_code=report.exit_code,
        environment={},
        models=tuple(map(_kept_model, report.models)),
        judges=tuple(map(_kept_model, report.judges)),
        options={"model": list(compared)} if compared else {},
        definitions={
            name: said for name, said in report.definitions.items() if any(name in names for names in metrics.values())
        },
        suites=tuple(_kept_suite(suites[group], metrics[group]) for group in sorted(suites, key=place)),
        records=[
            _kept_record(
                record,
                group,
                suites[group].info,
                values[group],
                usage[group],
                replies.get((group, record.id), _NO_TEXTS),
            )
            for group, record in records
        ],
    )


def _kept_suite(suite: SuiteReport, names: Sequence[str]) -> SuiteReport:
    info, summary = suite.info, suite.summary
    better = {name: way for name, way in info.better.items() if name in names}
    return SuiteReport(
        info=replace(info, description="", metrics=tuple(names), better=better, gates={}, overridden=()),
        summary=Summary(
            num_expected=summary.num_expected,
            num_scored=summary.num_scored,
            num_unscored=summary.num_unscored,
            num_no_answer=summary.num_no_answer,
            metrics={name: summary.metrics[name] for name in names},
            not_measurable={name: why for name, why in summary.not_measurable.items() if name in names},
        ),
        categories={},
        models=suite.models,
        num_judge_requests=suite.num_judge_requests,
    )


_DETAILS = (IS_KNOWN, SOURCE, REPLAYED, COSTS_NOTHING)
"""Details of a model by which a comparison knows whether it is the same, and what it costs."""


def _kept_model(model: Mapping[str, JSON]) -> dict[str, JSON]:
    found = {key: model[key] for key in ("role", "name", "fingerprint") if key in model}
    details = model.get("details")
    if isinstance(details, Mapping) and (told := {key: details[key] for key in _DETAILS if key in details}):
        found["details"] = told
    use = use_of_model(model) or ServerUse()
    named = {"served_models": use.served_models, "system_fingerprints": use.system_fingerprints}
    authors: dict[str, JSON] = {name: dict(counts) for name, counts in named.items() if counts}
    if authors:
        found["use"] = authors
    return found


def _kept_record(
    record: Record, group: Group, suite: SuiteInfo, needed: Collection[str], usage: Iterable[str], texts: Texts
) -> Record:
    """Return what comparisons need of a record: the ``needed`` values, and those that metrics of ``usage`` read."""
    question, output = texts
    used = {field: getattr(record, field) for name in usage for field in USAGE_FIELDS[name]}
    values = {name: value for name, value in sorted(record.values.items()) if name in needed}
    if values == {"accuracy": 1.0 if record.status == "correct" else 0.0} and record.status in ("correct", "wrong"):
        values = {}  # the status says it
    reasons = sorted(record.not_measurable.items())
    return Record(
        suite=group[0],
        model=group[1],
        id=record.id,
        # Only of hand-written tests a comparison asks where they are: their suite has no path.
        nodeid=record.nodeid if suite.path is None else "",
        status=record.status,
        question=question,
        output=output,
        no_answer=record.no_answer,
        values=values,
        fingerprint=None if record.fingerprint is None else record.fingerprint[:FINGERPRINT_DIGITS],
        question_fingerprint=record.question_fingerprint,
        cluster=record.cluster,
        not_measurable={name: why for name, why in reasons if name in needed or name.endswith(WILDCARD)},
        asked_at=record.asked_at,
        kept_as=record.kept_as,
        num_judge_requests=record.num_judge_requests,
        reasoning="" if record.has_reasoning else None,
        **used,
    )
