"""Whether the Hugging Face hub can be reached, in seconds: its own libraries retry for half a minute."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["answers", "hub_answers", "is_known_unreachable", "offline_where_unreachable"]

_TIMEOUT_S = 5.0


def answers(endpoint: str, timeout_s: float) -> bool:
    """Whether a server answers at all, through the proxies of the environment, within ``timeout_s``."""
    import huggingface_hub

    found: list[bool] = []

    def ask() -> None:
        try:
            huggingface_hub.get_session().head(endpoint, timeout=timeout_s)
        except Exception:  # of whatever library it is that huggingface_hub speaks HTTP with
            return
        found.append(True)

    # A thread, since a name server that does not answer knows no timeout.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout_s)
    return bool(found)


@functools.cache
def hub_answers() -> bool:
    """Whether the hub answers; asked once in a process."""
    from huggingface_hub import constants

    return answers(constants.ENDPOINT, _TIMEOUT_S)


def is_known_unreachable() -> bool:
    """Whether the hub was asked and did not answer."""
    return hub_answers.cache_info().currsize > 0 and not hub_answers()


@contextmanager
def offline_where_unreachable() -> Iterator[None]:
    """As with ``HF_HUB_OFFLINE`` where the hub does not answer: what is in the caches is read, and nothing waits."""
    import datasets
    from huggingface_hub import constants

    if datasets.config.HF_HUB_OFFLINE or constants.HF_HUB_OFFLINE or hub_answers():
        yield
        return
    before = datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before
