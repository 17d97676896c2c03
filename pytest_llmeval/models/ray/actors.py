"""Replicas as actors of Ray. This is the only module that imports Ray.

Ray restarts no actor and repeats no call: ``Fleet`` decides what happens to work that was lost.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # under -W error, what Ray warns of at its import would end the run
    # Both are read at the import: no telemetry, and nothing that the processes of Ray log is printed here.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    import ray
    from ray.exceptions import RayError, RayTaskError

from pytest_llmeval.errors import LLMEvalError, ModelError
from pytest_llmeval.models.ray.cluster import Needs, check_reachable
from pytest_llmeval.models.ray.replica import Answer, Handshake, Loading, Replica, ReplicaLost
from pytest_llmeval.text.redaction import describe, one_line
from pytest_llmeval.types import EngineUse, Request

__all__ = ["ActorHandle", "Cluster"]

_STORE_BYTES = 256 << 20
"""Bytes of memory for Ray's objects on this machine. Little is enough: only text and numbers are sent."""
_NONE_HERE = (
    "--llm-ray auto: no Ray cluster runs on this machine; start one with `ray start --head`, or give --llm-ray local "
    "or the address of another machine's"
)
_TOKEN = "; if the cluster has a token, set RAY_AUTH_MODE=token"
"""A hint, since Ray sends the token of ``~/.ray/auth_token`` to a named address only if it is told to."""


_F = TypeVar("_F", bound=Callable[..., Any])
_THREADS = {"model": 1, "control": 1, "watch": 1}
"""Number of concurrent calls for each group of an actor's methods."""


def _in_thread(group: str) -> Callable[[_F], _F]:
    decorate: Callable[[_F], _F] = ray.method(concurrency_group=group)
    return decorate


class _Actor(Replica):
    """The actor's side of a replica. Ray calls it for one chunk after another, and meanwhile to withdraw chunks."""

    def __init__(self, loading: Loading) -> None:
        super().__init__(loading, f" ({ray.get_runtime_context().get_node_id()[:6]})")

    @_in_thread("control")
    def where(self) -> str:
        return str(ray.get_runtime_context().get_node_id())

    @_in_thread("model")
    def load(self) -> Handshake:
        return super().load()

    @_in_thread("model")
    def answer(self, number: int, samples: Sequence[Sequence[Request]], engine: str | None) -> list[Answer] | None:
        return super().answer(number, samples, engine)

    @_in_thread("model")
    def audit(self, requests: Sequence[Request]) -> EngineUse:
        return super().audit(requests)

    @_in_thread("control")
    def withdraw(self, number: int) -> bool:
        return super().withdraw(number)

    @_in_thread("watch")
    def watch(self) -> None:
        threading.Event().wait()


class ActorHandle:
    """A ``Handle`` whose replica is an actor; ``actor`` is Ray's own handle."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def where(self) -> Future[str]:
        return _translated(self._actor.where.remote())

    def load(self) -> Future[Handshake]:
        return _translated(self._actor.load.remote())

    def answer(self, number: int, samples: Sequence[Sequence[Request]], engine: str | None) -> Future[Any]:
        return _translated(self._actor.answer.remote(number, samples, engine))

    def withdraw(self, number: int) -> Future[bool]:
        return _translated(self._actor.withdraw.remote(number))

    def audit(self, requests: Sequence[Request]) -> Future[EngineUse]:
        return _translated(self._actor.audit.remote(requests))

    def watch(self) -> Future[None]:
        return _translated(self._actor.watch.remote())

    def end(self) -> None:
        with contextlib.suppress(Exception):  # it has ended, or the cluster has
            ray.kill(self._actor, no_restart=True)


class Cluster:
    """The Ray cluster that replicas run on: one that is started here (``local``), or one at an address.

    Raise ``ModelError`` where there is no cluster at the address.
    """

    def __init__(self, address: str, *, num_cpus: int | None = None) -> None:
        """Connect to the cluster. A cluster that is started here gets ``num_cpus`` CPUs."""
        self._is_ours = not ray.is_initialized()
        if not self._is_ours:
            return
        options: dict[str, Any] = {"address": address, "log_to_driver": False, "configure_logging": False}
        if address == "local":
            options |= {"include_dashboard": False, "num_cpus": num_cpus, "object_store_memory": _STORE_BYTES}
            # By default 15: the replicas would wait for everything else that this machine does.
            options["_system_config"] = {"worker_niceness": 0}
        if address not in ("local", "auto"):
            check_reachable(address)
        try:
            with _undisturbed():
                ray.init(**options)
        except Exception as error:  # Ray raises what its parts raise
            self.close()
            token = "" if address == "local" or os.environ.get("RAY_AUTH_MODE") else _TOKEN
            reason = describe(error).rstrip(".")
            if address == "auto" and "any running Ray instance" in reason:
                raise ModelError(_NONE_HERE) from None
            raise ModelError(f"--llm-ray {address}: cannot use this cluster: {reason}{token}") from None
        except BaseException:
            self.close()
            raise

    def nodes(self) -> list[Mapping[str, float]]:
        """Return the resources of each machine of the cluster, by Ray's names (``CPU``, ``GPU``)."""
        return [node["Resources"] for node in ray.nodes() if node["Alive"]]

    def start(self, loading: Loading, needs: Needs) -> ActorHandle:
        """Start one replica, on another machine than the others if there is room. Return before it is ready."""
        actor = ray.remote(
            num_cpus=needs.cpus,
            num_gpus=needs.gpus,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
            concurrency_groups=_THREADS,
        )(_Actor)
        return ActorHandle(actor.remote(loading))

    def close(self) -> None:
        """End the cluster or the connection to it, unless other code in this process made the connection."""
        if self._is_ours and ray.is_initialized():
            with _undisturbed():
                ray.shutdown()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep Ray's log lines and warnings out of pytest's output, and its signal handlers out of the session.

    The first Ctrl-C takes effect at the end, because a process in which Ray has half started crashes as it ends. The
    second one takes effect at once.
    """
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    numbers = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: signal.getsignal(number) for number in numbers}
    held: list[int] = []

    def hold(number: int, frame: object) -> None:
        if held:
            raise KeyboardInterrupt
        held.append(number)

    if numbers:
        signal.signal(signal.SIGINT, hold)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(max(level, logging.ERROR))
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if held:
        signal.raise_signal(signal.SIGINT)


def _translated(reference: Any) -> Future[Any]:
    """Return the future of a call with Ray's errors as ``ReplicaLost`` or ``LLMEvalError``."""
    future: Future[Any] = Future()

    def take(done: Future[Any]) -> None:
        error = done.exception()
        if error is None:
            future.set_result(done.result())
        elif isinstance(error, RayTaskError):
            cause = getattr(error, "cause", None)
            known = isinstance(cause, LLMEvalError)
            future.set_exception(ModelError(str(cause) if known else describe(cause or error)))
        elif isinstance(error, RayError):
            future.set_exception(ReplicaLost(_reason(error)))
        else:
            future.set_exception(error)

    reference.future().add_done_callback(take)
    return future


def _reason(error: RayError) -> str:
    """Return the one line of Ray's message that says why, such as why the actor could not be made."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return one_line(lines[-1] if "creation task" in lines[0] else lines[0].rstrip("."))
