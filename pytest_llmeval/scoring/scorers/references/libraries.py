"""Libraries that only some scorers need."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["require"]


def require(scorer: str, module: str, *, package: str, extra: str) -> None:
    """Check, without importing it, that ``module`` is there. ``ValueError`` says what to install: ``package`` by
    ``extra``.
    """
    if find_spec(module) is None:
        raise ValueError(
            f"{scorer} needs {package}, which is not installed; pip install 'pytest-llmeval-suites[{extra}]'"
        )
