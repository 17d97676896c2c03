"""The project of the campaign ``disks.py``: eight sums, a Python model of long replies, and what happens in between."""

from __future__ import annotations

from pathlib import Path

import yaml

__all__ = ["NUM_SAMPLES", "make_project"]

NUM_SAMPLES = 8

_MODEL = '''
"""Replies with some kilobytes, logs what it is asked, and in the middle does what the file ``act`` says, once."""

import os
import subprocess
import time
from pathlib import Path

from pytest_llmeval.types import GenerateResponse, ModelIdentity

HERE = Path(__file__).parent


class Replier:
    identity = ModelIdentity(name="replier", backend="test", fingerprint="1")

    def generate(self, requests):
        return [GenerateResponse(text=reply(request.prompt), num_tokens=1) for request in requests]


def reply(prompt):
    number = int(prompt.split()[1])
    with HERE.joinpath("asked").open("a") as file:
        file.write(f"{number}\\n")
    if number == 3:
        act()
        meet()
    return "so it is " * 400 + f"= {2 * number}."


def act():
    try:
        HERE.joinpath("act").rename(HERE / "acted")
    except OSError:
        return
    subprocess.run(["sh", "-c", HERE.joinpath("acted").read_text()], cwd=HERE, check=False, stderr=subprocess.DEVNULL)


def meet():
    """Wait until another session is as far, where the environment says that there is one."""
    name = os.environ.get("SESSION")
    if name is not None:
        HERE.joinpath(f"met-{name}").touch()
        end = time.monotonic() + 30
        while len(list(HERE.glob("met-*"))) < 2 and time.monotonic() < end:
            time.sleep(0.01)
'''

_CONFTEST = '''
"""A clock that is set wrong, and that jumps after three samples: ``CLOCK=START,JUMP``, in seconds."""

import datetime
import os
import sys
import time

if "CLOCK" in os.environ:
    start, jump = map(float, os.environ["CLOCK"].split(","))
    shift, seen, real = [start], [], time.time
    time.time = lambda: real() + shift[0]
    time.time_ns = lambda: int(time.time() * 1e9)

    class Shifted(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime_of_before.fromtimestamp(time.time(), tz)

    datetime_of_before, datetime.datetime = datetime.datetime, Shifted
    for name, module in list(sys.modules.items()):
        if name.startswith("pytest_llmeval") and getattr(module, "datetime", None) is datetime_of_before:
            module.datetime = Shifted

    def pytest_runtest_logreport(report):
        if report.when == "call":
            seen.append(report)
            if len(seen) == 3:
                shift[0] += jump
'''


def make_project(folder: Path) -> None:
    """Write it into a folder that is there. Its tests are ``sums.yaml``, its model ``python:replier:Replier``."""
    samples = [
        {"id": f"s{number}", "question": f"sum {number} + {number}", "target": 2 * number}
        for number in range(1, NUM_SAMPLES + 1)
    ]
    suite = {"suite": "sums", "score": "number", "prompt": {"template": "{{ question }}"}, "samples": samples}
    folder.joinpath("sums.yaml").write_text(yaml.safe_dump(suite, sort_keys=False))
    folder.joinpath("replier.py").write_text(_MODEL)
    folder.joinpath("conftest.py").write_text(_CONFTEST)
    folder.joinpath("pytest.ini").write_text("[pytest]\n")
