"""Whether a project's own fixtures take the place of ours."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["is_overridden", "is_replaced_in"]

_OURS = "pytest_llmeval.plugin"
_replaced_key = pytest.StashKey[dict[tuple[Path, str], bool]]()


def is_overridden(config: pytest.Config, suite: Path) -> bool:
    """Whether a conftest.py above the suite, or a plugin that is loaded after ours, replaces ``llm_model``.

    Read from the files' syntax, because with pytest-xdist the process that asks has not loaded them. An ``llm_model``
    that takes ``llm_model`` wraps what there is, and replaces nothing.
    """
    plugins = [plugin for _, plugin in config.pluginmanager.list_name_plugin()]
    ours = next(place for place, plugin in enumerate(plugins) if getattr(plugin, "__name__", "") == _OURS)
    for plugin in plugins[ours + 1 :]:
        file = getattr(plugin, "__file__", None) or ""
        if Path(file).name != "conftest.py" and _has_a_model(plugin):
            return True
    if suite.suffix == ".py" and is_replaced_in(config, suite):
        return True
    for folder in suite.parents:
        if is_replaced_in(config, folder / "conftest.py"):
            return True
        if folder == config.rootpath:
            break
    return False


def _has_a_model(plugin: object) -> bool:
    fixture = getattr(plugin, "llm_model", None)
    try:
        return fixture is not None and "llm_model" not in inspect.signature(fixture).parameters
    except (TypeError, ValueError):
        return True


def is_replaced_in(config: pytest.Config, module: Path, class_name: str = "") -> bool:
    """Whether the file, in or outside of the class named, has a fixture ``llm_model`` that wraps none."""
    known = config.stash.setdefault(_replaced_key, {})
    if (module, class_name) not in known:
        known[module, class_name] = _replaces(module, class_name)
    return known[module, class_name]


def _replaces(module: Path, class_name: str) -> bool:
    try:
        tree = ast.parse(module.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return any("llm_model" in _names_defined(node) for node in _definitions(tree, class_name))


def _definitions(tree: ast.AST, class_name: str) -> Iterator[ast.AST]:
    """What can give a name to a fixture: not what functions and other classes hold, nor a function that wraps."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = (*node.args.args, *node.args.kwonlyargs)
            if not any(argument.arg == "llm_model" for argument in arguments):
                yield node
                for decorator in node.decorator_list:
                    yield from ast.walk(decorator)
        elif not isinstance(node, ast.ClassDef) or node.name == class_name:
            yield node
            yield from _definitions(node, class_name)


def _names_defined(node: ast.AST) -> list[object]:
    """Names that this piece of a conftest.py gives to something: a function, an import, a variable, a fixture."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [node.name]
        case ast.Import() | ast.ImportFrom():
            # What a star brings is not known: the fixture may be among it.
            return ["llm_model" if alias.name == "*" else alias.asname or alias.name for alias in node.names]
        case ast.Name(ctx=ast.Store()):
            return [node.id]
        case ast.keyword(arg="name", value=ast.Constant(value=value)):
            return [value]
    return []
