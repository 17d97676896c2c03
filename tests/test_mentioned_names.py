"""Files and modules that docstrings and comments name exist: one that was moved would send its reader nowhere."""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator

import pytest

from tests.support import REPOSITORY

ROOT = REPOSITORY / "pytest_llmeval"
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}
FILES = {"conftest.py"}
"""Files of users."""

OF_OTHERS = {
    "EvaluationTracker",
    "ContextSampler",
    "Counter",
    "datasets",
    "lm_eval",
    "nltk",
    "numpy",
    "pytest",
    "torch",
}
OF_OTHERS |= {"sacrebleu", "xdist"} | (sys.stdlib_module_names - {"statistics"})  # of this name there is a folder
NOT_MODULES = {"NAME", "category", "config", "dataset", "flexible", "generate", "macro", "metric", "prompt", "question"}
NOT_MODULES |= {"report", "sample", "samples", "score", "settings", "step"}
"""Keys of a suite, columns of its data, parts of metric names, and variables of the code beside."""

DATA = (".json", ".gz", ".journal", ".max", ".md", ".yml", "pytest_llmeval.scorers", "pytest_llmeval.ModelKind")
"""Ends of names of data files; an entry point's group, and what the package's top offers on first use."""


def mentioned(source: str) -> Iterator[tuple[int, str]]:
    """Names with a dot in double backticks, in docstrings and comments, with the line at which these begin."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or token.string.lstrip("rf").startswith('"""'):
            for found in re.findall(r"``([A-Za-z_][\w/]*(?:\.\w+)+)``", token.string):
                yield token.start[0], found


def exists(name: str) -> bool:
    """Whether a file, a module, what a module defines, or a class of ours has this name, from any folder on."""
    if name.endswith(".py"):
        return (
            name in FILES
            or (REPOSITORY / name).exists()
            or name.startswith("lm_eval/")
            or any(f"/{path}".endswith(f"/{name}") for path in SOURCES)
        )
    if name.endswith(DATA):
        return True
    first, second, *_ = name.removeprefix("pytest_llmeval.").split(".")
    if first in OF_OTHERS | NOT_MODULES:
        return True
    if first[0].isupper():
        return any(re.search(rf"^class {first}\b", source, re.MULTILINE) for source in SOURCES.values())
    defined = re.compile(rf"^(?:def |class )?{second}\b", re.MULTILINE)
    for path, source in SOURCES.items():
        module = f"/{path}".removesuffix(".py").removesuffix("/__init__")
        if module.endswith(f"/{first}/{second}"):
            return True
        if module.endswith(f"/{first}") and defined.search(source):
            return True
    return False


@pytest.mark.parametrize("path", SOURCES)
def test_what_docstrings_and_comments_name_exists(path: str) -> None:
    assert not [f"{path}:{line}: {name}" for line, name in mentioned(SOURCES[path]) if not exists(name)]


@pytest.mark.parametrize(
    "name", ["metrics/summary.py", "summary.py", "summary.expanded", "plugin.settings", "Sample.id"]
)
def test_names_that_exist(name: str) -> None:
    assert exists(name)


@pytest.mark.parametrize(
    "name", ["metrics.py", "models/rolling.py", "verdict.fails", "metrics.expanded", "scoring.letter"]
)
def test_names_that_do_not(name: str) -> None:
    assert not exists(name)
