"""CrewAI asks itself for what it has deprecated, a thousand times in a session."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Leave such warnings out."""
    config.addinivalue_line("filterwarnings", r"ignore::DeprecationWarning:crewai\..*")
