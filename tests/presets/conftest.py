"""A folder to write suites and rows into, which errors name by relative paths."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.suites.format.overrides import parse_override
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.suites.loading.suite import Suite

Load = Callable[..., Suite]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """``load(yaml, {name: rows or text}, *overrides)`` writes ``s.yaml`` and its files, and loads the suite."""
    monkeypatch.chdir(tmp_path)

    def write_and_load(text: str, files: Mapping[str, Any] | None = None, *overrides: str) -> Suite:
        Path("s.yaml").write_text(text)
        for name, content in (files or {}).items():
            lines = content if isinstance(content, str) else "".join(json.dumps(row) + "\n" for row in content)
            Path(name).write_text(lines)
        return load_suite(Path("s.yaml"), overrides=[parse_override(text) for text in overrides])

    return write_and_load
