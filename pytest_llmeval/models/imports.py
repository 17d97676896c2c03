"""How torch and transformers are imported. Imports neither."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_llmeval.data.garbage import without_collection
from pytest_llmeval.models.threads import waiting_briefly

__all__ = ["importing_torch"]


@contextmanager
def importing_torch() -> Iterator[None]:
    """Import torch, and what builds on it, in this context: its threads wait briefly, and it takes less time.

    The imports make 300,000 objects that stay.
    """
    with without_collection(), waiting_briefly():
        yield
