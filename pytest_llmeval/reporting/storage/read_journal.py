"""A report from the journal that a killed session left."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_llmeval.errors import ReportError
from pytest_llmeval.reporting.report.assembly import GroupRecords, with_suites
from pytest_llmeval.reporting.report.groups import Group, compared_models
from pytest_llmeval.reporting.report.records import Record, SuiteInfo, without_texts
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.report.summaries import grouped
from pytest_llmeval.reporting.storage.disk_records import DECODER, DiskRecords, file_state
from pytest_llmeval.reporting.storage.report_model import (
    DamagedPart,
    part_from_json,
    record_from_json,
    report_from_json,
)
from pytest_llmeval.text.wording import describe as describe_value
from pytest_llmeval.types import JSON, EngineUse, ServerUse

__all__ = ["KILLED", "is_journal", "read_journal"]

KILLED = "killed before its end"
"""``Report.stopped`` of a report from a journal."""

_EXIT_CODE = 2  # pytest's own for a run that was interrupted
_KINDS = ("record", "suite", "model", "judge", "use", "engine", "expected")
_FIRST_LINE = re.compile(rb'\{"schema": .*"journal": \d+\}\s*')


@dataclass(slots=True)
class _Found:
    """What the lines of a journal tell; of the same thing the later line is right."""

    infos: dict[str, SuiteInfo] = field(default_factory=dict)
    models: dict[str, Mapping[str, JSON]] = field(default_factory=dict)
    judges: dict[tuple[str, str], Mapping[str, JSON]] = field(default_factory=dict)
    uses: dict[tuple[str, str], dict[str, ServerUse]] = field(default_factory=dict)
    engines: dict[Group, EngineUse] = field(default_factory=dict)
    expected: dict[Group, int] = field(default_factory=dict)
    records: dict[tuple[str, str | None, str], tuple[int, Record]] = field(default_factory=dict)

    def use(self, role: str, name: str) -> dict[str, JSON]:
        """What all processes have sent to a model behind a server; the role is empty of one that is evaluated."""
        return asdict(sum(self.uses[role, name].values(), ServerUse()))


def is_journal(first_line: bytes) -> bool:
    """Whether a file that begins with this line is a journal."""
    return _FIRST_LINE.fullmatch(first_line) is not None


def read_journal(path: Path) -> Report:
    """What the session had finished, with its suites' numbers. A last line that was cut in the middle is left out.

    ``exit_code`` is that of an interrupted run; ``seconds`` is the model's time, since the session's is not known.
    Raises ``ReportError``, and ``OSError`` where the file cannot be read.
    """
    state = file_state(path)
    found = _Found()
    head: dict[str, Any] = {}
    for number, (offset, line) in enumerate(_lines(path), 1):
        try:
            data = DECODER.decode(line.decode())
            if number == 1:
                head = data
            else:
                _take(found, offset, data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            reason = f"the key {error} is missing" if isinstance(error, KeyError) else error
            raise ReportError(f"cannot read the journal {path}:{number}: {reason}") from None
    begin = {
        "exit_code": _EXIT_CODE,
        **head,
        "seconds": 0.0,
        "stopped": KILLED,
        "models": [
            {**model, "use": found.use("", name)} if ("", name) in found.uses else model
            for name, model in found.models.items()
        ],
        "judges": [
            {
                **found.judges.get((role, name), {"role": role, "name": name}),
                **({"use": found.use(role, name)} if (role, name) in found.uses else {}),
            }
            for role, name in sorted({*found.judges, *(whose for whose in found.uses if whose[0])})
        ],
        "suites": [],
    }
    offsets = array("Q", [offset for offset, _ in found.records.values()])
    try:
        report = report_from_json(begin, DiskRecords(path, offsets, state=state))
    except DamagedPart as error:
        raise ReportError(f"cannot read the journal {path}:1: {error}") from None
    return _summarized(report, found)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines with their offsets, without a last one that is not whole."""
    offset = 0
    with path.open("rb", buffering=1 << 18) as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield offset, line
            offset += len(line)


def _take(found: _Found, offset: int, data: object) -> None:
    if not isinstance(data, dict) or len(data) != 1:
        raise ValueError(f"found {describe_value(data)}, expected a mapping with one key")
    ((kind, value),) = data.items()
    if kind not in _KINDS:
        return  # of a later version
    if not isinstance(value, dict):
        raise ValueError(f"found {describe_value(value)}, expected a {kind}")
    match kind:
        case "record":
            record = without_texts(record_from_json(value))
            found.records[record.suite, record.model, record.id] = (offset, record)
        case "suite":
            info = part_from_json(SuiteInfo, value, kind)
            found.infos[info.name] = info
        case "model":
            found.models[str(value["name"])] = value
        case "judge":
            found.judges[str(value["role"]), str(value["name"])] = value
        case "use":
            use = {key: part for key, part in value.items() if key not in ("model", "process", "role")}
            whose = str(value.get("role", "")), str(value["model"])
            found.uses.setdefault(whose, {})[str(value["process"])] = part_from_json(ServerUse, use, kind)
        case "engine":
            found.engines[_group(value)] = part_from_json(EngineUse, value, kind)
        case "expected":
            num_expected = value["num_expected"]
            if isinstance(num_expected, bool) or not isinstance(num_expected, int) or num_expected < 0:
                raise ValueError(f"num_expected: found {describe_value(num_expected)}, expected a whole number")
            found.expected[_group(value)] = num_expected


def _group(value: Mapping[str, Any]) -> Group:
    suite, model = value["suite"], value["model"]
    if not isinstance(suite, str) or not isinstance(model, str | None):
        raise ValueError(f"found {describe_value(suite)} and {describe_value(model)}, expected a suite and a model")
    return suite, model


def _summarized(report: Report, found: _Found) -> Report:
    compared, problems = compared_models(report), list[str]()
    by_group: dict[Group, list[Record]] = {group: [] for group in found.expected}
    by_group |= grouped((record for _, record in found.records.values()), compared)
    groups = {
        group: GroupRecords(
            records=records,
            info=found.infos.get(group[0]),
            num_expected=found.expected.get(group, len(records)),
            model=group[1],
            engine=found.engines.get(group),
        )
        for group, records in by_group.items()
    }
    report = with_suites(report, groups, compared, problems, of_session=False)
    num_expected, num_finished = sum(found.expected.values()), sum(len(by_group[group]) for group in found.expected)
    if num_finished < num_expected:
        problems.append(f"{num_finished} of {num_expected} samples of the suites that had begun were finished")
    return replace(report, seconds=sum(suite.seconds for suite in report.suites), problems=tuple(problems))
