"""Which part of the project a session was to run, and so whether a gate sees all samples that it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_llmeval.gates.options import Selection
from pytest_llmeval.plugin.settings import settings_key
from pytest_llmeval.plugin.stash import has_model_key, num_deselected_key
from pytest_llmeval.reporting.report.records import SuiteInfo
from pytest_llmeval.reporting.report.report import Report, Selected, SuiteReport
from pytest_llmeval.text.node_ids import split_file
from pytest_llmeval.text.redaction import redact

__all__ = ["selected_of", "selection_of"]

_BY_OUTCOME = {"lf": "--lf", "stepwise": "--sw"}
"""Options of pytest that choose tests by how they came out, by their names in ``config.option``."""
_BY_PLACE = {"ignore": "--ignore", "ignore_glob": "--ignore-glob"}
_BY_TEST = {"keyword": "-k", "markexpr": "-m", "deselect": "--deselect"}
_MAX_NAMED = 3
"""Values of one option, and ids."""


def selected_of(config: pytest.Config, suites: Sequence[SuiteReport]) -> Selected:
    """Return what of the tests was left out in a session that has run ``suites``, and by what."""
    option, settings = config.option, config.stash[settings_key]
    num_deselected = config.stash.get(num_deselected_key, 0)
    is_short = num_deselected > 0 or any(suite.is_selection for suite in suites)
    by = [flag for name, flag in _BY_OUTCOME.items() if getattr(option, name, None)]
    is_by_outcome = bool(by)
    for name, flag in {**_BY_PLACE, **(_BY_TEST if is_short else {})}.items():
        if given := getattr(option, name, None):
            by.append(f"{flag} {_listed([given] if isinstance(given, str) else given)}")
    if ids := [argument for argument in config.args if "::" in argument]:
        by.append(_listed(ids))
    own = {"--llm-limit": settings.limit, "--llm-shard": settings.shard} if is_short else {}
    by += [f"{flag} {value}" for flag, value in own.items() if value is not None]
    if is_short and not by:
        by.append("a hook or another plugin")
    return Selected(by=tuple(map(redact, by)), is_by_outcome=is_by_outcome)


def _listed(given: Sequence[object]) -> str:
    more = len(given) - _MAX_NAMED
    return ", ".join([*map(str, given[:_MAX_NAMED]), *([f"and {more} more"] if more > 0 else [])])


def selection_of(
    config: pytest.Config, report: Report, baseline: Report | None, absent: Sequence[SuiteInfo]
) -> Selection:
    """Return the selection of a session that has run. ``absent`` are suites that were collected, with no sample to
    run.
    """
    known = Selection.of(report)
    folder = config.invocation_params.dir
    places = [(folder / argument.partition("::")[0]).resolve() for argument in config.args]
    files = {} if baseline is None else _files_of_recorded(baseline)

    def covers(info: SuiteInfo) -> bool:
        """Tell whether the session looked where the suite stands. One whose file is gone would have been found
        anywhere.
        """
        path = files.get(info.name) if info.path is None else split_file(info.path)[0]
        if path is None:
            return True
        file = (config.rootpath / path).resolve()
        return not file.exists() or any(file == place or place in file.parents for place in places)

    named = config.args_source is config.ArgsSource.ARGS
    is_everywhere = not named or any(place in (config.rootpath, Path.cwd()) for place in places)
    return replace(
        known,
        covers=covers,
        is_whole=not known.is_partial and is_everywhere,
        absent=absent,
        # Whether a model was there to answer: that of a conftest.py may still have skipped.
        has_model=bool(config.stash[settings_key].models or report.records or config.stash.get(has_model_key, False)),
    )


def _files_of_recorded(baseline: Report) -> dict[str, str]:
    """Return where the suites of hand-written tests stand, which have no file of their own."""
    recorded = {suite.info.name for suite in baseline.suites if suite.info.path is None}
    files: dict[str, str] = {}
    if recorded:
        for record in baseline.records:
            if record.suite in recorded:
                files.setdefault(record.suite, split_file(record.nodeid)[0])
    return files
