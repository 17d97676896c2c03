"""Another attention function for a model, for the time of a context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import transformers

__all__ = ["attending"]


@contextmanager
def attending(model: Any, name: str, attention: Callable[..., Any]) -> Iterator[None]:
    """In this context the model attends by ``attention``, registered with transformers under ``name``."""
    before = model.config._attn_implementation
    transformers.AttentionInterface.register(name, attention)
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)
