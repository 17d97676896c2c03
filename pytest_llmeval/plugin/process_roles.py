"""The processes of a session: which one this is, what it is to do, and the warnings that only one of them shows.

Each worker of pytest-xdist collects everything. All have to collect the same tests, or pytest-xdist refuses the
session: so a filter of warnings must have the same effect in each.
"""

from __future__ import annotations

import argparse
import os
import secrets
import time
import warnings

import pytest

from pytest_llmeval.errors import LLMEvalError, OptionError
from pytest_llmeval.plugin.settings import read_named

__all__ = [
    "asks_for_suites",
    "is_first_process",
    "is_path",
    "is_worker",
    "runs_tests",
    "session_of",
    "share_session",
    "wants_prompts",
    "warn_once_in_session",
    "warn_once_of_suite",
]

_SESSION = "llmeval_session"
_session_key = pytest.StashKey[tuple[str, float]]()


def session_of(config: pytest.Config) -> tuple[str, float]:
    """Return the session's id (16 hex digits) and its beginning (Unix, s); its workers have the same."""
    if _session_key not in config.stash:
        given: tuple[str, float] | None = getattr(config, "workerinput", {}).get(_SESSION)
        config.stash[_session_key] = given or (secrets.token_hex(8), time.time())
    return config.stash[_session_key]


def share_session(config: pytest.Config, workerinput: dict[str, object]) -> None:
    """Give a worker the controller's ``session_of``, before it starts."""
    workerinput[_SESSION] = session_of(config)


def wants_prompts(config: pytest.Config) -> bool:
    """Tell whether ``--llm-show-prompts`` was given; also before options are checked."""
    try:
        return bool(read_named(config, "show_prompts"))
    except OptionError:
        return False  # pytest_configure says what is wrong


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def distributes(config: pytest.Config) -> bool:
    """Tell whether tests run in workers of pytest-xdist, whose controller this is."""
    option = config.option
    return bool(getattr(option, "tx", None)) and option.dist != "no" and not is_worker(config)


def runs_tests(config: pytest.Config) -> bool:
    """Tell whether tests are run, and not only listed or shown (``--collect-only``, ``--fixtures``, …)."""
    option = config.option
    looks = ("collectonly", "setuponly", "setupplan", "showfixtures", "show_fixtures_per_test", "cacheshow")
    return not (any(getattr(option, name, False) for name in looks) or wants_prompts(config))


def is_path(config: pytest.Config, argument: str) -> bool:
    """Tell whether an argument is a path, or a test in the file at a path: no test stands in a folder itself."""
    place, colons, _ = argument.partition("::")
    path = config.invocation_params.dir / place
    return os.path.lexists(path) and not (colons and os.path.isdir(path))


def asks_for_suites(options: argparse.Namespace) -> bool:
    """Tell whether the command line has an option of ours, or names a file that may be a suite."""
    given = vars(options)
    has_options = any(value is not None for name, value in given.items() if name.startswith("llm_"))
    files = (str(path).partition("::")[0] for path in given.get("file_or_dir") or ())
    return has_options or any(file.endswith((".yaml", ".yml")) for file in files)


def is_first_process(config: pytest.Config) -> bool:
    """Tell whether this is the only process, or the first worker: it shows what every worker would show."""
    return getattr(config, "workerinput", {}).get("workerid") in (None, "gw0")


def warn_once_of_suite(node: pytest.Collector, message: str) -> None:
    """Warn of something in the suite ``node`` while it is collected.

    Raises ``LLMEvalError`` under ``-W error``, in every worker: that suite is then a collection error of one line.
    """
    try:
        with warnings.catch_warnings(record=not is_first_process(node.config)):  # what is recorded is not shown
            node.warn(pytest.PytestWarning(message))
    except pytest.PytestWarning:
        raise LLMEvalError(message) from None


def warn_once_in_session(config: pytest.Config, warning: Warning) -> None:
    """Show a warning that belongs to no suite, under ``-W error`` too.

    If it was raised, other tests could not run: those of a folder, or all that were collected. Other filters hold.
    """
    if not is_first_process(config):
        return
    try:
        config.issue_config_time_warning(warning, stacklevel=2)
    except type(warning):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn(warning, stacklevel=2)
        shown = {"warning_message": caught[0], "when": "collect", "nodeid": "", "location": None}
        config.hook.pytest_warning_recorded.call_historic(kwargs=shown)
