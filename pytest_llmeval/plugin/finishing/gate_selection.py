"""Which part of the project a session was to run, and so whether a gate sees all samples that it is about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_llmeval.gates.options import Selection
from pytest_llmeval.plugin.options.settings import settings_key
from pytest_llmeval.plugin.stash import has_model_key, num_deselected_key
from pytest_llmeval.reporting.report.records import SuiteInfo
from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.text.node_ids import split_file

__all__ = ["selection_of"]

_BY_OUTCOME = ("lf", "stepwise")
"""Options of pytest that choose tests by how they came out, as ``config.option`` has them."""
_BY_PLACE = ("ignore", "ignore_glob")


def selection_of(
    config: pytest.Config, report: Report, baseline: Report | None, absent: Sequence[SuiteInfo]
) -> Selection:
    """The selection of a session that has run. ``absent`` are suites that were collected, with no sample to run."""
    option = config.option
    is_by_outcome = any(getattr(option, name, None) for name in _BY_OUTCOME)
    is_partial = (
        config.stash.get(num_deselected_key, 0) > 0
        or is_by_outcome
        or any(getattr(option, name, None) for name in _BY_PLACE)
        or any("::" in argument for argument in config.args)
    )
    folder = config.invocation_params.dir
    places = [(folder / argument.partition("::")[0]).resolve() for argument in config.args]
    files = {} if baseline is None else _files_of_recorded(baseline)

    def covers(info: SuiteInfo) -> bool:
        """Whether the session looked where the suite stands. One whose file is gone would have been found anywhere."""
        path = files.get(info.name) if info.path is None else split_file(info.path)[0]
        if path is None:
            return True
        file = (config.rootpath / path).resolve()
        return not file.exists() or any(file == place or place in file.parents for place in places)

    named = config.args_source is config.ArgsSource.ARGS
    return Selection(
        covers=covers,
        is_partial=is_partial,
        is_whole=not is_partial and (not named or any(place in (config.rootpath, Path.cwd()) for place in places)),
        is_by_outcome=is_by_outcome
        and any(suite.info.num_samples is None or suite.is_selection for suite in report.suites),
        absent=absent,
        # Whether a model was there to answer: that of a conftest.py may still have skipped.
        has_model=bool(config.stash[settings_key].models or report.records or config.stash.get(has_model_key, False)),
    )


def _files_of_recorded(baseline: Report) -> dict[str, str]:
    """Where the suites of hand-written tests stand, which have no file of their own."""
    recorded = {suite.info.name for suite in baseline.suites if suite.info.path is None}
    files: dict[str, str] = {}
    if recorded:
        for record in baseline.records:
            if record.suite in recorded:
                files.setdefault(record.suite, split_file(record.nodeid)[0])
    return files
