"""The controller of pytest-xdist: it gives workers chunks of suites and devices, and counts samples that are lost.

Every run with pytest-xdist loads this module, also one without suites: what only suites need is imported on first use.
"""

from __future__ import annotations

import itertools
import os
import queue
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import astuple
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmeval.errors import LLMEvalError
from pytest_llmeval.inference.chunks import KEEPS_FILES, WorkQueue, plan_chunks, plan_tests
from pytest_llmeval.models.hardware import num_visible_gpus
from pytest_llmeval.plugin.process_roles import share_session
from pytest_llmeval.plugin.settings import read_models, read_named, settings_key
from pytest_llmeval.plugin.stash import has_collected_key, llm_session_key
from pytest_llmeval.plugin.xdist_messages import BATCHING_KEY, SHARED_KEY, SLOT_KEY, Batching, chunk_limit, usage_errors
from pytest_llmeval.plugin.xdist_scheduling import ChunkScheduling, Node, Restarts, SessionScheduling
from pytest_llmeval.roles import MODEL_FIXTURES

if TYPE_CHECKING:
    from pytest_llmeval.plugin.xdist_messages import Collected, Inbox

__all__ = ["WorkDistribution", "num_gpu_workers"]

_MODES = ("load", "loadfile", "loadscope", "loadgroup", "worksteal")
"""The values of ``--dist`` by which each test runs once. Work is given out bit by bit: no worker needs to steal."""
_INTERRUPTED = int(pytest.ExitCode.INTERRUPTED)
_PATIENCE_S = 5.0
"""The time that workers have, if they were stopped together with us, to score what their models have answered."""


def num_gpu_workers(config: pytest.Config) -> int | None:
    """Return the number of GPUs, which ``-n auto`` means if models run on GPUs here; None if they do not.

    A wrong option is no error here: ``pytest_configure`` tells of it.
    """
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None
    try:
        device = read_named(config, "device")
        num_gpus = 0 if device in ("cpu", "mps") else num_visible_gpus(os.environ)
        if num_gpus and any(spec.kind.needs_device for spec in read_models(config)):
            return 1 if device not in (None, "cuda") else num_gpus
    except LLMEvalError:
        pass
    return None


class WorkDistribution:
    """Hooks of pytest-xdist's controller.

    :param add_collected: receives what each worker has collected, with the node ids of samples that are to run.
    """

    def __init__(
        self, config: pytest.Config, add_collected: Callable[[pytest.Config, Collected, Sequence[str]], None]
    ) -> None:
        self._config = config
        self._add_collected = add_collected
        self._inboxes: dict[Node, Inbox] = {}
        self._samples: set[str] = set()
        self._session: pytest.Session | None = None
        self._restarts = Restarts(None)
        self._scheduling: ChunkScheduling | None = None
        self._slots: dict[Node, int] = {}
        self._num_workers = 1
        self._was_stopped = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Read how many workers pytest-xdist will replace; this hook runs before it starts them."""
        from xdist.dsession import get_default_max_worker_restart

        self._session = session
        self._restarts = Restarts(get_default_max_worker_restart(self._config))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: Sequence[object]) -> None:
        self._num_workers = len(specs)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker, before it starts, how to plan, and which of the machine's devices is its own."""
        from pytest_llmeval.plugin.xdist_messages import Inbox

        self._inboxes[node] = Inbox(node)
        slot = next(number for number in itertools.count() if number not in self._slots.values())
        self._slots[node] = slot
        node.workerinput[SLOT_KEY] = slot
        node.workerinput[BATCHING_KEY] = astuple(self._batching())
        share_session(self._config, node.workerinput)
        kinds = [spec.kind for spec in self._config.stash[settings_key].all_specs]
        if any(kind.is_remote or kind.shares_limits or kind.needs_device or kind.budgeting == "kept" for kind in kinds):
            node.workerinput[SHARED_KEY] = self._shared_folder
            if self._config.stash[settings_key].budget_option is not None:
                from pytest_llmeval.plugin.budget import share_budget

                share_budget(self._config, node, Path(self._shared_folder))
        if kinds:
            from pytest_llmeval.plugin.launched_servers import share_launched

            share_launched(self._config, node.workerinput)
        if any(kind.needs_device for kind in kinds):
            from pytest_llmeval.plugin.xdist_messages import share_findings

            share_findings(self._config, node.workerinput)

    @cached_property
    def _shared_folder(self) -> str:
        """Return the folder in which workers share what they find out and how many requests a model gets at once.

        It is made on first use and removed at the end.
        """
        from pytest_llmeval.data.files import temporary_folder

        stack = ExitStack()
        self._config.add_cleanup(stack.close)
        return str(stack.enter_context(temporary_folder(prefix="llmeval-")))

    def _batching(self) -> Batching:
        mode = self._config.getoption("dist")
        limit = chunk_limit(self._config)
        if mode in _MODES and self._asks_models:
            return Batching(limit, num_workers=self._num_workers, shares_chunks=True, mode=mode)
        if mode in (*KEEPS_FILES, "each") and not self._restarts.num_deaths:
            return Batching(limit)  # a worker runs whole suites, as a session without workers does
        return Batching(1)

    @property
    def _asks_models(self) -> bool:
        """Tell whether an option, or a fixture of a conftest.py that is loaded already, gives a model of any role."""
        plugins = self._config.pluginmanager.get_plugins()
        return bool(self._config.stash[settings_key].all_specs) or any(
            any(hasattr(plugin, name) for name in MODEL_FIXTURES)
            and getattr(plugin, "__name__", "") != "pytest_llmeval.plugin"
            for plugin in plugins
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """Learn which tests are samples, and of which suites, from the worker that has collected them."""
        self._config.stash[has_collected_key] = True
        collected = self._inboxes[node].pop()
        if collected is not None:
            nodeids = [ids[place] for place in collected.samples]
            self._samples.update(nodeids)
            self._add_collected(self._config, collected, nodeids)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Raise ``pytest.UsageError`` for what a worker found out and cannot raise."""
        if messages := usage_errors(report):
            raise pytest.UsageError(*messages)

    def pytest_keyboard_interrupt(self) -> None:
        """Listen for a while to workers of this machine, which Ctrl-C has stopped, too: they hand over what they have.

        pytest-xdist ends them next, and listens no more. If Ctrl-C is pressed again, we do not wait.
        """
        with suppress(KeyboardInterrupt):
            self._listen_to_stopped()

    def _listen_to_stopped(self) -> None:
        dsession: Any = self._config.pluginmanager.get_plugin("dsession")
        deadline = time.monotonic() + _PATIENCE_S
        while self._slots and (seconds_left := deadline - time.monotonic()) > 0:
            try:
                event, arguments = dsession.queue.get(timeout=seconds_left)
            except queue.Empty:
                return
            if event == "testreport":
                dsession.worker_testreport(**arguments)
            elif event in ("workerfinished", "errordown"):
                self._config.hook.pytest_testnodedown(node=arguments["node"], error=None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """Note the end of a worker; this hook runs before the scheduler hears of it."""
        self._slots.pop(node, None)
        if error is not None:
            self._restarts.num_deaths += 1
        output = getattr(node, "workeroutput", {})
        if any(spec.kind.needs_device for spec in self._config.stash[settings_key].all_specs):
            from pytest_llmeval.plugin.xdist_messages import add_findings

            add_findings(self._config, output)
        if output.get("shouldfail") or output.get("shouldstop") or output.get("exitstatus") == _INTERRUPTED:
            self._was_stopped = True
            if self._session is not None and output.get("shouldfail"):
                # pytest-xdist says that it was interrupted, and not why.
                self._session.shouldfail = output["shouldfail"]
            if self._scheduling is not None:
                self._scheduling.stop()

    def _is_stopping(self) -> bool:
        session = self._session
        return self._was_stopped or bool(session is not None and (session.shouldfail or session.shouldstop))

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Return our scheduler if there is a model to ask, and no scheduler of a conftest.py.

        pytest-xdist's own schedulers deal samples singly, or begin a file anew with the sample that its worker died of.
        """
        if config.getoption("dist") not in _MODES or not self._asks_models:
            return None
        others = config.pluginmanager.subset_hook_caller("pytest_xdist_make_scheduler", remove_plugins=[self])
        self._scheduling = ChunkScheduling(
            num_nodes=self._num_workers,
            plan=self._plan,
            restarts=self._restarts,
            is_stopping=self._is_stopping,
            refuse=self._refuse,
        )
        return SessionScheduling(
            self._scheduling,
            has_samples=lambda nodeids: not self._samples.isdisjoint(nodeids),
            make_other=lambda: others(config=config, log=log),
        )

    def _plan(self, nodeids: Sequence[str]) -> WorkQueue:
        batching = self._batching()
        samples = [(place, nodeid) for place, nodeid in enumerate(nodeids) if nodeid in self._samples]
        others = [(place, nodeid) for place, nodeid in enumerate(nodeids) if nodeid not in self._samples]
        return WorkQueue(
            plan_chunks(samples, limit=batching.limit, num_workers=batching.num_workers, mode=batching.mode),
            plan_tests(
                others,
                num_workers=batching.num_workers,
                mode=batching.mode,
                largest_first=getattr(self._config.option, "loadscopereorder", True),
            ),
        )

    def _refuse(self, expected: Sequence[str], found: Sequence[str], known: Node, node: Node) -> None:
        from xdist.report import report_collection_diff

        message = report_collection_diff(expected, found, known.gateway.id, node.gateway.id)
        report = pytest.CollectReport(nodeid=node.gateway.id, outcome="failed", longrepr=message, result=[])
        self._config.hook.pytest_collectreport(report=report)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Count samples that were lost: pytest-xdist ends with 0 if its last worker dies and it can name no test."""
        result = yield
        self._mark_lost()
        return result

    def _mark_lost(self) -> None:
        if self._is_stopping() or self._scheduling is None:
            return
        deaths = self._restarts.num_deaths
        when, lost = ", and no worker was left to take over", self._scheduling.unfinished
        if lost is None:  # no sample was given to a worker
            when, lost = " while tests were collected", sorted(self._samples) if deaths else []
        if lost:
            workers = "a worker" if deaths == 1 else f"{deaths} workers"
            self._config.stash[llm_session_key].mark_lost(lost, f"did not run: {workers} died{when}")
