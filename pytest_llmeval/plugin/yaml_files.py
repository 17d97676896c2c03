"""Which YAML files are suites: those whose first key is ``suite``, and task files of lm-eval."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_llmeval.plugin.process import warn_once_in_session
from pytest_llmeval.plugin.settings import settings_key
from pytest_llmeval.suites.format.sniff import find_suite_key

__all__ = ["collect_yaml_file"]


def collect_yaml_file(
    parent: pytest.Collector, file_path: Path, collectors: list[pytest.Collector]
) -> list[pytest.Collector]:
    """``collectors``, which are those of other plugins, and the file's suites. Any other YAML file is left alone."""
    suite_key = find_suite_key(file_path)
    if suite_key is not None and suite_key.is_first:
        from pytest_llmeval.plugin.suite_collectors import SuiteFile

        return [*collectors, SuiteFile.of(parent, file_path)]
    is_named = parent.session.isinitpath(file_path)
    if is_named or parent.config.stash[settings_key].lm_eval:
        from pytest_llmeval.suites.lm_eval.recognize import is_task_file

        if is_task_file(file_path):
            from pytest_llmeval.plugin.task_collectors import collect_task_file

            return [*collectors, *collect_task_file(parent, file_path)]
    if not collectors and is_named:
        from pytest_llmeval.plugin.suite_collectors import NotASuite

        return [NotASuite.from_parent(parent, path=file_path)]
    if not collectors and suite_key is not None:
        # A file that would be a suite, but for the place of a key, must not be passed over in silence.
        shown = os.path.relpath(file_path, parent.config.invocation_params.dir)
        message = (
            f"{shown}:{suite_key.line}: not collected as a suite: `suite` is not the first key; move it to the top"
        )
        warn_once_in_session(parent.config, pytest.PytestCollectionWarning(message))
    return collectors
