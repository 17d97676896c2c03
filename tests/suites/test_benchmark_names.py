"""Which classes are benchmarks, by a file's text alone."""

from __future__ import annotations

import textwrap
import warnings
from pathlib import Path

import pytest

from pytest_llmeval.suites.python.benchmark_names import benchmark_names


def names(folder: Path, source: str) -> set[str]:
    path = folder / "test_it.py"
    path.write_text(textwrap.dedent(source), encoding="utf-8")
    return set(benchmark_names(path))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from pytest_llmeval import Benchmark\nclass A(Benchmark): pass", {"A"}),
        ("from pytest_llmeval import Benchmark as Suite\nclass A(Suite): pass\nclass B(A): pass", {"A", "B"}),
        ("from pytest_llmeval import *\nclass A(Benchmark): pass", {"A"}),
        ("import pytest_llmeval\nclass A(pytest_llmeval.Benchmark): pass", {"A"}),
        ("import pytest_llmeval as e\nclass A(e.Benchmark): pass", {"A"}),
        (
            "import pytest_llmeval.suites.python.benchmark\n"
            "class A(pytest_llmeval.suites.python.benchmark.Benchmark): pass",
            {"A"},
        ),
        ("from pytest_llmeval.suites.python import benchmark\nclass A(benchmark.Benchmark): pass", {"A"}),
        ("from pytest_llmeval.suites.python.benchmark import Benchmark\nBase = Benchmark\nclass A(Base): pass", {"A"}),
        ("from pytest_llmeval import Benchmark\nif True:\n    class A(Benchmark): pass", {"A"}),
        (
            """
            try:
                from pytest_llmeval import Benchmark
            except ImportError:
                Benchmark = object
            else:
                class A(Benchmark): pass
            with open("x"):
                class B(int, Benchmark): pass
            """,
            {"A", "B"},
        ),
        ("import pytest_llmeval\nfrom house import HouseBenchmark as H\nclass A(H): pass", {"A"}),
        ("import pytest_llmeval\nfrom . import bases\nclass A(bases.HouseBenchmark[int]): pass", {"A"}),
        ("import pytest_llmeval\nfrom house import *\nclass A(HouseBenchmark): pass", {"A"}),
        # None of ours:
        ("class SpeedBenchmark: pass\nclass TestSpeed(SpeedBenchmark): pass", set()),
        ("from speed import SpeedBenchmark\nclass TestSpeed(SpeedBenchmark): pass", set()),
        ("import pytest_llmeval\nclass SpeedBenchmark: pass\nclass TestSpeed(SpeedBenchmark): pass", set()),
        ("from pytest_llmeval import Benchmark\nfrom house import House\nclass A(House): pass", set()),
        ("from pytest_llmeval import Benchmark\ndef f():\n    class A(Benchmark): pass", set()),
        ("from pytest_llmeval import Benchmark\nclass TestB:\n    class A(Benchmark): pass", set()),
        ("from pytest_llmeval import Benchmark\nclass A(make(Benchmark)): pass", set()),
        ("from pytest_llmeval import Benchmark\nclass A(Benchmark: pass", set()),
    ],
)
def test_names(tmp_path: Path, source: str, found: set[str]) -> None:
    assert names(tmp_path, source) == found


def test_a_file_that_the_compiler_warns_of(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert names(tmp_path, "from pytest_llmeval import Benchmark\nclass A(Benchmark): x = '\\d'") == {"A"}


def test_no_file(tmp_path: Path) -> None:
    assert benchmark_names(tmp_path / "missing.py") == set()
