"""Which browser the tests of HTML reports use, and how it is started."""

from __future__ import annotations

import os
import shutil

__all__ = ["ARGUMENTS", "BROWSER_VARIABLE", "browser_path"]

BROWSER_VARIABLE = "PYTEST_LLM_TEST_BROWSER"
"""An environment variable with the path of a Chromium, or its name on PATH."""

ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
"""In a container there are neither the rights that a sandbox needs nor much shared memory."""

_NAMES = ("chromium-headless-shell", "chromium", "google-chrome")


def browser_path() -> str | None:
    """The browser that ``PYTEST_LLM_TEST_BROWSER`` names, else the first Chromium on PATH; None where there is none."""
    named = os.environ.get(BROWSER_VARIABLE)
    if named:
        return shutil.which(named)
    return next((path for name in _NAMES if (path := shutil.which(name)) is not None), None)
