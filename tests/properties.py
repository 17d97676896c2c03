"""How many examples properties have (Hypothesis): ``tests/conftest.py`` says which run has all of them."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

__all__ = ["examples", "try_all_examples"]

# No deadline and no speed check: a slow machine is no failure. Derandomised: CI fails for a change, not for its luck.
_ALL = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], max_examples=100)
settings.register_profile("all", _ALL)
settings.register_profile("repository", _ALL, max_examples=30)
settings.load_profile("repository")


def try_all_examples() -> None:
    """Give each property of the files that are read from now on all its examples."""
    settings.load_profile("all")


def examples(full: int) -> int:
    """``max_examples`` of a property that has ``full`` where campaigns run: otherwise three tenths, at least 10."""
    is_full = settings().max_examples == _ALL.max_examples
    return full if is_full else min(full, max(10, 3 * full // 10))
