"""The names that users import: those of the package itself, which ``dir`` shows, and those that the pages name."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import pytest_llmeval
from tests.support import REPOSITORY


def test_dir_shows_the_public_names_alone() -> None:
    assert {name for name in dir(pytest_llmeval) if not name.startswith("__")} == set(pytest_llmeval.__all__)
    assert all(hasattr(pytest_llmeval, name) for name in pytest_llmeval.__all__)


EXAMPLES = [
    *(REPOSITORY / "docs").glob("*.md"),
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md")),
]
IMPORT = re.compile(r"^\s*from (pytest_llmeval[\w.]*) import ([\w, ]+)$", re.MULTILINE)
KEPT = [
    ("pytest_llmeval.scoring.base", ("Scorer", "Presented", "PreparedSample")),
    ("pytest_llmeval.models.base", ("Backend", "UniformBackend", "Failed")),
    ("pytest_llmeval.models.registry", ("load_model", "parse_model_spec")),
    ("pytest_llmeval.models.settings", ("ModelSettings",)),
    ("pytest_llmeval.suites.loading.loader", ("load_suite",)),
    ("pytest_llmeval.scoring.metrics.summary", ("summarize",)),
    ("pytest_llmeval.types", ("GenerateRequest", "GenerateResponse", "LoglikelihoodRequest", "Message", "Score")),
]
"""Names that users' own code imports, beside those in the pages."""


def test_what_users_import_is_there() -> None:
    shown = [
        (module, tuple(name.strip() for name in names.split(",")))
        for page in EXAMPLES
        for module, names in IMPORT.findall(page.read_text("utf-8"))
    ]
    assert shown
    for module, names in (*shown, *KEPT):
        found = importlib.import_module(module)
        assert [name for name in names if not hasattr(found, name)] == [], module


@pytest.mark.parametrize(
    ("name", "advice"), [("scoring.evaluation.Evaluation", "from pytest_llmeval import Evaluation")]
)
def test_what_moved_names_its_new_place(name: str, advice: str) -> None:
    with pytest.raises(ImportError, match=advice):
        pkgutil.resolve_name(f"pytest_llmeval.{name}")
