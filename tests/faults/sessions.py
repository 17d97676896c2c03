"""Sessions of pytest that hide what is wrong: by selections, hooks, other plugins, and workers that die."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from tests.faults.hooks import ENDS, HOOKS, ORDERS, TRICKS, hook_source
from tests.faults.ways import CHOICES, WRONGS, Content, Way, Wrong, model, project, suite

__all__ = ["BOTH", "POOLS", "way"]

ONE_PROCESS = ("-p", "no:xdist")
TWO_WORKERS = ("-n2",)

SELECTIONS = {
    # what it selects some of: its options, files
    "-k": ("-k", "s1"),
    "-k or": ("-k", "s1 or s5"),
    "-k not": ("-k", "not s2"),
    "-k nothing": ("-k", "nothing"),
    "-m nothing": ("-m", "nothing"),
    "deselect": ("--deselect=sums.yaml::s2",),
    "deselect all": ("--deselect=sums.yaml",),
    "ignore": ("--ignore=sums.yaml",),
    "ignore-glob": ("--ignore-glob=*.yaml",),
    "limit": ("--llm-limit=2",),
    "first": ("--llm-limit=first:1",),
    "shard": ("--llm-shard=1/2",),
    "other shard": ("--llm-shard=2/2",),
    "last failed": ("--lf",),
    "last failed, none": ("--lf", "--lfnf=none"),
    "stepwise": ("--sw",),
    "stepwise, skips": ("--sw", "--sw-skip"),
}
EVERYTHING = {
    # options that leave out nothing
    "nothing": (),
    "failed first": ("--ff",),
    "new first": ("--nf",),
    "first failure": ("-x",),
    "two failures": ("--maxfail=2",),
    "exitfirst": ("--exitfirst",),
    "marker": ("-m", "not nothing"),
    "quiet": ("-qqq",),
    "no terminal": ("-p", "no:terminal"),
    "no summary": ("--no-summary", "--no-header", "--tb=no"),
    "warnings ignored": ("-W", "ignore", "--disable-warnings"),
    "warnings raised": ("-W", "error"),
    "runxfail": ("--runxfail",),
    "no cache": ("-p", "no:cacheprovider"),
    "no skipping": ("-p", "no:skipping"),
    "no capture": ("-s",),
    "no logging": ("-p", "no:logging"),
    "no warnings": ("-p", "no:warnings"),
    "no reports": ("-p", "no:llmeval-reporting"),
    "no writing": ("-p", "no:llmeval-writing"),
    "no last word": ("-p", "no:llmeval-final-hooks"),
    "no hand-over": ("-p", "no:llmeval-hand-over"),
    "none of these": ("-p", "no:llmeval-reporting", "-p", "no:llmeval-writing", "-p", "no:llmeval-final-hooks"),
    "no distribution": ("-p", "no:llmeval-distribution"),
    "no worker errors": ("-p", "no:llmeval-usage-errors"),
    "no unraisable": ("-p", "no:unraisableexception", "-p", "no:threadexception"),
    "junit": ("--junitxml=junit.xml", "-o", "junit_log_passing_tests=false"),
    "strict": ("--strict-markers", "--strict-config", "-o", "xfail_strict=true"),
    "twice": ("--keep-duplicates", "sums.yaml"),
    "goes on": ("--continue-on-collection-errors",),
    "durations": ("--durations=0", "-vv", "-rA"),
    "plain": ("--assert=plain", "--import-mode=importlib"),
    "another rootdir": ("--rootdir=..",),
    "report": ("--llm-report=out.json", "--llm-report-records=none"),
    "show nothing": ("--llm-show-wrong=0",),
    "one by one": ("--llm-batch-size=1",),
    "no faulthandler": ("-p", "no:faulthandler"),
}
PLUGINS = {
    # distribution: options, which need it
    "reruns": ("pytest-rerunfailures", ("--reruns=2",)),
    "reruns of some": ("pytest-rerunfailures", ("--reruns=2", "--only-rerun=RuntimeError")),
    "reruns but some": ("pytest-rerunfailures", ("--reruns=2", "--rerun-except=Nothing")),
    "retries": ("pytest-retry", ("--retries=2",)),
    "random": ("pytest-randomly", ("-p", "randomly", "-p", "no:random_order")),
    "random seed": ("pytest-randomly", ("--randomly-seed=7",)),
    "random order": ("pytest-random-order", ("--random-order",)),
    "random in buckets": ("pytest-random-order", ("--random-order-bucket=global",)),
    "flaky": ("flaky", ("--force-flaky", "--max-runs=3", "--min-passes=1")),
    "flaky, silent": ("flaky", ("--force-flaky", "--no-success-flaky-report")),
    "forked": ("pytest-forked", ("--forked",)),
    "time-out": ("pytest-timeout", ("--timeout=30",)),
    "time-out by a thread": ("pytest-timeout", ("--timeout=30", "--timeout-method=thread")),
    "session time-out": ("pytest-timeout", ("--session-timeout=30",)),
    "repeat": ("pytest-repeat", ("--count=2",)),
    "repeat until": ("pytest-repeat", ("--count=2", "--repeat-scope=session")),
    "sugar": ("pytest-sugar", ("--force-sugar",)),
    "sugar, old": ("pytest-sugar", ("--old-summary",)),
    "order": ("pytest-order", ("--indulgent-ordering",)),
}
TRIED_AGAIN = ("reruns", "reruns of some", "reruns but some", "retries", "flaky", "flaky, silent", "forked")

_IN_SELECTION = (
    "They are skipped where only a selection runs (`-k`, `-m`, `--lf`, `--llm-limit`, `--llm-shard`, one sample by its "
    "id), or where samples were skipped at run time."
)
_TOO_FEW = "a suite with so few samples that no drop could be significant"
_LAST_FAILED: Mapping[str, Content] = {
    ".pytest_cache/v/cache/lastfailed": '{"sums.yaml::s1": true, "sums.yaml::s5": true}'
}
_COMPARED = [name for name, wrong in WRONGS.items() if "base.json" in wrong.files and "sums.yaml" in wrong.arguments]
"""What is wrong is found by a comparison with a baseline that can be read."""
_SELECTS_NOTHING = ("-k nothing", "-m nothing", "deselect all")
_COLLECTS = ("ignore", "ignore-glob")
"""A file that is named on the command line is collected all the same."""


def way(
    name: str,
    wrong: Wrong,
    options: tuple[str, ...] = (),
    *,
    conftest: str = "",
    ini: tuple[str, ...] = (),
    files: Mapping[str, Content] | None = None,
    environment: Mapping[str, str] | None = None,
    needs: tuple[str, ...] = (),
) -> Way:
    return Way(
        name=f"{name}: {wrong.name}",
        arguments=(*options, *wrong.arguments),
        files=project(wrong, conftest=conftest, ini=ini, files=files),
        environment=environment or {},
        needs=needs,
    )


def _given(
    name: str, wrong: Wrong, options: tuple[str, ...], place: str, workers: tuple[str, ...], **more: object
) -> Way:
    """The options on the command line, in ``addopts`` or in the environment."""
    if place == "command line":
        return way(name, wrong, (*workers, *options), **more)  # type: ignore[arg-type]
    text = " ".join(f"'{option}'" for option in options)
    if place == "addopts":
        return way(f"{name}, addopts", wrong, workers, ini=(f"addopts = {text}",), **more)  # type: ignore[arg-type]
    return way(f"{name}, environment", wrong, workers, environment={"PYTEST_ADDOPTS": text}, **more)  # type: ignore[arg-type]


_PLACES = ("command line", "addopts", "environment")
BOTH = {"": ONE_PROCESS, " -n2": TWO_WORKERS}


def selections() -> Iterator[Way]:
    for wrong, name, place, workers in product(WRONGS.values(), SELECTIONS, _PLACES, BOTH):
        given = _given(name + workers, wrong, SELECTIONS[name], place, BOTH[workers], files=_LAST_FAILED)
        narrows = name not in (*_COLLECTS, *_SELECTS_NOTHING, "stepwise", "stepwise, skips")
        if wrong.is_of_whole_suite and narrows:
            given = replace(given, passes=_IN_SELECTION)
        if wrong.name == "worse than the baseline of the ini file":
            given = replace(given, passes=_TOO_FEW if name in ("-k", "limit", "first") else None)
        if name.startswith("last failed") and wrong.name in _COMPARED:
            given = replace(given, passes="With `--lf` and `--sw` nothing is compared")
        yield given


def everything() -> Iterator[Way]:
    for wrong, name, place, workers in product(WRONGS.values(), EVERYTHING, _PLACES, BOTH):
        yield _given(name + workers, wrong, EVERYTHING[name], place, BOTH[workers])


def tricks() -> Iterator[Way]:
    for wrong, name, workers in product(WRONGS.values(), TRICKS, BOTH):
        yield way(name + workers, wrong, BOTH[workers], conftest=TRICKS[name])


_HOOKS = [
    (hook, order, end)
    for hook, order, end in product(HOOKS, ORDERS, ENDS)
    if not (hook == "pytest_configure" and "wrapper" in ORDERS[order])  # pluggy allows none
]


def hooks() -> Iterator[Way]:
    wrongs = [WRONGS[name] for name in ("gate of the command line", "worse than the baseline", "all samples fail")]
    # A worker that stops while it collects is replaced, eight times by default.
    both = {"": ONE_PROCESS, " -n2": (*TWO_WORKERS, "--max-worker-restart=1")}
    for wrong, (hook, order, end), workers in product(wrongs, _HOOKS, both):
        name = f"{hook} {order} {end}{workers}"
        yield way(name, wrong, both[workers], conftest=hook_source(hook, order, end))


def hooks_of_plugins() -> Iterator[Way]:
    """The same in a plugin that is loaded with ``-p`` or by ``PYTEST_PLUGINS``, and in a conftest.py of a folder."""
    wrong = WRONGS["gate of the command line"]
    for (hook, order, end), place in product(_HOOKS, ("-p", "PYTEST_PLUGINS", "folder")):
        source = "import sys\nimport pytest\n" + hook_source(hook, order, end)
        name = f"{hook} {order} {end} in {place}"
        if place == "folder":
            files: dict[str, Content] = {"deep/conftest.py": source, "deep/sums.yaml": suite(), "sums.yaml": CHOICES}
            yield way(name, replace(wrong, arguments=(*wrong.arguments[:-1], "deep")), ONE_PROCESS, files=files)
        elif place == "-p":
            yield way(name, wrong, (*ONE_PROCESS, "-p", "helping"), files={"helping.py": source})
        else:
            yield way(name, wrong, ONE_PROCESS, files={"helping.py": source}, environment={"PYTEST_PLUGINS": "helping"})


def plugins() -> Iterator[Way]:
    for wrong, name, workers in product(WRONGS.values(), PLUGINS, BOTH):
        distribution, options = PLUGINS[name]
        if workers and name == "forked":
            continue  # its workers would fork with the threads of execnet
        yield way(name + workers, wrong, (*BOTH[workers], *options), needs=(distribution,))


_DISTS = ("load", "loadscope", "loadfile", "loadgroup", "worksteal", "each", "no")
_DEATHS = {
    "os._exit(0)": "os._exit(0)",
    "os._exit(1)": "os._exit(1)",
    "KILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "TERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SEGV": "signal.signal(signal.SIGSEGV, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGSEGV)",
    "sys.exit": "sys.exit(0)",
    "pytest.exit": "pytest.exit('fine', returncode=0)",
}
_WHERE = {
    "at its start": ("pytest_configure(config)", ""),
    "when its session begins": ("pytest_sessionstart(session)", ""),
    "when it collects": ("pytest_collection(session)", ""),
    "when it has collected": ("pytest_collection_finish(session)", ""),
    "at its first test": ("pytest_runtest_setup(item)", ""),
    "at one test": ("pytest_runtest_call(item)", "if item.name == 's4': "),
    "after one test": ("pytest_runtest_logreport(report)", "if report.nodeid.endswith('s4'): "),
    "at its end": ("pytest_sessionfinish(session)", ""),
    "at its very end": ("pytest_unconfigure(config)", ""),
}


def deaths() -> Iterator[Way]:
    """Of workers, in hooks and in the model."""
    gate = WRONGS["gate of the command line"]
    fine = Wrong(name="nothing else", arguments=(model("good"), "sums.yaml"))
    for dist, restart in product(_DISTS, ((), ("--max-worker-restart=0",), ("--max-worker-restart=1",))):
        if dist == "no":
            continue
        options = ("-n2", f"--dist={dist}", *restart)
        for where, death in product(_WHERE, _DEATHS):
            hook, condition = _WHERE[where]
            source = (
                f"\nif 'PYTEST_XDIST_WORKER' in os.environ:\n    def {hook}:\n        {condition}{_DEATHS[death]}\n"
            )
            yield way(f"worker, {death} {where}, {' '.join(options)}", gate, options, conftest=source)
        for name in ("dies_0", "dies_1", "dies_killed", "dies_segfault", "dies_sys_exit"):
            wrong = replace(fine, arguments=(model(name), "sums.yaml"))
            yield way(f"worker, model {name}, {' '.join(options)}", wrong, options)


_UNUSABLE = (
    *("nothing", "number", "system_exit", "keyboard_interrupt", "generator_exit", "stop_iteration", "skips"),
    *("base_exception", "pytest_exit", "xfails", "pytest_fails", "recursion", "memory", "interrupts_itself"),
    *("Unloadable", "ExitsAtLoad", "PytestExitsAtLoad", "some_fail", "all_fail", "TooFew", "TooMany", "NoList"),
    *("EmptyGenerator", "NoResponses", "Replies", "RaisesLate", "terminates_itself", "exits_by_signal"),
    *("not_there", "os"),
)
_WRONG = ("empty", "Surrogates", "Claims", "closes_output", "bad")


def models() -> Iterator[Way]:
    """Models that say nothing, or end what they are asked in."""
    dists = {**BOTH, " -n1": ("-n1",), " -n0": ("-n0",), " -n2 each": ("-n2", "--dist=each")}
    for name, workers in product(_UNUSABLE, dists):
        for options in ((), ("--llm-gate=accuracy >= 0",), ("-x",), ("--llm-batch-size=1",)):
            wrong = Wrong(name=" ".join(("nothing else", *options)), arguments=(*options, model(name), "sums.yaml"))
            yield way(f"model {name}{workers}", wrong, dists[workers])
    for name, workers in product(_WRONG, dists):
        yield way(
            f"model {name}{workers}",
            Wrong(name="gate", arguments=(model(name), "--llm-gate=sums: accuracy >= 0.5", "sums.yaml")),
            dists[workers],
        )
    for name, workers in product(("NaNs", "Infinite", "MinusInfinite", "Texts", "Nones"), dists):
        wrong = Wrong(name="choices", arguments=(model(name), "--llm-gate=accuracy >= 0", "choices.yaml"))
        yield way(f"model {name}{workers}", wrong, dists[workers], files={"choices.yaml": CHOICES})


_SCORERS = {
    "raises": "raise RuntimeError('no')",
    "exits": "sys.exit(0)",
    "pytest.exit": "pytest.exit('fine', returncode=0)",
    "skips": "pytest.skip('fine')",
    "xfails": "pytest.xfail('fine')",
    "interrupts": "raise KeyboardInterrupt",
    "NaN": "return float('nan')",
    "infinite": "return float('inf')",
    "a text": "return 'right'",
    "a list": "return [True]",
    "a mapping without accuracy": "return {}",
    "accuracy above 1": "return {'accuracy': 7}",
    "NaN accuracy": "return {'accuracy': float('nan')}",
    "an object": "return object()",
    "a Score that contradicts itself": "from pytest_llmeval.types import Score\n"
    "    return Score(status='correct', values={'accuracy': 0.0})",
    "not measurable": "from pytest_llmeval.types import NotMeasurable\n    return {'accuracy': NotMeasurable('why')}",
}


def scorers() -> Iterator[Way]:
    for name, workers in product(_SCORERS, BOTH):
        source = (
            f"\ndef mine(reply):\n    {_SCORERS[name]}\n\ndef pytest_llmeval_scorers():\n    return {{'mine': mine}}\n"
        )
        wrong = Wrong(name="gate", arguments=(model("good"), "--llm-gate=sums: accuracy >= 0", "sums.yaml"))
        yield way(
            f"scorer, {name}{workers}", wrong, BOTH[workers], conftest=source, files={"sums.yaml": suite(score="mine")}
        )


POOLS = {
    "selections": selections,
    "options": everything,
    "tricks": tricks,
    "hooks": hooks,
    "hooks of plugins": hooks_of_plugins,
    "plugins": plugins,
    "deaths of workers": deaths,
    "models": models,
    "scorers": scorers,
}
