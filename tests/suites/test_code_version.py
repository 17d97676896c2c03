"""A number for Python code: other code, another number; the same code, the same number in every process."""

from __future__ import annotations

import functools
import operator
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.data.code_version import version_of_class, version_of_function

MODULE = """
import functools

LIMIT = 1

def helper(reply):
    return reply

def judge(reply):
    return helper(reply)

def decorated(function):
    @functools.wraps(function)
    def inner(reply):
        return function(reply)
    return inner

@decorated
def wrapped(reply):
    return reply

def made(limit):
    def inner(reply, names={"a", "b", "c", "d"}):
        return len(reply) < limit
    return inner

class Near:
    __slots__ = ("limit",)
    def __init__(self, limit):
        self.limit = limit
    def __call__(self, reply):
        return self.limit
    def method(self, reply):
        return self.limit

class Open(Near):
    def __init__(self, **given):
        self.__dict__.update(given)
"""


def load(path: Path, source: str, name: str = "one") -> dict[str, Any]:
    path.write_text(source, encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": name, "__file__": str(path)}
    exec(compile(source, str(path), "exec"), namespace)
    return namespace


@pytest.mark.parametrize("name", ["judge", "wrapped"])
def test_a_helper_in_the_same_file_counts(tmp_path: Path, name: str) -> None:
    before = version_of_function(load(tmp_path / "a.py", MODULE)[name])
    changed = MODULE.replace("return reply\n\ndef judge", "return reply + '.'\n\ndef judge")
    assert version_of_function(load(tmp_path / "b.py", changed)[name]) != before
    assert version_of_function(load(tmp_path / "c.py", MODULE)[name]) == before


def test_what_a_function_holds_counts(tmp_path: Path) -> None:
    one = load(tmp_path / "a.py", MODULE)
    judge, made, near, opened = one["judge"], one["made"], one["Near"], one["Open"]
    different = [
        judge,
        made(1),
        made(2),
        functools.partial(judge, limit=1),
        functools.partial(judge, limit=2),
        near(1),
        near(2),
        near(1).method,
        near(2).method,
        opened(limit=1, names={"a", "b"}),
        opened(limit=1, names={"a", "c"}),
        functools.partial(opened(limit=1), {"k": near(3)}),
        functools.partial(opened(limit=1), {"k": near(4)}),
        operator.eq,
        operator.ne,
    ]
    assert len({version_of_function(one) for one in different}) == len(different)


def test_the_attribute_version_counts() -> None:
    def judge(reply: str) -> bool:
        return True

    before = version_of_function(judge)
    judge.version = 2  # type: ignore[attr-defined]
    assert version_of_function(judge) != before


def test_classes_count_with_what_they_derive_from() -> None:
    class Base:
        version = 1

    class Other(Base):
        version = 2

    assert version_of_class(Base) != version_of_class(Other)


def test_it_is_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "judges.py").write_text(MODULE, encoding="utf-8")
    code = (
        "import judges, pathlib; from pytest_llmeval.data.code_version import version_of_function as v;"
        "print(v(judges.made(3)), v(judges.Near({'x', 'y', 'z', 'w'})), v(judges.Open(a=object(), f=judges.judge)))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
