"""Suites that need more than the plugin: a folder with a requirements.txt is collected only where it is named."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """True for such a folder, unless it, or something in it, stands on the command line."""
    if not (collection_path / "requirements.txt").is_file():
        return None
    named = [(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args]
    return None if any(path.is_relative_to(collection_path.resolve()) for path in named) else True
