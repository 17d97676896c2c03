"""Which seeded mutants of the package do the tests kill? One changed operator, constant or branch each.

    python -m benchmarks.mutants [--seed 0] [--count 300] [--jobs 1] [--area gates] [--timeout 900] [--results FILE]

Mutants are drawn from the modules of ``AREAS``, each line of code equally likely, in copies of this checkout with a
virtual environment for each job, so that processes that the tests start see the mutant too. The tests of its area (a
stated map, ``AREAS``) run on each one: the default tier, then for those that survive it the slow tier. They first run
on the unchanged copy: an area whose tests fail there stops the script.

Prints a line for each mutant, and how many were killed by which tier. Of those that any tier kills, the default tier
has to kill 95%: the exit code is 1 where it does not. With 300 mutants this takes an idle machine some hours; with
``--results`` the outcomes are also appended to a file, and a run that was stopped goes on after the last one in it.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.support import REPOSITORY

__all__ = ["AREAS", "Copy", "Mutant", "main", "mutants_of"]

NEEDED = 0.95
"""Of the mutants that all tests kill, the share that the default tier has to kill."""

_PLUGIN = "tests/plugin"
_SESSION = (
    *("suite_collectors", "task_collectors", "sample_item", "plan", "live_line", "recording"),
    *("reporting_hooks", "session", "session_records", "gate_results", "shown_samples", "other_plugins"),
)
"""The modules of the plugin through which a sample goes, from its file to the report."""
AREAS = MappingProxyType(
    {
        # area: (its modules, the tests that import or exercise them, quick ones first)
        "gates": (
            ("gates/*.py",),
            (
                *("tests/gates", "tests/suites/test_gate_rules.py", "tests/suites/test_gates_keys.py"),
                *("tests/scoring/test_gate_subjects.py", "tests/commands/test_gate.py"),
                *(f"{_PLUGIN}/test_gates.py", f"{_PLUGIN}/test_gates_format.py", f"{_PLUGIN}/test_baseline.py"),
                *(f"{_PLUGIN}/test_not_measurable.py", f"{_PLUGIN}/test_several_models.py"),
            ),
        ),
        "statistics": (
            ("scoring/statistics/*.py",),
            (
                "tests/scoring",
                "tests/gates",
                f"{_PLUGIN}/test_intervals.py",
                "tests/benchmarks/test_gate_simulations.py",
            ),
        ),
        "session": (
            tuple(f"plugin/{name}.py" for name in _SESSION),
            (_PLUGIN, "tests/inference/test_batcher.py", "tests/test_chunks.py", "tests/test_node_ids.py"),
        ),
        "xdist": (
            ("plugin/xdist_*.py",),
            (
                *(f"{_PLUGIN}/test_xdist_scheduling.py", f"{_PLUGIN}/test_xdist.py", f"{_PLUGIN}/test_shards.py"),
                *("tests/test_chunks.py", f"{_PLUGIN}/test_statuses.py", f"{_PLUGIN}/test_gates.py"),
                *(f"{_PLUGIN}/test_several_models.py", f"{_PLUGIN}/test_report.py", f"{_PLUGIN}/test_live.py"),
            ),
        ),
        "batcher": (
            ("inference/*.py",),
            (
                *(
                    "tests/inference",
                    "tests/test_chunks.py",
                    f"{_PLUGIN}/test_statuses.py",
                    f"{_PLUGIN}/test_judges.py",
                ),
                *(f"{_PLUGIN}/test_store.py", f"{_PLUGIN}/test_report.py", f"{_PLUGIN}/test_epochs.py"),
            ),
        ),
        "store": (
            ("inference/store*.py",),
            (
                *("tests/inference", f"{_PLUGIN}/test_store.py"),
                *("tests/commands/test_store.py", f"{_PLUGIN}/test_own_replies.py"),
            ),
        ),
        "loader": (
            ("suites/loading/*.py",),
            ("tests/suites", f"{_PLUGIN}/test_collection.py", f"{_PLUGIN}/test_data_sources.py", "tests/presets"),
        ),
        "encoding": (
            ("models/encoding.py", "models/huggingface/model.py"),
            (
                *("tests/models/test_encoding.py", "tests/models/test_encoder_decoder.py", "tests/models/test_chat.py"),
                *(
                    "tests/models/test_loglikelihood.py",
                    "tests/models/test_generate.py",
                    "tests/models/test_rolling.py",
                ),
                *("tests/models/test_encoder_decoder_parity.py", "tests/models/test_lm_eval_parity.py"),
            ),
        ),
    }
)

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: ``start`` to ``end`` of the file at ``path`` (in bytes) becomes ``new``."""

    path: Path
    line: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {' '.join(self.old.split())} -> {' '.join(self.new.split())}"

    def applied(self, source: bytes) -> bytes:
        """The file's content with the change."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutants_of(path: Path, source: str) -> list[Mutant]:
    """Every mutant of a module; annotations, docstrings, texts and what only type checkers read have none."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    whole = source.encode()
    found = []
    for node, new in _changes(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        found.append(Mutant(path, node.lineno, start, end, whole[start:end].decode(), f"({ast.unparse(new)})"))
    return found


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each expression that has a mutant, and the mutant."""
    match node:
        case ast.Compare(ops=[op], left=left, comparators=comparators) if type(op) in _COMPARISONS:
            yield node, ast.Compare(left, [_COMPARISONS[type(op)]()], comparators)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS and not _is_text(left, right):
            yield node, ast.BinOp(left, _OPERATORS[type(op)](), right)
        case ast.BoolOp(op=op, values=values):
            yield node, ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield node, operand
        case ast.Constant(value=bool(value)):
            yield node, ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield node, ast.Constant(value + 1)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            if isinstance(test, ast.Name) and test.id == "TYPE_CHECKING":
                return
            if not (isinstance(node, ast.While) and isinstance(test, ast.Constant)):
                yield test, ast.UnaryOp(ast.Not(), test)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params"):
            continue
        if isinstance(node, ast.FormattedValue | ast.JoinedStr):
            continue  # before Python 3.12 their places are not those in the file
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _changes(child)


def _is_text(*sides: ast.expr) -> bool:
    return any(isinstance(side, ast.JoinedStr) or _is_string(side) for side in sides)


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def modules(area: str) -> list[Path]:
    """The modules of an area, relative to the repository."""
    package = REPOSITORY / "pytest_llmeval"
    paths = {path for pattern in AREAS[area][0] for path in package.glob(pattern)}
    return [path.relative_to(REPOSITORY) for path in sorted(paths)]


def draw(areas: Sequence[str], count: int, seed: int) -> list[tuple[str, Mutant]]:
    """``count`` mutants of these areas with the area of each; a line of code is drawn first, then a mutant of it."""
    by_line: dict[tuple[str, Path, int], list[Mutant]] = {}
    for area in areas:
        for path in modules(area):
            for mutant in mutants_of(path, (REPOSITORY / path).read_text(encoding="utf-8")):
                by_line.setdefault((area, path, mutant.line), []).append(mutant)
    stream = random.Random(seed)
    lines = stream.sample(sorted(by_line), min(count, len(by_line)))
    return [(line[0], stream.choice(by_line[line])) for line in lines]


class Copy:
    """A copy of this checkout under ``folder``, and a virtual environment that imports the package from it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        self._num_changes = 0
        names = (
            "pytest_llmeval",
            "tests",
            "benchmarks",
            "example_suites",
            "docs",
            "pyproject.toml",
            "README.md",
            "CONTRIBUTING.md",
        )
        for name in (*names, "CHANGELOG.md", "LICENSE", ".ci"):
            source = REPOSITORY / name
            if source.is_dir():
                shutil.copytree(source, self.root / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy(source, self.root / name)
        environment = folder / "venv"
        venv.create(environment, symlinks=True)
        self.python = environment / "bin" / "python"
        (packages,) = (environment / "lib").glob("python*/site-packages")
        installed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        packages.joinpath("mutants.pth").write_text("\n".join([str(self.root), *installed, ""]))
        for name, module in (("pytest", "pytest:console_main"), ("llmeval", "pytest_llmeval.cli:main")):
            where, _, function = module.partition(":")
            script = environment / "bin" / name
            script.write_text(f"#!{self.python}\nimport sys\nfrom {where} import {function}\nsys.exit({function}())\n")
            script.chmod(0o755)

    def kills(self, mutant: Mutant, tests: Sequence[str], marked: str, timeout_s: float) -> bool:
        """Whether a test of these with such a mark fails, or they take longer than ``timeout_s``."""
        path = self.root / mutant.path
        source, times = path.read_bytes(), path.stat()
        path.write_bytes(mutant.applied(source))
        self._num_changes += 1  # a time of its own, so that no compiled form of another mutant is taken for this one's
        os.utime(path, (times.st_atime, times.st_mtime - 10 * self._num_changes))
        try:
            return self.fails(tests, marked, timeout_s)
        finally:
            path.write_bytes(source)
            os.utime(path, (times.st_atime, times.st_mtime))

    def fails(self, tests: Sequence[str], marked: str, timeout_s: float, *, tells: bool = False) -> bool:
        """Whether a test fails here, or they take longer than ``timeout_s``; ``tells`` prints what fails."""
        command = [str(self.python), "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", marked, *tests]
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
        variables["PATH"] = f"{self.python.parent}{os.pathsep}{variables['PATH']}"
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                command, cwd=self.root, env=variables, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return True
            is_failure = status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
            if tells and is_failure:
                output.seek(0)
                print(output.read()[-4000:])
        return is_failure


def _read_results(path: Path) -> dict[str, str]:
    """Return the outcome of each mutant (``default``, ``slow`` or ``survived``) that earlier runs wrote to ``path``."""
    if not path.exists():
        return {}
    return dict(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, run and count; 1 where the default tier kills too few."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="which mutants are drawn")
    parser.add_argument("--count", type=int, default=300, help="how many")
    parser.add_argument("--jobs", type=int, default=1, help="how many are tested at a time")
    parser.add_argument("--area", action="append", choices=list(AREAS), help="only of this area; may be repeated")
    parser.add_argument("--tests", action="append", help="run these instead of those of the area; may be repeated")
    parser.add_argument("--timeout", type=float, default=900, help="seconds after which a mutant counts as killed")
    parser.add_argument("--default-tier", action="store_true", help="do not run the slow tier on mutants that survive")
    parser.add_argument("--results", type=Path, help="append each outcome here, and go on after those that it holds")
    chosen = parser.parse_args(arguments)
    drawn = draw(chosen.area or list(AREAS), chosen.count, chosen.seed)

    tiers = (("default", "not slow"), ("slow", "slow"))[: 1 if chosen.default_tier else 2]
    known = _read_results(chosen.results) if chosen.results else {}
    left = [(area, mutant) for area, mutant in drawn if str(mutant) not in known]

    def tests_of(area: str) -> Sequence[str]:
        tests: Sequence[str] = chosen.tests or AREAS[area][1]
        return tests

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(chosen.jobs) as pool:
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for job in range(chosen.jobs if left else 0):
            copies.put(Copy(Path(folder) / str(job)))
        for area in sorted({area for area, _ in left}):
            copy = copies.get()
            is_broken = copy.fails(tests_of(area), "not slow", chosen.timeout, tells=True)
            copies.put(copy)
            if is_broken:
                print(f"{area}: its tests fail without a mutant, or take longer than {chosen.timeout:.0f} s")
                return 2

        def outcome(area_and_mutant: tuple[str, Mutant]) -> str:
            area, mutant = area_and_mutant
            copy = copies.get()
            start = time.perf_counter()
            killers = (tier for tier, marked in tiers if copy.kills(mutant, tests_of(area), marked, chosen.timeout))
            killer = next(killers, "survived")
            copies.put(copy)
            print(f"{killer:8} {time.perf_counter() - start:5.0f} s  {mutant}", flush=True)
            if chosen.results:
                with chosen.results.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps([str(mutant), killer], ensure_ascii=False) + "\n")
            return killer

        outcomes = Counter(pool.map(outcome, left))
    outcomes.update(known[str(mutant)] for _, mutant in drawn if str(mutant) in known)
    killed = outcomes["default"] + outcomes["slow"]
    share = outcomes["default"] / killed if killed else 0.0
    print(
        f"{len(drawn)} mutants of seed {chosen.seed}: {outcomes['default']} killed by the default tier, "
        f"{outcomes['slow']} by the slow tier, {outcomes['survived']} survived"
    )
    print(f"of those killed, the default tier kills {share:.1%} (needed: {NEEDED:.0%})")
    return int(share < NEEDED)


if __name__ == "__main__":
    sys.exit(main())
