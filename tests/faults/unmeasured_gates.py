"""Can a comparison with a baseline pass although it measured nothing, or not what it was asked about?

    python -m tests.faults.unmeasured_gates [--count 120] [--seed 0] [--jobs 1] [--only 17]

A way is a session with ``--llm-baseline``, or a run of ``llmeval compare`` or ``llmeval gate``, in which

- ``measurements``: a metric is not measurable any more on samples on which it was, or the other way round;
- ``selections``: the baseline is a part of its suite (``-k``, ``--lf``, a limit, a hook, …), and tells nothing of the
  rest;
- ``replies``: with a store, the replies are the baseline's own, and the model behind the name was swapped.

In each of them the new model is worse where the comparison does not look. How the comparison is made (required or not,
its mode, one process or two workers, on reports) is the other half of a way. It is run and counted as the ways of
``exit_zero``, and none may end with exit code 0. Sessions that look alike and that docs/gates.md lets pass are expected
to: the campaign cannot be satisfied by gates that always fail.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from threading import Lock

from tests.faults import exit_zero
from tests.faults.exit_zero import Pools
from tests.faults.ways import Content, Reports, Way
from tests.forked import ForkServer

__all__ = ["POOLS", "LazyReports", "main"]

AGENTS = """
from pathlib import Path

SWAPPED = Path(__file__).parent / "swapped"


def lacks(prompt, num=0):
    '''No joke in the first ones, and good ones in the others.'''
    return "none" if int(prompt) < num else "1"


def right(prompt, below=20):
    '''Right for the first ones.'''
    return prompt if int(prompt) < below else "wrong"


def hosted(prompt):
    '''A name behind which another model can stand.'''
    return right(prompt, 0 if SWAPPED.exists() else 20)
"""
SCORER = """
from pytest_llmeval import NotMeasurable


def wit(reply):
    return {"wit": NotMeasurable("no joke") if reply == "none" else float(reply), "length": float(len(reply))}


wit.metrics = ("wit", "length")
wit.better = {"wit": "higher", "length": "higher"}


def pytest_llmeval_scorers():
    return {"wit": wit}
"""
SKIPS = """

@pytest.fixture(autouse=True)
def only_easy(request):
    if request.node.name not in {f"q{number}" for number in range(10)}:
        pytest.skip("later")
"""
REMOVES = """

def pytest_collection_modifyitems(config, items):
    easy = {f"q{number}" for number in range(10)}
    gone = [item for item in items if item.name not in easy]
    items[:] = [item for item in items if item.name in easy]
    {ANNOUNCES}
"""
TESTS = """
import pytest
from pytest_llmeval import NotMeasurable


@pytest.mark.parametrize("number", range(20))
def test_it(llm_record, llm_model, number):
    reply = llm_model.generate(str(number)).text
    wit = NotMeasurable("no joke") if reply == "none" else float(reply == "1")
    llm_record(suite="own", id=number, score=WIT)
""".replace("score=WIT", "score=wit")
OWN = TESTS.replace("score=wit", "correct=reply == str(number)")
ROWS = "".join(f"- {{id: q{n}, question: '{n}', target: '{n}'}}\n" for n in range(20))
JOKES = f"suite: jokes\nsamples:\n{ROWS}score: wit\n"
SEVERAL = JOKES.replace("score: wit", "score: {several: {scorers: {exact: {score: exact}, jokes: {score: wit}}}}")
SUMS = f"suite: sums\nsamples:\n{ROWS}score: exact\n"
STORE = ("--llm-store=kept", "--llm-store-max-age=365d")
EASY = " or ".join(f"q{number}" for number in (0, 2, 3, 4, 5, 6, 7, 8, 9))  # "q1" would be q10, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session that leaves a report; ``first``: options of one that runs before it in its folder."""

    model: str
    options: tuple[str, ...] = ()
    files: Mapping[str, Content] = field(default_factory=dict)
    place: str = "s.yaml"
    first: tuple[str, ...] | None = None


def project(suite: str, more: str = "", tests: str | None = None) -> dict[str, Content]:
    """The files of a session."""
    files: dict[str, Content] = {"agents.py": AGENTS, "conftest.py": f"import pytest\n{SCORER}{more}", "s.yaml": suite}
    return files if tests is None else {**files, "test_own.py": tests}


def measured(num: int, suite: str = JOKES, tests: str | None = None) -> Session:
    """Jokes, of which ``num`` are none."""
    place = "s.yaml" if tests is None else "test_own.py"
    return Session(model=f"lacks?num={num}", files=project(suite, tests=tests), place=place)


def selected(*options: str, more: str = "", first: tuple[str, ...] | None = None, below: int = 10) -> Session:
    return Session(model=f"right?below={below}", options=options, files=project(SUMS, more), first=first)


_SELECTIONS: dict[str, Session] = {
    "-k": selected("-k", EASY),
    "deselect": selected(*(f"--deselect=s.yaml::q{number}" for number in range(10, 20))),
    "limit": selected("--llm-limit=first:10"),
    "hook": selected(more=REMOVES.replace("{ANNOUNCES}", "config.hook.pytest_deselected(items=gone)")),
    "silent hook": selected(more=REMOVES.replace("{ANNOUNCES}", "pass")),
    "skipped": selected(more=SKIPS),
    "last failed": selected("--lf", first=(), below=15),
    "stepwise": selected("--sw", first=("--sw", "--llm-strict"), below=15),
    "stopped": selected("-x", "--llm-strict"),
    "shard": selected("--llm-shard=1/2"),
}
_STORED = {
    "suite": Session(model="hosted", options=STORE, files=project(SUMS)),
    "tests": Session(model="hosted", options=STORE, files=project(SUMS, tests=OWN), place="test_own.py"),
}
_SUITES = {"scorer": JOKES, "several": SEVERAL}
_SHARES = (3, 14, 20)


def _sessions() -> Iterator[tuple[str, Session]]:
    for name, suite in _SUITES.items():
        yield from ((f"{name} {num}", measured(num, suite)) for num in (0, 1, *_SHARES))
    yield from ((f"tests {num}", measured(num, tests=TESTS)) for num in (0, 1, *_SHARES))
    yield from ((f"selection {name}", session) for name, session in _SELECTIONS.items())
    yield "whole", selected(below=20)
    yield "worse", selected(below=10)
    yield from ((f"stored {name}", session) for name, session in _STORED.items())
    for name, session in _STORED.items():
        files = {**session.files, "swapped": "", **_kept(name)}
        yield f"swapped {name}", Session(model="hosted", options=STORE, files=files, place=session.place)


def _kept(name: str) -> dict[str, Content]:
    return {"kept/replies-0123456789abcdef.jsonl": lambda reports: reports[f"stored {name}: kept"]}


class LazyReports(Mapping[str, str]):
    """The report of each session by its name, made when it is asked for; ``NAME: kept`` is what its store holds."""

    def __init__(self, server: ForkServer, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._sessions = dict(_sessions())
        self._texts: dict[str, str] = {}
        self._lock = Lock()
        self._number = 0

    def __getitem__(self, name: str) -> str:
        session = name.partition(": ")[0]
        if name not in self._texts:
            needed = {one: self[one] for one in _needed(session)}
            with self._lock:
                if name not in self._texts:
                    self._make(session, needed)
        return self._texts[name]

    def _make(self, name: str, needed: Reports) -> None:
        session, self._number = self._sessions[name], self._number + 1
        folder = self._folder / str(self._number)
        for options in (*([] if session.first is None else [session.first]), ("--llm-report=r.json", *session.options)):
            arguments = ("-p", "no:xdist", f"--llm-model=python:agents:{session.model}", *options, session.place)
            way = Way(name=name, arguments=arguments, files=session.files)
            outcome = exit_zero.run(way, self._server, needed, folder)
        if not (folder / "r.json").exists():
            raise RuntimeError(f"no report {name}: {outcome.output}")
        self._texts[name] = (folder / "r.json").read_text(encoding="utf-8")
        kept = (path.read_text(encoding="utf-8") for path in sorted(folder.glob("kept/*.jsonl")))
        self._texts[f"{name}: kept"] = "".join(kept)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)


def _needed(session: str) -> list[str]:
    kind, _, name = session.partition(" ")
    return [f"stored {name}: kept"] if kind == "swapped" else []


HOW: dict[str, tuple[str, ...]] = {
    # how a session is compared: its options
    "": (),
    "required": ("--llm-require-gates",),
    "common": ("--llm-compare=common",),
    "common, required": ("--llm-compare=common", "--llm-require-gates"),
    "margin": ("--llm-gate-mode=margin", "--llm-max-drop={metric}=0.2"),
    "non-inferior": ("--llm-gate-mode=non-inferior", "--llm-max-drop={metric}=0.5"),
    "another alpha": ("--llm-alpha=0.4",),
    "with a gate": ("--llm-gate={metric} >= 0",),
    "unscored allowed": ("--llm-allow-unscored=20",),
    "ini, required": ("--llm-require-gates", "ini"),
}
WHERE: dict[str, tuple[str, ...]] = {"": ("-p", "no:xdist"), ", two workers": ("-n2",)}
COMMANDS: dict[str, tuple[str, ...]] = {
    "compare": ("compare", "base.json", "now.json"),
    "compare --require": ("compare", "base.json", "now.json", "--require"),
    "compare, common": ("compare", "base.json", "now.json", "--compare=common"),
    "compare, margin": ("compare", "base.json", "now.json", "--gate-mode=margin", "--max-drop={metric}=0.2"),
    "gate": ("gate", "now.json", "--baseline", "base.json"),
    "gate --require": ("gate", "now.json", "--baseline", "base.json", "--require"),
}


def _of(reports: Reports, name: str) -> str:
    return reports[name]


def _ways(
    name: str, base: str, now: str, session: Session, metric: str, hows: Sequence[str] = tuple(HOW), **more: str | None
) -> Iterator[Way]:
    """Each way in which the report ``base`` is compared with ``session``, whose report is ``now``."""
    for how, where in product(hows, WHERE):
        options = tuple(one.replace("{metric}", metric) for one in HOW[how])
        is_ini = "ini" in options
        files = {**session.files, "base.json": partial(_of, name=base)}
        if is_ini:
            files["pytest.ini"] = "[pytest]\nllm_baseline = base.json\n"
        given = tuple(one for one in options if one != "ini")
        baseline = () if is_ini else ("--llm-baseline=base.json",)
        model = f"--llm-model=python:agents:{session.model}"
        arguments = (*WHERE[where], model, *baseline, *session.options, *given, session.place)
        yield Way(name=f"{name}; {how}{where}", arguments=arguments, files=files, **more)  # type: ignore[arg-type]
    for command, template in COMMANDS.items():
        arguments = tuple(one.replace("{metric}", metric) for one in template)
        both: dict[str, Content] = {"base.json": partial(_of, name=base), "now.json": partial(_of, name=now)}
        yield Way(name=f"{name}; {command}", command="llmeval", arguments=arguments, files=both, **more)  # type: ignore[arg-type]


_FEW = "fewer are left out and counted"
_SAME = "undecided unless this run has the same samples"


def measurements() -> Iterator[Way]:
    """More than a tenth of the pairs lack a value on one side; of one pair of twenty, they are compared."""
    metrics = {"scorer": "wit", "several": "jokes.wit", "tests": "score"}
    for kind, metric in metrics.items():
        hows = tuple(HOW)
        if kind == "several":  # not what the suite is compared by, unless a margin names it
            hows = ("margin", "non-inferior")
        for num in _SHARES:
            for before, after in ((0, num), (num, 0)):
                name = f"{kind}: {metric} is not measurable on {before} -> {after} of 20"
                now = dict(_sessions())[f"{kind} {after}"]
                for way in _ways(name, f"{kind} {before}", f"{kind} {after}", now, metric, hows):
                    if kind != "several" or way.command == "pytest" or "margin" in way.name:
                        yield way
    now = dict(_sessions())["scorer 1"]
    yield from _ways("one of 20", "scorer 0", "scorer 1", now, "wit", ("", "required"), passes=_FEW)


def selections() -> Iterator[Way]:
    """The baseline has samples on which both models are right, and the new one is wrong on others."""
    for name in _SELECTIONS:
        base = f"selection {name}"
        yield from _ways(f"a baseline by {name}", base, "worse", selected(below=10), "accuracy")
    for way in _ways("the same selection", "selection -k", "selection -k", _SELECTIONS["-k"], "accuracy", ("margin",)):
        if way.command == "pytest":
            yield Way(name=way.name, arguments=way.arguments, files=way.files, passes=_SAME)


def replies() -> Iterator[Way]:
    """What was swapped replies with the store's; the ini file alone asks for no more than can be decided."""
    for name, session in _STORED.items():
        files = {**session.files, "swapped": "", **_kept(name)}
        now = Session(model="hosted", options=STORE, files=files, place=session.place)
        yield from _ways(f"a model of {name} was swapped", f"stored {name}", f"swapped {name}", now, "accuracy")


POOLS: Pools = {"measurements": measurements, "selections": selections, "replies": replies}

main = partial(exit_zero.main, pools=POOLS, make=LazyReports, name="unmeasured_gates", count=120)

if __name__ == "__main__":
    sys.exit(main())
