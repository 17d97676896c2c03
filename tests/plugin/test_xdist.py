"""Suites on the workers of pytest-xdist: batched as in one process, and an account of those that die."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.suites_for_tests import SUMS, SUMS_REPLIES
from tests.support import REPOSITORY, fake_model_conftest, model_calls

NUM_SAMPLES = 32


def counting_suite(num_samples: int = NUM_SAMPLES, name: str = "counting") -> str:
    rows = [f'  - {{id: k{n}, question: "<{n}> what is {n} + 1?", target: {n + 1}}}' for n in range(num_samples)]
    return "\n".join([f"suite: {name}", "samples:", *rows, "score: number", ""])


def replies(num_samples: int = NUM_SAMPLES) -> dict[str, str]:
    return {f"<{n}>": str(n + 1) for n in range(num_samples)}


def kills(*places: int) -> list[str]:
    return [f"<{place}>" for place in places]


def read_report(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    return report


def statuses(report: dict[str, Any]) -> dict[str, str]:
    return {record["id"]: record["status"] for record in report["records"]}


def answered(folder: Path, killers: Collection[int]) -> Counter[str]:
    """How many times the model has answered each sample."""
    deadly = kills(*killers)
    return Counter(
        prompt.partition(">")[0] + ">"
        for call in model_calls(folder, "generate")
        if not any(part in prompt for part in deadly for prompt in call["prompts"])
        for prompt in call["prompts"]
    )


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("--llm-report=out.json", "--llm-batch-size=4", *arguments, timeout=300)


@pytest.mark.parametrize("num_workers", [2, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 4))])
def test_only_who_kills_its_worker_alone_is_unscored(llm_pytester: pytest.Pytester, num_workers: int) -> None:
    """The first of a chunk of four, a middle one, the last, and two of one chunk; a chunk is one of two with -n4."""
    killers = (0, 5, 11, 17, 18)
    llm_pytester.makeconftest(fake_model_conftest(replies=replies(), kills=kills(*killers)))
    llm_pytester.makefile(".yaml", counting=counting_suite())
    llm_pytester.makepyfile(test_plain="def test_plain(): pass\ndef test_kills():\n    import os\n    os._exit(1)\n")
    result = run(llm_pytester, f"-n{num_workers}", "--max-worker-restart=20", "counting.yaml", "test_plain.py")
    assert result.ret == 1
    report = read_report(llm_pytester.path)
    assert statuses(report) == {
        f"k{place}": "unscored" if place in killers else "correct" for place in range(NUM_SAMPLES)
    }
    assert (report["suites"][0]["num_expected"], report["suites"][0]["num_scored"]) == (32, 27)
    assert answered(llm_pytester.path, killers) == dict.fromkeys(
        (f"<{place}>" for place in range(NUM_SAMPLES) if place not in killers), 1
    )
    result.assert_outcomes(passed=28, failed=6)
    for place in killers:
        result.stdout.fnmatch_lines([f"*worker 'gw*' crashed while running 'counting.yaml::k{place}'"])
    result.stdout.fnmatch_lines(["*worker 'gw*' crashed while running 'test_plain.py::test_kills'"])


def test_workers_that_are_left_take_over(llm_pytester: pytest.Pytester) -> None:
    """The killer takes two of four workers with it; what it leaves is for the others."""
    llm_pytester.makeconftest(fake_model_conftest(replies=replies(), kills=kills(5)))
    llm_pytester.makefile(".yaml", counting=counting_suite())
    result = run(llm_pytester, "-n4", "--max-worker-restart=0", "counting.yaml")
    assert result.ret == 1
    found = statuses(read_report(llm_pytester.path))
    assert [name for name, status in found.items() if status != "correct"] == ["k5"]
    assert len(found) == NUM_SAMPLES
    assert set(answered(llm_pytester.path, [5]).values()) == {1}


def test_what_is_lost_when_restarts_are_used_up(llm_pytester: pytest.Pytester) -> None:
    """Two workers, one replacement, three chunks that kill: none is left for what their deaths leave over.

    The replacement runs only if it has collected before the second worker dies: after that pytest-xdist admits none.
    """
    killers = (1, 9, 21)
    llm_pytester.makeconftest(fake_model_conftest(replies=replies(), kills=kills(*killers)))
    llm_pytester.makefile(".yaml", counting=counting_suite())
    result = run(llm_pytester, "-n2", "--max-worker-restart=1", "counting.yaml")
    assert result.ret == 1
    report = read_report(llm_pytester.path)
    lost = {record["id"] for record in report["records"] if record["status"] == "unscored"}
    assert {"k1", "k9", "k21"} <= lost
    assert len(report["records"]) == report["suites"][0]["num_expected"] == NUM_SAMPLES
    reasons = {record["reason"] for record in report["records"] if record["status"] == "unscored"}
    assert len(reasons) == 1
    assert re.fullmatch("did not run: [23] workers died, and no worker was left to take over", reasons.pop())
    result.stdout.fnmatch_lines([f"problem: {len(lost)} of 32 samples without a result"])
    assert set(answered(llm_pytester.path, killers).values()) <= {1}


def test_what_is_lost_with_the_last_worker_is_counted(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=replies(), kills=kills(5)))
    llm_pytester.makefile(".yaml", counting=counting_suite())
    llm_pytester.makepyfile(test_plain="def test_plain(): pass\n")
    result = run(llm_pytester, "-n1", "--max-worker-restart=0", "test_plain.py", "counting.yaml")
    assert result.ret == 1
    report = read_report(llm_pytester.path)
    found = statuses(report)
    assert {name for name, status in found.items() if status == "correct"} == {"k0", "k1", "k2", "k3"}
    assert Counter(found.values()) == {"correct": 4, "unscored": 28}
    reason = "did not run: a worker died, and no worker was left to take over"
    assert {record["reason"] for record in report["records"] if record["status"] == "unscored"} == {reason}
    result.stdout.fnmatch_lines([f"problem: test_plain.py::test_plain: {reason}"])


def test_workers_make_the_same_chunks_of_a_shuffled_session(llm_pytester: pytest.Pytester) -> None:
    shuffle = "import random\ndef pytest_collection_modifyitems(items):\n    random.Random(1).shuffle(items)\n"
    llm_pytester.makeconftest(fake_model_conftest(replies=replies()) + shuffle)
    llm_pytester.makefile(".yaml", one=counting_suite(name="one"), two=counting_suite(name="two"))
    result = run(llm_pytester, "-n2", "one.yaml", "two.yaml")
    assert result.ret == 0
    calls = model_calls(llm_pytester.path, "generate")
    assert [len(call["prompts"]) for call in calls] == [4] * 16
    assert len(read_report(llm_pytester.path)["records"]) == 64


def test_workers_that_disagree(llm_pytester: pytest.Pytester) -> None:
    shuffle = (
        "import os\n"
        "def pytest_collection_modifyitems(items):\n"
        "    if os.environ.get('PYTEST_XDIST_WORKER') == 'gw1':\n"
        "        items.reverse()\n"
    )
    llm_pytester.makeconftest(fake_model_conftest(replies=replies()) + shuffle)
    llm_pytester.makefile(".yaml", counting=counting_suite())
    result = run(llm_pytester, "-n2", "counting.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["Different tests were collected between gw? and gw?. The difference is:"])
    assert set(statuses(read_report(llm_pytester.path)).values()) == {"unscored"}


def test_a_sample_that_fails_fails_alone_and_x_stops(llm_pytester: pytest.Pytester) -> None:
    conftest = fake_model_conftest(replies=replies(), errors={"<9>": "too long"}, raises={"<20>": "broken"})
    llm_pytester.makeconftest(conftest)
    llm_pytester.makefile(".yaml", counting=counting_suite())
    result = run(llm_pytester, "-n2", "counting.yaml")
    assert result.ret == 1
    found = statuses(read_report(llm_pytester.path))
    assert [name for name, status in found.items() if status != "correct"] == ["k9", "k20"]
    result = run(llm_pytester, "-n2", "-x", "counting.yaml")
    assert result.ret != 0
    report = read_report(llm_pytester.path)
    assert report["stopped"] is not None
    assert len(report["records"]) < NUM_SAMPLES


def test_an_interrupted_worker_ends_the_session(llm_pytester: pytest.Pytester) -> None:
    interrupt = "def pytest_runtest_setup(item):\n    if item.name == 'k9':\n        raise KeyboardInterrupt\n"
    llm_pytester.makeconftest(fake_model_conftest(replies=replies()) + interrupt)
    llm_pytester.makefile(".yaml", counting=counting_suite())
    result = run(llm_pytester, "-n2", "counting.yaml")
    assert result.ret == 2
    report = read_report(llm_pytester.path)
    assert report["stopped"] is not None
    assert "unscored" not in statuses(report).values()


def test_a_lone_surrogate_comes_back(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES | {"4 + 4": "\ud800 8", "5 + 4": "9 \udfff"}))
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = run(llm_pytester, *workers, "sums.yaml")
    assert result.ret == 0
    outputs = {record["id"]: record["output"] for record in read_report(llm_pytester.path)["records"]}
    assert (outputs["s3"], outputs["s4"]) == ("\ud800 8", "9 \udfff")


@pytest.mark.parametrize("mode", ["load", "loadscope", "loadfile", "loadgroup", "worksteal", "each"])
def test_every_distribution_mode(llm_pytester: pytest.Pytester, mode: str) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=replies()))
    llm_pytester.makefile(".yaml", counting=counting_suite(8))
    llm_pytester.makepyfile("def test_plain(): pass")
    result = run(llm_pytester, "-n2", "--dist", mode, ".")
    assert result.ret == 0
    assert set(statuses(read_report(llm_pytester.path)).values()) == {"correct"}
    assert len(read_report(llm_pytester.path)["records"]) == 8
    sizes = [len(call["prompts"]) for call in model_calls(llm_pytester.path, "generate")]
    # Chunks of the batch size where a worker runs the whole suite; small ones where workers share it.
    expected = {"loadscope": [4, 4], "loadfile": [4, 4], "each": [4] * 4}
    assert sizes == expected.get(mode, [1] * 8)


PLAIN = """
import os
import pytest
from pathlib import Path

@pytest.fixture(autouse=True)
def where(request):
    with Path("where.txt").open("a") as file:
        file.write(f"{request.node.name.partition('@')[0]} {os.environ['PYTEST_XDIST_WORKER']}\\n")

def test_1(): pass
def test_2(): pass
class TestBoth:
    def test_3(self): pass
    def test_4(self): pass
@pytest.mark.xdist_group("one")
def test_5(): pass
@pytest.mark.xdist_group("one")
def test_6(): pass
"""


@pytest.mark.parametrize(
    ("mode", "together"),
    [
        pytest.param("loadfile", [("1", "2", "3", "4", "5", "6")], marks=pytest.mark.slow),
        ("loadscope", [("1", "2", "5", "6"), ("3", "4")]),
        ("loadgroup", [("5", "6")]),
        pytest.param("worksteal", [], marks=pytest.mark.slow),
    ],
)
def test_a_sample_that_kills_its_worker_in_other_modes(
    llm_pytester: pytest.Pytester, mode: str, together: list[tuple[str, ...]]
) -> None:
    """It costs itself alone, as under ``--dist load``, and hand-written tests stay together as the mode says."""
    llm_pytester.makeconftest(fake_model_conftest(replies=replies(), kills=kills(5)))
    llm_pytester.makefile(".yaml", counting=counting_suite(12))
    llm_pytester.makepyfile(test_plain=PLAIN)
    result = run(llm_pytester, "-n2", "--dist", mode, "counting.yaml", "test_plain.py")
    assert result.ret == 1
    result.assert_outcomes(passed=17, failed=1)
    result.stdout.fnmatch_lines(["*worker 'gw*' crashed while running 'counting.yaml::k5'"])
    found = statuses(read_report(llm_pytester.path))
    assert found == {f"k{place}": "unscored" if place == 5 else "correct" for place in range(12)}
    assert set(answered(llm_pytester.path, [5]).values()) == {1}
    where = dict(line.split() for line in (llm_pytester.path / "where.txt").read_text().splitlines())
    assert [len({where[f"test_{number}"] for number in numbers}) for numbers in together] == [1] * len(together)


def test_an_id_with_an_at_sign_is_no_group(llm_pytester: pytest.Pytester) -> None:
    """Its samples go in chunks, as others do."""
    llm_pytester.makeconftest(fake_model_conftest(replies=replies()))
    llm_pytester.makefile(".yaml", counting=re.sub(r"id: (k\d+)", r"id: \1@\1", counting_suite()))
    result = run(llm_pytester, "-n2", "--dist=loadgroup", "counting.yaml")
    assert result.ret == 0
    assert set(statuses(read_report(llm_pytester.path))) == {f"k{place}@k{place}" for place in range(NUM_SAMPLES)}
    assert {len(call["prompts"]) for call in model_calls(llm_pytester.path, "generate")} == {4}


@pytest.mark.parametrize(
    "numbers_of_workers",
    [("-n0", "-n2"), pytest.param(("-n0", "-n1", "-n4"), marks=pytest.mark.slow)],
    ids=lambda numbers: "".join(numbers),
)
def test_results_do_not_depend_on_the_number_of_workers(
    llm_pytester: pytest.Pytester, numbers_of_workers: tuple[str, ...]
) -> None:
    rows = [f'  - {{id: c{n}, question: "<{n}> pick", choices: [one, two, three], target: {n % 3}}}' for n in range(24)]
    suite = "\n".join(["suite: picks", "samples:", *rows, 'prompt: {template: "{{ question }}:"}', "score: choice", ""])
    llm_pytester.makeconftest(fake_model_conftest(replies=replies(), likely={"<4>": "two"}))
    llm_pytester.makefile(".yaml", counting=counting_suite(), picks=suite)
    reports = []
    for workers in numbers_of_workers:
        assert run(llm_pytester, workers, "counting.yaml", "picks.yaml").ret == 0
        report = read_report(llm_pytester.path)
        for record in report["records"]:
            record.pop("seconds")
        reports.append((report["records"], [suite["metrics"] for suite in report["suites"]]))
    assert len(reports[0][0]) == 56
    assert reports == [reports[0]] * len(numbers_of_workers)


@pytest.mark.slow
def test_results_do_not_depend_on_the_seed_of_hashes(
    llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which decides the order of a set: all other sessions of these tests have the same one."""
    found = []
    for seed, workers in (("1", "-n0"), ("2", "-n2")):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        suites = str(REPOSITORY / "example_suites")
        assert (
            run(llm_pytester, "--llm-model=random", "-p", "no:cacheprovider", workers, suites).ret == 1
        )  # gates of every_key
        report = read_report(llm_pytester.path)
        for record in report["records"]:
            record.pop("seconds")
        found.append({key: report[key] for key in ("records", "suites", "averages", "definitions")})
    assert len(found[0]["records"]) > 600
    assert found[0] == found[1]


@pytest.mark.fresh_interpreters
def test_a_session_without_samples_is_left_to_pytest_xdist(llm_pytester: pytest.Pytester) -> None:
    """Also where a model is configured, which is known before what is collected."""
    conftest = (
        "import sys\n"
        "def pytest_terminal_summary(terminalreporter, config):\n"
        "    if hasattr(config, 'workerinput'):\n"
        "        return\n"
        "    heavy = {'torch', 'numpy', 'yaml', 'pydantic', 'jinja2'} & set(sys.modules)\n"
        "    scheduler = config.pluginmanager.get_plugin('dsession').sched\n"
        "    terminalreporter.write_line(f'{scheduler.pending=} {heavy=}')\n"
    )
    llm_pytester.makeconftest(conftest)
    llm_pytester.makepyfile("import pytest\n@pytest.mark.parametrize('n', range(9))\ndef test_plain(n): pass\n")
    for options in ((), ("--llm-model=demo",)):
        result = llm_pytester.runpytest_subprocess("-n2", *options, timeout=300)
        result.assert_outcomes(passed=9)
        result.stdout.fnmatch_lines(["scheduler.pending=[[]] heavy=set()"])


@pytest.mark.slow
@pytest.mark.forks_torch
def test_a_real_model_answers_alike_whatever_the_workers(llm_pytester: pytest.Pytester) -> None:
    rows = [f'  - {{id: c{n}, question: "Is {n} more than 9?", choices: ["yes", "no"], target: 0}}' for n in range(20)]
    text = [
        "suite: more",
        "samples:",
        *rows,
        'prompt: {template: "Question: {{ question }}\\nAnswer:"}',
        "score: choice",
    ]
    llm_pytester.makefile(".yaml", more="\n".join([*text, ""]))
    found = []
    for workers in ("-n0", "-n2"):
        result = run(llm_pytester, "--llm-model=demo", workers, "more.yaml")
        assert result.ret == 0
        records = read_report(llm_pytester.path)["records"]
        assert len(records) == 20
        found.append([number for record in records for number in record["details"]["loglikelihoods"]])
    assert found[0] == pytest.approx(found[1], abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["sums.yaml::typo"], ["ERROR: not found: *sums.yaml::typo"]),
        (["test_x.py::nosuch"], ["ERROR: not found: *test_x.py::nosuch"]),
        (["sums.yaml", "missing.yaml"], ["ERROR: file or directory not found: missing.yaml"]),
        (["test_x.py::nosuch", "sums.yaml::typo"], ["ERROR: not found: *::nosuch", "ERROR: not found: *::typo"]),
    ],
)
def test_what_is_not_found_is_a_usage_error(
    llm_pytester: pytest.Pytester, workers: list[str], arguments: list[str], messages: list[str]
) -> None:
    llm_pytester.makefile(".yaml", sums=SUMS)
    llm_pytester.makepyfile(test_x="def test_it(): pass")
    result = llm_pytester.runpytest(*workers, "--llm-model=random", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(messages)
    assert result.stderr.str().count("ERROR: ") == len(messages)
    assert "INTERNALERROR" not in result.stdout.str()


def test_what_is_not_found_without_a_model_is_left_to_pytest_xdist(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makepyfile(test_x="def test_it(): pass")
    assert llm_pytester.runpytest("-n2", "test_x.py::nosuch").ret == pytest.ExitCode.NO_TESTS_COLLECTED


DIES_LAST = """
import os, time
from pathlib import Path
import pytest

@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session):
    Path("collected").touch()  # pytest-xdist has sent the node ids

def pytest_collection_modifyitems():
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw1":
        while not Path("collected").exists():
            time.sleep(0.01)
        os._exit(1)
"""


def test_a_worker_that_dies_while_collecting_is_named_as_the_reason(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(DIES_LAST)
    llm_pytester.makefile(".yaml", sums=SUMS)
    arguments = ("-n2", "--max-worker-restart=0", "--llm-model=random", "--llm-report=out.json", "sums.yaml")
    assert llm_pytester.runpytest(*arguments).ret == 1
    reasons = {record["reason"] for record in read_report(llm_pytester.path)["records"]}
    assert reasons == {"did not run: a worker died while tests were collected"}


def test_a_worker_that_dies_while_collecting_is_replaced(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(DIES_LAST)
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest("-n2", "--llm-model=random", "--llm-report=out.json", "sums.yaml")
    assert result.ret == 0
    assert len(read_report(llm_pytester.path)["records"]) == 4
