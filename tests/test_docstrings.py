"""Docstrings begin with a verb, or with a noun that says what the class is; and each public class has its own name."""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Iterator

from tests.support import REPOSITORY

PACKAGE = REPOSITORY / "pytest_llmeval"
NO_OPENING = re.compile(
    r"(Of|What|Whether|Which|Why|How|Those|These|That|As|None where|In all|To be|Where|Such|It|They)\b"
    r"|(By|From|For) what\b"
)
"""Words with which no sentence begins that is understood without the name it explains."""


def definitions() -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield str(path.relative_to(PACKAGE)), node


def test_docstrings_are_understood_without_the_name() -> None:
    found = [
        f"{path}:{node.lineno} {node.name}: {text.splitlines()[0]}"
        for path, node in definitions()
        if (text := ast.get_docstring(node)) and NO_OPENING.match(text)
    ]
    assert not found


def test_every_public_class_has_a_name_of_its_own() -> None:
    names = Counter(node.name for _, node in definitions() if isinstance(node, ast.ClassDef))
    assert not [name for name, count in names.items() if count > 1 and not name.startswith("_")]


def test_what_is_said_of_a_constant_has_a_subject() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            body = getattr(node, "body", None)
            for first, then in itertools.pairwise(body) if isinstance(body, list) else ():
                if isinstance(first, ast.Assign | ast.AnnAssign) and isinstance(then, ast.Expr):
                    text = then.value.value if isinstance(then.value, ast.Constant) else None
                    if isinstance(text, str) and re.match(r"(Of|Those|These|That|As)\b", text):
                        found.append(f"{path.relative_to(PACKAGE)}:{then.lineno}: {text.splitlines()[0]}")
    assert not found
