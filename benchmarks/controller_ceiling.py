"""What the controller of pytest-xdist itself takes for each sample, with a model that takes no time.

    python -m benchmarks.controller_ceiling             # prints one JSON line
    python -m benchmarks.controller_ceiling --items 14042

The suite is that of ``session_overhead.py``, run with ``-n 2``. CPU time of the controller's process alone, with its
threads, from the first test to the last: workers may be as many as they like, its ceiling is 1 divided by that.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.session_overhead import environment, make_projects

CLOCK = """

import time


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session):
    is_controller = not hasattr(session.config, "workerinput")
    started = time.process_time()
    result = yield
    if is_controller:
        with open("seconds.txt", "w") as file:
            file.write(str(time.process_time() - started))
    return result
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=4000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ours, _ = make_projects(Path(folder), arguments.items, shots=0)
        conftest = ours / "conftest.py"
        conftest.write_text(conftest.read_text(encoding="utf-8") + CLOCK, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-n", "2", "mmlu.yaml", "--llm-report=report.json"]
        subprocess.run(
            command, cwd=ours, env=environment(Path(folder) / "bytecode"), check=True, stdout=subprocess.DEVNULL
        )
        seconds = float((ours / "seconds.txt").read_text(encoding="utf-8"))
    found = {"cpu_ms_per_sample": round(1000 * seconds / arguments.items, 3)}
    print(json.dumps({"items": arguments.items, **found, "samples_per_s": round(arguments.items / seconds)}))


if __name__ == "__main__":
    main()
