"""The session's store of replies: ``--llm-store``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_llmeval.errors import OptionError
from pytest_llmeval.plugin.process_roles import session_of
from pytest_llmeval.plugin.settings import Settings, settings_key, was_given
from pytest_llmeval.text.wording import size_text, time_text

if TYPE_CHECKING:
    from pytest_llmeval.inference.store import Store
    from pytest_llmeval.types import StoreFlaws

__all__ = ["check_store", "describe_store", "new_flaws", "new_problem", "store_of"]

_store_key = pytest.StashKey["Store"]()
_told_key = pytest.StashKey[bool]()
_told_flaws_key = pytest.StashKey["StoreFlaws"]()


def store_of(config: pytest.Config) -> Store | None:
    """Return the store, which this process opens on first use; None without ``--llm-store``. Raises ``OptionError``."""
    folder = _folder(config)
    if folder is None:
        return None
    if _store_key not in config.stash:
        from pytest_llmeval.inference.store import Store

        settings = config.stash[settings_key]
        max_age_s = None if settings.store_max_age is None else settings.store_max_age.value
        session, started = session_of(config)
        store = Store(folder, refresh=settings.store_refresh, max_age_s=max_age_s, session=session, started=started)
        config.stash[_store_key] = store
        config.add_cleanup(store.close)
    return config.stash[_store_key]


def _folder(config: pytest.Config) -> Path | None:
    """Return the store's folder as an absolute path: a test that changes the current directory does not move it."""
    store = config.stash[settings_key].store
    return None if store is None else config.invocation_params.dir / store.expanduser()


def check_store(config: pytest.Config, settings: Settings, *, is_run: bool) -> None:
    """Raise ``OptionError``, before anything runs, for a folder that cannot be the store."""
    folder = _folder(config)
    for name in ("store_refresh", "store_max_age"):
        if folder is None and was_given(config, name):
            raise OptionError(f"--llm-{name.replace('_', '-')} is about a store: give --llm-store as well")
    if folder is not None and is_run:
        from pytest_llmeval.inference.store import prepare_folder

        prepare_folder(folder)


def describe_store(config: pytest.Config) -> str | None:
    """Return a line on what the store holds before the session, for the header; None without a store."""
    folder, settings = _folder(config), config.stash[settings_key]
    if folder is None:
        return None
    from pytest_llmeval.inference.store import data_files, rights_of_others

    try:
        found = [path.stat() for path in data_files(folder)]
    except OSError:  # nothing runs, and there is no folder yet
        found = []
    what = "empty"
    if found:
        age_s = max(0.0, time.time() - max(one.st_mtime for one in found))
        what = f"{size_text(sum(one.st_size for one in found))}, last written {time_text(age_s)} ago"
    if settings.store_refresh:
        what += "; no stored reply is used"
    elif settings.store_max_age is not None:
        what += f"; replies of up to {settings.store_max_age} are reused"
    assert settings.store is not None
    rights = rights_of_others(folder, settings.store)
    text = f"{settings.store} ({what}); it keeps prompts and replies"
    return text if rights is None else f"{text}; {rights}"


def new_problem(config: pytest.Config) -> str | None:
    """Return why this process can keep no more replies; None if it can, or if it was told before."""
    store = config.stash.get(_store_key, None)
    if store is None or store.problem is None or _told_key in config.stash:
        return None
    config.stash[_told_key] = True
    return store.problem


def new_flaws(config: pytest.Config) -> StoreFlaws | None:
    """Return the parts of the store that this process cannot use; None if nothing has changed since it was told."""
    store = config.stash.get(_store_key, None)
    if store is None:
        return None
    flaws, told = store.flaws, config.stash.get(_told_flaws_key, None)
    if flaws == told or (told is None and not flaws.unreadable and not flaws.damaged):
        return None
    config.stash[_told_flaws_key] = flaws
    return flaws
