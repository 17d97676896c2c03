"""How many threads a model gets, and that what the user sets wins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pytest_llmeval.models.hardware import Busy, choose_threads, is_set_by_user
from pytest_llmeval.models.huggingface.device import Threads
from tests.support import clean_environment


@pytest.mark.parametrize(
    ("limit", "busy", "cores", "expected"),
    [
        (2, 0.0, 2, 2),
        (2, 0.4, 2, 2),
        (2, 0.6, 2, 1),
        (2, 7.0, 2, 1),
        (8, 2.0, 8, 6),
        (4, 30.0, 64, 4),
        (1, 0.0, 2, 1),
        (2, None, 2, 2),
    ],
)
def test_as_many_threads_as_cores_are_free(limit: int, busy: float | None, cores: int, expected: int) -> None:
    assert choose_threads(limit, busy, cores) == expected


class Machine:
    """A ``/proc/stat``, a clock and the processor time of this process, in hundredths of a second."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "stat"
        self.now_s = self.own_s = self.all_s = 0.0
        self.write()
        self.busy = Busy(self.file, clock=lambda: self.now_s, own=lambda: self.own_s)

    def write(self) -> None:
        ticks = round(self.all_s * os.sysconf("SC_CLK_TCK"))
        self.file.write_text(f"cpu  {ticks} 0 0 1000 50 0 0 0 0 0\ncpu0 1 2 3\n")

    def pass_time(self, seconds: float, *, own: float, others: float) -> None:
        """``own`` and ``others`` are cores that were busy."""
        self.now_s += seconds
        self.own_s += own * seconds
        self.all_s += (own + others) * seconds
        self.write()


def test_what_others_keep_busy(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.pass_time(2.0, own=1.5, others=0.5)
    assert machine.busy.cores() == pytest.approx(0.5)
    machine.pass_time(0.1, own=0.0, others=2.0)  # too short to be told from the hundredths that are counted
    assert machine.busy.cores() == pytest.approx(0.5)
    machine.pass_time(1.9, own=0.0, others=2.0)
    assert machine.busy.cores() == pytest.approx(2.0)


@pytest.mark.parametrize("content", [None, "", "cpu", "cpu a b c d e f g h", "intr 1 2 3 4 5 6 7 8"])
def test_where_nobody_knows(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "stat").write_text(content)
    assert Busy(tmp_path / "stat").cores() is None


@pytest.fixture
def torch_threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What torch was told, the last one being what it has; it begins with all of four cores."""
    told = [4]
    monkeypatch.setattr(torch, "get_num_threads", lambda: told[-1])
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    monkeypatch.setattr(Threads, "_set_here", None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    return told


def test_threads_follow_the_load_from_call_to_call(tmp_path: Path, torch_threads: list[int]) -> None:
    machine = Machine(tmp_path)
    threads = Threads(busy=machine.busy)
    found = []
    for others in (0.0, 3.0, 9.0, 1.0, 0.0):
        machine.pass_time(1.0, own=1.0, others=others)
        threads.adapt()
        found.append(torch_threads[-1])
    assert found == [4, 1, 1, 3, 4]


def test_workers_share_the_cores(tmp_path: Path, torch_threads: list[int]) -> None:
    machine = Machine(tmp_path)
    threads = Threads(2, busy=machine.busy)
    machine.pass_time(1.0, own=2.0, others=2.0)  # the other worker
    threads.adapt()
    assert torch_threads[-1] == 2


@pytest.mark.parametrize("when", ["environment", "before", "after"])
def test_what_the_user_sets_wins(
    when: str, tmp_path: Path, torch_threads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if when == "environment":
        monkeypatch.setenv("OMP_NUM_THREADS", "4")
    if when == "before":
        torch.set_num_threads(3)
    machine = Machine(tmp_path)
    threads = Threads(busy=machine.busy)
    if when == "after":
        torch.set_num_threads(3)
    machine.pass_time(1.0, own=1.0, others=9.0)
    threads.adapt()
    assert torch_threads[-1] == (4 if when == "environment" else 3)


def test_variables_that_set_the_number() -> None:
    assert is_set_by_user({"OMP_NUM_THREADS": "2"})
    assert is_set_by_user({"MKL_NUM_THREADS": "2"})
    assert not is_set_by_user({"OMP_NUM_THREADS": ""})


_IMPORT = """
import os
from pytest_llmeval.models.hardware import waiting_briefly
with waiting_briefly():
    inside = os.environ.get("GOMP_SPINCOUNT")
    {inside}
print(inside, os.environ.get("GOMP_SPINCOUNT"), os.environ.get("KMP_BLOCKTIME"))
"""


@pytest.mark.parametrize(
    ("variables", "printed"),
    [
        ({}, "20000 None None"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "None None None"),
        ({"GOMP_SPINCOUNT": "5"}, "5 5 None"),
    ],
)
def test_openmp_is_reported_to_wait_briefly_unless_the_user_told_it(variables: dict[str, str], printed: str) -> None:
    environment = clean_environment() | variables
    code = _IMPORT.format(inside="pass")
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == printed


def test_a_model_of_the_command_line_follows_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without pytest-xdist: two threads were three times as slow as one on a busy machine with two cores."""
    from pytest_llmeval.models.registry import load_model, parse_model_spec
    from pytest_llmeval.plugin.models import model_settings
    from pytest_llmeval.plugin.settings import Settings
    from pytest_llmeval.types import LoglikelihoodRequest

    told: list[str] = []
    monkeypatch.setattr(Threads, "adapt", lambda self: told.append("adapt"))
    spec = parse_model_spec("demo")
    model = load_model(spec, model_settings(Settings(), "cpu"))
    assert not told
    model.loglikelihood([LoglikelihoodRequest("a", " b")])
    assert told == ["adapt"]
