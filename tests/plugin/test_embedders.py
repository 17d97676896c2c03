"""``--llm-embedder``: a model whose embeddings a scorer asks for, in sessions as a user has them."""

from __future__ import annotations

import json
import re

import pytest

from pytest_llmeval.roles import ROLES
from tests.plugin.embedder_for_tests import CLOSE_SUITE, EMBEDDER, write_embedder
from tests.plugin.judge_for_tests import asked, records_of, report_of

ALONE = ("-p", "no:xdist")
JUDGE = "--llm-judge=python:my_embedder:Judge"
REPORT = "--llm-report=report.json"
BOTH_SUITE = CLOSE_SUITE.replace("score: close", "score: both")
SIMILARITY_SUITE = CLOSE_SUITE.replace("score: close", "score: {similarity: {pass: 0.8}}").replace(
    "target: a}", "target: [b, a]}"
)


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    write_embedder(llm_pytester)
    llm_pytester.makefile(".yaml", close=CLOSE_SUITE)
    return llm_pytester


def closeness(pytester: pytest.Pytester, name: str = "report.json") -> dict[str, float]:
    return {key: record["values"]["closeness"] for key, record in records_of(pytester.path, name).items()}


RIGHT = pytest.approx({"c1": 0.8, "c2": 1.0, "c3": 0.0})


def refused(result: pytest.RunResult, words: str) -> None:
    """The session ended with 4 and one line."""
    text = result.stdout.str() + result.stderr.str()
    assert result.ret == pytest.ExitCode.USAGE_ERROR, text
    lines = [line for line in [*result.outlines, *result.errlines] if words in line]
    assert len(lines) == 1, text
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text


def test_texts_are_compared_by_their_embeddings(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, EMBEDDER, REPORT, "close.yaml")
    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(
        [
            "llm-embedder: python:my_embedder:Embedder (Python code)",
            "close: judged by the embedder python:my_embedder:Embedder (test, ????????): 6 requests, 42 tokens, 2 s",
        ]
    )
    assert closeness(project) == RIGHT
    report = report_of(project.path)
    assert report["options"]["embedder"] == ["python:my_embedder:Embedder"]
    (judged_by,) = report["suites"][0]["judged_by"]
    assert re.fullmatch(r"the embedder python:my_embedder:Embedder \(test, [0-9a-f]{8}\)", judged_by)
    record = records_of(project.path)["c1"]
    assert (record["num_judge_requests"], record["num_judge_tokens"], record["judge_seconds"]) == (2, 14, 0.5)


def test_one_call_holds_the_texts_of_a_chunk(project: pytest.Pytester) -> None:
    assert project.runpytest(*ALONE, EMBEDDER, "close.yaml").ret == 0
    assert asked(project.path, "embedder") == [["aab", "abb", "aa", "a", "a", "b"]]
    assert asked(project.path, "load-embedder") == [[]]


def test_a_judge_and_an_embedder(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", close=BOTH_SUITE)
    result = project.runpytest(*workers, JUDGE, EMBEDDER, REPORT, "close.yaml")
    assert result.ret == 0, result.stdout.str()
    assert closeness(project) == RIGHT
    judge, embedder = report_of(project.path)["suites"][0]["judged_by"]
    assert judge.startswith("python:my_embedder:Judge (")
    assert embedder.startswith("the embedder python:my_embedder:Embedder (")
    assert records_of(project.path)["c1"]["num_judge_requests"] == 3


@pytest.mark.parametrize("how", ["ini", "environment"])
def test_the_embedder_of_a_project(project: pytest.Pytester, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "ini":
        project.makeini("[pytest]\nllm_embedder = python:my_embedder:Embedder\n")
    else:
        monkeypatch.setenv("PYTEST_LLM_EMBEDDER", "python:my_embedder:Embedder")
    assert project.runpytest(*ALONE, REPORT, "close.yaml").ret == 0
    assert closeness(project) == RIGHT


def test_a_conftest_gives_the_embedder(project: pytest.Pytester, workers: list[str]) -> None:
    with project.path.joinpath("conftest.py").open("a") as file:
        file.write(
            "\nimport pytest\n"
            "@pytest.fixture(scope='session')\n"
            "def llm_embedder():\n"
            "    from my_embedder import Embedder\n"
            "    return Embedder('of a conftest')\n"
        )
    project.syspathinsert()
    result = project.runpytest(*workers, REPORT, "close.yaml")
    assert result.ret == 0, result.stdout.str()
    assert report_of(project.path)["suites"][0]["judged_by"][0].startswith("the embedder embedder-of a conftest (test")
    assert closeness(project) == RIGHT


@pytest.mark.parametrize(
    ("suite", "given", "lacking"),
    [(CLOSE_SUITE, JUDGE, "embedder"), (BOTH_SUITE, EMBEDDER, "judge"), (SIMILARITY_SUITE, JUDGE, "embedder")],
)
def test_without_one_of_its_roles_a_suite_does_not_run(
    project: pytest.Pytester, workers: list[str], suite: str, given: str, lacking: str
) -> None:
    project.makefile(".yaml", close=suite)
    article = "an" if lacking == "embedder" else "a"
    words = f"close.yaml needs {article} {lacking}: give --llm-{lacking}, or override the fixture llm_{lacking} in a "
    refused(project.runpytest(*workers, given, "close.yaml"), words)
    assert not (project.path / "asked.jsonl").exists()


def test_a_hand_written_test_without_an_embedder_is_skipped(project: pytest.Pytester) -> None:
    project.makepyfile("def test_it(llm_embedder): pass")
    result = project.runpytest(*ALONE, "-rs")
    result.stdout.fnmatch_lines(["*no embedder: give --llm-embedder, or override the fixture llm_embedder in a conf*"])


def test_each_role_has_an_option_and_a_fixture(project: pytest.Pytester) -> None:
    shown = project.runpytest(*ALONE, "--fixtures").stdout.str()
    for name, role in ROLES.items():
        assert re.search(
            rf"llm_{name} \[session scope\] -- \S*plugin/__init__.py:\d+\n *The model of ``--llm-{name}``", shown
        )
        assert f"which {role.task}" in shown
    text = " ".join(project.runpytest(*ALONE, "--help").stdout.str().split())
    assert all(f"--llm-{name}: {role.help}" in text for name, role in ROLES.items())


def test_two_embedders_are_refused(project: pytest.Pytester) -> None:
    result = project.runpytest(*ALONE, EMBEDDER, "--llm-embedder=other/one", "close.yaml")
    refused(result, "--llm-embedder was given 2 times (python:my_embedder:Embedder, other/one): give one embedder")


@pytest.mark.parametrize(("option", "role"), [("--llm-embedder=a b", "embedder"), ("--llm-judge=a b", "judge")])
def test_what_is_no_model_is_refused_by_the_option_that_names_it(
    project: pytest.Pytester, option: str, role: str
) -> None:
    refused(project.runpytest(*ALONE, option, "close.yaml"), f"--llm-{role} 'a b': expected ")


def test_a_text_without_an_embedding_is_no_number(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", close=CLOSE_SUITE.replace("response: aa,", "response: REFUSE,"))
    result = project.runpytest(*workers, EMBEDDER, REPORT, "close.yaml")
    assert result.ret == 1
    records = records_of(project.path)
    assert [record["status"] for record in records.values()] == ["scored", "unscored", "scored"]
    assert records["c2"]["reason"] == "no embedding: refused by the embedder"


def test_a_baseline_of_another_embedder_is_refused(project: pytest.Pytester, workers: list[str]) -> None:
    assert project.runpytest(*workers, EMBEDDER, "--llm-report=before.json", "close.yaml").ret == 0
    baseline = "--llm-baseline=before.json"
    assert project.runpytest(*workers, EMBEDDER, baseline, "close.yaml").ret in (0, 1)
    result = project.runpytest(*workers, f"{EMBEDDER}?weights=2", baseline, REPORT, "close.yaml")
    assert result.ret == 1
    ((name, other),) = re.findall(
        r"another judge: 'the embedder (.+) \(test, [0-9a-f]{8}\)' -> 'the embedder (.+) \(test, [0-9a-f]{8}\)'",
        json.dumps(report_of(project.path)["gates"]),
    )
    assert (name, other) == ("python:my_embedder:Embedder", "python:my_embedder:Embedder?weights=2")


def test_a_fixture_that_makes_another_embedder_for_each_test(project: pytest.Pytester) -> None:
    with project.path.joinpath("conftest.py").open("a") as file:
        file.write(
            "\nimport itertools, pytest\n"
            "from my_embedder import Embedder\n"
            "numbers = itertools.count()\n"
            "@pytest.fixture\n"
            "def llm_embedder():\n"
            "    return Embedder(str(next(numbers)))\n"
        )
    project.syspathinsert()
    result = project.runpytest(*ALONE, REPORT, "close.yaml")
    assert result.ret == 1
    assert records_of(project.path)["c2"]["reason"].endswith(": give it one embedder")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--llm-judge=random", "--llm-judge random: random cannot be a judge"),
        ("--llm-judge=majority", "--llm-judge majority: majority cannot be a judge"),
        ("--llm-judge=replay:r.jsonl", "--llm-judge replay:r.jsonl: replay:FILE cannot be a judge"),
        ("--llm-embedder=random", "--llm-embedder random: random cannot be an embedder"),
        ("--llm-embedder=replay:r.jsonl", "--llm-embedder replay:r.jsonl: replay:FILE cannot be an embedder"),
        ("--llm-embedder=anthropic:any", "--llm-embedder anthropic:any: anthropic:NAME cannot be an embedder"),
    ],
)
def test_what_cannot_have_the_role_is_refused_at_once(project: pytest.Pytester, option: str, words: str) -> None:
    refused(project.runpytest(*ALONE, option, "close.yaml"), words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_module:Embedder", "there is no module 'no_module' on the import path"),
        ("my_embedder:Missing", "there is no 'Missing' in my_embedder"),
        ("my_embedder:Judge", "has no method embed(requests), by which a scorer asks the embedder"),
    ],
)
def test_python_code_that_is_no_embedder_is_refused_at_once(
    project: pytest.Pytester, workers: list[str], name: str, words: str
) -> None:
    refused(project.runpytest(*workers, f"--llm-embedder=python:{name}", "close.yaml"), words)


def test_an_embedder_that_cannot_be_loaded_ends_the_session(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, "--llm-embedder=python:my_embedder:Unloadable", REPORT, "close.yaml")
    assert result.ret in (1, 2)
    assert "embedder python:my_embedder:Unloadable could not be loaded" in result.stdout.str()


def test_a_function_of_texts_is_an_embedder(project: pytest.Pytester, workers: list[str]) -> None:
    option = "--llm-embedder=python:my_embedder:by_function"
    result = project.runpytest(*workers, option, "--llm-report=before.json", "close.yaml")
    assert result.ret == 0, result.stdout.str()
    assert closeness(project, "before.json") == RIGHT
    assert sum(map(len, asked(project.path, "embedder"))) == 6


def test_a_function_that_has_changed_is_another_embedder(llm_pytester: pytest.Pytester) -> None:
    write_embedder(llm_pytester)
    llm_pytester.makefile(".yaml", close=CLOSE_SUITE)
    arguments = (*ALONE, "--llm-embedder=python:edited:embed", "close.yaml")
    function = "def embed(texts):\n    return [[text.count('a'), text.count('b') * %d.0] for text in texts]\n"
    llm_pytester.makepyfile(edited=function % 1)
    assert llm_pytester.runpytest_subprocess(*arguments, "--llm-report=before.json").ret == 0
    llm_pytester.makepyfile(edited=function % 2)
    result = llm_pytester.runpytest_subprocess(*arguments, "--llm-baseline=before.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*another judge: 'the embedder python:edited:embed (python, *"])


def test_embeddings_are_kept_in_a_store(project: pytest.Pytester, workers: list[str]) -> None:
    arguments = [*workers, EMBEDDER, REPORT, "--llm-store=kept", "close.yaml"]
    assert project.runpytest(*arguments).ret == 0
    first = closeness(project)
    texts = sorted(text for call in asked(project.path, "embedder") for text in call)
    assert {*texts} == {"aab", "abb", "aa", "a", "b"}
    result = project.runpytest(*arguments)
    assert result.ret == 0, result.stdout.str()
    assert closeness(project) == first == RIGHT
    assert sorted(text for call in asked(project.path, "embedder") for text in call) == texts, "none is asked again"
    result.stdout.fnmatch_lines(["store kept: 3 of 3 samples reused, asked *"])
    project.path.joinpath("asked.jsonl").unlink()
    assert project.runpytest(*arguments, f"{EMBEDDER}?weights=2").ret == pytest.ExitCode.USAGE_ERROR
    other = [argument if argument != EMBEDDER else f"{EMBEDDER}?weights=2" for argument in arguments]
    assert project.runpytest(*other).ret == 0
    assert {text for call in asked(project.path, "embedder") for text in call} == {*texts}, "another's are not used"


def test_a_text_that_was_refused_is_asked_again(project: pytest.Pytester) -> None:
    project.makefile(".yaml", close=CLOSE_SUITE.replace("response: aa,", "response: REFUSE,"))
    arguments = [*ALONE, EMBEDDER, "--llm-store=kept", "close.yaml"]
    assert project.runpytest(*arguments).ret == 1
    project.path.joinpath("asked.jsonl").unlink()
    assert project.runpytest(*arguments).ret == 1
    assert asked(project.path, "embedder") == [["REFUSE"]]


@pytest.mark.parametrize("is_given", [True, False])
def test_an_option_that_a_conftest_has_replaced_is_told_of(
    project: pytest.Pytester, workers: list[str], is_given: bool
) -> None:
    """What an ini file says is for the whole project, of which a folder may differ."""
    with project.path.joinpath("conftest.py").open("a") as file:
        file.write("\nimport pytest, my_embedder\nllm_embedder = pytest.fixture(lambda: my_embedder.Embedder())\n")
    project.syspathinsert()
    project.makeini("[pytest]\nllm_embedder = python:my_embedder:by_function\n")
    result = project.runpytest(*workers, "-Wdefault", *([EMBEDDER] if is_given else []), "close.yaml")
    assert result.ret == 0
    words = "--llm-embedder python:my_embedder:Embedder is not asked: a conftest.py has the fixture llm_embedder"
    assert (words in result.stdout.str()) == is_given


def test_a_reply_is_right_where_it_is_close_to_a_target(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", close=SIMILARITY_SUITE)
    result = project.runpytest(
        *workers, EMBEDDER, REPORT, "--llm-show-wrong=1", "--llm-gate=similarity >= 0.5", "close.yaml"
    )
    assert result.ret == 0, result.stdout.str()
    records = records_of(project.path)
    assert {key: one["status"] for key, one in records.items()} == {"c1": "correct", "c2": "correct", "c3": "wrong"}
    assert {key: one["values"]["similarity"] for key, one in records.items()} == RIGHT
    metrics = report_of(project.path)["suites"][0]["metrics"]
    assert (metrics["accuracy"]["value"], metrics["similarity"]["value"]) == pytest.approx((2 / 3, 0.6))
    result.stdout.fnmatch_lines(["*verdict: *embeddings: b, 0*"])


def test_a_mean_of_cosines(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", close=SIMILARITY_SUITE.replace("{similarity: {pass: 0.8}}", "similarity"))
    result = project.runpytest(*workers, EMBEDDER, REPORT, "close.yaml")
    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(["suite *similarity*", "close *0.600*"])
    assert {record["status"] for record in records_of(project.path).values()} == {"scored"}
    assert "accuracy" not in report_of(project.path)["suites"][0]["metrics"]


def test_similarity_by_another_embedder_is_another_number(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", close=SIMILARITY_SUITE)
    assert project.runpytest(*workers, EMBEDDER, "--llm-report=before.json", "close.yaml").ret == 0
    baseline = "--llm-baseline=before.json"
    result = project.runpytest(*workers, f"{EMBEDDER}?weights=2", baseline, "close.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*another judge: 'the embedder python:my_embedder:Embedder (test, *"])
    project.makefile(".yaml", close=SIMILARITY_SUITE.replace("0.8", "0.9"))
    assert project.runpytest(*workers, EMBEDDER, baseline, "close.yaml").ret == 1, "another pass is another scorer"
