"""The session in the process that reports: it gathers records, counts missing samples, and makes the report."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmeval.plugin.gate_setup import selected_of
from pytest_llmeval.plugin.other_plugins import remember_failed
from pytest_llmeval.plugin.process_roles import session_of
from pytest_llmeval.plugin.session_records import Gathered, ReportWriter
from pytest_llmeval.plugin.settings import Settings
from pytest_llmeval.plugin.shown_samples import WrongAnswers, shows_texts, write_texts
from pytest_llmeval.plugin.stash import MODEL_STOPPED, num_deselected_key
from pytest_llmeval.reporting.report.origin import ReportOrigin, find_origin
from pytest_llmeval.reporting.report.records import Payload, Record, SuiteInfo, Unrecorded, without_texts
from pytest_llmeval.reporting.report.report import (
    BudgetUse,
    GateResult,
    Group,
    Report,
    StoreUse,
    describe_environment,
    described_group,
)
from pytest_llmeval.reporting.report.served_models import mixtures
from pytest_llmeval.reporting.report.summaries import merged_uses, never_named, with_suites
from pytest_llmeval.text.escaping import first_line
from pytest_llmeval.text.names import SampleNode, model_nodes, split_file
from pytest_llmeval.text.redaction import redact
from pytest_llmeval.types import COSTS_NOTHING, JSON, ServerUse, StoreFlaws

if TYPE_CHECKING:
    from pytest_llmeval.plugin.kept_baseline import BaselineWriter
    from pytest_llmeval.plugin.xdist_messages import Collected
    from pytest_llmeval.reporting.terminal import Terminal

__all__ = ["LLMSession"]


class LLMSession:
    """The results of a session, in the process in which they arrive: the only one, or the controller of pytest-xdist.

    Only the numbers of a sample are kept here. Its texts, which take memory, go to a journal beside the report, if
    there is to be one; a session that is killed leaves the journal.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._started = datetime.fromtimestamp(session_of(config)[1], UTC)
        self._start_s = time.monotonic()  # the wall clock may be set while tests run
        self._unrecorded: dict[str, Unrecorded] = {}
        self._lost: dict[str, str] = {}  # node ids of tests that will not run, with the reason
        self._wrong_tests: set[str] = set()  # under --llm-strict
        self._expected_to_fail: set[str] = set()
        self._num_answered = 0
        self._num_requests_written: dict[tuple[str | None, str, str], int] = {}
        self._absent: dict[str, SuiteInfo] = {}  # suites that were collected, and none of whose samples is selected
        compared = settings.models if len(settings.models) > 1 else ()
        nodes = {node: model for model, node in model_nodes(compared).items()}
        self._gathered = Gathered(compared=compared, model_of_node=nodes)
        self.writer = ReportWriter(settings.report, self._head, self._problem, keeps=settings.report_records)
        self._wrong = WrongAnswers(config, settings, lambda: self._gathered.expected)
        self._places: dict[tuple[Group, str], int | None] = {}  # where each record stands in the journal
        self.baseline: BaselineWriter | None = None
        if settings.update_baseline is not None:
            from pytest_llmeval.plugin.kept_baseline import BaselineWriter

            self.baseline = BaselineWriter(config, settings)
        self.report: Report | None = None
        self.has_summary = False
        self._store_problems: dict[str, None] = {}
        self._store_flaws: dict[str, StoreFlaws] = {}
        self.has_failed = False
        self._is_open = False  # samples were to run that are neither recorded nor counted as missing
        self._awaits_gates = settings.asks_for_gates
        self._shows_texts = shows_texts(config)
        self._to_show: Sequence[Record] = ()

    def fail(self, session: pytest.Session) -> None:
        """Fail the run: the exit code becomes 1 if it was 0 or 5, and ``exit_code`` keeps it from becoming 0 again."""
        self.has_failed = True
        session.exitstatus = self.exit_code(session.exitstatus)

    def exit_code(self, found: object) -> Any:
        """Return the exit code that the session ends with where pytest and other plugins arrive at ``found``.

        Instead of 0 (all passed) and 5 (no tests) it is 1 after ``fail``, if samples were to run and were not counted
        at the end, if some did not run since the session was stopped, and if gates were asked for and not decided. It
        is 5 if all samples are lost though nothing has deselected them. So a conftest.py that turns 5 into 0 forgives
        only that nothing was selected.
        """
        if found and found != pytest.ExitCode.NO_TESTS_COLLECTED:
            return found
        if self.has_failed or self._is_open or self._awaits_gates:
            return pytest.ExitCode.TESTS_FAILED
        return pytest.ExitCode.NO_TESTS_COLLECTED if self._has_lost_all else found

    @property
    def _has_lost_all(self) -> bool:
        """Tell whether a hook took all samples away and did not call ``pytest_deselected``. No option does that."""
        has_samples = bool(self._gathered.expected or self._gathered.records)
        return bool(self._absent) and not has_samples and not self._config.stash.get(num_deselected_key, 0)

    def set_gates(self, results: Sequence[GateResult]) -> None:
        """Set the decided gates: gates that were asked for no longer keep the session from ending with 0."""
        self._awaits_gates = False
        if self.report is not None:
            self.report = dataclasses.replace(self.report, gates=tuple(results))

    def add_collected(self, collected: Collected, nodeids: Sequence[str]) -> None:
        """Add suites that were collected, and expect the samples ``nodeids``."""
        self._is_open |= bool(nodeids)
        self._gathered.expected.update(dict.fromkeys(nodeids))
        self._gathered.suites.update((info.name, info) for info in collected.suites)
        self._absent.update((info.name, info) for info in collected.absent)

    @property
    def has_suites(self) -> bool:
        return bool(self._gathered.suites or self._gathered.expected or self._absent or self._gathered.records)

    @property
    def absent(self) -> list[SuiteInfo]:
        """Return the suites that were collected and have no selected sample."""
        return [info for name, info in self._absent.items() if name not in self._gathered.suites]

    def add(self, report: pytest.TestReport) -> None:
        """Take the payload and the outcome of one test report."""
        # The terminal keeps every report until the end: the payload must not stay in memory with it.
        payload = report.__dict__.pop("llm_payload", None)
        if payload is None and report.passed and report.when != "call":  # nearly every setup and teardown
            self._wrong.annotate(report, ())
            return
        if isinstance(payload, str):
            payload = Payload.decode(payload)
        if payload is not None:
            self._add_payload(payload)
        records: Sequence[Record] = () if payload is None else payload.records
        if hasattr(report, "wasxfail"):
            self._expected_to_fail.add(report.nodeid)
        if report.passed and report.when == "call" and report.nodeid in self._wrong_tests:
            report.__dict__["llm_status"] = "wrong"  # the first answer counts, also if the test was run again
        self._wrong.annotate(report, records)
        if records and self._shows_texts:
            self._to_show = records
        if report.passed and report.when == "call":
            self._unrecorded.pop(report.nodeid, None)  # it failed before, and was run again
        if report.nodeid not in self._gathered.expected:
            if report.failed and report.when not in ("setup", "call", "teardown") and report.nodeid not in self._lost:
                # A worker died in a hand-written test, which may have had scores to record.
                self._problem(f"{report.nodeid}: {first_line(redact(str(report.longrepr)))}")
            return
        if report.skipped and report.nodeid not in self._gathered.recorded:  # a sample marked xfail has a record
            self._gathered.skipped.add(report.nodeid)
        elif report.failed and report.nodeid not in self._gathered.recorded:
            # A worker died, and pytest-xdist has made this report for its sample.
            self._add_missing(report.nodeid, first_line(redact(str(report.longrepr))))

    def expects(self, nodeid: str) -> bool:
        """Tell whether this is a sample that was to run."""
        return nodeid in self._gathered.expected

    def show_texts(self) -> None:
        """Write the prompts and replies of the samples that were added last, once pytest has written their line."""
        if self._to_show:
            records, self._to_show = self._to_show, ()
            write_texts(self._config, records)

    def add_answered(self, payload: Payload) -> None:
        """Add samples that the model has answered, and whose tests did not run as the session was stopped."""
        self._num_answered += len(payload.records)
        self._add_payload(payload)

    def _add_payload(self, payload: Payload) -> None:
        gathered = self._gathered
        if payload.suite is not None:
            # A suite is described again once its judge is known: the new description replaces the earlier one.
            info = self._with_judge(payload.suite)
            if info.path is not None or self._is_new_mark(info):
                gathered.suites[info.name] = info
                self.writer.add_fact("suite", info)
            for (suite, model), number in gathered.num_expected(info).items():
                self.writer.add_fact("expected", {"suite": suite, "model": model, "num_expected": number})
        if payload.model is not None:
            gathered.add_model(payload.model)
            self.writer.add_fact("model", payload.model)
        for judge in payload.judges:
            gathered.known_judges.setdefault((str(judge["role"]), str(judge["name"])), judge)
            self.writer.add_fact("judge", judge)
        for role, name, process, use in payload.uses:
            gathered.uses.setdefault((role, name), {})[process] = use
            # The counts grow with every sample, and writing each change costs time. They are written when they have
            # grown by a tenth, so that after a kill the last ones written are at most that far behind.
            if use.num_requests >= 1.1 * self._num_requests_written.get((role, name, process), 0):
                self._num_requests_written[role, name, process] = use.num_requests
                whose = {"model": name, "process": process, **({"role": role} if role else {})}
                self.writer.add_fact("use", whose | dataclasses.asdict(use))
        if payload.store_problem is not None:
            self._store_problems[payload.store_problem] = None
        if payload.store_flaws is not None:
            process, flaws = payload.store_flaws
            self._store_flaws[process] = flaws
        if payload.unrecorded is not None:
            self._unrecorded[payload.unrecorded.nodeid] = payload.unrecorded
        for record in payload.records:
            self._add_record(record)
            if payload.engine is not None:
                group = gathered.group_of(record)
                engine = gathered.engines[group] = merged_uses(gathered.engines.get(group), payload.engine)
                named = {"suite": group[0], "model": group[1]}
                self.writer.add_fact("engine", named | dataclasses.asdict(engine))

    def _is_new_mark(self, info: SuiteInfo) -> bool:
        """Tell whether a suite of hand-written tests is new. Note a problem if another mark of it differs."""
        known = self._gathered.suites.get(info.name)
        if known is not None and known.path is None and known != info:
            text = f"suite {info.name!r} has two marks llm_suite with different settings: give all of its tests one"
            if text not in self._gathered.problems:
                self._problem(text)
        return known is None

    def _with_judge(self, info: SuiteInfo) -> SuiteInfo:
        """Return the suite with the judge that was told of earlier, if one was. If the two differ, note a problem."""
        known = self._gathered.suites.get(info.name)
        if known is None or known.judge is None or known.judge == info.judge:
            return info
        if info.judge is not None:
            both = " and ".join("; ".join(one.judged_by) for one in (known, info))
            text = f"suite {info.name!r} was judged by {both}: its numbers are of no one judge"
            if text not in self._gathered.problems:
                self._problem(text)
        return dataclasses.replace(info, judge=known.judge, judged_by=known.judged_by, metrics=known.metrics)

    def _add_record(self, record: Record) -> None:
        gathered = self._gathered
        record = gathered.as_different(record)
        key = (gathered.group_of(record), record.id)
        known = gathered.records.get(key)
        gathered.recorded.add(record.nodeid)
        if known is not None and known.nodeid == record.nodeid and known.status != "unscored":
            return  # another plugin ran it again: the first answer counts, not the best of several tries
        place, kept = self.writer.add(record), without_texts(record)
        if known is not None and known.nodeid != record.nodeid:
            # Which record counts must not depend on which worker was faster.
            first, other = sorted((known, kept), key=lambda one: one.nodeid)
            self._problem(
                f"sample {record.id!r} of {described_group(key[0])} was recorded by {first.nodeid} "
                f"and by {other.nodeid}: only the first counts"
            )
            if first is known:
                return
        gathered.records[key], self._places[key] = kept, place
        if self.baseline is not None:
            self.baseline.add(key[0], record, gathered.suites.get(record.suite))
        if record.status == "wrong" and self._settings.strict:
            self._wrong_tests.add(record.nodeid)
        self._wrong.keep(key[0], record)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._start_s

    def _head(self) -> dict[str, JSON]:
        origin = self._origin
        return {
            "created": self._started.isoformat(timespec="seconds"),
            "environment": describe_environment(),
            "options": _options(self._settings),
            **({} if origin is None else {"origin": dataclasses.asdict(origin)}),
        }

    @cached_property
    def _origin(self) -> ReportOrigin | None:
        """Return the origin of a report that will be written, as it was when the first sample was done."""
        if not self._settings.report or self._settings.report_origin == "none":
            return None
        return find_origin(self._config.rootpath, dict(self._settings.label))

    def _problem(self, text: str) -> None:
        self._gathered.problems.append(text)

    def _add_missing(self, nodeid: str, reason: str) -> None:
        suite, model = self._gathered.group_at(nodeid)
        sample_id = SampleNode.parse(nodeid).sample_id
        record = Record(suite=suite, model=model, id=sample_id, nodeid=nodeid, status="unscored", reason=reason)
        self._add_record(record)

    def mark_lost(self, nodeids: Iterable[str], reason: str) -> None:
        """Note tests that will not run and have no report: samples become unscored, other tests are a problem."""
        for nodeid in nodeids:
            self._lost[nodeid] = reason
        others = [nodeid for nodeid in self._lost if nodeid not in self._gathered.expected]
        if others:
            self._problem(f"{', '.join(others[:5])}{', …' if len(others) > 5 else ''}: {reason}")

    def cannot_collect(self, nodeid: str, reason: str) -> None:
        """Note a problem: the report's numbers may lack a suite there."""
        self._problem(f"{nodeid or 'the session'} could not be collected: {first_line(redact(reason))}")

    def finish(self, session: pytest.Session, failed: Collection[str]) -> Report:
        """Compare the samples that were to run with those that came back, and make the report, without gates.

        ``failed`` are the node ids of all samples and tests that failed. The exit code becomes 1 if it was 0 and
        something is missing.
        """
        gathered = self._gathered
        stopped = _why_stopped(session)
        unasked = stopped if stopped is not None and stopped.startswith(MODEL_STOPPED) else None
        if unasked is not None and session.exitstatus == pytest.ExitCode.INTERRUPTED:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED  # the code of a session without workers
        if stopped is not None and (count := self._num_answered):
            were = (
                "1 sample that the model had answered was"
                if count == 1
                else f"{count} samples that the model had answered were"
            )
            stopped = f"{stopped}; {were} scored then"
        done = gathered.recorded | gathered.skipped
        missing = [nodeid for nodeid in gathered.expected if nodeid not in done]
        if unasked is not None:
            for nodeid in missing:
                self._add_missing(nodeid, unasked)
        elif missing and stopped is None:
            for nodeid in missing:
                self._add_missing(nodeid, self._lost.get(nodeid, "did not run"))
            self._problem(f"{len(missing)} of {len(gathered.expected)} samples without a result")
        self._add_unrecorded([one for one in self._unrecorded.values() if one.nodeid not in gathered.recorded])
        gathered.find_mixtures()
        for spec in self._settings.all_specs:
            if (use := spec.kind.server_use(spec)) is not None:  # the header of a controller asks servers too
                known = gathered.uses.setdefault((spec.role, spec.name), {})
                told = known.get("", ServerUse())  # only this has the authors of replies that came from a store
                known[""] = dataclasses.replace(
                    use, served_models=told.served_models, system_fingerprints=told.system_fingerprints
                )
        records = gathered.ordered_records()
        explained = ("unscored", "wrong") if self._settings.strict else ("unscored",)
        tests_with_a_reason = {record.nodeid for record in records if record.status in explained}
        report = with_suites(
            Report(
                created=self._started.isoformat(timespec="seconds"),
                seconds=self._seconds,
                environment=describe_environment(),
                models=tuple(gathered.models.values()),
                options=_options(self._settings),
                collected=tuple(sorted({*self._absent, *gathered.collected})),
                exit_code=0,
                num_failed_tests=len({*failed} - tests_with_a_reason),
                suites=(),
                records=records,
                stopped=stopped,
                store=self._store_use(records),
                budget=self._budget_use(),
            ),
            gathered.groups(records),
            gathered.compared,
            gathered.problems,
        )
        free = {(spec.role, spec.name) for spec in self._settings.all_specs if spec.kind.costs_nothing}
        models, judges = (
            tuple(_with_cost(model, free) for model in found)
            for found in (gathered.ordered_models(report.suites), gathered.judges())
        )
        report = dataclasses.replace(report, selection=selected_of(self._config, report.suites))
        gathered.problems += [*mixtures([*models, *judges]), *never_named(report), *_budget_problems(report)]
        num_unscored = sum(record.status == "unscored" for record in records)
        allowed = self._settings.allow_unscored
        if allowed and num_unscored > allowed:
            self._problem(f"{num_unscored} samples could not be scored, and --llm-allow-unscored allows {allowed}")
        for suite in report.suites:
            if allowed and suite.summary.num_unscored and not suite.summary.num_scored:
                self._problem(f"no sample of suite {suite.info.name!r} could be scored")
        if wrong := self._wrong_tests - self._expected_to_fail:
            if forgiven := sorted(wrong.difference(failed)):
                self._problem(
                    f"--llm-strict: wrong answers that did not fail their tests, since another plugin ran these again "
                    f"or changed their results: {', '.join(forgiven[:5])}{', …' if len(forgiven) > 5 else ''}"
                )
            self.fail(session)
        if num_unscored > allowed or gathered.problems:
            self.fail(session)
        self.report = dataclasses.replace(
            report,
            models=models,
            judges=judges,
            exit_code=int(session.exitstatus),
            problems=tuple(gathered.problems),
        )
        self._is_open = bool(missing) and unasked is None and stopped is not None
        return self.report

    def _budget_use(self) -> BudgetUse | None:
        if self._settings.budget_option is None:
            return None
        from pytest_llmeval.plugin.budget import budget_use

        return budget_use(self._config)

    def _store_use(self, records: Iterable[Record]) -> StoreUse | None:
        store = self._settings.store
        if store is None:
            return None
        started = self._started.isoformat(timespec="microseconds")
        flaws = reduce(or_, self._store_flaws.values(), StoreFlaws())
        return StoreUse.of(str(store), records, started, "; ".join(self._store_problems) or None, flaws)

    def write(self, session: pytest.Session) -> None:
        """Write the baseline and the report. The exit code becomes 1 if it was 0 and one of them is not written."""
        if self.report is None:
            return
        self.report = dataclasses.replace(
            self.report,
            exit_code=int(self.exit_code(session.exitstatus) or 0),
            seconds=self._seconds,
        )
        if session.exitstatus == pytest.ExitCode.USAGE_ERROR and not self._gathered.recorded:
            self.writer.discard()  # nothing ran: the report of an earlier run stays
            return
        if self.baseline is not None:
            self.baseline.write(self.report, self.absent)
            if not self.baseline.is_written:
                self.fail(session)
                self.report = dataclasses.replace(self.report, exit_code=int(session.exitstatus))
        self.report = dataclasses.replace(self.report, origin=self._origin)
        places = [self._places[self._gathered.group_of(record), record.id] for record in self.report.records]
        if not self.writer.write(self.report, places):
            self.fail(session)
            self.report = dataclasses.replace(
                self.report, problems=tuple(self._gathered.problems), exit_code=int(session.exitstatus)
            )

    def interrupted(self) -> str:
        """Return a line for a session that is interrupted while it ends: which reports were not written."""
        return self.writer.interrupted(list(self._places.values()))

    def write_wrong_answers(self, terminal: Terminal, *, has_short_summary: bool) -> None:
        """Write the first wrong answers of each suite, as ``--llm-show-wrong``, ``-vv`` and ``-rA`` want them.

        Beside a short summary there are a few in any case.
        """
        if self.report is not None:
            wrong = (record for record in self.report.records if record.status == "wrong")
            self._wrong.write(terminal, map(self._gathered.group_of, wrong), has_examples=has_short_summary)

    def _add_unrecorded(self, tests: Sequence[Unrecorded]) -> None:
        """Count tests that failed before they recorded anything as unscored in their suites.

        A test's suite is that of its mark ``llm_suite``, or the one suite to which other tests of its file record, or a
        suite that is named after the file.
        """
        suites: dict[str, set[str]] = {}
        for record in self._gathered.records.values() if tests else ():
            suites.setdefault(split_file(record.nodeid)[0], set()).add(record.suite)
        for unrecorded in tests:
            path, name = split_file(unrecorded.nodeid)
            neighbours = suites.setdefault(path, set())
            suite = unrecorded.suite or (next(iter(neighbours)) if len(neighbours) == 1 else path)
            record = Record(
                suite=suite,
                model=unrecorded.model,
                id=name,
                nodeid=unrecorded.nodeid,
                status="unscored",
                reason=unrecorded.reason,
            )
            self._add_record(record)
            neighbours.add(suite)

    @property
    def should_print_summary(self) -> bool:
        """Tell whether there are results. A bare ``pytest`` that skips all suites, as it has no model, has none."""
        named = self._config.args_source is self._config.ArgsSource.ARGS
        gathered = self._gathered
        return bool(gathered.records or (gathered.expected and named) or (self.report and self.report.gates))

    def remember_failed(self) -> None:
        """Let ``--lf`` run tests again that passed for pytest, but whose answers are wrong."""
        statuses = ("wrong", "unscored") if self._settings.allow_unscored else ("wrong",)
        records = self._gathered.records.values()
        again = list(dict.fromkeys(record.nodeid for record in records if record.status in statuses))
        right = (record.nodeid for record in records if record.status in ("correct", "scored"))
        remember_failed(self._config, again, right)


def _why_stopped(session: pytest.Session) -> str | None:
    for why in (session.shouldfail, session.shouldstop):
        if why:
            return str(why)
    if session.exitstatus == pytest.ExitCode.INTERRUPTED:
        return "interrupted"
    if session.exitstatus in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        return "stopped by an error"
    return None


def _with_cost(model: Mapping[str, JSON], free: Collection[tuple[JSON, JSON]]) -> Mapping[str, JSON]:
    """Return the model with a detail that says so if nothing is paid for it; ``free`` are such by role and name."""
    details = model.get("details")
    if (model.get("role"), model.get("name")) not in free or not isinstance(details, Mapping):
        return model
    return {**model, "details": {**details, COSTS_NOTHING: True}}


def _budget_problems(report: Report) -> Iterator[str]:
    """Say that a budget stopped the session, which fails it whatever ``--llm-allow-unscored`` allows."""
    if report.budget is not None and report.budget.ended is not None:
        from pytest_llmeval.reporting.tables.session import paid_text

        yield f"nothing more was asked: {report.budget.ended}; {paid_text(report.budget)}"


def _options(settings: Settings) -> dict[str, JSON]:
    """Return the options that differ from their defaults, as the user would write them."""
    options: dict[str, JSON] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value == field.default or field.name == "label":  # the report's origin has labels
            continue
        if field.name == "model_specs":
            options["model"] = [redact(spec.name) for spec in value]
        elif field.name == "role_specs":
            options |= {role: [redact(spec.name) for spec in specs] for role, specs in value.items() if specs}
        elif isinstance(value, tuple):
            options[field.name] = [redact(str(getattr(one, "text", one))) for one in value]
        else:
            options[field.name] = value if isinstance(value, bool) else redact(str(value))
    return options
