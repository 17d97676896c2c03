"""Versions of Python code: those of installed packages, and numbers that change with what a user wrote.

Fingerprints know scorers and benchmarks of users by these numbers.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import inspect
import os
import re
import sys
import sysconfig
import types
import zlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path, PurePath

__all__ = ["JUDGED_BY", "SOURCE", "hash_of_sources", "installed_version", "version_of_class", "version_of_function"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MAX_DEPTH = 8
_OURS = "pytest_llmeval"
SOURCE = "source"
"""Among the details of a model that is Python code: its ``hash_of_sources``."""
JUDGED_BY = "judged_by"
"""The attribute that names the model which a scorer asks: it has a fingerprint of its own."""


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed package, without importing it; None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def version_of_class(kind: type) -> int:
    """Return a checksum of the source files of a class and of its bases, and of its attribute ``version``.

    Classes of this package and of the standard library are left out.
    """
    return zlib.crc32("\0".join([*_class_parts(kind), _declared(kind)]).encode("utf-8", "surrogatepass"))


def version_of_function(function: object) -> int:
    """Return a checksum of everything that decides what a function returns, and of its attribute ``version``.

    It covers the source file of the function under its decorators, its defaults and the values that it closes over. For
    a ``functools.partial`` it also covers the arguments, for an object that can be called the source files of its class
    and its attributes. Of a function written in C only the name is known.
    """
    return zlib.crc32("\0".join([*_parts(function, 0), _declared(function)]).encode("utf-8", "surrogatepass"))


def _declared(thing: object) -> str:
    version = getattr(thing, "version", None)
    return str(version) if isinstance(version, int | str) else ""


def _parts(value: object, depth: int) -> Iterator[str]:
    """Yield texts for a function, or for a value that it holds; nothing that differs between two processes."""
    if depth > _MAX_DEPTH:
        return
    inner = depth + 1
    if isinstance(value, functools.partial):
        yield from _parts(value.func, inner)
        yield from _parts((value.args, value.keywords), inner)
    elif isinstance(value, types.MethodType):
        yield value.__func__.__qualname__
        yield from _parts(value.__func__, inner)
        yield from _parts(value.__self__, inner)
    elif isinstance(value, types.FunctionType):
        yield from _function_parts(value, inner)
    elif isinstance(value, type):
        yield value.__qualname__
        yield from _class_parts(value)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield repr(key)
            yield from _parts(part, inner)
    elif isinstance(value, set | frozenset):
        yield from sorted(_text(part) for part in value)
    elif isinstance(value, list | tuple):
        yield f"{type(value).__name__} of {len(value)}"
        for part in value:
            yield from _parts(part, inner)
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        yield repr(value)
    elif isinstance(value, types.ModuleType | types.BuiltinFunctionType):
        yield f"{getattr(value, '__module__', '')}.{value.__name__}"
    elif isinstance(value, PurePath):
        yield value.name  # the folder differs from machine to machine
    elif not _is_ours(type(value)):
        state = _state(value)
        yield type(value).__qualname__ if state else _text(value)
        yield from _class_parts(type(value))
        yield from _parts(state, inner)


def _function_parts(function: types.FunctionType, depth: int) -> Iterator[str]:
    """Yield texts for a function, and for the one that it decorates: a decorator may change what comes out."""
    yield function.__qualname__
    yield _source(function) or _code(function.__code__)
    yield from _parts((function.__defaults__, function.__kwdefaults__), depth)
    for cell in function.__closure__ or ():
        try:
            held = cell.cell_contents
        except ValueError:  # not yet filled
            continue
        if held is not function:
            yield from _parts(held, depth)
    wrapped = inspect.unwrap(function)
    if wrapped is not function:
        yield from _parts(wrapped, depth)


def _class_parts(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        if not _is_ours(base) and base.__module__.partition(".")[0] not in sys.stdlib_module_names:
            yield base.__qualname__
            yield _source(base) or ""


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == _OURS


def _state(value: object) -> dict[str, object]:
    """Return the attributes of an object."""
    names = [name for kind in type(value).__mro__ for name in _slots(kind)]
    found = {name: getattr(value, name) for name in names if hasattr(value, name)}
    state = {**found, **getattr(value, "__dict__", {})}
    return {name: part for name, part in state.items() if name != JUDGED_BY}


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    named = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in named if name not in ("__dict__", "__weakref__"))


def _source(thing: type | types.FunctionType) -> str | None:
    """Return the text of the source file, else the source of the thing alone, else None."""
    try:
        path = inspect.getsourcefile(thing)
        if path is not None:
            return Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except (OSError, TypeError, ValueError):
        pass
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        return None


def _code(code: types.CodeType) -> str:
    """Return a text for the compiled code of a function that has no source."""
    constants = [_code(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts]
    return "\0".join([code.co_code.hex(), *code.co_names, *constants])


def _text(value: object) -> str:
    """Return the ``repr`` of an object without its address."""
    try:
        return _ADDRESS.sub("", repr(value))
    except Exception:
        return type(value).__qualname__


def hash_of_sources(thing: object, module: str | None = None) -> str | None:
    """Return a SHA-256 (hex) of the project's own code that ``thing`` is made of; None where none of it has a source.

    These are the files of its modules and of the modules that they import, also inside of functions, and so on. A
    module is the project's own if it is not installed: neither in the standard library nor in a folder of packages.
    The package of ``module``, by which the user named the thing, is the project's own wherever it lies.

    A file is known by its place in its package, since the names of modules that pytest imports differ with
    ``--import-mode``.
    """
    names = [name for name in (module, *_modules_of(thing)) if name is not None]
    package = None if module is None else module.partition(".")[0]
    found: dict[Path, str] = {}
    seen: set[str] = set()
    while names:
        name = names.pop()
        if name in seen:
            continue
        seen.add(name)
        path = _own_file(name, package)
        try:
            text = None if path is None else path.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            text = None
        if path is not None and text is not None:
            found[path] = text
            names += _imported(text, name, is_package=path.stem == "__init__")
    if not found:
        return None
    parts = "\0".join(part for one in sorted((_place(path), text) for path, text in found.items()) for part in one)
    return hashlib.sha256(parts.encode("utf-8", "surrogateescape")).hexdigest()


def _place(path: Path) -> str:
    """Return the file's path from the folder that holds its outermost package: the same on every machine."""
    above = path.parent
    while (above / "__init__.py").exists() and above != above.parent:
        above = above.parent
    return path.relative_to(above).as_posix()


def _modules_of(thing: object) -> Iterator[str]:
    """Yield the names of the modules that define a function, or the class of an object and its bases."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    if isinstance(thing, types.MethodType):
        yield from _modules_of(thing.__self__)
        thing = thing.__func__
    if isinstance(thing, types.FunctionType):
        yield from (one.__module__ for one in (thing, inspect.unwrap(thing)) if one.__module__ is not None)
    else:
        kind = thing if isinstance(thing, type) else type(thing)
        yield from (base.__module__ for base in kind.__mro__)


def _own_file(name: str, package: str | None) -> Path | None:
    """Return the source file of a module without importing it; None if the module is not the project's own."""
    top = name.partition(".")[0]
    if top == _OURS or top in sys.stdlib_module_names:
        return None
    module = sys.modules.get(name)
    file = getattr(_spec_on_path(name), "origin", None) if module is None else getattr(module, "__file__", None)
    path = None if file is None else Path(os.path.abspath(file))
    if path is None or path.suffix != ".py" or (top != package and _is_installed(path.parent)):
        return None
    return path


def _spec_on_path(name: str) -> ModuleSpec | None:
    """Find a module that was not imported yet, as an import inside a function would."""
    package, _, last = name.rpartition(".")
    try:
        if not package:
            return PathFinder.find_spec(name)
        above = _spec_on_path(package)
        folders = None if above is None else above.submodule_search_locations
        # Not by its whole name, for which it would look up its parent among the imported modules.
        return None if folders is None else PathFinder.find_spec(last, list(folders))
    except (ImportError, ValueError):
        return None


def _is_installed(folder: Path) -> bool:
    """Return whether a package manager installed the modules there: in a folder of packages that Python searches."""
    paths = sysconfig.get_paths()
    places = {Path(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    searched = {Path(os.path.abspath(entry)) for entry in sys.path}
    return any(
        parent in places
        or parent.name in ("site-packages", "dist-packages")
        or (parent in searched and _knows_packages(parent))  # pip install --target
        for parent in (folder, *folder.parents)
    )


@functools.cache
def _knows_packages(folder: Path) -> bool:
    """Return whether the folder holds what package managers write beside the packages that they install."""
    return next(folder.glob("*.dist-info"), None) is not None


def _imported(text: str, name: str, *, is_package: bool) -> Iterable[str]:
    """Yield the names that a module imports and that may be modules."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = name.split(".")
                kept = parents[: len(parents) - node.level + is_package]
                base = ".".join([*kept, *([base] if base else [])])
            for alias in node.names if base else ():
                yield from _with_parents(f"{base}.{alias.name}")


def _with_parents(name: str) -> Iterator[str]:
    """Yield the names of the packages that hold the module, which are imported with it, and its own."""
    parts = name.split(".")
    yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))
