"""Runs the tests of a sample against the program of a reply, which is in another process: the main program of one
sandbox.

A call of a function of the program is a line of standard output, and a line of standard input what it returned. The
last line is the verdict.
"""

from __future__ import annotations

import builtins
import json
import os
import resource
import symtable
from collections.abc import Iterator
from typing import Any

from pytest_llmeval.scoring.sandbox.values import dump, load

_ITERATION = ("StopIteration", "StopAsyncIteration")
"""Raised as themselves they would end a loop of the tests, as if all were well."""
_MEMORY_BYTES = 2 * 1024**3
_SECONDS = 60


class ProgramError(Exception):
    """An exception of the program whose class is none of Python's own."""


class ProgramEnded(BaseException):
    """The end of the program's process; no test can catch it by ``except Exception``."""


class ProgramObject:
    """An object of the program that is no plain data: a function, a class, or what a class of the program made.

    It is equal to nothing but itself, and neither true nor false: what it says of itself proves nothing.
    """

    def __init__(self, link: Link, place: dict[str, Any]) -> None:
        self.__dict__.update(_link=link, _place=place)

    def __call__(self, *arguments: object, **named: object) -> Any:
        return self._link.ask({**self._place, "arguments": dump([arguments, named], _number_of)})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._link.ask({**self._place, "attribute": name})

    def __setattr__(self, name: str, value: object) -> None:
        self._link.ask({**self._place, "set": name, "value": dump([value], _number_of)})

    def __iter__(self) -> Iterator[Any]:
        return iter(self._link.ask({**self._place, "items": True}))

    def __bool__(self) -> bool:
        raise TypeError("the program returned an object of a class of its own, where the tests need a plain value")


def _number_of(value: object) -> int:
    if type(value) is ProgramObject and "object" in value._place:
        number: int = value._place["object"]
        return number
    raise TypeError(f"the tests give the program a {type(value).__name__}, which cannot leave their process")


class Link:
    """The way to the program: a line there, a line back."""

    def __init__(self) -> None:
        self.calls, self.answers = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(0))
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        self.last_error: str | None = None
        self._objects: dict[int, ProgramObject] = {}

    def write(self, message: dict[str, Any]) -> None:
        self.calls.write(json.dumps(message) + "\n")
        self.calls.flush()

    def object_of(self, number: int) -> ProgramObject:
        return self._objects.setdefault(number, ProgramObject(self, {"object": number}))

    def named(self, name: str) -> Any:
        """Return what the program calls so: a plain value, or an object that stands for it, also if there is none."""
        try:
            return self.ask({"name": name, "get": True})
        except Exception:
            return ProgramObject(self, {"name": name})

    def ask(self, request: dict[str, Any]) -> Any:
        self.write({"call": request})
        line = self.answers.readline()
        if not line:
            raise ProgramEnded
        answer = json.loads(line)
        if not isinstance(answer, dict) or len(answer) != 1:
            raise ProgramError("its answer is none")
        if "value" in answer:
            return load(json.dumps(answer["value"]), self.object_of)
        error = answer["error"]
        kind, text = str(error["class"]), f"{error['class']}: {error['text']}"
        self.last_error = str(error["kind"])
        known = getattr(builtins, kind, None)
        if (
            isinstance(known, type)
            and issubclass(known, Exception)
            and kind not in _ITERATION
            and not kind.startswith("Unicode")
        ):
            raise known(error["text"]) from ProgramError(text)
        raise ProgramError(text)


def free_names(text: str) -> set[str]:
    """Return the names that a text uses and does not bind: those that the program has to define."""

    def tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
        yield table
        for inner in table.get_children():
            yield from tables(inner)

    top = symtable.symtable(text, "tests.py", "exec")
    bound = {one.get_name() for one in top.get_symbols() if one.is_assigned() or one.is_imported()}
    used = {
        one.get_name()
        for table in tables(top)
        for one in table.get_symbols()
        if one.is_referenced() and (one.is_global() or table is top)
    }
    return used - bound - set(dir(builtins))


def main() -> None:
    """Run the tests, and write the verdict."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    link = Link()
    given = json.loads(link.answers.readline())
    names: dict[str, Any] = {"__name__": "tests"}
    try:
        exec(compile(given["setup"], "setup.py", "exec"), names)
        wanted = free_names(given["tests"]) - set(names)
        for name in {*wanted, *given["entry_points"]}:
            names[name] = link.named(name)
        exec(compile(given["tests"], "tests.py", "exec"), names)
    except ProgramEnded:
        link.write({"verdict": "ended"})
    except AssertionError as error:
        kind = "exception" if isinstance(error.__cause__, ProgramError) else "assertion"
        link.write({"verdict": kind, "text": _where(error)})
    except BaseException as error:
        is_programs = isinstance(error.__cause__, ProgramError) or isinstance(error, ProgramError)
        link.write({"verdict": (link.last_error if is_programs else None) or "exception", "text": _where(error)})
    else:
        link.write({"verdict": "passed"})


def _where(error: BaseException) -> str:
    """Return an error in a line, with the line of the tests at which it arose."""
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "tests.py":
            line = frame.tb_lineno
        frame = frame.tb_next
    text = f"{type(error).__name__}: {error}".strip(": ")[:500]
    return text if line is None else f"{text} (line {line} of the tests)"


if __name__ == "__main__":
    main()
