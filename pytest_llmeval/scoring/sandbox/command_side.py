"""Runs a command on files that it is given, in the folder of its sandbox: the main program of that.

Its only line of output has the command's exit code, and what the command wrote to its standard error about its failure.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys

_MAX_LINE, _MAX_LINES = 200, 4
_ERROR = re.compile(r"\s*(Uncaught )?[\w.]*Error\b")


def main() -> None:
    """Write the files and run the command."""
    given = json.loads(sys.stdin.readline())
    for name, text in given["files"].items():
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
    seconds = max(1, int(given["timeout_s"] + 0.999))
    memory = given["memory_mb"] * 1024 * 1024

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        # Not its addresses, of which node and Java reserve many times what they use.
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 1024 * 1024, 16 * 1024 * 1024))
        if "LLMEVAL_MAX_PROCESSES" in os.environ:
            most = int(os.environ["LLMEVAL_MAX_PROCESSES"])
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))

    try:
        with open("errors", "w+b") as errors:
            done = subprocess.run(
                given["command"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=limit
            )
            size = errors.seek(0, os.SEEK_END)
            errors.seek(max(0, size - 10_000))
            lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    except OSError as error:
        sys.stdout.write(json.dumps([None, f"{given['command'][0]} did not start: {error.strerror}"]) + "\n")
        sys.exit(0)
    place = next((place for place, line in enumerate(lines) if _ERROR.match(line)), max(0, len(lines) - _MAX_LINES))
    shown = [line.strip()[:_MAX_LINE] for line in lines[place : place + _MAX_LINES]]
    sys.stdout.write(json.dumps([done.returncode, "\n".join(filter(None, shown))]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
