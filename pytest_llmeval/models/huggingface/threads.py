"""Sets the threads of torch while a model on the CPU works. See ``threads.py`` for why, and for the numbers."""

from __future__ import annotations

import os
from typing import ClassVar

import torch

from pytest_llmeval.models.huggingface.device import configure_threads
from pytest_llmeval.models.threads import Busy, choose_threads, is_set_by_user

__all__ = ["Threads"]


class Threads:
    """The threads of this process, one of ``num_workers`` that run models at once, for one model.

    What the user sets wins, and is not touched again: ``OMP_NUM_THREADS``, or ``torch.set_num_threads``, which is
    known by another number than torch begins with, or than was set here.
    """

    _set_here: ClassVar[int | None] = None
    """What torch was last set to. Its threads are the whole process's, so this is, too."""

    def __init__(self, num_workers: int = 1, *, busy: Busy | None = None) -> None:
        self._busy = Busy() if busy is None else busy
        affinity = getattr(os, "sched_getaffinity", None)
        begins_with = Threads._set_here or (len(affinity(0)) if affinity is not None else None)
        before = int(torch.get_num_threads())
        self._is_users = is_set_by_user() or begins_with not in (None, before)
        self._limit = before
        if not self._is_users:
            # Torch may begin with fewer than there are cores: those of a Mac are not alike.
            self._limit = configure_threads(num_workers)
            if Threads._set_here is None:
                self._limit = min(before, self._limit)
            self._set(self._limit)

    def adapt(self) -> None:
        """Use as many threads as the machine has free cores now. Called before each call of the model."""
        if self._is_users or torch.get_num_threads() != Threads._set_here:
            self._is_users = True
            return
        self._set(choose_threads(self._limit, self._busy.cores(), os.cpu_count() or 1))

    def _set(self, num_threads: int) -> None:
        if num_threads != torch.get_num_threads():
            torch.set_num_threads(num_threads)
        Threads._set_here = num_threads
