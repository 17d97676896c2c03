"""Suites that need more than the plugin and its demo model are collected only where their folder is named."""

from __future__ import annotations

from pathlib import Path

import pytest

_OWN_MODEL = "assistant"
"""The folder whose suites are written for ``--llm-model demo-assistant --llm-allow-code``."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Return True for such a folder, unless it, or something in it, stands on the command line."""
    needs_packages = (collection_path / "requirements.txt").is_file()
    if not needs_packages and (collection_path.name != _OWN_MODEL or not collection_path.is_dir()):
        return None
    named = [(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args]
    return None if any(path.is_relative_to(collection_path.resolve()) for path in named) else True
