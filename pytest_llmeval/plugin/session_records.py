"""The records of a session: gathered in memory, kept in a journal, and written to the files of its report."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from pytest_llmeval.errors import LLMEvalError, ReportError
from pytest_llmeval.reporting.report.records import Record, SuiteInfo, without_texts
from pytest_llmeval.reporting.report.report import Group, Report, SuiteReport, described_group
from pytest_llmeval.reporting.report.summaries import GroupRecords
from pytest_llmeval.reporting.storage.journal import Journal, JournalError, Kind, journal_path
from pytest_llmeval.reporting.writers.formats import is_folder, write_report_file
from pytest_llmeval.roles import ROLES
from pytest_llmeval.text.names import SampleNode
from pytest_llmeval.types import JSON, EngineUse, ServerUse

__all__ = [
    "Gathered",
    "ReportWriter",
]


_IDENTITY = ("server", "version", "model", "root", "build")


def _identity(model: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the facts by which two processes ask the same model. Others may differ, such as the server's replica."""
    details = model.get("details")
    own = {key: details.get(key) for key in _IDENTITY} if isinstance(details, Mapping) else {}
    if any(value is not None for value in own.values()):
        return own
    return {"fingerprint": model.get("fingerprint")}


@dataclass(slots=True, kw_only=True)
class Gathered:
    """The results of a session, which arrive in any order, and the parts of its report that are made of them.

    ``compared`` are the models of a session of several; ``model_of_node`` finds them by their names in node ids.
    ``expected`` are the node ids of samples that were to run, ``skipped`` those of skipped samples, ``recorded`` those
    of all records. ``uses`` say what was sent to models behind servers, by role and name, and by process;
    ``first_served`` says for each model which served model gave the first reply. ``problems`` say why the numbers may
    be incomplete.
    """

    compared: tuple[str, ...]
    model_of_node: Mapping[str, str]
    expected: dict[str, None] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    recorded: set[str] = field(default_factory=set)
    records: dict[tuple[Group, str], Record] = field(default_factory=dict)
    suites: dict[str, SuiteInfo] = field(default_factory=dict)
    models: dict[str, Mapping[str, JSON]] = field(default_factory=dict)
    known_judges: dict[tuple[str, str], Mapping[str, JSON]] = field(default_factory=dict)
    engines: dict[Group, EngineUse] = field(default_factory=dict)
    uses: dict[tuple[str | None, str], dict[str, ServerUse]] = field(default_factory=dict)
    first_served: dict[tuple[JSON, JSON], Mapping[str, JSON]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    _counts: dict[str | None, Counter[str | None]] = field(default_factory=dict)
    _num_counted: int = 0
    _names: dict[str | None, str] = field(default_factory=dict)
    _num_named: int = 0

    def add_model(self, model: Mapping[str, JSON]) -> None:
        """Add a model as one process describes it. It is a problem if another process describes another model."""
        name = str(model["name"])
        known = self.models.setdefault(name, model)
        one, other = _identity(known), _identity(model)
        if one != other:
            differing = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
            self.problems.append(
                f"{name} is not the same model in all processes: its numbers mix two ("
                + ", ".join(f"{key}: {one.get(key)} and {other.get(key)}" for key in differing)
                + ")"
            )

    def as_different(self, record: Record) -> Record:
        """Return the record without ``served_by`` entries that equal the model's first: it says what changed."""
        if not record.served_by:
            return record
        firsts = [self.first_served.setdefault((one.get("role"), one["name"]), one) for one in record.served_by]
        others = (one for one, first in zip(record.served_by, firsts, strict=True) if one != first)
        return replace(record, served_by=tuple(others))

    def group_of(self, record: Record) -> Group:
        """Return a record's suite and model: a sample's by its node id, a hand-written test's by what answered it."""
        if not self.compared:
            return record.suite, None
        if record.nodeid in self.expected:
            return self.group_at(record.nodeid)
        return record.suite, record.model if record.model in self.compared else None

    @property
    def collected(self) -> set[str]:
        """Return the names of suites that have a file; other suites are known once a test has recorded to them."""
        return {name for name, info in self.suites.items() if info.path is not None}

    def ordered_records(self) -> tuple[Record, ...]:
        """Return the samples of suites in the order of collection, then those of hand-written tests by node id."""
        places = {nodeid: place for place, nodeid in enumerate(self.expected)}
        last = len(places)
        return tuple(sorted(self.records.values(), key=lambda one: (places.get(one.nodeid, last), one.nodeid)))

    def ordered_models(self, suites: Iterable[SuiteReport]) -> Iterator[Mapping[str, JSON]]:
        """Yield models in the order in which the suites name them, then those without a record, by name."""
        names = dict.fromkeys(model for suite in suites for model in suite.models)
        for name in (*names, *sorted(self.models.keys() - names)):
            if name not in self.models:
                continue
            if (None, name) in self.uses:
                yield {**self.models[name], "use": self._use(None, name)}
            else:
                yield self.models[name]

    def judges(self) -> Iterator[Mapping[str, JSON]]:
        """Yield the entries of ``Report.judges``, by role and name."""
        for role in ROLES:
            for name in sorted({name for found, name in (*self.uses, *self.known_judges) if found == role}):
                known = self.known_judges.get((role, name), {"role": role, "name": name})
                yield {**known, "use": self._use(role, name)} if (role, name) in self.uses else known

    def _use(self, role: str | None, name: str) -> dict[str, JSON]:
        """Return what was sent to a model behind a server, in all processes together."""
        return asdict(sum(self.uses[role, name].values(), ServerUse()))

    def find_mixtures(self) -> None:
        """Note a problem for each group that mixes suites or models: its numbers should be of one suite and model."""
        models: dict[Group, dict[str, None]] = {}
        conflicting_records: dict[str, str] = {}
        collected = self.collected
        for (group, _), record in self.records.items():
            if record.model is not None:
                models.setdefault(group, {})[record.model] = None
            if record.suite in collected and record.nodeid not in self.expected:
                conflicting_records.setdefault(record.suite, record.nodeid)
        for suite, nodeid in conflicting_records.items():
            path = self.suites[suite].path
            self.problems.append(
                f"suite {suite!r} is {path}, and {nodeid} records to it too: give those records another suite"
            )
        for group, names in models.items():
            if len(names) > 1:
                self.problems.append(
                    f"{described_group(group)} was answered by {' and by '.join(names)}: its numbers mix them"
                )

    def groups(self, records: Iterable[Record]) -> dict[Group, GroupRecords]:
        """Return the records of each suite and model, with the number of samples that were to run."""
        expected = self._expected_groups()
        groups: dict[Group, list[Record]] = {group: [] for group in expected}
        for record in records:
            groups.setdefault(self.group_of(record), []).append(record)
        found: dict[Group, GroupRecords] = {}
        for group, members in groups.items():
            own = expected.get(group, [])
            skipped = sum(nodeid in self.skipped for nodeid in own)
            others = sum(record.nodeid not in self.expected for record in members)
            found[group] = GroupRecords(
                records=members,
                info=self.suites.get(group[0]),
                num_expected=len(own) - skipped + others,
                num_skipped=skipped,
                model=group[1],
                engine=self.engines.get(group),
            )
        return found

    def num_expected(self, info: SuiteInfo) -> dict[Group, int]:
        """Return how many samples of the suite are to run, for each model if several are compared."""
        if self._num_counted != len(self.expected):
            # All suites are counted at once: one by one, the time would grow with samples times suites. The number of
            # expected node ids tells whether some were added, since none is ever removed.
            self._counts, self._num_counted = {}, len(self.expected)
            for suite, model in map(self.group_at, self.expected):
                self._counts.setdefault(suite, Counter())[model] += 1
        return {(info.name, model): number for model, number in self._counts.get(info.name, {}).items()}

    def group_at(self, nodeid: str) -> Group:
        """Return the suite and model of a sample that is expected. Raises ``KeyError``."""
        if self._num_named != len(self.suites):
            self._num_named = len(self.suites)
            self._names = {info.path: name for name, info in self.suites.items()}
        path, model = SampleNode.parse(nodeid).suite_and_model(self._names)
        return self._names[path], self.model_of_node.get(model or "")

    def _expected_groups(self) -> dict[Group, list[str]]:
        """Return the node ids of samples that were to run, by group, in order of appearance."""
        groups: dict[Group, list[str]] = {}
        for nodeid in self.expected:
            groups.setdefault(self.group_at(nodeid), []).append(nodeid)
        return groups


class ReportWriter:
    """Writes the files of a report. Until then the texts of samples, which take memory, are kept in a journal on disk.

    :param targets: the paths of the report's files, as the user named them.
    :param head: returns what is known of the session at its start, for the journal.
    :param keeps: the records whose texts the report has: ``all``, ``wrong`` (and unscored) or ``none``.
    :param tell: takes a problem: if a disk fails, texts or files are lost, but not the session.
    """

    def __init__(
        self,
        targets: Sequence[Path],
        head: Callable[[], Mapping[str, JSON]],
        tell: Callable[[str], None],
        *,
        keeps: Literal["all", "wrong", "none"] = "all",
    ) -> None:
        self._given = tuple(targets)
        # A test that changes the current directory does not move the reports.
        self._targets = [path.absolute() for path in targets]
        self._are_files = [not is_folder(path) for path in targets]
        self._head = head
        self._tell = tell
        self._keeps = keeps
        self._journal: Journal | None = None
        self._was_begun = not targets  # a session without a report has no journal to begin
        self.written: list[Path] = []
        """The files that were written, named as the user named them."""
        self._to_write = list(targets)

    @property
    def journal(self) -> Journal | None:
        """Return the journal, which is made on first use; None if no report is wanted or it cannot be written."""
        if not self._was_begun:
            self._was_begun = True
            try:
                target = self._targets[0]
                self._journal = Journal(journal_path(target, is_folder=is_folder(target)), self._head())
            except ReportError as error:
                self._tell(f"{error}: the report lacks the texts of samples")
        return self._journal

    def add_fact(self, kind: Kind, value: object) -> None:
        """Add to the journal something that is no record: see ``Journal.add_fact``."""
        if self.journal is not None:
            self.journal.add_fact(kind, value)

    def add(self, record: Record) -> int | None:
        """Add a record, with its texts if they are wanted. Return its place in the journal; None without a journal."""
        if self.journal is None:
            return None
        if self._keeps == "none" or (self._keeps == "wrong" and record.status not in ("wrong", "unscored")):
            # The beginning of a reply without an answer is in the record for the summary only.
            record = dataclasses.replace(without_texts(record), output=None)
        try:
            return self.journal.add(record)
        except JournalError as error:
            self._tell(f"{error}: the report lacks the texts of this sample and of those that came after it")
            return error.place

    def write(self, report: Report, places: Sequence[int | None]) -> bool:
        """Write the report's files with the texts of its records, and return whether all could be written.

        ``places`` are the places of ``report.records`` in the journal. If a file could not be written, the journal
        stays, which ``llmeval show`` reads.
        """
        whole = dataclasses.replace(report, records=self._whole(report.records, places))
        are_written = True
        for target, given, is_file in zip(self._targets, self._given, self._are_files, strict=True):
            try:
                if is_file and target.is_dir():
                    raise ReportError(f"cannot write the report {given}: a folder has taken its place")
                written = write_report_file(whole, target)
                self.written.append(given if written == target else given / written.name)
                self._to_write.remove(given)
            except (LLMEvalError, OSError) as error:
                are_written = False
                text = str(error) if isinstance(error, LLMEvalError) else f"cannot write the report {given}: {error}"
                self._tell(text)
        if self._journal is not None:
            self._journal.close(discard=are_written)
            if not are_written:
                self._tell(self._where_samples_are(places))
        return are_written

    def interrupted(self, places: Sequence[int | None]) -> str:
        """Return a line on a session that was interrupted at its end: the reports that it lacks, and where samples are.

        A report that was being written is lacking, too: its file holds what it held before.
        """
        names = ", ".join(map(str, self._to_write))
        if not names:
            return "interrupted"
        is_one = len(self._to_write) == 1
        what = f"the report {names} was written" if is_one else f"these reports were written: {names}"
        if self._journal is None:
            return f"interrupted before {what}"
        self._journal.close(discard=False)
        return f"interrupted before {what}; {self._where_samples_are(places)}"

    def _where_samples_are(self, places: Sequence[int | None]) -> str:
        """Return a line on the samples that can be read from the journal: a full disk may not have taken all."""
        assert self._journal is not None
        num_kept = sum(place is not None and self._journal.holds(place) for place in places)
        count = f"{num_kept} of the {len(places)}" if num_kept < len(places) else "the"
        path = self._journal.path
        return f"{count} finished samples are in {path}: llmeval show {path}"

    def discard(self) -> None:
        """Write no report, and leave no journal."""
        self._to_write.clear()
        if self._journal is not None:
            self._journal.close(discard=True)

    def _whole(self, records: Sequence[Record], places: Sequence[int | None]) -> Sequence[Record]:
        """Return the records with their texts, which the journal holds."""
        known = [place for place in places if place is not None]
        # The output of a record without texts is the beginning of a reply, for the summary: it is not the reply.
        records = [record if record.output is None else dataclasses.replace(record, output=None) for record in records]
        if self._journal is None or not known:
            return records
        if len(known) == len(records):
            return self._journal.records(known)
        whole = iter(self._journal.records(known))
        return [record if place is None else next(whole) for place, record in zip(places, records, strict=True)]
