"""What a way to exit code 0 is made of: a small project, and what is wrong with its model, its reports or its session.

The project is one suite of twelve sums, a module of models that answer it, and a conftest.py. ``made_reports`` runs
it a few times for the reports that other ways need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

__all__ = ["AGENTS", "CONFTEST", "WRONGS", "Content", "Reports", "Way", "Wrong", "project", "suite"]

Reports: TypeAlias = Mapping[str, str]
"""Reports of real sessions as text, by name."""

Content: TypeAlias = str | bytes | Callable[[Reports], str | bytes] | None
"""A file: its text, or what makes it of the reports. None is a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One session, or one run of the command ``llmeval``, that must not end with exit code 0.

    ``passes`` is None. For a session that passes although one may wonder, it is the sentence of the documentation that
    says so, and exit code 0 is expected. ``hangs_for_s`` is how long it may take.
    """

    name: str
    arguments: tuple[str, ...]
    files: Mapping[str, Content] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    command: Literal["pytest", "llmeval"] = "pytest"
    needs: tuple[str, ...] = ()
    passes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """What is wrong: arguments, files and lines of the ini file of a session that fails because of it.

    ``is_of_whole_suite``: what asks for it is a gate of the suite or of the ini file, which is skipped in a selection.
    """

    name: str
    arguments: tuple[str, ...]
    files: Mapping[str, Content] = field(default_factory=dict)
    ini: tuple[str, ...] = ()
    is_of_whole_suite: bool = False


def suite(name: str = "sums", *, gates: str = "", numbers: range = range(1, 13), score: str = "number") -> str:
    """A suite of sums: ``s3`` asks ``3 + 3 =``. Of every third, ``category`` is ``hard``."""
    rows = "".join(
        f'  - {{id: s{number}, question: "{number} + {number} =", target: {2 * number}, '
        f"kind: {'hard' if number % 3 == 0 else 'easy'}}}\n"
        for number in numbers
    )
    gated = f"gates: [{gates}]\n" if gates else ""
    return f"suite: {name}\nsamples:\n{rows}score: {score}\ncategory: kind\n{gated}"


CHOICES = """\
suite: choices
samples:
  - {id: c1, question: "Capital of France?", choices: [Paris, Rome], target: 0}
  - {id: c2, question: "Capital of Italy?", choices: [Paris, Rome], target: 1}
score: choice
"""

AGENTS = '''\
"""Models, good and bad ones."""

import os
import signal
import sys
import time

import pytest

from pytest_llmeval.types import GenerateResponse, LoglikelihoodResponse


def good(prompt):
    return str(eval(prompt.removesuffix("=")))


def bad(prompt):
    return "-1"


def half(prompt):
    """Right for odd numbers."""
    return good(prompt) if int(prompt.split()[0]) % 2 else "-1"


def some_fail(prompt):
    if prompt.startswith(("1 +", "5 +", "9 +")):
        raise RuntimeError("overloaded")
    return good(prompt)


def all_fail(prompt):
    raise RuntimeError("overloaded")


def empty(prompt):
    return ""


def nothing(prompt):
    return None


def number(prompt):
    return 3.5


def system_exit(prompt):
    sys.exit(0)


def keyboard_interrupt(prompt):
    raise KeyboardInterrupt


def generator_exit(prompt):
    raise GeneratorExit


def stop_iteration(prompt):
    raise StopIteration


def base_exception(prompt):
    raise BaseException("no")


def pytest_exit(prompt):
    pytest.exit("fine", returncode=0)


def skips(prompt):
    pytest.skip("fine")


def xfails(prompt):
    pytest.xfail("fine")


def pytest_fails(prompt):
    pytest.fail("fine")


def recursion(prompt):
    return recursion(prompt)


def memory(prompt):
    raise MemoryError


def interrupts_itself(prompt):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)


def terminates_itself(prompt):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)


def exits_by_signal(prompt):
    """A handler that ends the process as if all were well."""
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(0))
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    time.sleep(5)


def closes_output(prompt):
    """Wrong, and nothing can be printed any more."""
    os.close(1)
    os.close(2)
    return "-1"


def in_worker(act):
    """The model of a session with workers: one of them dies each time that it is asked for s4."""

    def answer(prompt):
        if prompt.startswith("4 +") and "PYTEST_XDIST_WORKER" in os.environ:
            act()
        return good(prompt)

    return answer


def segfault():
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(5)


dies_0 = in_worker(lambda: os._exit(0))
dies_1 = in_worker(lambda: os._exit(1))
dies_killed = in_worker(lambda: os.kill(os.getpid(), signal.SIGKILL))
dies_segfault = in_worker(segfault)
dies_sys_exit = in_worker(lambda: sys.exit(0))


class Unloadable:
    def __init__(self):
        raise RuntimeError("no weights")


class ExitsAtLoad:
    def __init__(self):
        sys.exit(0)


class PytestExitsAtLoad:
    def __init__(self):
        pytest.exit("fine", returncode=0)


class Numbers:
    """Log-likelihoods that are none."""

    value = 0.0

    def generate(self, requests):
        return [GenerateResponse(text="-1") for _ in requests]

    def loglikelihood(self, requests):
        return [LoglikelihoodResponse(loglikelihood=self.value, num_tokens=1) for _ in requests]


class NaNs(Numbers):
    value = float("nan")


class Infinite(Numbers):
    value = float("inf")


class MinusInfinite(Numbers):
    value = float("-inf")


class Texts(Numbers):
    value = "-1.0"


class Nones(Numbers):
    value = None


class TooFew:
    def generate(self, requests):
        return [GenerateResponse(text="-1") for _ in requests][:-1]


class TooMany:
    def generate(self, requests):
        return [GenerateResponse(text="-1") for _ in requests] * 2


class NoList:
    def generate(self, requests):
        return None


class EmptyGenerator:
    def generate(self, requests):
        yield from ()


class NoResponses:
    def generate(self, requests):
        return [None for _ in requests]


class Replies:
    def generate(self, requests):
        return ["-1" for _ in requests]


class Surrogates:
    def generate(self, requests):
        return [GenerateResponse(text=chr(0xD800)) for _ in requests]


class Claims:
    """Claims that its replies are right."""

    def generate(self, requests):
        class Right(str):
            def __eq__(self, other):
                return True

            __hash__ = str.__hash__

        return [GenerateResponse(text=Right("-1")) for _ in requests]


class RaisesLate:
    def generate(self, requests):
        for request in requests:
            if request.prompt.startswith("7 +"):
                sys.exit(0)
            yield GenerateResponse(text=good(request.prompt))
'''

CONFTEST = "import os\nimport signal\nimport sys\n\nimport pytest\n\n"
"""What every conftest.py here begins with."""

_BASE: Content = lambda reports: reports["good"]  # noqa: E731

_GATE = "--llm-gate=sums: accuracy >= 0.9"


def model(name: str) -> str:
    return f"--llm-model=python:agents:{name}"


WRONGS = MappingProxyType(
    {
        wrong.name: wrong
        for wrong in (
            Wrong(name="gate of the command line", arguments=(model("bad"), _GATE, "sums.yaml")),
            Wrong(
                name="gate of the suite",
                arguments=(model("bad"), "sums.yaml"),
                files={"sums.yaml": suite(gates="accuracy >= 0.9")},
                is_of_whole_suite=True,
            ),
            Wrong(
                name="gate of the ini file",
                arguments=(model("bad"), "sums.yaml"),
                ini=("llm_gate = sums: accuracy >= 0.9",),
                is_of_whole_suite=True,
            ),
            Wrong(
                name="gate that is required",
                arguments=(model("bad"), "--llm-require-gates", "sums.yaml"),
                files={"sums.yaml": suite(gates="accuracy >= 0.9")},
            ),
            Wrong(
                name="no gate, one required",
                arguments=(model("bad"), "sums.yaml"),
                ini=("llm_require_gates = true",),
            ),
            Wrong(
                name="gate of a category",
                arguments=(model("bad"), "--llm-gate=sums: ci_low(category.hard.accuracy) > 0.5", "sums.yaml"),
            ),
            Wrong(
                name="worse than the baseline",
                arguments=(model("bad"), "--llm-baseline=base.json", "sums.yaml"),
                files={"base.json": _BASE},
            ),
            Wrong(
                name="worse than the baseline by half",
                arguments=(model("half"), "--llm-baseline=base.json", "--llm-gate-mode=non-inferior", "sums.yaml"),
                files={"base.json": _BASE},
            ),
            Wrong(
                name="worse than the baseline of the ini file",
                arguments=(model("bad"), "sums.yaml"),
                files={"base.json": _BASE},
                ini=("llm_baseline = base.json",),
                is_of_whole_suite=True,
            ),
            Wrong(
                name="baseline of another suite",
                arguments=(model("good"), "--llm-baseline=base.json", "sums.yaml"),
                files={"base.json": lambda reports: reports["other"]},
            ),
            Wrong(
                name="no baseline", arguments=(model("good"), "--llm-baseline=base.json", "--llm-report=r.json", ".")
            ),
            Wrong(name="all samples fail", arguments=(model("all_fail"), "sums.yaml")),
            Wrong(name="no model", arguments=(model("Unloadable"), "sums.yaml")),
            Wrong(name="too many unscored", arguments=(model("all_fail"), "--llm-allow-unscored=11", "sums.yaml")),
            Wrong(name="all unscored", arguments=(model("all_fail"), "--llm-allow-unscored=99", "sums.yaml")),
            Wrong(name="strict", arguments=(model("bad"), "--llm-strict", "sums.yaml")),
            Wrong(
                name="two models, one gate",
                arguments=(model("good"), model("bad"), _GATE, "sums.yaml"),
            ),
            Wrong(
                name="numbers that are none",
                arguments=(model("NaNs"), "--llm-gate=accuracy >= 0", "choices.yaml"),
                files={"choices.yaml": CHOICES},
            ),
        )
    }
)


def project(
    wrong: Wrong,
    *,
    conftest: str = "",
    ini: tuple[str, ...] = (),
    files: Mapping[str, Content] | None = None,
) -> dict[str, Content]:
    """The files of a session."""
    lines = "\n".join(["[pytest]", *wrong.ini, *ini, ""])
    return {
        "agents.py": AGENTS,
        "conftest.py": CONFTEST + conftest,
        "pytest.ini": lines,
        "sums.yaml": suite(),
        **wrong.files,
        **(files or {}),
    }
