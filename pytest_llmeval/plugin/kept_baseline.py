"""``--llm-update-baseline``: the file that ``--llm-baseline`` names, checked before a session, written after it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from pytest_llmeval.errors import OptionError, ReportError
from pytest_llmeval.gates.kept_baseline import (
    Texts,
    changed_values,
    keeps_replies,
    kept_report,
    removed_suites,
    why_not_kept,
)
from pytest_llmeval.plugin.gate_setup import baseline_of, baseline_path
from pytest_llmeval.reporting.storage.atomic_write import check_writable
from pytest_llmeval.reporting.storage.report_file import write_report
from pytest_llmeval.text.wording import counted

if TYPE_CHECKING:
    import pytest

    from pytest_llmeval.plugin.settings import Settings
    from pytest_llmeval.reporting.report.records import Record, SuiteInfo
    from pytest_llmeval.reporting.report.report import Group, Report

__all__ = ["BaselineWriter"]


class BaselineWriter:
    """The baseline that a session is to write. It keeps the texts that the baseline will have.

    ``outcome_lines`` say at the end what became of it; ``is_written`` is False until then.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        path = baseline_path(config, settings)
        assert path is not None  # ``check_gates`` has checked it
        self._config, self._settings, self._path = config, settings, path
        self._replies: dict[tuple[Group, str], Texts] = {}
        self.outcome_lines: tuple[str, ...] = ()
        self.is_written = False

    def check(self) -> None:
        """Raise ``OptionError`` if the file could not be written once the session is over."""
        if self._path.suffix.lower() != ".json":
            raise OptionError(
                f"--llm-update-baseline: a baseline is a report in JSON: expected FILE.json, found {self._path}"
            )
        try:
            check_writable(self._path)
        except ReportError as error:
            raise OptionError(f"--llm-update-baseline: {error}") from None

    def add(self, group: Group, record: Record, suite: SuiteInfo | None) -> None:
        """Keep the texts of a sample if later replies may be compared with its reply."""
        if suite is not None and keeps_replies(suite):
            self._replies[group, record.id] = record.question, record.output

    def write(self, report: Report, absent: Collection[SuiteInfo]) -> None:
        """Write the baseline if the session of this report ended well.

        ``absent`` are suites that were collected, and of which no sample ran.
        """
        earlier = baseline_of(self._config)
        accepts = self._settings.update_baseline == "accept"
        problem = why_not_kept(report, earlier, absent=absent, accepts=accepts)
        if problem is None:
            baseline = kept_report(report, self._settings.max_drop, self._replies)
            try:
                # A test may have changed the current directory.
                write_report(baseline, self._config.invocation_params.dir / self._path)
            except ReportError as error:
                problem = str(error)
        self.is_written = problem is None
        if problem is not None:
            self.outcome_lines = (f"{self._path} not written: {problem}",)
            return
        num_suites, num_samples = len(baseline.suite_names), len(baseline.records)
        written = f"{self._path} written: {counted(num_suites, 'suite')}, {counted(num_samples, 'sample')}"
        if earlier is not None and (removed := removed_suites(report, earlier)) is not None:
            written += f"; removes {removed}"
        is_accepted = any(gate.outcome == "failed" for gate in report.gates)
        changed = changed_values(report, earlier) if earlier is not None and is_accepted else ()
        self.outcome_lines = (written, *changed)
