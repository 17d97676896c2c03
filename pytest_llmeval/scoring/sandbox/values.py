"""Python values as JSON, on both sides of a sandbox: only data goes through, never an object of the other side.

The processes in sandboxes run the text of this file, without this package and without site-packages: it imports the
standard library alone, and little of that, since each reply pays for it. An object of a class of the program stays
there. Its number goes through, by which the tests can hand it back to the program.
"""

from __future__ import annotations

import base64
import builtins
import collections
import json
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["MAX_VALUES", "dump", "load"]

MAX_VALUES = 1_000_000
"""Values in one line, at the most."""
_MAX_DEPTH = 200
_BASES: tuple[Any, ...] = (
    *(int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range),
    collections.deque,
)
_COLLECTIONS: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": collections.deque,
}
_WRITTEN = {
    "decimal.Decimal": "",
    "fractions.Fraction": "",
    "datetime.datetime": "fromisoformat",
    "datetime.date": "fromisoformat",
    "datetime.time": "fromisoformat",
}
"""Classes whose values go through as text, and the method that reads it; where there is none, the class itself."""
_TYPES: dict[str, type] = {name: kind for name, kind in vars(builtins).items() if isinstance(kind, type)}


def dump(value: object, keep: Callable[[object], int]) -> str:
    """Return a value as a line of ASCII. ``keep`` gives the number of an object that is no plain data, or raises.

    Raises ``ValueError`` for too many values, and for what is nested too deeply.
    """
    left = [MAX_VALUES]

    def packed(value: Any, depth: int) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise ValueError("it holds too many values")
        if depth > _MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        if value is None or type(value) is bool:  # a class cannot be derived from bool
            return value
        if isinstance(value, type) and _TYPES.get(value.__name__) is value:
            return {"type": value.__name__}
        name = f"{type(value).__module__}.{type(value).__name__}"
        if name in _WRITTEN:
            return {name: value.isoformat() if _WRITTEN[name] else str(value)}
        # Each is read by the methods of its own base: a subclass may have overridden them to look like something else.
        base: Any = next((base for base in _BASES if issubclass(type(value), base)), None)
        if base is int:
            number = int.__index__(value)
            return number if -(2**53) < number < 2**53 else {"int": hex(number)}
        if base is float:
            return {"float": float.hex(value)}
        if base is complex:
            return {"complex": [float.hex(value.real + 0.0), float.hex(value.imag + 0.0)]}
        if base is str:
            return str.__str__(value)
        if base in (bytes, bytearray):
            return {base.__name__: base64.b64encode(bytes(memoryview(value))).decode("ascii")}
        if base is dict:
            return {"dict": [[packed(key, depth + 1), packed(part, depth + 1)] for key, part in dict.items(value)]}
        if base is range:
            return {"range": [value.start, value.stop, value.step]}
        if base is None:
            return {"object": keep(value)}
        parts = [packed(part, depth + 1) for part in base.__iter__(value)]
        return parts if base is list else {base.__name__: parts}

    return json.dumps(packed(value, 0), allow_nan=False)


def load(text: str, find: Callable[[int], object]) -> Any:
    """Return the value of a line. ``find`` gives the object that has a number.

    Raises ``ValueError`` for any other line.
    """

    def unpacked(data: Any) -> Any:
        if isinstance(data, list):
            return [unpacked(part) for part in data]
        if not isinstance(data, dict):
            return data
        ((name, part),) = data.items()
        if name == "object":
            return find(part)
        if name == "int":
            return int(part, 16)
        if name == "float":
            return float.fromhex(part)
        if name == "complex":
            return complex(*map(float.fromhex, part))
        if name in ("bytes", "bytearray"):
            return _TYPES[name](base64.b64decode(part))
        if name == "dict":
            return {unpacked(key): unpacked(one) for key, one in part}
        if name == "range":
            return range(*part)
        if name == "type":
            return _TYPES[part]
        if name in _WRITTEN:
            if name == "fractions.Fraction" and not re.fullmatch(r"-?[0-9]+(/[0-9]+)?", part):
                raise ValueError(part)  # with an exponent it could be of any size
            module, kind = name.split(".")
            read = getattr(import_module(module), kind)
            return (getattr(read, _WRITTEN[name]) if _WRITTEN[name] else read)(part)
        return _COLLECTIONS[name](unpacked(one) for one in part)

    try:
        return unpacked(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ArithmeticError) as error:
        raise ValueError(f"not a value: {type(error).__name__}") from None
