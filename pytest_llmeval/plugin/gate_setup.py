"""The gates of a session: which it has, from its options, and which samples of the project they are decided on.

Here is also the session's baseline, for gates and for scorers that compare replies. Gates are read before anything
runs, so that nothing runs for a mistake in them.
"""

from __future__ import annotations

import glob
import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmeval.errors import LLMEvalError, OptionError
from pytest_llmeval.plugin.settings import Settings, settings_key, was_given
from pytest_llmeval.plugin.stash import has_model_key, num_deselected_key
from pytest_llmeval.text.names import split_file
from pytest_llmeval.text.redaction import redact
from pytest_llmeval.text.wording import quoted

if TYPE_CHECKING:
    from pytest_llmeval.gates.options import GateOptions, Selection
    from pytest_llmeval.plugin.xdist_messages import Collected
    from pytest_llmeval.reporting.report.records import SuiteInfo
    from pytest_llmeval.reporting.report.report import Report, Selected, SuiteReport
    from pytest_llmeval.suites.loading.suite import Suite

__all__ = [
    "baseline_of",
    "baseline_path",
    "check_gates",
    "check_matched",
    "check_whole",
    "describe_baseline",
    "earlier_key",
    "gate_options",
    "is_first_run",
    "lacks_baseline",
    "read_baseline",
    "selected_of",
    "selection_of",
    "with_earlier_replies",
]


earlier_key = pytest.StashKey[Any]()
"""The ``EarlierReports`` of the session, once they were read."""

_newest_key: pytest.StashKey[Report] = pytest.StashKey()
"""The newest of them, in a worker."""


def baseline_of(config: pytest.Config) -> Report | None:
    """Return the session's baseline, of several reports the newest; None if it has none or did not read it yet."""
    earlier = config.stash.get(earlier_key, None)
    return None if earlier is None else earlier.newest


def gate_options(config: pytest.Config, settings: Settings) -> GateOptions:
    """Return the session's gates, with the settings of the comparison with its baseline."""
    from pytest_llmeval.gates.options import BaselineSettings, GateOptions

    comparison = BaselineSettings(
        mode=settings.gate_mode, margins=settings.max_drop, compare=settings.compare, alpha=settings.alpha
    )
    return GateOptions(
        given=(*((gate, "ini") for gate in settings.project_gate), *((gate, "option") for gate in settings.gate)),
        comparison=None if baseline_path(config, settings) is None else comparison,
        origin="ini" if settings.baseline is None else "option",
        allow_unscored=settings.allow_unscored,
        require=settings.require_gates or settings.project_require_gates,
        is_first=is_first_run(config, settings),
    )


def baseline_path(config: pytest.Config, settings: Settings) -> Path | None:
    """Return the path of the report to compare with; a path of the ini file is relative to that file's folder."""
    if settings.baseline is not None:
        return settings.baseline
    if settings.project_baseline is None or config.inipath is None:
        return settings.project_baseline
    return config.inipath.parent / settings.project_baseline


def is_first_run(config: pytest.Config, settings: Settings) -> bool:
    """Tell whether there is no baseline yet, and this session is to write it."""
    path = baseline_path(config, settings)
    return settings.update_baseline is not None and path is not None and not os.path.exists(path)


def check_gates(config: pytest.Config, settings: Settings) -> None:
    """Raise ``OptionError`` for options that mean nothing without another, or would write over the baseline."""
    path = baseline_path(config, settings)
    for name in ("max_drop", "gate_mode", "compare", "alpha", "baseline_last"):
        if path is None and config.getoption(f"llm_{name}", None) is not None:
            flag = "--llm-" + name.replace("_", "-")
            raise OptionError(f"{flag} applies to a comparison only: give --llm-baseline REPORT.json as well")
    if settings.update_baseline is not None:
        _check_update(config, settings, path)
    baselines: list[Path] = []
    if path is not None and settings.report:
        with suppress(OptionError):  # it is raised where the baseline is read: one of the ini file may be for no suite
            baselines = _paths(path, settings)
    for target in settings.report:
        if any(_is_same_file(target, one) for one in baselines):
            raise OptionError(
                f"--llm-report {target} is also the baseline: this run would overwrite it, and the next run would be "
                "compared with this one; name another file"
            )


def _is_same_file(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)


def _check_update(config: pytest.Config, settings: Settings, path: Path | None) -> None:
    """Raise ``OptionError`` for ``--llm-update-baseline`` in a session that could never write a baseline."""
    flag = "--llm-update-baseline"
    if (standing := _standing_update(config, flag)) is not None:
        raise OptionError(
            f"{standing} would replace the baseline in every run: give {flag} on the command line when it is meant"
        )
    if path is None:
        raise OptionError(f"{flag} writes the file of --llm-baseline: give --llm-baseline REPORT.json as well")
    if glob.has_magic(str(path)) and not os.path.exists(path):
        raise OptionError(f"{flag} writes one file, and --llm-baseline {path} may be several: name one")
    if settings.shard is not None:
        raise OptionError(
            f"{flag} is for whole suites, and --llm-shard {settings.shard} runs a part of them: leave {flag} out; "
            "llmeval merge makes one report of those of the shards, which can be a baseline as it is"
        )
    ids = _ids(config)
    selecting = {"--lf": "lf", "--sw": "stepwise"}
    given = [
        *(name for name, dest in selecting.items() if getattr(config.option, dest, None)),
        *(() if settings.limit is None else (f"--llm-limit {settings.limit}",)),
        *ids[:1],
    ]
    if given:
        raise OptionError(f"{flag} is for whole suites, and {given[0]} selects some samples: leave one of the two out")


def _standing_update(config: pytest.Config, flag: str) -> str | None:
    """Return the place outside of the command line that asks for an update; None if there is none."""
    if config.getoption("llm_update_baseline", None) is None:
        variable = "PYTEST_LLM_UPDATE_BASELINE"
        return variable if os.environ.get(variable) else "llm_update_baseline in the ini file"
    with suppress(ValueError):  # of quotes that are not closed, which pytest refuses
        standing = {
            "addopts in the ini file": config.getini("addopts"),
            "PYTEST_ADDOPTS": shlex.split(os.environ.get("PYTEST_ADDOPTS", "")),
        }
        for place, arguments in standing.items():
            if any(argument.partition("=")[0] == flag for argument in arguments):
                return f"{flag} in {place}"
    return None


def _paths(path: Path, settings: Settings) -> list[Path]:
    """Return the files of the baseline's path, which may be a pattern. Raises ``OptionError``."""
    from pytest_llmeval.gates.earlier_reports import report_paths

    try:
        return report_paths(path)
    except LLMEvalError as error:
        raise OptionError(f"{_named(settings)}: {error}") from None


def _named(settings: Settings) -> str:
    return "llm_baseline" if settings.baseline is None else "--llm-baseline"


def check_matched(config: pytest.Config, collected: Collected) -> None:
    """Raise ``pytest.UsageError``, before anything runs, for a gate or margin of the command line that fits no suite.

    It may fit another suite if a hand-written test can record to one: then nothing is checked. ``--lf`` collects no
    file in which nothing failed: then a gate of one suite is decided at the end.
    """
    if not collected.samples or collected.may_have_others:
        return
    messages = [*_unmatched_gates(config, collected), *_unmatched_margins(config, collected)]
    if messages:
        raise pytest.UsageError("; ".join(messages))


def _unmatched_gates(config: pytest.Config, collected: Collected) -> list[str]:
    gates = config.stash[settings_key].gate
    if not gates:
        return []
    from pytest_llmeval.gates.subjects import unmatched_gates

    if getattr(config.option, "lf", False):
        gates = tuple(gate for gate in gates if gate.is_for_all)
    return unmatched_gates({"--llm-gate": gates}, [*collected.suites, *collected.absent], collected.categories)


def _unmatched_margins(config: pytest.Config, collected: Collected) -> list[str]:
    """Return a line for each margin that fits no suite, of this session or of its baseline.

    None where suites may not have been collected: then it is decided at the end.
    """
    settings = config.stash[settings_key]
    is_part = settings.shard is not None or bool(_ids(config))
    by = {**_BY_OUTCOME, **_BY_PLACE}
    if not was_given(config, "max_drop") or is_part or any(getattr(config.option, name, None) for name in by):
        return []
    from pytest_llmeval.gates.suite_plans import unmatched_margins, with_metrics

    baseline = baseline_of(config)
    others = [] if baseline is None else with_metrics(baseline.suites)
    suites = [(info, info.metrics) for info in (*collected.suites, *collected.absent)]
    return [
        f"--llm-max-drop {quoted(margin.text)}: {reason}"
        for margin, reason in unmatched_margins(settings.max_drop, suites, others)
    ]


def check_whole(config: pytest.Config, collected: Collected) -> None:
    """Raise ``pytest.UsageError``, before anything runs, if ``--llm-update-baseline`` would see a selection of suites.

    Tests that record to suites by hand are not among the samples: theirs is found at the end.
    """
    num_models = max(1, len(config.stash[settings_key].models))
    infos = (*collected.suites, *collected.absent)
    num_all = num_models * sum(info.num_samples or 0 for info in infos)
    if (num_selected := len(collected.samples)) < num_all:
        raise pytest.UsageError(
            f"--llm-update-baseline is for whole suites, and {num_selected:,} of {num_all:,} samples are selected: "
            "leave out what selects them (-k, -m, --deselect, …)"
        )


def read_baseline(config: pytest.Config, settings: Settings) -> None:
    """Read the baseline, if the session has one and it was not read before. Raises ``OptionError``."""
    path = baseline_path(config, settings)
    if path is None or earlier_key in config.stash or is_first_run(config, settings):
        return
    from pytest_llmeval.gates.earlier_reports import read_earlier

    paths = _paths(path, settings)
    try:
        if not os.path.exists(paths[0]):  # False for a name that is too long, and no error
            raise OptionError(f"there is no {path}: if this is the first run, add --llm-update-baseline to write it")
        config.stash[earlier_key] = read_earlier(paths, settings.baseline_last)
    except LLMEvalError as error:
        raise OptionError(f"{_named(settings)}: {error}") from None


def with_earlier_replies(node: pytest.Collector, suite: Suite) -> tuple[Suite, dict[str, str]]:
    """Return the suite with the baseline's reply to each sample, and what that adds to the parts of its fingerprint.

    The suite stays as it is if its scorer needs no baseline. Without a baseline its tests are skipped: a session that
    was to run them ends before (see ``add_collected``). Raises ``LLMEvalError`` for a baseline that does not fit.
    """
    if not suite.spec.score.needs_baseline:
        return suite, {}
    from pytest_llmeval.gates.earlier_reports import ABSENT, in_order, other_form, report_paths, suite_of_baseline
    from pytest_llmeval.reporting.report.served_models import REPLIES, earlier_replies, replies_identity
    from pytest_llmeval.reporting.storage.report_file import read_report

    config = node.config
    settings = config.stash[settings_key]
    path = baseline_path(config, settings)
    if path is None or is_first_run(config, settings):
        node.add_marker(pytest.mark.skip(reason="no baseline: give --llm-baseline"))
        return suite, {}
    baseline = baseline_of(config) or config.stash.get(_newest_key, None)
    if baseline is None:  # in a worker, whose controller has verified it
        reports = [(str(one), read_report(one)) for one in report_paths(path)]
        baseline = config.stash[_newest_key] = in_order(reports)[-1][1]
    names = [spec.name for spec in settings.model_specs]
    name = suite.name
    if settings.compare == "questions" and name not in baseline.suite_names:
        name = other_form(suite.spec.suite, {}, [one.info for one in baseline.suites]) or name
    found = suite_of_baseline(baseline, name, names[0] if len(names) == 1 else None)
    if isinstance(found, str):
        why = f"it has no suite {quoted(suite.name)}" if found == ABSENT else found
        raise suite.error(f"cannot compare with {path}: {why}", keys=("score", "pairwise", "against"))
    replies = earlier_replies(baseline, found, suite)
    if all(reply.text is None and reply.problem is None for reply in replies.values()):
        keeps = "--llm-report-records none writes none"
        if baseline.is_brief:
            keeps = "--llm-update-baseline writes those of suites with this scorer, or with one of --llm-set"
        why = f"it holds no reply to this suite's samples ({keeps})"
        raise suite.error(f"cannot compare with {path}: {why}", keys=("score", "pairwise", "against"))
    samples = tuple(replace(sample, earlier=replies[sample.id]) for sample in suite.samples)
    return replace(suite, samples=samples), {REPLIES: replies_identity(baseline, found)}


def lacks_baseline(suite: Suite) -> bool:
    """Tell whether a suite's replies are to be compared with those of a baseline, and there is none."""
    return suite.spec.score.needs_baseline and suite.samples[0].earlier is None


def describe_baseline(config: pytest.Config) -> str | None:
    """Return the baseline in a few words, for the session's header."""
    baseline = baseline_of(config)
    path = baseline_path(config, config.stash[settings_key])
    if is_first_run(config, config.stash[settings_key]):
        return f"{path} (not there yet: this session writes it if it ends well)"
    if baseline is None or path is None:
        return None
    earlier = config.stash[earlier_key]
    if (number := len(earlier.reports)) > 1:
        num_last = min(earlier.num_last, number)
        latest = "the latest" if num_last == 1 else f"the mean of the last {num_last}"
        since = earlier.reports[0][1].created
        return f"{path} ({number} reports, {since} to {baseline.created}: {latest}, and the oldest)"
    models = ", ".join(baseline.model_names) or "no model"
    num_suites = len(baseline.suite_names)
    return f"{path} ({models}, {baseline.created}, {num_suites} suite{'' if num_suites == 1 else 's'})"


_BY_OUTCOME = {"lf": "--lf", "stepwise": "--sw"}
"""Options of pytest that choose tests by their earlier outcome, by their names in ``config.option``."""
_BY_PLACE = {"ignore": "--ignore", "ignore_glob": "--ignore-glob"}
_BY_TEST = {"keyword": "-k", "markexpr": "-m", "deselect": "--deselect"}
_MAX_NAMED = 3
"""The number of values of one option, and of ids, that are named."""


def selected_of(config: pytest.Config, suites: Sequence[SuiteReport]) -> Selected:
    """Return which options or hooks have left out tests of a session that has run ``suites``."""
    from pytest_llmeval.reporting.report.report import Selected

    option, settings = config.option, config.stash[settings_key]
    num_deselected = config.stash.get(num_deselected_key, 0)
    is_short = num_deselected > 0 or any(suite.is_selection for suite in suites)
    by = [flag for name, flag in _BY_OUTCOME.items() if getattr(option, name, None)]
    is_by_outcome = bool(by)
    for name, flag in {**_BY_PLACE, **(_BY_TEST if is_short else {})}.items():
        if given := getattr(option, name, None):
            by.append(f"{flag} {_listed([given] if isinstance(given, str) else given)}")
    if ids := _ids(config):
        by.append(_listed(ids))
    own = {"--llm-limit": settings.limit, "--llm-shard": settings.shard} if is_short else {}
    by += [f"{flag} {value}" for flag, value in own.items() if value is not None]
    if is_short and not by:
        by.append("a hook or another plugin")
    return Selected(by=tuple(map(redact, by)), is_by_outcome=is_by_outcome)


def _ids(config: pytest.Config) -> list[str]:
    """Return the node ids that were given, also those of suites by their names, which are no arguments any more."""
    return [text for text in (*config.args, *config.stash[settings_key].suite) if "::" in text]


def _listed(given: Sequence[object]) -> str:
    more = len(given) - _MAX_NAMED
    return ", ".join([*map(str, given[:_MAX_NAMED]), *([f"and {more} more"] if more > 0 else [])])


def selection_of(
    config: pytest.Config, report: Report, baseline: Report | None, absent: Sequence[SuiteInfo]
) -> Selection:
    """Return which samples of the project a session was to run, and so whether a gate sees all that it is about.

    ``absent`` are suites that were collected, but have no sample to run.
    """
    from pytest_llmeval.gates.options import Selection

    known = Selection.of(report)
    folder = config.invocation_params.dir
    places = [(folder / argument.partition("::")[0]).resolve() for argument in config.args]
    files = {} if baseline is None else _files_of_recorded(baseline)

    def covers(info: SuiteInfo) -> bool:
        """Tell whether the session has looked where the suite stands; for a file that is gone, any place will do."""
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
        # A model of a conftest.py may be there, and may still have skipped all samples.
        has_model=bool(config.stash[settings_key].models or report.records or config.stash.get(has_model_key, False)),
    )


def _files_of_recorded(baseline: Report) -> dict[str, str]:
    """Return the files whose hand-written tests record to suites, by suite: these have no file of their own."""
    recorded = {suite.info.name for suite in baseline.suites if suite.info.path is None}
    files: dict[str, str] = {}
    if recorded:
        for record in baseline.records:
            if record.suite in recorded:
                files.setdefault(record.suite, split_file(record.nodeid)[0])
    return files
