"""Whether the session needs a model, and has one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import pytest

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.plugin.models.overridden import is_overridden
from pytest_llmeval.plugin.options.settings import settings_key
from pytest_llmeval.text.node_ids import split_file

__all__ = ["lacks_model", "require_model", "responses_key", "stop_without_model"]

responses_key = pytest.StashKey[dict[Path, bool | None]]()
"""Whether the suites of this session that have been read carry their replies, by file."""


def require_model(config: pytest.Config, nodeids: Iterable[str]) -> None:
    """Suites named on the command line, and nothing to answer them: that is a mistake, not something to skip.

    What a controller of pytest-xdist cannot judge is left to its workers.
    """
    if _may_lack_models(config):
        return
    for path in dict.fromkeys(split_file(nodeid)[0] for nodeid in nodeids):
        file = Path(os.path.normpath(config.rootpath / path))
        if not is_overridden(config, file) and _brings_responses(config, file) is False:
            raise pytest.UsageError(_needs_model(path))


def lacks_model(config: pytest.Config, file: Path) -> bool:
    """Whether nobody is there to answer the suites of a file whose data carry no replies, and a path was named."""
    return not _may_lack_models(config) and not is_overridden(config, file)


def stop_without_model(session: pytest.Session, path: str) -> NoReturn:
    """Fail a test as ``require_model`` refuses its suite, and run no other."""
    session.shouldfail = f"{path} needs a model"
    pytest.fail(_needs_model(path), pytrace=False)


def _may_lack_models(config: pytest.Config) -> bool:
    """Whether there is a model, or neither a path was named nor a gate asked for."""
    settings = config.stash[settings_key]
    was_asked_for = config.args_source is config.ArgsSource.ARGS or bool(settings.gate) or settings.baseline is not None
    return bool(settings.models) or not was_asked_for


def _needs_model(path: str) -> str:
    return (
        f"{path} needs a model: give --llm-model (--llm-model demo ships with the plugin), "
        "or override the fixture llm_model in a conftest.py"
    )


def _brings_responses(config: pytest.Config, file: Path) -> bool | None:
    """Whether the suite's data carry the replies. A controller collects nothing: it reads the suite for this.

    None where it cannot: a benchmark in Python, a task of lm-eval, a suite whose scorer a conftest.py registers.
    """
    known: dict[Path, bool | None] = config.stash.setdefault(responses_key, {})
    if file not in known:
        is_controller = config.pluginmanager.has_plugin("llmeval-distribution")
        known[file] = _own_responses(config, file) if is_controller else False
    return known[file]


def _own_responses(config: pytest.Config, file: Path) -> bool | None:
    from pytest_llmeval.suites.format.sniff import is_suite_file
    from pytest_llmeval.suites.loading.loader import load_suite
    from pytest_llmeval.suites.loading.own_responses import has_own_responses

    if file.suffix not in (".yaml", ".yml") or not is_suite_file(file):
        return None
    try:
        return has_own_responses(load_suite(file, overrides=config.stash[settings_key].set))
    except LLMEvalError:
        return None
