"""What ``import pytest_llmeval`` offers is what ``dir`` shows, so that an editor or a notebook completes it."""

from __future__ import annotations

import pytest_llmeval


def test_dir_shows_the_public_names_alone() -> None:
    assert {name for name in dir(pytest_llmeval) if not name.startswith("__")} == set(pytest_llmeval.__all__)
    assert all(hasattr(pytest_llmeval, name) for name in pytest_llmeval.__all__)
