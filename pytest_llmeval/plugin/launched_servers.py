"""The servers that a session starts: their keeper is in the process that reports, and workers know where it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.base import Model
from pytest_llmeval.models.servers.launched import Launched
from pytest_llmeval.models.settings import ModelSettings, ShowStart
from pytest_llmeval.models.specs import ModelSpec
from pytest_llmeval.plugin.process_roles import is_worker

if TYPE_CHECKING:
    from pytest_llmeval.models.servers.launching import LaunchedModel, LaunchPlan
    from pytest_llmeval.plugin.settings import Settings

__all__ = ["end_previous", "launched_servers", "share_launched", "start_keeper", "watch_launched"]

_FOLDER = "llmeval_launched"
_folder_key = pytest.StashKey[Path]()
_evaluated_key: pytest.StashKey[LaunchedModel] = pytest.StashKey()
"""The model under evaluation that has servers of its own now, in a session of one process."""


def start_keeper(config: pytest.Config, specs: Sequence[ModelSpec], own: ModelSettings) -> None:
    """Have the servers of those models that need one kept until the session ends; none starts before it is asked for.

    Raises ``ModelError`` or ``OptionError`` for a model that cannot be started.
    """
    plans: dict[str, list[LaunchPlan]] = {}
    for spec in specs:
        if isinstance(spec.kind, Launched) and (digest := spec.kind.digest(spec, own)) not in plans:
            plans[digest] = spec.kind.plans(spec, own)
    if not plans:
        return
    from pytest_llmeval.models.servers.launching import Keeper

    keeper = Keeper([plan for several in plans.values() for plan in several])
    config.add_cleanup(keeper.close)
    config.stash[_folder_key] = keeper.folder


def watch_launched(
    config: pytest.Config, settings: Settings, spec: ModelSpec, model: Model, own: ModelSettings
) -> None:
    """Have the timer of pytest-timeout stopped while the servers of a model start, and those of a model that is
    evaluated ended before the next model needs the memory.

    Those that a judge or embedder shares run on, and those of workers: another worker may still need them.
    """
    from pytest_llmeval.models.servers.launching import LaunchedModel

    assert isinstance(spec.kind, Launched)
    assert isinstance(model, LaunchedModel)
    if (loading_time := config.pluginmanager.get_plugin("llmeval-loading-time")) is not None:
        model.starting = loading_time.stopped
    digest = spec.kind.digest(spec, own)
    roles = [one for specs in settings.role_specs.values() for one in specs]
    is_shared = any(isinstance(one.kind, Launched) and one.kind.digest(one, own) == digest for one in roles)
    if spec.role is None and not is_shared and not is_worker(config):
        config.stash[_evaluated_key] = model


def end_previous(config: pytest.Config) -> None:
    """End the servers of the model that was evaluated before, if there was one."""
    if _evaluated_key in config.stash:
        config.stash[_evaluated_key].release()
        del config.stash[_evaluated_key]


def share_launched(config: pytest.Config, workerinput: dict[str, object]) -> None:
    """Tell a worker, before it starts, where the keeper is; the servers' key is in the environment."""
    if _folder_key in config.stash:
        workerinput[_FOLDER] = str(config.stash[_folder_key])


def launched_servers(config: pytest.Config, spec: ModelSpec) -> tuple[Path, ShowStart | None]:
    """Return the keeper's folder, and the live line's way to say that a server starts, if there is a live line.

    Raises ``ModelError`` in a worker on another machine.
    """
    given: str | None = getattr(config, "workerinput", {}).get(_FOLDER)
    folder = config.stash.get(_folder_key, None) if given is None else Path(given)
    if folder is None or not folder.is_dir():
        raise ModelError(f"model {spec.name}: its server runs on the machine of the controller, and not here")
    return folder, getattr(config.pluginmanager.get_plugin("llmeval-live"), "starting", None)
