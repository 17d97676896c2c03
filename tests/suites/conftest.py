"""A folder to write suites into, which errors name by relative paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.suites.format.overrides import parse_override
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.suites.loading.suite import NO_SCORERS, Suite

Load = Callable[..., Suite]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """``load(yaml, {name: content}, overrides, scorers=…)`` writes ``s.yaml`` and its data files and loads it."""
    monkeypatch.chdir(tmp_path)

    def write_and_load(
        text: str | bytes,
        files: dict[str, str | bytes] | None = None,
        *overrides: str,
        scorers: Mapping[str, Callable[..., Any]] = NO_SCORERS,
    ) -> Suite:
        for name, content in {"s.yaml": text, **(files or {})}.items():
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_suite(Path("s.yaml"), overrides=[parse_override(text) for text in overrides], scorers=scorers)

    return write_and_load
