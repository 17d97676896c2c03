"""A session with a store and a baseline: a model that was swapped does not pass on the baseline's own replies."""

from __future__ import annotations

import json
from typing import Any

import pytest

SUITE = "suite: sums\nsamples:\n" + "".join(
    f"- {{id: s{n}, question: '{n} + 1 =', target: '{n + 1}'}}\n" for n in range(20)
)
SCORED = SUITE + "prompt: {template: '{{ question }}'}\nscore: exact\n"
MODEL = """
from pathlib import Path
from pytest_llmeval.types import GenerateResponse, ModelIdentity

SWAPPED = Path(__file__).parent / "swapped"

def hosted(prompt):
    '''A name behind which another model can stand.'''
    return "no idea" if SWAPPED.exists() else str(eval(prompt.removesuffix("=")))

class Weights:
    identity = ModelIdentity(name="weights", backend="test", fingerprint="0123")
    def generate(self, requests):
        return [GenerateResponse(text=hosted(request.prompt)) for request in requests]
"""
STORE = ("--llm-store=kept", "--llm-store-max-age=7d")
UNDECIDED = "20 of 20 samples are judged on the baseline's own replies, from a store, and nothing says that the model"


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makepyfile(models=MODEL)
    llm_pytester.makefile(".yaml", sums=SCORED)
    return llm_pytester


def ran(project: pytest.Pytester, model: str, *arguments: str) -> pytest.RunResult:
    places = [] if any(one.endswith(".py") for one in arguments) else ["sums.yaml"]
    return project.runpytest(f"--llm-model=python:models:{model}", *STORE, *arguments, *places)


def text_of(result: pytest.RunResult) -> str:
    return " ".join(result.stdout.str().split())


def records(project: pytest.Pytester, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((project.path / name).read_text())["records"]
    return found


def test_a_model_that_was_swapped_is_undecided(project: pytest.Pytester, workers: list[str]) -> None:
    assert ran(project, "hosted", *workers, "--llm-report=base.json").ret == 0
    project.path.joinpath("swapped").touch()
    against = (*workers, "--llm-baseline=base.json", "--llm-report=now.json")
    for more in ((), ("--llm-require-gates",)):
        result = ran(project, "hosted", *against, *more)
        assert result.ret == 1, "nothing was compared"
        assert UNDECIDED in text_of(result)
    assert [one["kept_as"] for one in records(project, "base.json")] == [
        one["kept_as"] for one in records(project, "now.json")
    ]
    assert len({one["kept_as"] for one in records(project, "now.json")}) == 1, "one session asked for all of them"
    found = project.run("llmeval", "compare", "base.json", "now.json", "--require")
    assert (found.ret, UNDECIDED in text_of(found)) == (1, True)
    result = ran(project, "hosted", *against, "--llm-store-refresh")
    assert "20 samples became wrong and 0 right" in text_of(result)


def test_an_ini_file_asks_for_what_can_be_decided(project: pytest.Pytester) -> None:
    """What is undecided fails nothing there, unless gates are required."""
    assert ran(project, "hosted", "--llm-report=base.json").ret == 0
    project.makeini("[pytest]\nllm_baseline = base.json\n")
    assert ran(project, "hosted").ret == 0
    assert ran(project, "hosted", "--llm-require-gates").ret == 1


def test_a_model_that_is_known_is_the_same(project: pytest.Pytester, workers: list[str]) -> None:
    assert ran(project, "Weights", *workers, "--llm-report=base.json").ret == 0
    result = ran(project, "Weights", *workers, "--llm-baseline=base.json", "--llm-require-gates")
    assert result.ret == 0
    assert "the same model: 20 of 20 samples are judged on the baseline's own replies" in text_of(result)


def test_the_rest_is_compared(project: pytest.Pytester, workers: list[str]) -> None:
    assert ran(project, "hosted", *workers, "--llm-report=base.json").ret == 0
    store = project.path / "kept"
    for path in store.glob("*.jsonl"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if '"prompt":"1' not in line))
    project.path.joinpath("swapped").touch()
    result = ran(project, "hosted", *workers, "--llm-baseline=base.json")
    assert result.ret == 1
    assert "9 of 20 samples are judged on the baseline's own replies, from a store: left out" in text_of(result)
    assert "n 11, p < 0.001" in text_of(result) or "n 11, p = 0.0005" in text_of(result)


def test_clocks_that_disagree_change_nothing(project: pytest.Pytester) -> None:
    """The lines of a machine that is ahead are dated back for times, and are the same replies."""
    assert ran(project, "hosted", "--llm-report=base.json").ret == 0
    report = project.path / "base.json"
    before = records(project, "base.json")
    import time

    real = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: real() - 600)
        assert ran(project, "hosted", "--llm-report=now.json").ret == 0
    after = records(project, "now.json")
    assert [one["asked_at"] for one in before] != [one["asked_at"] for one in after]
    assert [one["kept_as"] for one in before] == [one["kept_as"] for one in after]
    assert report.exists()


JUDGED = SUITE + "score: {rubric: {criteria: {right: Is it right?}}}\n"
JUDGE = """
import json
from pathlib import Path
from pytest_llmeval.types import GenerateResponse, ModelIdentity

class Judge:
    identity = ModelIdentity(name="judge", backend="test", fingerprint="1")
    def generate(self, requests):
        return [
            GenerateResponse(text=json.dumps({"right": {"reason": "r", "label": "pass"}})) for request in requests
        ]
"""


def test_a_judge_that_is_asked_again_measures_nothing_of_the_model(project: pytest.Pytester) -> None:
    """Its verdicts are new, and the replies that it judges are the baseline's."""
    project.makepyfile(judges=JUDGE)
    project.makefile(".yaml", sums=JUDGED)
    given = ("--llm-judge=python:judges:Judge", "-pno:xdist")
    assert ran(project, "hosted", *given, "--llm-report=base.json").ret == 0
    for path in (project.path / "kept").glob("*.jsonl"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if "judges:Judge" not in line))
    result = ran(project, "hosted", *given, "--llm-baseline=base.json", "--llm-report=now.json")
    assert result.ret == 1
    assert UNDECIDED in text_of(result)
    asked_at = [{one["asked_at"] for one in records(project, name)} for name in ("base.json", "now.json")]
    assert not asked_at[0] & asked_at[1]


TESTS = """
import pytest

@pytest.mark.parametrize("number", range(20))
def test_sum(llm_record, llm_model, number):
    reply = llm_model.generate(f"{number} + 1 =").text
    llm_record(suite="own", id=number, correct=reply == str(number + 1), answer=reply)
"""


BY_FIXTURE = """
import pytest

@pytest.fixture
def reply(llm_model, number):
    return llm_model.generate(f"{number} + 1 =").text

@pytest.mark.parametrize("number", range(20))
def test_sum(reply, llm_record, number):
    llm_record(suite="own", id=number, correct=reply == str(number + 1), answer=reply)
"""


AT_RUN_TIME = TESTS.replace("llm_model,", "request,").replace("llm_model.", 'request.getfixturevalue("llm_model").')
WRAPPED = """

@pytest.fixture(scope="session")
def llm_model(llm_model):
    class Polite:
        def generate(self, prompt):
            return llm_model.generate(prompt)

    return Polite()
"""


@pytest.mark.parametrize(
    "tests",
    [TESTS, BY_FIXTURE, AT_RUN_TIME, TESTS + WRAPPED],
    ids=["in the test", "in a fixture before llm_record", "by a model of run time", "by a wrapped model"],
)
def test_hand_written_tests(project: pytest.Pytester, workers: list[str], tests: str) -> None:
    project.makepyfile(test_own=tests)
    assert ran(project, "hosted", *workers, "--llm-report=base.json", "test_own.py").ret == 0
    project.path.joinpath("swapped").touch()
    result = ran(project, "hosted", *workers, "--llm-baseline=base.json", "test_own.py")
    assert result.ret == 1
    assert UNDECIDED in text_of(result)
    result = ran(project, "hosted", *workers, "--llm-baseline=base.json", "test_own.py", "--llm-store-refresh")
    assert "20 samples became wrong and 0 right" in text_of(result)


AT_ONCE = """
import pytest

@pytest.fixture(scope="{scope}")
def replies(llm_model):
    return [llm_model.generate(f"{{number}} + 1 =").text for number in range(20)]

@pytest.mark.parametrize("number", range(20))
def test_sum(replies, llm_record, number):
    llm_record(suite="own", id=number, correct=replies[number] == str(number + 1), answer=replies[number])
"""


@pytest.mark.parametrize("scope", ["module", "session"])
def test_replies_that_a_fixture_has_asked_for_at_once(project: pytest.Pytester, workers: list[str], scope: str) -> None:
    """All tests but the first see none of their own: they count where this session has asked for all that it has."""
    project.makepyfile(test_own=AT_ONCE.format(scope=scope))
    assert ran(project, "hosted", *workers, "--llm-report=base.json", "test_own.py").ret == 0
    project.path.joinpath("swapped").touch()
    result = ran(project, "hosted", *workers, "--llm-baseline=base.json", "test_own.py")
    assert result.ret == 1
    assert UNDECIDED.replace("are", "may be") in text_of(result)
    result = ran(project, "hosted", *workers, "--llm-baseline=base.json", "test_own.py", "--llm-store-refresh")
    assert "20 samples became wrong and 0 right" in text_of(result)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_tests_that_do_not_ask_the_model_are_evidence(project: pytest.Pytester, is_replaced: bool) -> None:
    """Although suites of the session are answered from the store."""
    replaced = "@pytest.fixture\ndef llm_model(): return object()\n" if is_replaced else ""
    takes = "llm_model, " if is_replaced else ""
    project.mkdir("others").joinpath("test_own.py").write_text(
        f"import pytest\n{replaced}@pytest.mark.parametrize('number', range(20))\n"
        f"def test_it({takes}llm_record, number): llm_record(suite='own', id=number, correct=True)\n"
    )
    given = ("sums.yaml", "others/test_own.py")
    assert ran(project, "hosted", *given, "--llm-report=base.json").ret == 0
    text = text_of(ran(project, "hosted", *given, "--llm-baseline=base.json"))
    assert "passed: own, accuracy vs baseline" in text
    assert f"skipped: sums, accuracy vs baseline: {UNDECIDED}" in text


IN_A_LOOP = """
def test_sums(llm_record, llm_model):
    llm_model.generate("{first}")
    for number in range(20):
        reply = llm_model.generate(f"{{number}} + 1 =").text
        llm_record(suite="own", id=number, correct=reply == str(number + 1), answer=reply)
"""


def test_one_new_reply_makes_no_evidence_of_all_that_follow(project: pytest.Pytester) -> None:
    project.makepyfile(test_own=IN_A_LOOP.format(first="1 + 1 ="))
    assert ran(project, "hosted", "--llm-report=base.json", "test_own.py").ret == 0
    project.path.joinpath("swapped").touch()
    project.makepyfile(test_own=IN_A_LOOP.format(first="2 + 2 ="))
    result = ran(project, "hosted", "--llm-baseline=base.json", "test_own.py")
    assert result.ret == 1
    assert UNDECIDED.replace("are", "may be") in text_of(result)


LOGGING = """
import tools

def hosted(prompt):
    with open("asked", "a") as file:
        file.write("x")
    return tools.add(prompt.removesuffix("="))
"""


def test_a_function_that_was_edited_is_asked_again(project: pytest.Pytester) -> None:
    """Also where the edit is in a module that it imports."""
    project.makepyfile(models=LOGGING)
    log = project.path / "asked"
    for source, num_asked in (("eval(text)", 20), ("eval(text)", 20), ("eval(text) + 0", 40)):
        project.makepyfile(tools=f"def add(text): return str({source})")
        assert project.runpytest_subprocess("--llm-model=python:models:hosted", *STORE, "sums.yaml").ret == 0
        assert len(log.read_text()) == num_asked


def test_a_judge_that_was_edited_is_another_judge(project: pytest.Pytester) -> None:
    """Though it says of itself that it is the same, and the edit is in a module that it imports."""
    project.makepyfile(judges=JUDGE.replace('"pass"', "labels.best"), labels="best = 'pass'")
    judges = project.path / "judges.py"
    judges.write_text(f"import labels\n{judges.read_text()}")
    project.makefile(".yaml", sums=JUDGED)
    given = ("--llm-model=python:models:hosted", "--llm-judge=python:judges:Judge", "-pno:xdist", "sums.yaml")
    assert project.runpytest_subprocess(*given, "--llm-report=base.json").ret == 0
    assert project.runpytest_subprocess(*given, "--llm-baseline=base.json").ret == 0
    project.makepyfile(labels="best = 'fail' and 'pass'")
    result = project.runpytest_subprocess(*given, "--llm-baseline=base.json")
    assert result.ret == 1
    assert "another judge: 'python:judges:Judge" in text_of(result)


@pytest.mark.parametrize("mode", ["append", "importlib"])
def test_a_fixtures_judge_is_the_same_however_pytest_imports_it(project: pytest.Pytester, mode: str) -> None:
    """The module of its conftest.py has another name with each way."""
    folder = project.mkpydir("checks") if mode == "append" else project.mkdir("checks")
    (folder / "sums.yaml").write_text(JUDGED)
    fixture = "import pytest\n\n@pytest.fixture(scope='session')\ndef llm_judge(): return Judge()\n"
    (folder / "conftest.py").write_text(JUDGE + fixture)
    given = ("--llm-model=python:models:hosted", "-pno:xdist", "checks/sums.yaml")
    assert project.runpytest_subprocess(*given, "--llm-report=base.json").ret == 0
    result = project.runpytest_subprocess(*given, "--llm-baseline=base.json", f"--import-mode={mode}")
    assert result.ret == 0, result.stdout.str()
