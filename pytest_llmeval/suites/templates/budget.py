"""What one rendering of a template may use up: steps, seconds of regular expressions, and the size of what it makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jinja2 import Undefined

from pytest_llmeval.errors import RefusedError

__all__ = [
    "MAX_BITS",
    "MAX_ITEMS",
    "MAX_NESTING",
    "MAX_OUTPUT",
    "MAX_REGEX_SECONDS",
    "MAX_STEPS",
    "Budget",
    "Lazy",
    "too_much_text",
]

MAX_STEPS = 1_000_000
MAX_OUTPUT = 10_000_000
MAX_NESTING = 50
MAX_ITEMS = 100_000
MAX_BITS = 10_000
MAX_REGEX_SECONDS = 1.0

_EMPTY: dict[str, None] = {}
_COLLECTIONS = (list, tuple, dict, type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items()))


def too_much_text() -> RefusedError:
    """What is raised for a text that would be too long."""
    return RefusedError(f"it makes a text of more than {MAX_OUTPUT:,} characters")


class Budget:
    """What is left of one rendering's steps and seconds. ``restart()`` refills it before each rendering."""

    __slots__ = ("regex_seconds_left", "steps_left")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.steps_left = MAX_STEPS
        self.regex_seconds_left = MAX_REGEX_SECONDS

    def charge(self, steps: int) -> None:
        """Take ``steps`` of what is left. Raises ``RefusedError``."""
        if steps < 0:
            raise RefusedError("it takes a negative number of steps")
        self.steps_left -= steps
        if self.steps_left < 0:
            raise RefusedError(f"it takes more than {MAX_STEPS:,} steps; a template prepares one sample")

    def weigh(self, value: object) -> None:
        """Charge for the size of a value, the same part of it each time that it is met.

        Raises ``RefusedError``, also for what is not data.
        """
        kind = type(value)
        if kind is str:
            if len(value) > MAX_OUTPUT:  # type: ignore[arg-type]
                raise too_much_text()
            self.charge(len(value) // 64)  # type: ignore[arg-type]
        elif kind is int:
            self._weigh_number(value)  # type: ignore[arg-type]
        elif value is not None and kind is not bool and kind is not Lazy and not isinstance(value, float | Undefined):
            self._weigh_parts(value, 0)

    def _weigh_number(self, number: int) -> None:
        bits = number.bit_length()
        if bits > 64:
            if bits > MAX_BITS:
                raise RefusedError(f"a whole number of more than {MAX_BITS:,} bits")
            self.charge(bits // 64)

    def _weigh_parts(self, value: object, depth: int) -> int:
        """The number of characters in the texts of ``value``."""
        if isinstance(value, str):
            self.charge(len(value) // 64)
            return len(value)
        if isinstance(value, _COLLECTIONS):
            if depth > MAX_NESTING:
                raise RefusedError(f"a value is nested more than {MAX_NESTING} levels deep")
            self.charge(len(value))
            characters = 0
            for item in (*value, *value.values()) if isinstance(value, dict) else value:
                if type(item) is str and len(item) < 64:
                    characters += len(item)  # as below, for no steps
                else:
                    characters += self._weigh_parts(item, depth + 1)
            if characters > MAX_OUTPUT:
                raise too_much_text()
            return characters
        if isinstance(value, range):
            self.charge(len(value))
        elif isinstance(value, int):
            self._weigh_number(value)
        elif depth and isinstance(value, Undefined):
            str(value)  # raises the error of the undefined value
        elif (refused := _no_data(value)) is not None:
            raise RefusedError(f"it works on {refused}")
        return 0


def _no_data(value: object) -> str | None:
    """In words what ``value`` is, and what to do, if a template has no use for it as data; None for data."""
    if isinstance(value, Lazy):
        return "a Python generator; write {{ x | list }}"
    if isinstance(value, set | frozenset | bytes | bytearray | complex) or type(value).__module__.startswith("jinja2."):
        return f"a Python {type(value).__name__}, expected data"
    if isinstance(value, type):
        return f"the function {value.__name__}; call it with ()"
    if callable(value):
        return f"the method {getattr(value, '__name__', type(value).__name__).lstrip('_')}; call it with ()"
    return None


class Lazy:
    """What a filter gives piece by piece. Every piece is a step.

    ``depth`` says how many filters stand behind one another: Python breaks down at very many.
    """

    __slots__ = ("_budget", "_values", "depth")
    described = "a Python generator"

    def __init__(self, values: Iterator[Any], depth: int, budget: Budget) -> None:
        if depth > MAX_NESTING:
            raise RefusedError(f"more than {MAX_NESTING} filters work behind one another; write {{{{ x | list }}}}")
        self._values = values
        self._budget = budget
        self.depth = depth

    def __iter__(self) -> Lazy:
        return self

    def __next__(self) -> Any:
        self._budget.charge(1)
        return next(self._values)
