"""A number that changes with Python code: what a fingerprint knows of scorers and benchmarks that a user wrote."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath

__all__ = ["JUDGED_BY", "version_of_class", "version_of_function"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MAX_DEPTH = 8
_OURS = "pytest_llmeval"

JUDGED_BY = "judged_by"
"""The attribute that names the model which a scorer asks: it has a fingerprint of its own."""


def version_of_class(kind: type) -> int:
    """A checksum of the source files of a class and of what it derives from, and of its attribute ``version``.

    Classes of this package and of the standard library are left out.
    """
    return zlib.crc32("\0".join([*_class_parts(kind), _declared(kind)]).encode("utf-8", "surrogatepass"))


def version_of_function(function: object) -> int:
    """A checksum of what decides what a function returns, and of its attribute ``version``.

    Of a function that is the source file that it stands in, under its decorators, with its defaults and the values
    that it closes over; of a ``functools.partial`` also the arguments; of an object that can be called the source
    files of its class and its attributes. Of a function written in C only the name is known.
    """
    return zlib.crc32("\0".join([*_parts(function, 0), _declared(function)]).encode("utf-8", "surrogatepass"))


def _declared(thing: object) -> str:
    version = getattr(thing, "version", None)
    return str(version) if isinstance(version, int | str) else ""


def _parts(value: object, depth: int) -> Iterator[str]:
    """What is known of a function, or of a value that it holds; nothing that differs between two processes."""
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
    """Of a decorated function both: the decorator may change what comes out."""
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
    """The attributes of an object."""
    names = [name for kind in type(value).__mro__ for name in _slots(kind)]
    found = {name: getattr(value, name) for name in names if hasattr(value, name)}
    state = {**found, **getattr(value, "__dict__", {})}
    return {name: part for name, part in state.items() if name != JUDGED_BY}


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    named = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in named if name not in ("__dict__", "__weakref__"))


def _source(thing: type | types.FunctionType) -> str | None:
    """The text of the source file, else of the thing alone, else nothing."""
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
    """Of a function without a source: what was compiled of it."""
    constants = [_code(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts]
    return "\0".join([code.co_code.hex(), *code.co_names, *constants])


def _text(value: object) -> str:
    """What an object says of itself, without its address."""
    try:
        return _ADDRESS.sub("", repr(value))
    except Exception:
        return type(value).__qualname__
