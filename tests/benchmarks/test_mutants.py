"""The script that measures protection: every mutant is one change that compiles, and what kills it is counted."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks import mutants
from tests.support import REPOSITORY

_SOURCE = '''\
"""A module: 1 < 2."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

def f(a: int = 3, *, é: bool = True) -> int:
    """Of 3."""
    while True:
        if é and not a < 7:
            return a + 1
        return "x" + f"{a + 1}" if a in (-1,) else a
'''


def test_every_mutant_is_one_change_that_compiles() -> None:
    found = mutants.mutants_of(Path("m.py"), _SOURCE)
    changed = [mutant.applied(_SOURCE.encode()).decode() for mutant in found]
    assert len(set(changed)) == len(found)
    for source in changed:
        assert ast.dump(ast.parse(source)) != ast.dump(ast.parse(_SOURCE))
        different = [pair for pair in zip(_SOURCE.splitlines(), source.splitlines(), strict=True) if pair[0] != pair[1]]
        assert len(different) == 1
    assert {(mutant.old, mutant.new) for mutant in found} == {
        ("3", "(4)"),
        ("True", "(False)"),  # the default, and the loop
        ("é and not a < 7", "(é or not a < 7)"),
        ("é and not a < 7", "(not (é and (not a < 7)))"),
        ("not a < 7", "(a < 7)"),
        ("a < 7", "(a <= 7)"),
        ("7", "(8)"),
        ("a + 1", "(a - 1)"),
        ("1", "(2)"),  # a + 1, and -1
        ("a in (-1,)", "(a not in (-1,))"),
        ("a in (-1,)", "(not a in (-1,))"),
        ("-1", "(1)"),
    }


@pytest.mark.slow
def test_areas_name_modules_and_tests_that_exist() -> None:
    for area, (patterns, tests) in mutants.AREAS.items():
        for pattern in patterns:
            assert list((REPOSITORY / "pytest_llmeval").glob(pattern)), (area, pattern)
        assert len(mutants.draw([area], 40, 0)) == 40
        assert not [test for test in tests if not (REPOSITORY / test).exists()]
        for path in mutants.modules(area):
            source = (REPOSITORY / path).read_bytes()
            for mutant in mutants.mutants_of(path, source.decode())[::9]:
                compile(mutant.applied(source), str(path), "exec")


@pytest.mark.slow
def test_a_mutant(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A mutant of the gates is killed or survives the tests of one file; a second run takes the first one's outcome."""
    arguments = ["--count=1", "--area=gates", "--tests=tests/gates/test_thresholds.py", "--timeout=300"]
    arguments.append(f"--results={tmp_path / 'outcomes.jsonl'}")
    status = mutants.main(arguments)
    lines = capsys.readouterr().out.splitlines()
    outcomes = [line.split()[0] for line in lines[:-2]]
    assert len(outcomes) == 1
    assert set(outcomes) <= {"default", "slow", "survived"}
    assert lines[-2] == (
        f"1 mutants of seed 0: {outcomes.count('default')} killed by the default tier, "
        f"{outcomes.count('slow')} by the slow tier, {outcomes.count('survived')} survived"
    )
    assert status == int(outcomes.count("default") == 0)
    assert mutants.main(arguments) == status
    assert capsys.readouterr().out.splitlines() == lines[-2:]
