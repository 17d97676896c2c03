"""The records of samples and hand-written tests: made when a test has run, and carried by its report."""

from __future__ import annotations

import dataclasses
import math
import os
import time
import unicodedata
from collections.abc import Generator, Mapping
from typing import Any

import pytest

from pytest_llmeval.models.base import identify
from pytest_llmeval.plugin.models import is_overridden
from pytest_llmeval.plugin.process_roles import is_worker, session_of
from pytest_llmeval.plugin.sample_item import SampleItem, WrongAnswer, describe, kept_as, model_of, shown_prompt
from pytest_llmeval.plugin.settings import settings_key
from pytest_llmeval.plugin.stash import (
    batcher_key,
    model_key,
    process_key,
    record_key,
    recorder_key,
    stored_model_key,
)
from pytest_llmeval.plugin.store import new_flaws, new_problem
from pytest_llmeval.reporting.report.records import (
    NEW_REPLIES,
    UNKNOWN_REPLIES,
    Payload,
    Record,
    SuiteInfo,
    Unrecorded,
)
from pytest_llmeval.roles import ROLES
from pytest_llmeval.scoring.metrics.definitions import NOT_MEASURABLE, definition
from pytest_llmeval.scoring.metrics.skill import skill
from pytest_llmeval.text.escaping import first_line
from pytest_llmeval.text.redaction import redact
from pytest_llmeval.text.wording import expected_one_of
from pytest_llmeval.types import JSON, NotMeasurable, Role, ServerUse, Status, as_builtin

__all__ = ["Recorder", "Strict", "attach", "payload_of"]

_wrong_key = pytest.StashKey[dict[tuple[str, str], tuple[Record, str]]]()
"""The wrong answers of an item under ``--llm-strict``, by suite and sample, each with the message of the failure."""
_is_tried_again_key = pytest.StashKey[bool]()
"""The mark of an item with a wrong answer that another plugin runs again."""


@dataclasses.dataclass(slots=True)
class _Told:
    """The news that this process has told with earlier payloads: judges of suites, models by role, use of servers."""

    suites: dict[str, str | None] = dataclasses.field(default_factory=dict)
    models: set[tuple[Role | None, str]] = dataclasses.field(default_factory=set)
    uses: dict[tuple[Role | None, str], ServerUse] = dataclasses.field(default_factory=dict)


_told_key = pytest.StashKey[_Told]()

_RESERVED = frozenset(("accuracy", "skill", "score", "correct", "total", "no_answer"))
"""Metric names that ``llm_record`` gives a meaning of its own."""


@dataclasses.dataclass(frozen=True, slots=True)
class _MarkedSuite:
    """A suite that tests record to, as the mark ``llm_suite`` describes it."""

    name: str
    not_measurable: Mapping[str, float] = dataclasses.field(default_factory=dict)
    min_measurable: float | None = None

    @classmethod
    def of(cls, item: pytest.Item) -> _MarkedSuite | None:
        """Return the nearest mark of a test, None without one. Raises ``TypeError`` or ``ValueError``."""
        mark = item.get_closest_marker("llm_suite")
        if mark is None or not mark.args:
            return None
        unknown = [name for name in mark.kwargs if name not in _MARK_ARGUMENTS]
        if unknown:
            raise TypeError(f"llm_suite: unknown argument {unknown[0]!r}{expected_one_of(unknown[0], _MARK_ARGUMENTS)}")
        given, least = mark.kwargs.get("not_measurable", {}), mark.kwargs.get("min_measurable")
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise TypeError(f"llm_suite: not_measurable must map metric names to numbers, found {given!r}")
        if least is not None and (isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 1):
            raise ValueError(f"llm_suite: min_measurable must be a number from 0 to 1, found {least!r}")
        return cls(str(mark.args[0]), {name: _number(name, given[name], "llm_suite") for name in sorted(given)}, least)

    @property
    def info(self) -> SuiteInfo | None:
        """Return what the report says of the suite; None if the mark gives its name alone."""
        if not self.not_measurable and self.min_measurable is None:
            return None
        settings: dict[str, JSON] = {NOT_MEASURABLE: {**self.not_measurable}} if self.not_measurable else {}
        info = SuiteInfo(name=self.name, metrics=(), settings=settings)
        return info if self.min_measurable is None else dataclasses.replace(info, min_measurable=self.min_measurable)


_MARK_ARGUMENTS = ("not_measurable", "min_measurable")


class Recorder:
    """The value of the fixture ``llm_record``: call it once for every sample that a test judges."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._started = time.monotonic()
        self._suite: _MarkedSuite | None = None
        self._ids: set[tuple[str, str]] = set()
        self._pending: list[Record] = []

    def __call__(
        self,
        *,
        suite: str,
        id: str | int,
        correct: object = None,
        score: float | NotMeasurable | None = None,
        answer: object = None,
        no_answer: bool = False,
        target: object = None,
        question: object = None,
        prompt: object = None,
        output: object = None,
        category: object = None,
        chance: float | None = None,
        values: Mapping[str, float | NotMeasurable] | None = None,
    ) -> None:
        """Record one sample's score under ``suite``; it joins the summary and the report.

        ``correct`` says right or wrong (a wrong answer is shown as such and does not fail the test, unless
        ``--llm-strict``); ``score`` is a number with no right or wrong, reported as metric ``score``; ``values`` are
        further numbers by metric name. ``NotMeasurable(reason)`` stands for a score or value that has no meaning for
        this sample: one that is merely left out fails the gates on its metric; where the test's mark says
        ``llm_suite("tone", not_measurable={"wit": 0})``, it counts as that. ``no_answer`` counts a wrong reply that
        held no answer. ``chance`` is the probability that a guess is right, from 0 to below 1, and adds ``skill``.
        Raises ``TypeError`` or ``ValueError`` for what cannot be recorded.
        """
        key = self._key(suite, id)
        marked = _MarkedSuite.of(self._item)
        right = None if correct is None else _as_bool(correct)
        if right is None and score is None:
            raise ValueError("llm_record: give correct=True or False, or a score")
        numbers, reasons = _numbers({} if values is None else values)
        if isinstance(score, NotMeasurable):
            reasons["score"] = _why("score", score)
        elif score is not None:
            numbers["score"] = _number("score", score)
        guessing = None if chance is None else _chance(chance)
        if right is not None:
            numbers["accuracy"] = float(right)
            if guessing is not None:
                numbers["skill"] = skill(float(right), guessing)
        if marked is not None and marked.name == suite:
            self._suite = marked
            numbers |= {name: value for name, value in marked.not_measurable.items() if name in reasons}
        status: Status = "scored" if right is None else "correct" if right else "wrong"
        settings = self._item.config.stash[settings_key]
        self._ids.add(key)
        record = Record(
            suite=key[0],
            id=key[1],
            nodeid=self._item.nodeid,
            model=_model_name(self._item),
            status=status,
            category=_text(category),
            question=_text(question),
            prompt=None if prompt is None else shown_prompt(str(prompt), settings.report_prompts),
            target=target if target is None or isinstance(target, str | int | float) else str(target),
            output=_text(output),
            answer=_text(answer),
            no_answer=bool(no_answer) and right is False,
            values=numbers,
            chance=guessing,
            not_measurable=reasons,
            kept_as=self._kept_as(),
        )
        if settings.strict:
            wrong = self._item.stash.setdefault(_wrong_key, {})
            if key in wrong:
                record, _ = wrong[key]  # that of an earlier try
            elif status == "wrong":
                text = f"sample {id!r} of suite {suite!r}: expected {target!r}, found {answer!r}"
                wrong[key] = record, text
        self._pending.append(record)

    def _kept_as(self) -> str | None:
        """Return ``Record.kept_as`` for the replies that the test has had by now: the sample may be about any of them.

        If a test that takes ``llm_model`` has had none, a fixture of the module or session has asked for them. If this
        session has asked for some, and others come from the store, the sample may be about the latter only.
        """
        model = self._item.config.stash.get(stored_model_key, None)
        if model is None:
            return None
        own, session = model.kept_since(self._started), session_of(self._item.config)[0]
        num_reused = sum(one not in (None, session) for one in own)
        if own and num_reused in (0, len(own)):
            return kept_as(own)
        if not own and ("llm_model" not in getattr(self._item, "funcargs", {}) or is_overridden(self._item)):
            return None
        return UNKNOWN_REPLIES if model.has_reused else NEW_REPLIES

    def _key(self, suite: object, id: object) -> tuple[str, str]:
        if not isinstance(suite, str) or not suite.strip() or not suite.isprintable():
            raise TypeError(f"llm_record: suite must be a name on one line, found {suite!r}")
        if isinstance(id, bool) or not isinstance(id, str | int) or not str(id).strip():
            raise TypeError(f"llm_record: id must be text or a whole number, found {id!r}")
        key = (suite, unicodedata.normalize("NFC", str(id)))
        if key in self._ids:
            raise ValueError(f"llm_record: sample {id!r} of suite {suite!r} was recorded already")
        return key

    @property
    def has_recorded(self) -> bool:
        """Tell whether the test has recorded anything, in this phase or an earlier one."""
        return bool(self._ids)

    def pop(self) -> Payload | None:
        """Return the records since the last call, with the suite as the test's mark describes it; None without any."""
        records, self._pending = tuple(self._pending), []
        suite = None if self._suite is None else self._suite.info
        return Payload(records=records, suite=suite) if records else None


class Strict:
    """The hooks of ``--llm-strict``: a hand-written test fails at its end, when all samples are recorded.

    Other plugins run a failed test again, and a model may guess right in the end. So a test fails for its first wrong
    answer each time, and a sample is not asked again.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        __tracebackhide__ = True
        wrong = item.stash.get(_wrong_key, None)
        if wrong:
            item.stash[_is_tried_again_key] = True
        if isinstance(item, SampleItem):
            if wrong:
                ((item.stash[record_key], text),) = wrong.values()
                raise WrongAnswer(text)
            try:
                return (yield)
            except WrongAnswer as error:
                item.stash[_wrong_key] = {(item.file.info.name, item.sample.id): (item.stash[record_key], str(error))}
                raise
        result = yield
        if wrong := item.stash.get(_wrong_key, None):
            raise WrongAnswer("wrong: " + "; ".join(text for _, text in wrong.values()))
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Say at the end of a test that was run again that its answer is wrong, for pytest's last line."""
        report = yield
        if call.when == "teardown" and _is_tried_again_key in item.stash:
            report.__dict__["llm_wrong_again"] = True
        return report


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _model_name(item: pytest.Item) -> str | None:
    model = getattr(item, "funcargs", {}).get("llm_model")
    return None if model is None else model_of(item, model).name


def _as_bool(value: object) -> bool:
    # A comparison of numpy or torch values gives their own kind of bool.
    plain = as_builtin(value)
    if isinstance(plain, bool):
        return plain
    raise TypeError(f"llm_record: correct must be True or False, found {value!r}")


def _number(name: str, value: object, where: str = "llm_record") -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"{where}: {name} must be a number, found {value!r}") from None
    if not math.isfinite(number):
        raise ValueError(f"{where}: {name} must be finite, found {value!r}; a sample without a score is not a number")
    metric = definition(name)
    if not metric.lowest <= number <= metric.highest:
        limits = f"from {metric.lowest:g} to {metric.highest:g}"
        raise ValueError(f"{where}: {name} must be {limits}, found {value!r}; give the metric another name")
    return number


def _why(name: str, value: NotMeasurable) -> str:
    if not isinstance(value.reason, str) or not value.reason.strip():
        raise ValueError(f"llm_record: {name} is not measurable for the reason {value.reason!r}, expected text")
    return " ".join(value.reason.split())


def _numbers(values: object) -> tuple[dict[str, float], dict[str, str]]:
    """Return the values that are numbers, and the reasons of those that are not measurable."""
    if not isinstance(values, Mapping):
        raise TypeError(f"llm_record: values must map metric names to numbers, found {values!r}")
    for name in values:
        if not isinstance(name, str) or name in _RESERVED:
            raise ValueError(f"llm_record: {name!r} is not for values; correct, score, chance and no_answer set it")
    reasons = {name: _why(name, value) for name, value in values.items() if isinstance(value, NotMeasurable)}
    return {name: _number(name, value) for name, value in values.items() if name not in reasons}, reasons


def _chance(value: object) -> float:
    number = _number("chance", value)
    if not 0 <= number < 1:
        raise ValueError(f"llm_record: chance must be at least 0 and below 1, found {value!r}")
    return number


def attach(item: pytest.Item, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
    """Attach the records of this phase of ``item`` to its report, so that they reach the controller of pytest-xdist.

    The error of the phase is in ``call``: marks (xfail) and other plugins may have changed the report.

    ``report.llm_payload`` is a ``Payload``, encoded in a worker; ``report.llm_status`` is the status for the terminal.
    """
    if isinstance(item, SampleItem):
        if call.excinfo is None and report.passed and report.when != "call" and record_key not in item.stash:
            return  # as nearly always
        if report.skipped and isinstance(report.longrepr, tuple):
            # -rs folds skips at one place: so it says once for a whole suite why it was skipped.
            report.longrepr = (item.file.nodeid, item.file.evaluation.suite.line, report.longrepr[2])
        if report.when == "call" and batcher_key in item.config.stash:
            # The first sample of a chunk asks for all: the test gets its own share of the model's time.
            difference = item.config.stash[batcher_key].shares.settle(item.key)
            report.duration = max(0.0, report.duration + difference)
        payload = _sample_payload(item, report, call)
    else:
        payload = _test_payload(item, report, call)
    if payload is None:
        return
    payload = _with_news(item, payload)
    # Attributes that pytest does not know travel with a report. Another process needs them as text: the controller, or
    # the parent of a process that was made for this test (pytest-forked).
    is_elsewhere = is_worker(item.config) or os.getpid() != item.config.stash[process_key]
    report.__dict__["llm_payload"] = payload.encode() if is_elsewhere else payload
    statuses = {record.status for record in payload.records}
    if "wrong" in statuses:
        report.__dict__["llm_status"] = "wrong"
    elif "unscored" in statuses and isinstance(item, SampleItem) and report.when == "call" and report.failed:
        _tolerate_unscored(item, report)


def _tolerate_unscored(item: SampleItem, report: pytest.TestReport) -> None:
    """Let the test pass if some may be unscored: only when all have run it is known whether there are too many."""
    if item.config.stash[settings_key].allow_unscored:
        report.outcome, report.longrepr = "passed", None
        report.__dict__["llm_status"] = "unscored"


def _hidden_error(report: pytest.TestReport, call: pytest.CallInfo[None]) -> BaseException | None:
    """Return the error of a setup or call whose report does not say that it failed; None if it skips the test."""
    if report.failed or call.when not in ("setup", "call") or call.excinfo is None:
        return None
    error = call.excinfo.value
    return None if isinstance(error, pytest.skip.Exception | pytest.xfail.Exception) else error


def _sample_payload(item: SampleItem, report: pytest.TestReport, call: pytest.CallInfo[None]) -> Payload | None:
    record, hidden = item.stash.get(record_key, None), _hidden_error(report, call)
    if record is not None:
        del item.stash[record_key]
    elif hidden is not None and (report.skipped or call.when == "setup"):
        record = item.unscored(describe(hidden))
    elif report.failed and report.when == "setup":
        record = item.unscored(_reason(report))
    elif report.skipped:
        return Payload()
    else:
        return None
    return Payload(records=(record,))


def _test_payload(item: pytest.Item, report: pytest.TestReport, call: pytest.CallInfo[None]) -> Payload | None:
    recorder: Recorder | None = item.stash.get(recorder_key, None)
    if recorder is not None and (payload := recorder.pop()) is not None:
        return payload
    hidden = _hidden_error(report, call) if report.skipped else None
    has_failed = report.failed and report.when in ("setup", "call")
    if (has_failed or hidden is not None) and not (recorder is not None and recorder.has_recorded):
        mark = item.get_closest_marker("llm_suite")
        suite = str(mark.args[0]) if mark is not None and mark.args else None
        model = item.stash.get(model_key, None)
        reason = _reason(report) if hidden is None else describe(hidden)
        return Payload(unrecorded=Unrecorded(nodeid=item.nodeid, reason=reason, suite=suite, model=model))
    return None


def payload_of(item: SampleItem, record: Record, model: object) -> Payload:
    """Return the payload of a sample whose test does not run."""
    return _with_news(item, Payload(records=(record,)), model)


def _with_news(item: pytest.Item, payload: Payload, model: object = None) -> Payload:
    """Return the payload with what its process has not told yet: suite, model, engine and judges, each once.

    The use of a server and the state of the store are told whenever they have changed.
    """
    config = item.config
    news: dict[str, Any] = {}
    told = config.stash.setdefault(_told_key, _Told())
    process = getattr(config, "workerinput", {}).get("workerid", "")
    fixtures = getattr(item, "funcargs", None) or {}  # a test that will not run has none
    if model is None:
        model = fixtures.get("llm_model")
    if isinstance(item, SampleItem):
        suite = item.file.info
        if suite.name not in told.suites or told.suites[suite.name] != suite.judge:
            told.suites[suite.name] = suite.judge  # which is known once a sample has been judged
            news["suite"] = suite
        if model is None:
            model = item.file.responses
        batcher = config.stash.get(batcher_key, None)  # none under --setup-only
        if batcher is not None and batcher.engine_uses:
            news["engine"] = batcher.engine_uses.pop(item.group, None)
    asked: list[tuple[Role | None, object]] = [] if model is None else [(None, model)]
    for role in ROLES:
        given = fixtures.get(f"llm_{role}")
        # A model that judges itself is counted once.
        asked += [(role, one) for one in (given if isinstance(given, list | tuple) else [given]) if one is not model]
    judges, uses = [], []
    for of_role, one in asked:
        if one is None:
            continue
        identity = model_of(item, one) if of_role is None else identify(one)
        key = of_role, identity.name
        if key not in told.models:
            told.models.add(key)
            if of_role is None:
                news["model"] = dataclasses.asdict(identity)
            else:
                judges.append({"role": of_role, **dataclasses.asdict(identity)})
        use = getattr(one, "server_use", None)
        if isinstance(use, ServerUse) and told.uses.get(key) != use:
            told.uses[key] = use
            uses.append((*key, process, use))
    if judges or uses:
        news |= {"judges": tuple(judges), "uses": tuple(uses)}
    if config.stash[settings_key].store is not None:
        if (problem := new_problem(config)) is not None:
            news["store_problem"] = problem
        if (flaws := new_flaws(config)) is not None:
            news["store_flaws"] = process, flaws
    return dataclasses.replace(payload, **news) if news else payload


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(getattr(crash, "message", None) or report.longrepr).removeprefix("Failed: ")
    return first_line(redact(text))
