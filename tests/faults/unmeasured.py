"""Sessions in which nothing is measured, or not what was asked for; most are forgiven by their conftest.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tests.faults.hooks import TRICKS
from tests.faults.sessions import BOTH, way
from tests.faults.ways import Content, Way, Wrong, model, suite

__all__ = ["OUT_OF_REACH", "documented_passes", "suites"]

_FORGIVES = TRICKS["ends as it was told"]
_ABOUT_SUITES: dict[str, tuple[tuple[str, ...], dict[str, Content], str]] = {
    # what is named: arguments, files, conftest
    "an empty folder": (("empty",), {"empty": None}, ""),
    "an empty suite": (("e.yaml",), {"e.yaml": "suite: e\nsamples: []\nscore: number\n"}, _FORGIVES),
    "a suite that is none": (("e.yaml",), {"e.yaml": "suite: e\nsamples: 3\n"}, _FORGIVES),
    "a suite without its data": (
        ("e.yaml",),
        {"e.yaml": "suite: e\ndataset: {path: gone.jsonl}\nscore: number\n"},
        _FORGIVES,
    ),
    "a broken suite beside": (
        (".", "--continue-on-collection-errors"),
        {"e.yaml": "suite: e\nsamples: 3\n"},
        _FORGIVES,
    ),
    "no such file": (("gone.yaml",), {}, _FORGIVES),
    "no such file beside": (("sums.yaml", "gone.yaml"), {}, _FORGIVES),
    "no such sample": (("sums.yaml::s99",), {}, _FORGIVES),
    "two of one name": ((".",), {"e.yaml": suite()}, _FORGIVES),
    "an unknown gate": (("e.yaml",), {"e.yaml": suite("e", gates="accuracies >= 0")}, _FORGIVES),
    "a gate that is none": (("e.yaml",), {"e.yaml": suite("e", gates="accuracy => 0")}, _FORGIVES),
    "a gate of no suite": (("sums.yaml", "--llm-gate=sum: accuracy >= 0"), {}, _FORGIVES),
    "a gate of no metric": (("sums.yaml", "--llm-gate=brier <= 1"), {}, _FORGIVES),
    "a gate of no category": (("sums.yaml", "--llm-gate=category.none.accuracy >= 0"), {}, _FORGIVES),
    "a gate on NaN": (("sums.yaml", "--llm-gate=accuracy >= nan"), {}, _FORGIVES),
    "an empty gate": (("sums.yaml", "--llm-gate="), {}, _FORGIVES),
    "a gate and nothing": (("-k", "nothing", "sums.yaml", "--llm-gate=accuracy >= 0"), {}, _FORGIVES),
    "a gate and a test": (
        ("test_own.py", "--llm-gate=accuracy >= 0"),
        {"test_own.py": "def test_own(): pass\n"},
        _FORGIVES,
    ),
    "a gate and an unrecorded test": (
        ("test_own.py", "--llm-gate=own: accuracy >= 0"),
        {"test_own.py": "def test_own(llm_record): pass\n"},
        _FORGIVES,
    ),
    "a gate and a failed test": (
        ("test_own.py", "--llm-gate=own: accuracy >= 0"),
        {
            "test_own.py": "def test_a(llm_record): llm_record(suite='own', id=1, correct=True)\n"
            "def test_b(llm_record): 1 / 0\n"
        },
        _FORGIVES,
    ),
    "a gate and a test that is expected to fail": (
        ("test_own.py", "--llm-gate=own: accuracy >= 0"),
        {
            "test_own.py": "import pytest\ndef test_a(llm_record): llm_record(suite='own', id=1, correct=True)\n"
            "@pytest.mark.xfail\ndef test_b(llm_record): 1 / 0\n"
        },
        _FORGIVES,
    ),
    "a gate and NaN": (
        ("test_own.py", "--llm-gate=own: score >= 0"),
        {"test_own.py": "def test_a(llm_record): llm_record(suite='own', id=1, score=float('nan'))\n"},
        _FORGIVES,
    ),
    "all skipped by a mark": (
        ("sums.yaml", "--llm-gate=sums: accuracy >= 0"),
        {},
        "\ndef pytest_collection_modifyitems(items):\n    for item in items:\n"
        "        item.add_marker(pytest.mark.skip(reason='later'))\n" + _FORGIVES,
    ),
    "all skipped by a fixture": (
        ("sums.yaml", "--llm-gate=sums: accuracy >= 0"),
        {},
        "\n@pytest.fixture(autouse=True)\ndef later():\n    pytest.skip('later')\n" + _FORGIVES,
    ),
    "all skipped, required": (
        ("sums.yaml", "--llm-require-gates"),
        {"sums.yaml": suite(gates="accuracy >= 0")},
        "\n@pytest.fixture(autouse=True)\ndef later():\n    pytest.skip('later')\n" + _FORGIVES,
    ),
    "all gone": (
        ("sums.yaml", "--llm-gate=sums: accuracy >= 0"),
        {},
        "\ndef pytest_collection_modifyitems(items):\n    items.clear()\n" + _FORGIVES,
    ),
    "all gone, required": (
        ("sums.yaml", "--llm-require-gates"),
        {"sums.yaml": suite(gates="accuracy >= 0")},
        "\ndef pytest_collection_modifyitems(items):\n    items.clear()\n" + _FORGIVES,
    ),
    "all gone, no gate": (
        ("sums.yaml",),
        {},
        "\ndef pytest_collection_modifyitems(items):\n    items.clear()\n" + _FORGIVES,
    ),
    "all gone, a test beside": (
        (".",),
        {"test_own.py": "def test_own(): pass\n"},
        "\n@pytest.hookimpl(trylast=True)\ndef pytest_collection_modifyitems(items):\n"
        "    items[:] = [item for item in items if item.name == 'test_own']\n",
    ),
    "the worse half gone, required": (
        ("sums.yaml", "--llm-require-gates", "--llm-model=python:agents:half"),
        {"sums.yaml": suite(gates="accuracy >= 0.9")},
        "\ndef pytest_collection_modifyitems(items):\n    items[:] = items[::2]\n" + _FORGIVES,
    ),
    "a report that cannot be written": (
        ("sums.yaml", "--llm-report=out/report.json", "--llm-model=python:agents:good"),
        {},
        "import shutil\n\ndef pytest_runtest_teardown(item):\n    shutil.rmtree('out', ignore_errors=True)\n"
        "    open('out', 'w').close()\n" + _FORGIVES,
    ),
    "a report that is a folder by the end": (
        ("sums.yaml", "--llm-report=report.json"),
        {},
        "\ndef pytest_runtest_teardown(item):\n    os.makedirs('report.json/x', exist_ok=True)\n" + _FORGIVES,
    ),
    "a report over the baseline": (
        ("sums.yaml", "--llm-report=base.json", "--llm-baseline=base.json"),
        {"base.json": lambda reports: reports["good"]},
        _FORGIVES,
    ),
    "exits when it is imported": (("sums.yaml", "--llm-gate=accuracy >= 0"), {}, "\nsys.exit(0)\n"),
    "exits when it is imported, no gate": (("sums.yaml",), {}, "\nsys.exit(0)\n"),
    "pytest.exit when it is imported": (("sums.yaml",), {}, "\npytest.exit('fine', returncode=0)\n"),
    "a test file that ends the session": (
        (".", "--llm-gate=accuracy >= 0"),
        {"test_a.py": "import pytest\npytest.exit('fine', returncode=0)\n"},
        "",
    ),
    "a test file that ends the session, no gate": (
        ("sums.yaml", "test_a.py"),
        {"test_a.py": "import pytest\npytest.exit('fine', returncode=0)\n"},
        "",
    ),
    "a test that ends the session": (
        ("test_a.py", "sums.yaml"),
        {"test_a.py": "import pytest\ndef test_a(): pytest.exit('fine', returncode=0)\n"},
        "",
    ),
    "a conftest of a folder that exits": (
        ("deep",),
        {"deep/conftest.py": "import sys\nsys.exit(0)\n", "deep/sums.yaml": suite("deep")},
        "",
    ),
    "a replay of nothing": (
        ("sums.yaml", "--llm-model=replay:r.jsonl?partial=true", "--llm-gate=accuracy >= 0"),
        {"r.jsonl": '{"id": "s99", "response": "2"}\n'},
        _FORGIVES,
    ),
    "a replay that is empty": (("sums.yaml", "--llm-model=replay:r.jsonl"), {"r.jsonl": ""}, _FORGIVES),
    "a replay of another run": (
        ("sums.yaml", "--llm-model=replay:r.json"),
        {"r.json": lambda reports: reports["other"]},
        _FORGIVES,
    ),
    "no model": (("sums.yaml", "--llm-model=gone/checkpoint"), {}, _FORGIVES),
    "no gate, one required": (("sums.yaml", "--llm-require-gates"), {}, _FORGIVES),
    "a margin of no metric": (
        ("sums.yaml", "--llm-baseline=base.json", "--llm-max-drop=brier=0.1"),
        {"base.json": lambda reports: reports["good"]},
        _FORGIVES,
    ),
}


def suites() -> Iterator[Way]:
    """Each in one process and with two workers."""
    for name, workers in product(_ABOUT_SUITES, BOTH):
        arguments, files, conftest = _ABOUT_SUITES[name]
        given = () if any(one.startswith("--llm-model") for one in arguments) else (model("good"),)
        yield way(
            f"{name}{workers}",
            Wrong(name="nothing else", arguments=(*given, *arguments)),
            BOTH[workers],
            conftest=conftest,
            files=files,
        )


_ON_WHAT_RAN = "A gate of the command line (or of `PYTEST_LLM_GATE`) always decides, on the samples that ran."
_NOTHING_RUNS = "`--collect-only`, `--setup-plan` and the like run nothing and decide nothing."
_FORGIVEN = "a `conftest.py` may forgive that nothing was selected (exit code 5)"
_LATER = "\ndef pytest_collection_modifyitems(items):\n    for item in items:\n        item.add_marker('skip')\n"
_DOCUMENTED: dict[str, tuple[tuple[str, ...], str, str]] = {
    # what passes: arguments, conftest, the sentence that says so
    "no gate, all skipped": (
        (model("good"),),
        _LATER,
        "A session without gates passes if all samples were skipped, as in pytest.",
    ),
    "a gate on the better half": ((model("half"), "--llm-gate=accuracy >= 0.9", "-k", "s11"), "", _ON_WHAT_RAN),
    "only collected": ((model("bad"), "--llm-gate=accuracy >= 0.9", "--collect-only"), "", _NOTHING_RUNS),
    "only planned": ((model("bad"), "--llm-gate=accuracy >= 0.9", "--setup-plan"), "", _NOTHING_RUNS),
    "nothing selected, forgiven": ((model("bad"), "-k", "nothing"), TRICKS["forgives five"], _FORGIVEN),
    "some unscored, allowed": (
        (model("some_fail"), "--llm-allow-unscored=3", "--llm-gate=accuracy >= 0.9"),
        "",
        "`--llm-allow-unscored N` lets up to N samples of a session be unscored",
    ),
    "better half of a baseline": (
        (model("half"), "--llm-baseline=base.json", "--llm-max-drop=accuracy=0.9"),
        "",
        "`--llm-max-drop accuracy=0.01` (or `'boolq: brier=0.02'`) allows a drop.",
    ),
}


def documented_passes() -> Iterator[Way]:
    """Sessions that pass although one may wonder; with the other selections, those of ``sessions.selections``."""
    files: dict[str, Content] = {"base.json": lambda reports: reports["good"]}
    for name, workers in product(_DOCUMENTED, BOTH):
        arguments, conftest, sentence = _DOCUMENTED[name]
        wrong = Wrong(name="documented", arguments=(*arguments, "sums.yaml"))
        yield replace(way(f"{name}{workers}", wrong, BOTH[workers], conftest=conftest, files=files), passes=sentence)


_BAD = (model("bad"), "--llm-gate=sums: accuracy >= 0.7", "--llm-report=out.json", "sums.yaml")
OUT_OF_REACH = tuple(
    way(name, Wrong(name="out of reach", arguments=_BAD), BOTH[""], conftest=conftest)
    for name, conftest in {
        "os._exit in a test": "\ndef pytest_runtest_call(item):\n    os._exit(0)\n",
        "os._exit in a thread": "\nimport threading\n\ndef pytest_runtest_call(item):\n"
        "    thread = threading.Thread(target=os._exit, args=(0,))\n    thread.start()\n    thread.join()\n",
        "os._exit at exit": "\nimport atexit\natexit.register(os._exit, 0)\n",
        "another exit code": "\nfrom pytest_llmeval.plugin.session import LLMSession\n"
        "LLMSession.exit_code = lambda *_: 0\n",
    }.items()
)
"""Sessions that end with 0 and cannot notice it: those of docs/gates.md, "What a session cannot notice"."""
