"""lm-eval's own task files as suites: recognised, read with what they include, and translated to the suite format.

Made after lm-eval 0.4.13. A task that calls no Python needs no lm-eval here.
"""

from __future__ import annotations

import os

__all__ = ["convert"]


def convert(path: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> str:
    """The text of a suite file that does what a task file does. Raises ``SuiteError``.

    Data files are named as seen from ``folder``, in which the suite will stand; by default that of the task file.
    """
    from pytest_llmeval.suites.lm_eval import load  # whoever asks whether a file is a task needs none of it

    return load.convert(path, folder)
