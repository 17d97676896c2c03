"""The session of pytest in which hostile replies are judged: its model, and what watches time and memory.

It runs in a process of its own, which ``hostile_replies.py`` forks: the folder holds the suite, the conftest.py (which
imports the model from here), and ``plan.json``: the number of the judge, the seed, and the cases.
"""

from __future__ import annotations

import json
import os
import random
import resource
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.plugin.sample_item import Unscored, WrongAnswer
from pytest_llmeval.types import (
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    ModelIdentity,
    Prompt,
)
from tests.faults.judges import PYTHON_SCORERS, Judge, judges
from tests.faults.replies import draw_loglikelihoods, draw_reply

__all__ = ["PROGRESS", "Watch", "case_random", "llm_model", "main", "pytest_llmeval_scorers"]

PLAN = Path("plan.json")
PROGRESS = Path("progress.jsonl")
_ADDRESS_SPACE = 4 << 30
_LOOK_S = 0.02


def case_random(seed: int, number: int) -> random.Random:
    """The same for the same case of the same seed."""
    return random.Random(f"hostile replies {seed} {number}")


def pytest_llmeval_scorers() -> Mapping[str, Callable[..., Any]]:
    return PYTHON_SCORERS


class HostileModel:
    """Replies to ``case 7 hostile`` what the seed draws for case 7, and to all else what is right."""

    identity = ModelIdentity(name="hostile", backend="seed", fingerprint="hostile")

    def __init__(self, judge: Judge, seed: int) -> None:
        self._judge = judge
        self._seed = seed

    def generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse]:
        return [GenerateResponse(text=self._reply(request)) for request in requests]

    def loglikelihood(self, requests: Sequence[LoglikelihoodRequest]) -> list[LoglikelihoodResponse]:
        return self._likelihoods([request.context for request in requests], [one.continuation for one in requests])

    def loglikelihood_rolling(self, requests: Sequence[LoglikelihoodRollingRequest]) -> list[LoglikelihoodResponse]:
        return self._likelihoods([request.text for request in requests], ["" for _ in requests])

    def _reply(self, request: GenerateRequest) -> str:
        number = _case_of(request.prompt)
        if number is None:
            return self._judge.right
        rng = case_random(self._seed, number)
        rng.random()
        text = draw_reply(rng, self._judge)[1]
        return text if request.epoch != 1 else text[::-1]

    def _likelihoods(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> list[LoglikelihoodResponse]:
        numbers = [_case_of(prompt) for prompt in prompts]
        number = next((number for number in numbers if number is not None), None)
        if number is None:
            return [_healthy(prompt, text) for prompt, text in zip(prompts, continuations, strict=True)]
        drawn = draw_loglikelihoods(case_random(self._seed, number), len(continuations))
        return [LoglikelihoodResponse(loglikelihood=value, num_tokens=count) for value, count in drawn]


def _healthy(prompt: Prompt, continuation: str) -> LoglikelihoodResponse:
    """What is right is likely after the question, and not without it."""
    is_right = "healthy" in str(prompt) and continuation.strip() in ("the Qaanaaq fjord", "yes", "Qaanaaq")
    return LoglikelihoodResponse(loglikelihood=-0.5 if is_right else -9.0, num_tokens=1, is_greedy=is_right)


def _case_of(prompt: Prompt) -> int | None:
    text = prompt if isinstance(prompt, str) else prompt[-1].content
    words = text.partition("hostile case ")[2].split()
    return int(words[0].rstrip(".:")) if words else None


@cache
def _plan() -> Any:
    return json.loads(PLAN.read_text())


@pytest.fixture(scope="session")
def llm_model() -> HostileModel:
    return HostileModel(judges()[_plan()["judge"]], _plan()["seed"])


class Watch:
    """Writes a line when an item begins, and one with its times (s), peak of memory (bytes) and what escaped."""

    def __init__(self) -> None:
        self._file = PROGRESS.open("a", encoding="ascii", buffering=1)
        self._peak_of_others = 0
        self._escaped: str | None = None
        threading.Thread(target=self._look, daemon=True).start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._begin(item.name)
        result = yield
        self._end(item.name)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        self._begin("the end")
        return (yield)

    def pytest_unconfigure(self) -> None:
        self._end("the end")

    def pytest_exception_interact(self, call: pytest.CallInfo[None]) -> None:
        """An error of ours is a defined outcome; any other one was not thought of."""
        error = call.excinfo.value if call.excinfo is not None else None
        if error is not None and not isinstance(error, LLMEvalError | Unscored | WrongAnswer):
            self._escaped = f"{type(error).__name__}: {error}"[:300]

    def _begin(self, name: str) -> None:
        Path("/proc/self/clear_refs").write_text("5")
        self._peak_of_others, self._escaped = 0, None
        self._started = (time.perf_counter(), _processor_s())
        self._tell({"begin": name})

    def _end(self, name: str) -> None:
        wall_s, processor_s = time.perf_counter() - self._started[0], _processor_s() - self._started[1]
        peak = _peak("self") + max(self._peak_of_others, sum(map(_peak, _descendants())))
        found = {"wall_s": wall_s, "processor_s": processor_s, "peak": peak, "escaped": self._escaped}
        self._tell({"end": name, **found})

    def _tell(self, values: Mapping[str, object]) -> None:
        self._file.write(json.dumps(values) + "\n")

    def _look(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            self._peak_of_others = max(self._peak_of_others, sum(map(_resident, _descendants())))


def _descendants() -> list[str]:
    found, left = [], [str(os.getpid())]
    while left:
        try:
            children = Path(f"/proc/{left[-1]}/task/{left.pop()}/children").read_text().split()
        except OSError:
            continue
        found += children
        left += children
    return found


def _peak(process: str) -> int:
    return _kilobytes(process, "VmHWM:")


def _resident(process: str) -> int:
    return _kilobytes(process, "VmRSS:")


def _kilobytes(process: str, name: str) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(name)), 0)


def _processor_s() -> float:
    """Seconds of this process and of its children, those that have ended too."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks = 0
    for process in _descendants():
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ended.ru_utime + ended.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def main(arguments: Sequence[str]) -> NoReturn:
    """Run pytest with these arguments, bounded and watched."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    raise SystemExit(int(pytest.main(list(arguments), plugins=[Watch()])))
