"""Ends a program's processes with pytest, or after a time, where no sandbox does: the parent of the program's process.

It runs first in a container and where there is no sandbox. What starts it says ``SECONDS``, the time, and ``PARENT``,
pytest's process, which is 0 in a container.
"""

from __future__ import annotations

import os
import select
import signal
import time

_POLL_S = 0.5


def main() -> None:
    """Fork, and return in the child only."""
    seconds, parent = globals()["SECONDS"], globals()["PARENT"]
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(read)
        os.close(write)
        return
    os.close(0)
    os.close(1)
    end = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        is_alone = parent > 0 and os.getppid() != parent
        if is_alone or time.monotonic() > end:
            os.killpg(0, signal.SIGKILL)
        if done:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
        select.select([read], [], [], _POLL_S)


if __name__ == "__main__":
    main()
