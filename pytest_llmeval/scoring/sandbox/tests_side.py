"""Runs the tests of samples against programs of replies, which are in other processes: the main program of one sandbox.

A line of standard input is a sample's tests, which run in a child of this process and in a folder of their own:
starting Python costs more than most tests. A call of a function of the program is a line of standard output, and a line
of standard input what it returned. The last line is the verdict.
"""

from __future__ import annotations

import builtins
import json
import os
import reprlib
import resource
import shutil
import signal
import symtable
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pytest_llmeval.scoring.sandbox.values import dump, load

# What tests import: each finds it loaded.
import collections, copy, itertools, math, random, re  # noqa: E401, F401 # isort: skip

_ITERATION = ("StopIteration", "StopAsyncIteration")
"""Raised as themselves they would end a loop of the tests, as if all were well."""
_MEMORY_BYTES = 2 * 1024**3
_SECONDS = 60
_TEXT, _LINE = 500, 200
_DONE = 86
"""Exit code of a child that has written its verdict."""


class ProgramError(Exception):
    """An exception of the program whose class is none of Python's own."""


class ProgramEnded(BaseException):
    """The end of the program's process; no test can catch it by ``except Exception``."""


class ProgramObject:
    """An object of the program that is no plain data: a function, a class, or what a class of the program made.

    It is neither true nor false, and is compared with no other: what it says of itself proves nothing. What it returns
    when it is called, or asked for its length, its items or an attribute, is a value that the tests compare here.
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

    def __len__(self) -> int:
        number: int = self._operation("len")
        return number

    def __next__(self) -> Any:
        return self._operation("next")

    def __getitem__(self, key: object) -> Any:
        return self._operation("getitem", key)

    def __setitem__(self, key: object, value: object) -> None:
        self._operation("setitem", key, value)

    def __delitem__(self, key: object) -> None:
        self._operation("delitem", key)

    def _operation(self, name: str, *arguments: object) -> Any:
        return self._link.ask({**self._place, "operation": name, "arguments": dump([arguments, {}], _number_of)})

    def __bool__(self) -> bool:
        raise TypeError("the program returned an object of a class of its own, where the tests need a plain value")

    def __eq__(self, other: object) -> bool:
        if type(other) is ProgramObject and other is not self:
            raise TypeError("the tests compare two objects of the program's classes: compare their attributes")
        return other is self

    __hash__ = object.__hash__


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
        self.last_error = {"kind": "exception", "where": ""}
        self.last_call = ""
        self._objects: dict[int, ProgramObject] = {}
        self._names: dict[int, str] = {}

    def write(self, message: dict[str, Any]) -> None:
        self.calls.write(json.dumps(message) + "\n")
        self.calls.flush()

    def object_of(self, number: int) -> ProgramObject:
        return self._objects.setdefault(number, ProgramObject(self, {"object": number}))

    def named(self, name: str) -> Any:
        """Return what the program calls so: a plain value, or an object that stands for it, also if there is none."""
        try:
            value = self.ask({"name": name, "get": True})
        except Exception:
            return ProgramObject(self, {"name": name})
        if type(value) is ProgramObject:
            self._names.setdefault(value._place["object"], name)
        return value

    def ask(self, request: dict[str, Any]) -> Any:
        self.write({"call": request})
        line = self.answers.readline()
        if not line:
            raise ProgramEnded
        answer = json.loads(line)
        if not isinstance(answer, dict) or len(answer) != 1:
            raise ProgramError("its answer is none")
        if "value" in answer:
            value = load(json.dumps(answer["value"]), self.object_of)
            self._remember(request, value)
            return value
        error = answer["error"]
        kind, text = str(error["class"]), f"{error['class']}: {error['text']}"
        self.last_error = {"kind": str(error["kind"]), "where": str(error.get("where", ""))[:_LINE]}
        known = getattr(builtins, kind, None)
        if (
            isinstance(known, type)
            and issubclass(known, Exception)
            and kind not in _ITERATION
            and not kind.startswith("Unicode")
        ):
            raise known(error["text"]) from ProgramError(text)
        raise ProgramError(text)

    def _remember(self, request: dict[str, Any], value: object) -> None:
        """Keep the last call of a function, as a reader of a failed assertion wants to see it."""
        name = self._names.get(request.get("object", -1), request.get("name"))
        if "arguments" in request and "operation" not in request and name is not None:
            self.last_call = ""
            try:
                arguments, named = load(request["arguments"], self.object_of)
                shown = [reprlib.repr(one) for one in arguments]
                shown += [f"{key}={reprlib.repr(one)}" for key, one in named.items()]
                self.last_call = f"{name}({', '.join(shown)}) returned {reprlib.repr(value)}"[:_TEXT]
            except Exception:  # such as a number of too many digits
                return


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
    """Run the tests of each line in a child, and say so if one ends without a verdict."""
    link = Link()
    number = 0
    while line := link.answers.readline():
        number += 1
        os.mkdir(folder := f"tests{number}")
        child = os.fork()
        if child == 0:
            os.setsid()
            os.chdir(folder)
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
            link.write(_verdict(link, json.loads(line)))
            os._exit(_DONE)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        if code != _DONE:
            link.write({"ended": code})


def _verdict(link: Link, given: dict[str, Any]) -> dict[str, Any]:
    """Run the tests, and return the verdict."""
    names: dict[str, Any] = {"__name__": "tests"}
    try:
        exec(compile(given["setup"], "setup.py", "exec"), names)
        wanted = free_names(given["tests"]) - set(names)
        for name in {*wanted, *given["entry_points"]}:
            names[name] = link.named(name)
        exec(compile(given["tests"], "tests.py", "exec"), names)
    except ProgramEnded:
        return {"verdict": "ended"}
    except AssertionError as error:
        is_programs = isinstance(error.__cause__, ProgramError)
        return {"verdict": "exception" if is_programs else "assertion", "text": _text(link, error, given["tests"])}
    except BaseException as error:
        is_programs = isinstance(error.__cause__, ProgramError) or isinstance(error, ProgramError)
        kind = link.last_error["kind"] if is_programs else "exception"
        return {"verdict": kind, "text": _text(link, error, given["tests"])}
    return {"verdict": "passed"}


def _text(link: Link, error: BaseException, tests: str) -> str:
    """Return the lines of a verdict: the error, the line of the tests at which it arose, and what the program did."""
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "tests.py":
            line = frame.tb_lineno
        frame = frame.tb_next
    try:
        lines = [f"{type(error).__name__}: {error}".strip(": ")[:_TEXT]]
    except Exception:  # the text of an error may be of any object, and a number of too many digits has none
        lines = [type(error).__name__]
    if line is not None:
        lines.append(f"line {line} of the tests: {tests.splitlines()[line - 1].strip()[:_LINE]}")
    if isinstance(error.__cause__, ProgramError) or isinstance(error, ProgramError):
        lines.append(link.last_error["where"])
    elif isinstance(error, AssertionError) and link.last_call:
        lines.append(f"the last call: {link.last_call}")
    return "\n".join(filter(None, lines))


if __name__ == "__main__":
    main()
