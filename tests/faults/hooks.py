"""Hooks of a conftest.py, or of a plugin, that try to end a session with exit code 0: sources in Python."""

from __future__ import annotations

from types import MappingProxyType

__all__ = ["ENDS", "HOOKS", "ORDERS", "TRICKS", "hook_source"]

HOOKS = MappingProxyType(
    {
        # hook: its parameters, and how one gets from these to the session
        "pytest_configure": ("config", "None"),
        "pytest_sessionstart": ("session", "session"),
        "pytest_report_header": ("config", "None"),
        "pytest_collection": ("session", "session"),
        "pytest_collectstart": ("collector", "collector.session"),
        "pytest_collect_file": ("file_path, parent", "parent.session"),
        "pytest_itemcollected": ("item", "item.session"),
        "pytest_collectreport": ("report", "None"),
        "pytest_collection_modifyitems": ("session, items", "session"),
        "pytest_collection_finish": ("session", "session"),
        "pytest_report_collectionfinish": ("config", "None"),
        "pytest_runtestloop": ("session", "session"),
        "pytest_runtest_protocol": ("item, nextitem", "item.session"),
        "pytest_runtest_logstart": ("nodeid", "None"),
        "pytest_runtest_setup": ("item", "item.session"),
        "pytest_fixture_setup": ("request", "request.session"),
        "pytest_runtest_call": ("item", "item.session"),
        "pytest_pyfunc_call": ("pyfuncitem", "pyfuncitem.session"),
        "pytest_runtest_makereport": ("item, call", "item.session"),
        "pytest_report_teststatus": ("report", "None"),
        "pytest_runtest_logreport": ("report", "None"),
        "pytest_runtest_teardown": ("item", "item.session"),
        "pytest_runtest_logfinish": ("nodeid", "None"),
        "pytest_exception_interact": ("node", "node.session"),
        "pytest_sessionfinish": ("session", "session"),
        "pytest_terminal_summary": ("terminalreporter", "terminalreporter._session"),
        "pytest_unconfigure": ("config", "None"),
        "pytest_cmdline_main": ("config", "None"),
    }
)
ORDERS = MappingProxyType(
    {
        "": "",
        "first": "tryfirst=True",
        "last": "trylast=True",
        "wrapper": "wrapper=True",
        "outermost": "wrapper=True, tryfirst=True",
        "innermost": "wrapper=True, trylast=True",
        "old wrapper": "hookwrapper=True, tryfirst=True",
    }
)
ENDS = MappingProxyType(
    {
        "pytest.exit": "pytest.exit('fine', returncode=0)",
        "sys.exit": "sys.exit(0)",
        "sets the exit code": "session = {session}\n    if session is not None:\n        session.exitstatus = 0",
        "stops": "session = {session}\n    if session is not None:\n        session.shouldstop = 'enough'",
        "counts no failure": "session = {session}\n    if session is not None:\n"
        "        session.testsfailed = 0\n        session.shouldfail = False",
        "answers True": "return True",
        "answers 0": "return 0",
    }
)


def hook_source(hook: str, order: str, end: str) -> str:
    """One hook that ends the session in that way; a wrapper does so when the others have run."""
    parameters, session = HOOKS[hook]
    wraps = "wrapper" in ORDERS[order]
    action = ENDS[end].format(session=session)
    return (
        f"\n@pytest.hookimpl({ORDERS[order]})\ndef {hook}({parameters}):\n"
        + ("    answer = yield\n" if wraps else "")
        + f"    {action}\n"
        + ("    return answer\n" if wraps and "return" not in action and "hookwrapper" not in ORDERS[order] else "")
    )


_FORGIVES = """
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        report.outcome, report.longrepr = {outcome}
    return report
"""
_MARKS = "\ndef pytest_collection_modifyitems(items):\n    for item in items:\n        item.add_marker({mark})\n"
_ITEMS = "\n@pytest.hookimpl({order})\ndef pytest_collection_modifyitems(items):\n    {action}\n"
_ENDS_WELL = "\ndef pytest_sessionfinish(session):\n    session.exitstatus = 0\n"

TRICKS = MappingProxyType(
    {
        "a report that passes": _FORGIVES.format(outcome="'passed', None"),
        "a report that was skipped": _FORGIVES.format(outcome="'skipped', ('sums.yaml', 1, 'Skipped: fine')"),
        "a report of another phase": "\n@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
        "def pytest_runtest_makereport(item, call):\n    report = yield\n    report.when = 'setup'\n"
        "    return report\n",
        "no report": "\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_logreport(report):\n"
        "    report.__dict__.pop('llm_payload', None)\n    report.outcome = 'passed'\n",
        "a status of its own": "\n@pytest.hookimpl(tryfirst=True)\ndef pytest_report_teststatus(report):\n"
        "    return 'passed', '.', 'PASSED'\n",
        "no test runs": "\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_protocol(item, nextitem):\n"
        "    return True\n" + _ENDS_WELL,
        "every second test runs": "\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_protocol(item, nextitem):\n"
        "    return True if item.name in ('s2', 's4') else None\n" + _ENDS_WELL,
        "no loop": "\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtestloop(session):\n    return True\n",
        "no loop, no failure": "\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtestloop(session):\n    return True\n"
        + _ENDS_WELL,
        "calls that do nothing": "\ndef pytest_runtest_call(item):\n    item.runtest = lambda: None\n",
        "functions that are not called": "\n@pytest.hookimpl(tryfirst=True)\ndef pytest_pyfunc_call(pyfuncitem):\n"
        "    return True\n",
        "items that do nothing": _ITEMS.format(
            order="trylast=True", action="for item in items:\n        item.obj = lambda llm_model=None: None"
        ),
        "xfail": _MARKS.format(mark="pytest.mark.xfail(reason='known')"),
        "xfail of any error": _MARKS.format(mark="pytest.mark.xfail(raises=BaseException)"),
        "strict xfail": _MARKS.format(mark="pytest.mark.xfail(strict=True)"),
        "flaky": _MARKS.format(mark="pytest.mark.flaky(reruns=2)"),
        "warnings as nothing": _MARKS.format(mark="pytest.mark.filterwarnings('ignore')"),
        "the same twice": _ITEMS.format(order="", action="items += list(items)"),
        "the other way round": _ITEMS.format(order="", action="items.reverse()"),
        "by another key": _ITEMS.format(order="trylast=True", action="items.sort(key=lambda one: one.name[::-1])"),
        "autouse that raises": "\n@pytest.fixture(autouse=True)\ndef broken():\n    yield\n"
        "    raise RuntimeError('late')\n",
        "ends as it was told": _ENDS_WELL,
        "forgives five": "\ndef pytest_sessionfinish(session, exitstatus):\n"
        "    session.exitstatus = 0 if exitstatus == 5 else exitstatus\n",
        "a model of its own kind": "\n@pytest.fixture(autouse=True)\ndef changes(llm_model):\n"
        "    llm_model.__class__ = type('Other', (llm_model.__class__,), {})\n",
        "at exit": "import atexit\natexit.register(lambda: sys.exit(0))\n",
        "cleans up": "\ndef pytest_configure(config):\n    config.add_cleanup(lambda: sys.exit(0))\n",
        "cleans up by pytest.exit": "\ndef pytest_configure(config):\n"
        "    config.add_cleanup(lambda: pytest.exit('fine', returncode=0))\n",
        "signals as nothing": "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):\n"
        "    signal.signal(number, lambda *_: sys.exit(0))\n",
        "a raise at the end": "\ndef pytest_sessionfinish(session):\n    session.exitstatus = 0\n"
        "    raise RuntimeError('late')\n",
        "a raise at the summary": "\ndef pytest_terminal_summary():\n    raise RuntimeError('late')\n",
        "a raise at the very end": "\ndef pytest_unconfigure():\n    raise RuntimeError('late')\n",
        "without the part that reports": "\n@pytest.hookimpl(trylast=True)\ndef pytest_sessionstart(session):\n"
        "    session.config.pluginmanager.unregister(name='llmeval-reporting')\n",
        "without the part that reports, later": "\n@pytest.hookimpl(trylast=True)\n"
        "def pytest_collection_finish(session):\n"
        "    session.config.pluginmanager.unregister(name='llmeval-reporting')\n",
        "without the part that writes": "\ndef pytest_sessionstart(session):\n"
        "    session.config.pluginmanager.unregister(name='llmeval-writing')\n",
        "without the part that decides": "\ndef pytest_runtestloop(session):\n"
        "    manager = session.config.pluginmanager\n"
        "    manager.unregister(name='llmeval-final-hooks')\n" + _ENDS_WELL,
        "a plugin that is registered late": "\nclass Late:\n    @pytest.hookimpl(wrapper=True, tryfirst=True)\n"
        "    def pytest_sessionfinish(self, session):\n        yield\n        session.exitstatus = 0\n\n"
        "def pytest_sessionstart(session):\n    session.config.pluginmanager.register(Late())\n",
        "other options": "\ndef pytest_configure(config):\n    config.option.llm_gate = None\n"
        "    config.option.llm_baseline = None\n    config.option.maxfail = 0\n",
        "interrupts": "\ndef pytest_runtest_setup(item):\n    if item.name == 's4':\n        raise KeyboardInterrupt\n"
        + _ENDS_WELL,
        "interrupts at the start": "\ndef pytest_runtest_setup(item):\n    raise KeyboardInterrupt\n" + _ENDS_WELL,
        "stops in the middle": "\ndef pytest_runtest_teardown(item):\n    item.session.shouldstop = 'enough'\n"
        + _ENDS_WELL,
        "stops before the first": "\ndef pytest_runtestloop(session):\n    session.shouldstop = 'enough'\n"
        + _ENDS_WELL,
        "stopped when all is over": "\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_protocol(item, nextitem):\n"
        "    return True\n\n@pytest.hookimpl(wrapper=True, tryfirst=True)\ndef pytest_sessionfinish(session):\n"
        "    session.shouldstop = 'enough'\n    yield\n    session.exitstatus = 0\n",
        "says that it was interrupted": "\n@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_runtest_protocol(item, nextitem):\n    return True\n\n"
        "@pytest.hookimpl(wrapper=True, tryfirst=True)\ndef pytest_sessionfinish(session):\n"
        "    session.exitstatus = 2\n    yield\n    session.exitstatus = 0\n",
    }
)
"""Conftests by what they do. None of them leaves out a sample in a way that the documentation allows."""
