"""A test's time limit (pytest-timeout) does not run while the model loads."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_llmeval.plugin.other_plugins import LoadingTime
from tests.plugin.suites_for_tests import SUMS
from tests.servers.fake_server import executable
from tests.servers.gguf_files import gguf_bytes
from tests.servers.test_server_sessions import written_suite

TIMEOUT = '''
"""pytest-timeout 2.4 as other plugins see it: its name, its hooks, and when it calls them. The timer writes a log."""

import pathlib
import pytest

LOG = pathlib.Path(__file__).with_name("log.txt")


def log(what):
    with LOG.open("a") as file:
        file.write(what + "\\n")


class Hooks:
    @pytest.hookspec(firstresult=True)
    def pytest_timeout_set_timer(item, settings): ...

    @pytest.hookspec(firstresult=True)
    def pytest_timeout_cancel_timer(item): ...


def pytest_addhooks(pluginmanager):
    pluginmanager.add_hookspecs(Hooks)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    item.config.pluginmanager.hook.pytest_timeout_set_timer(item=item, settings="5 s")
    yield
    item.config.pluginmanager.hook.pytest_timeout_cancel_timer(item=item)


@pytest.hookimpl(trylast=True)
def pytest_timeout_set_timer(item, settings):
    log(f"{item.name}: {settings} begin")
    return True


@pytest.hookimpl(trylast=True)
def pytest_timeout_cancel_timer(item):
    log(f"{item.name}: end")
    return True
'''

CONFTEST = """
import pytest
from timeout import log
from pytest_llmeval.models.guessing import GuessingModel


@pytest.fixture(scope="session")
def slow():
    log("another fixture")


@pytest.fixture(scope="session")
def llm_model(slow):
    log("loading")
    {load}
"""

EACH_OF_THE_OTHERS = [line for name in ("s2", "s3", "s4") for line in (f"{name}: 5 s begin", f"{name}: end")]


def run(pytester: pytest.Pytester, load: str) -> tuple[pytest.RunResult, list[str]]:
    pytester.makepyfile(timeout=TIMEOUT)
    pytester.syspathinsert()
    pytester.makeconftest(CONFTEST.format(load=load))
    pytester.makefile(".yaml", sums=SUMS)
    result = pytester.runpytest("-p", "timeout", "-p", "no:xdist", "sums.yaml")
    return result, (pytester.path / "log.txt").read_text(encoding="utf-8").splitlines()


def test_the_timer_stands_still_while_the_model_loads(llm_pytester: pytest.Pytester) -> None:
    result, log = run(llm_pytester, "return GuessingModel('random', 'random', 0)")
    assert result.ret == 0
    begin = ["s1: 5 s begin", "another fixture", "s1: end", "loading", "s1: 5 s begin", "s1: end"]
    assert log == [*begin, *EACH_OF_THE_OTHERS]


def test_a_model_that_cannot_be_loaded_leaves_the_timer_as_it_was(llm_pytester: pytest.Pytester) -> None:
    result, log = run(llm_pytester, "raise RuntimeError('no such file')")
    result.assert_outcomes(errors=4)
    begin = ["s1: 5 s begin", "another fixture", "s1: end", "loading", "s1: 5 s begin", "s1: end"]
    assert log == [*begin, *EACH_OF_THE_OTHERS]


@pytest.mark.parametrize("fixture", ["llm_judge", "llm_embedder"])
def test_the_timer_stands_still_while_what_scorers_ask_loads(llm_pytester: pytest.Pytester, fixture: str) -> None:
    llm_pytester.makepyfile(timeout=TIMEOUT, test_it=f"def test_it({fixture}): pass")
    llm_pytester.syspathinsert()
    llm_pytester.makeconftest(
        f"import pytest\nfrom timeout import log\n@pytest.fixture\ndef {fixture}(): log('loading')\n"
    )
    assert llm_pytester.runpytest("-p", "timeout", "-p", "no:xdist").ret == 0
    log = (llm_pytester.path / "log.txt").read_text(encoding="utf-8").splitlines()
    assert log == ["test_it: 5 s begin", "test_it: end", "loading", "test_it: 5 s begin", "test_it: end"]


def test_the_timer_is_left_alone_from_other_threads() -> None:
    calls: list[str] = []
    hook = SimpleNamespace(
        pytest_timeout_cancel_timer=lambda item: calls.append("end"),
        pytest_timeout_set_timer=lambda item, settings: calls.append("begin"),
    )
    loading: Any = LoadingTime(cast("Any", SimpleNamespace(pluginmanager=SimpleNamespace(hook=hook))))
    loading.pytest_timeout_set_timer("item", "settings")

    def start() -> None:
        with loading.stopped():
            calls.append("start")

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    start()
    assert calls == ["start", "end", "start", "begin"]


def test_the_timer_stands_still_while_a_server_starts_whose_replies_are_kept(
    llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm_pytester.path.joinpath("m.gguf").write_bytes(gguf_bytes())
    server = executable(llm_pytester.path, "llama-server")
    monkeypatch.setenv("FAKE_SERVER_LOG", str(llm_pytester.path / "starts.log"))
    model = f"--llm-model=llama-cpp:m.gguf?launch.command={server}"
    llm_pytester.makepyfile(timeout=TIMEOUT)
    llm_pytester.syspathinsert()
    suite = written_suite(llm_pytester, 2)
    for _ in range(2):
        assert llm_pytester.runpytest("-p", "timeout", "-p", "no:xdist", "--llm-store=store", model, suite).ret == 0
    log = (llm_pytester.path / "log.txt").read_text(encoding="utf-8").splitlines()
    loading, start = ["w0: 5 s begin", "w0: end"], ["w0: 5 s begin", "w0: end"]
    rest = ["w0: 5 s begin", "w0: end", "w1: 5 s begin", "w1: end"]
    assert log == [*loading, *start, *rest, *loading, *rest], "the second session has all replies"
