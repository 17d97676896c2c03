"""GitHub Actions: annotations and the job summary of a session."""

from __future__ import annotations

import os

import pytest

from pytest_llmeval.reporting.report.report import Report

__all__ = ["tell_github"]


def tell_github(terminal: pytest.TerminalReporter, report: Report) -> None:
    """Append the summary to the job's, and make annotations of gates that failed. Nothing elsewhere."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    from pytest_llmeval.reporting.writers.github import annotation_lines, append_job_summary

    warning = append_job_summary(report, os.environ)
    if warning is not None:
        terminal.write_line(warning, yellow=True)
    for line in annotation_lines(report, os.environ, root=terminal.config.rootpath):
        terminal.ensure_newline()
        terminal.write_line(line)
