"""From a test that ran to what its report carries: the records of samples, and of hand-written tests."""

from __future__ import annotations

import dataclasses
import math
import unicodedata
from collections.abc import Mapping

import pytest

from pytest_llmeval.items import SampleItem, WrongAnswer, record_key, shown_prompt
from pytest_llmeval.models.base import ModelIdentity, identify
from pytest_llmeval.models.messages import redact
from pytest_llmeval.options import settings_key
from pytest_llmeval.reporting.escape import first_line
from pytest_llmeval.reporting.records import Payload, Record, Unrecorded
from pytest_llmeval.types import JSON, Status

__all__ = ["Recorder", "attach", "recorder_key"]

recorder_key = pytest.StashKey["Recorder"]()
_sent_key = pytest.StashKey[set[str]]()


class Recorder:
    """What the fixture ``llm_record`` gives: call it once for every sample that a test judges."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._ids: set[tuple[str, str]] = set()
        self.records: list[Record] = []

    def __call__(
        self,
        *,
        suite: str,
        id: str | int,
        correct: object = None,
        score: float | None = None,
        answer: str | None = None,
        target: JSON = None,
        question: str | None = None,
        prompt: str | None = None,
        output: str | None = None,
        category: str | None = None,
        chance: float | None = None,
        values: Mapping[str, float] | None = None,
    ) -> None:
        """Record one sample's score under ``suite``; it joins the summary and the report.

        ``correct`` says right or wrong (a wrong answer is shown as such and does not fail the test, unless
        ``--llm-strict``); ``score`` is a number with no right or wrong, reported as metric ``score``; ``values`` are
        further numbers by metric name. ``chance`` is the probability that a guess is right, from 0 to below 1, and adds
        ``skill``. Raises ``TypeError`` or ``ValueError`` for what cannot be recorded.
        """
        if not isinstance(suite, str) or not suite.strip():
            raise TypeError(f"llm_record: suite must be a name, found {suite!r}")
        if isinstance(id, bool) or not isinstance(id, str | int) or not str(id).strip():
            raise TypeError(f"llm_record: id must be text or a whole number, found {id!r}")
        right = None if correct is None else _as_bool(correct)
        if right is None and score is None:
            raise ValueError("llm_record: give correct=True or False, or a score")
        key = (suite, unicodedata.normalize("NFC", str(id)))
        if key in self._ids:
            raise ValueError(f"llm_record: sample {id!r} of suite {suite!r} was recorded already")
        numbers = {name: _finite(name, value) for name, value in (values or {}).items()}
        if score is not None:
            numbers["score"] = _finite("score", score)
        if chance is not None and not 0 <= _finite("chance", chance) < 1:
            raise ValueError(f"llm_record: chance must be at least 0 and below 1, found {chance!r}")
        if right is not None:
            numbers["accuracy"] = float(right)
            if chance is not None:
                numbers["skill"] = (float(right) - chance) / (1 - chance)
        status: Status = "scored" if right is None else "correct" if right else "wrong"
        how = self._item.config.stash[settings_key].report_prompts
        self._ids.add(key)
        self.records.append(
            Record(
                suite=suite,
                id=key[1],
                nodeid=self._item.nodeid,
                status=status,
                category=None if category is None else str(category),
                question=question,
                prompt=None if prompt is None else shown_prompt(prompt, how),
                target=target if target is None or isinstance(target, str | int | float | bool) else str(target),
                output=None if output is None else str(output),
                answer=None if answer is None else str(answer),
                no_answer=right is False and answer is None,
                values=numbers,
                chance=None if chance is None else float(chance),
            )
        )
        if status == "wrong" and self._item.config.stash[settings_key].strict:
            raise WrongAnswer(f"sample {id!r} of suite {suite!r}: expected {target!r}, found {answer!r}")


def _as_bool(value: object) -> bool:
    # A comparison of numpy or torch values gives their own kind of bool, which ``item`` turns into Python's.
    plain = value.item() if hasattr(value, "item") and getattr(value, "size", 1) in (1, ()) else value
    if isinstance(plain, bool):
        return plain
    raise TypeError(f"llm_record: correct must be True or False, found {value!r}")


def _finite(name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"llm_record: {name} must be a number, found {value!r}") from None
    if not math.isfinite(number):
        raise ValueError(
            f"llm_record: {name} must be finite, found {value!r}; a sample without a score is not a number"
        )
    return number


def attach(item: pytest.Item, report: pytest.TestReport) -> None:
    """Put what this phase of ``item`` found on its report, as builtins that reach the controller of pytest-xdist.

    ``report.llm_payload`` is an encoded ``Payload``; ``report.llm_status`` is what the terminal shows.
    """
    if isinstance(item, SampleItem):
        _fold_skip(item, report)
        payload = _sample_payload(item, report)
    else:
        payload = _test_payload(item, report)
    if payload is None:
        return
    # Attributes that pytest does not know travel with a report; setattr, because its class does not declare them.
    report.__dict__["llm_payload"] = _with_news(item, payload).encode()
    if any(record.status == "wrong" for record in payload.records):
        report.__dict__["llm_status"] = "wrong"


def _fold_skip(item: SampleItem, report: pytest.TestReport) -> None:
    """Let ``-rs`` say once for a whole suite why it was skipped: it folds what names the same place."""
    if report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = (item.file.nodeid, item.file.evaluation.suite.line, report.longrepr[2])


def _sample_payload(item: SampleItem, report: pytest.TestReport) -> Payload | None:
    record = item.stash.get(record_key, None)
    if record is not None:
        del item.stash[record_key]
    elif report.failed and report.when == "setup":
        record = item.unscored(_reason(report))
    else:
        return None
    return Payload(records=(record,), suite=item.file.info)


def _test_payload(item: pytest.Item, report: pytest.TestReport) -> Payload | None:
    recorder = item.stash.get(recorder_key, None)
    if recorder is not None and recorder.records:
        records, recorder.records = recorder.records, []
        return Payload(records=tuple(records))
    if report.failed and report.when in ("setup", "call"):
        mark = item.get_closest_marker("llm_suite")
        suite = str(mark.args[0]) if mark is not None and mark.args else None
        return Payload(unrecorded=Unrecorded(nodeid=item.nodeid, reason=_reason(report), suite=suite))
    return None


def _with_news(item: pytest.Item, payload: Payload) -> Payload:
    """Suite and model travel once from each process, not with every record."""
    sent = item.config.stash.setdefault(_sent_key, set())
    suite = payload.suite
    if suite is not None and suite.name in sent:
        payload = dataclasses.replace(payload, suite=None)
    elif suite is not None:
        sent.add(suite.name)
    model = getattr(item, "funcargs", {}).get("llm_model")
    if model is not None and "model:" not in sent:
        sent.add("model:")
        payload = dataclasses.replace(payload, model=_identity(identify(model)))
    return payload


def _identity(identity: ModelIdentity) -> dict[str, JSON]:
    return dataclasses.asdict(identity)


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return redact(first_line(str(getattr(crash, "message", None) or report.longrepr).removeprefix("Failed: ")))
