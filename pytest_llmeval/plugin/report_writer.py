"""From a session's records to the files of its report, through a journal that survives a killed session."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pytest_llmeval.errors import LLMEvalError, ReportError
from pytest_llmeval.reporting.report.records import Record, without_texts
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.storage.journal import Journal, JournalError, Kind, journal_path
from pytest_llmeval.reporting.writers.report_paths import is_folder, write_report_file
from pytest_llmeval.types import JSON

__all__ = ["ReportWriter"]


class ReportWriter:
    """Keeps on disk what takes memory, the texts of samples, until they are written.

    :param targets: where the report goes, as the user named it.
    :param head: what is known of the session at its start, for the journal.
    :param keeps: the records whose texts the report has: ``all``, ``wrong`` (and unscored) or ``none``.
    :param tell: takes a problem: a disk that fails costs texts or files, and not the session.
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
        self._was_begun = not targets
        self.written: list[Path] = []
        """The report's files, once they are there, as the user named them."""
        self._to_write = list(targets)

    @property
    def journal(self) -> Journal | None:
        """Return the journal, made before the first thing that goes into it; None where no report is wanted, or it
        cannot be written.
        """
        if not self._was_begun:
            self._was_begun = True
            try:
                target = self._targets[0]
                self._journal = Journal(journal_path(target, is_folder=is_folder(target)), self._head())
            except ReportError as error:
                self._tell(f"{error}: the report lacks the texts of samples")
        return self._journal

    def add_fact(self, kind: Kind, value: object) -> None:
        """Add what is known beside records to the journal: see ``Journal.add_fact``."""
        if self.journal is not None:
            self.journal.add_fact(kind, value)

    def add(self, record: Record) -> int | None:
        """Add a record, with its texts if they are wanted. Return its place in the journal; None where there is
        none.
        """
        if self.journal is None:
            return None
        if self._keeps == "none" or (self._keeps == "wrong" and record.status not in ("wrong", "unscored")):
            # What is left of a reply without an answer is for the summary.
            record = dataclasses.replace(without_texts(record), output=None)
        try:
            return self.journal.add(record)
        except JournalError as error:
            self._tell(f"{error}: the report lacks the texts of this sample and of those that came after it")
            return error.place

    def write(self, report: Report, places: Sequence[int | None]) -> bool:
        """Write the report's files, with the texts of its records; ``places`` are those of ``report.records``.

        Whether all could be written. What could not leaves the journal, which ``llmeval show`` reads.
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

        A report that was being written is one of them: its file holds what it held before.
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
        """Return how many samples can be read from the journal: a disk that is full did not take all."""
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
        # What a record without texts keeps of a reply is for the summary: it is not the reply.
        records = [record if record.output is None else dataclasses.replace(record, output=None) for record in records]
        if self._journal is None or not known:
            return records
        if len(known) == len(records):
            return self._journal.records(known)
        whole = iter(self._journal.records(known))
        return [record if place is None else next(whole) for place, record in zip(places, records, strict=True)]
