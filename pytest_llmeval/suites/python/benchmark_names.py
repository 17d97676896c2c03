"""Which classes of a Python file are benchmarks? Decided by its text alone.

For a process that knows node ids and imports nothing, as the controller of pytest-xdist does.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["PACKAGE", "SUFFIX", "benchmark_names", "mentions_package"]

PACKAGE = "pytest_llmeval"
SUFFIX = "Benchmark"
_ROOTS = frozenset((f"{PACKAGE}.Benchmark", f"{PACKAGE}.suites.python.benchmark.Benchmark"))
_HERE = "<this file>"


def benchmark_names(path: Path) -> frozenset[str]:
    """Names of the classes at the level of the module that derive from ``pytest_llmeval.Benchmark``.

    A base counts that was imported as such, under whatever name, and one of the same file that counts itself. One from
    another module counts if its name ends with ``Benchmark``. A file without the name ``pytest_llmeval`` has none.
    """
    data = _read(path)
    if SUFFIX.encode() not in data or PACKAGE.encode() not in data:
        return frozenset()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler; whoever imports the file has them shown
            tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    names = _Names()
    for statement in _statements(tree.body):
        names.read(statement)
    return frozenset(names.found)


def mentions_package(path: Path) -> bool:
    """Whether the file has the name of this package in it."""
    return PACKAGE.encode() in _read(path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError):
        return b""


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Statements at the level of the module in their order, also those under ``if``, ``try`` and ``with``."""
    for node in body:
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case) and not isinstance(
            node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ):
            yield from _statements(ast.iter_child_nodes(node))


@dataclass(slots=True)
class _Names:
    """What the names of a module stand for; several things where branches give a name to several."""

    origins: dict[str, set[str]] = field(default_factory=dict)
    found: set[str] = field(default_factory=set)
    has_star: bool = False

    def read(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Import():
                for alias in statement.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    self._bind(name, {alias.name if alias.asname else name})
            case ast.ImportFrom():
                self._read_import(statement)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        self._bind(target.id, self._meant(value))
            case ast.ClassDef():
                if any(map(self._is_benchmark, statement.bases)):
                    self.found.add(statement.name)
                    self._bind(statement.name, {_HERE})

    def _read_import(self, statement: ast.ImportFrom) -> None:
        module = "." * statement.level + (statement.module or "")
        for alias in statement.names:
            if alias.name != "*":
                self._bind(alias.asname or alias.name, {f"{module}.{alias.name}"})
            elif module == PACKAGE:
                self._bind("Benchmark", {f"{PACKAGE}.Benchmark"})
            else:
                self.has_star = True

    def _bind(self, name: str, origins: set[str]) -> None:
        self.origins.setdefault(name, set()).update(origins)

    def _meant(self, node: ast.expr) -> set[str]:
        match node:
            case ast.Name(id=name) if name in self.origins:
                return self.origins[name]
            case ast.Name(id=name) if self.has_star:
                return {f"*.{name}"}
            case ast.Attribute(value=value, attr=attribute):
                return {f"{origin}.{attribute}" for origin in self._meant(value) if origin != _HERE}
            case ast.Subscript(value=value):
                return self._meant(value)
        return set()

    def _is_benchmark(self, base: ast.expr) -> bool:
        return any(
            origin == _HERE or origin in _ROOTS or ("." in origin and origin.endswith(SUFFIX))
            for origin in self._meant(base)
        )
