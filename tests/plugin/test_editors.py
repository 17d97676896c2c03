"""What VS Code and PyCharm show of suites, by plugins that ask what their test runners ask."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.editor_calls import PyCharm, Tree, VSCode
from tests.support import clean_environment, fake_model_conftest

SUMS = """\
suite: sums
gates: [accuracy >= 0.9]
samples:
  - {id: s1, question: "1 + 1 =", target: 2}
  - {id: "a/b.c[1]", question: "2 + 3 =", target: 5}
score: number
"""
VARIANTS = """\
variants:
  short: {prompt: {template: "{{ question }}"}}
  long: {prompt: {template: "Compute {{ question }}"}}
"""
CLASS = """\
import pytest
from pytest_llmeval import Benchmark

class TestWords(Benchmark):
    def load(self):
        return [{"id": "w1", "question": "Say yes", "target": "yes"}]

class TestSums(Benchmark):
    variants = {
        "short": {"prompt": {"template": "{{ question }}"}},
        "long": {"prompt": {"template": "Q: {{ question }}"}},
    }

    def load(self):
        return [{"id": "s1", "question": "1 + 1", "target": "2"}]

class TestPlain:
    @pytest.mark.parametrize("number", [1])
    def test_number(self, number): pass
"""
GATE = "gate[accuracy >= 0.9]"
TWO_MODELS = ("--llm-model=random", "--llm-model=majority")


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    (llm_pytester.path / "suites").mkdir()
    return llm_pytester


def write(project: pytest.Pytester, **files: str) -> None:
    for name, text in files.items():
        (project.path / "suites" / name.replace("_yaml", ".yaml").replace("_py", ".py")).write_text(text)


def discovered(project: pytest.Pytester, *arguments: str) -> VSCode:
    """Return the editor's view of all tests that pytest finds."""
    editor = VSCode()
    result = project.runpytest("--collect-only", *arguments, plugins=[editor])
    assert result.ret == 0
    return editor


def ids(tree: Tree) -> Iterator[str]:
    for below in tree.values():
        yield from [below] if isinstance(below, str) else ids(below)


def names(tree: Tree) -> dict[str, Any]:
    """Return the tree without the ids."""
    return {name: names(below) if isinstance(below, dict) else None for name, below in tree.items()}


def test_the_tree_has_a_node_for_each_class_variant_and_model(project: pytest.Pytester) -> None:
    write(project, sums_yaml=SUMS + VARIANTS, test_a_py=CLASS)
    one = discovered(project, "--llm-model=random").tree
    pair = {"short": {"s1": None}, "long": {"s1": None}}
    sums = {"s1": None, "a/b.c%5B1%5D": None, GATE: None}
    plain = {"TestPlain": {"test_number": {"test_number[1]": None}}}
    assert names(one) == {
        "suites": {
            "sums.yaml": {"short": sums, "long": sums},
            "test_a.py": {"TestWords": {"w1": None}, "TestSums": pair, **plain},
        }
    }
    two = discovered(project, *TWO_MODELS).tree
    assert names(two) == {
        "suites": {
            "sums.yaml": {key: {"short": sums, "long": sums} for key in ("random", "majority")},
            "test_a.py": {
                "TestWords": {key: {"w1": None} for key in ("random", "majority")},
                "TestSums": dict.fromkeys(("random", "majority"), pair),
                **plain,
            },
        }
    }


def test_samples_of_a_plain_suite_stand_below_its_file(project: pytest.Pytester) -> None:
    write(project, sums_yaml=SUMS)
    assert names(discovered(project, "--llm-model=random").tree) == {
        "suites": {"sums.yaml": {"s1": None, "a/b.c%5B1%5D": None, GATE: None}}
    }


def test_a_class_and_a_sample_have_their_lines(project: pytest.Pytester) -> None:
    """A row of a data file has none: the editor would take it for one of the suite's file."""
    data = "suite: other\ndataset: {path: rows.jsonl}\nscore: number\n"
    (project.path / "suites/rows.jsonl").write_text('{"id": "r1", "question": "1 + 1", "target": 2}\n')
    write(project, sums_yaml=SUMS, test_a_py=CLASS, data_yaml=data)
    lines = discovered(project, "--llm-model=random").lines
    found = {nodeid.rpartition("suites/")[2]: line for nodeid, line in lines.items()}
    assert found["sums.yaml::s1"] == 4
    assert found[f"sums.yaml::{GATE}"] == 2
    assert "data.yaml::r1" not in found
    assert found["test_a.py::TestWords"] == 4
    assert found["test_a.py::TestSums"] == 8


@pytest.mark.parametrize("models", [TWO_MODELS[:1], TWO_MODELS], ids=["one model", "two models"])
def test_each_id_of_the_tree_runs_alone(project: pytest.Pytester, models: Sequence[str]) -> None:
    write(project, sums_yaml=SUMS + VARIANTS, test_a_py=CLASS)
    everything = list(ids(discovered(project, *models).tree))
    assert len(everything) == 9 * len(models) + 1
    for nodeid in everything:
        editor = VSCode()
        project.runpytest(*models, nodeid, plugins=[editor])
        assert nodeid in editor.outcomes
        ran = {found for found in editor.outcomes if "::gate[" not in found}
        level = nodeid.rpartition("::gate[")[0]
        assert ran == ({one for one in everything if one.startswith(level)} - {nodeid} if level else {nodeid})
    editor = VSCode()
    project.runpytest(*models, *everything, plugins=[editor])
    assert set(editor.outcomes) == set(everything)


@pytest.mark.parametrize("added", [(), ("sums.yaml::s1",)], ids=["alone", "with a sample"])
def test_the_id_of_a_gate_runs_its_suite(
    llm_pytester: pytest.Pytester, workers: list[str], added: Sequence[str]
) -> None:
    """It is in pytest's short summary, from where it can be copied to the command line."""
    llm_pytester.makefile(".yaml", sums=SUMS, other=SUMS.replace("sums", "other"))
    llm_pytester.makeconftest(fake_model_conftest(default_reply="5"))
    arguments = ["--llm-require-gates", *added, f"sums.yaml::{GATE}"]
    result = llm_pytester.runpytest(*workers, "-v", *arguments)
    result.stdout.fnmatch_lines(["*sums.yaml::s1 *"])
    result.stdout.fnmatch_lines(["*sums.yaml::gate[[]accuracy >= 0.9[]] *"])
    result.stdout.no_fnmatch_line("*other.yaml*")
    result.stdout.no_fnmatch_line("*selection*")
    assert len([line for line in result.outlines if line.startswith("failed: ")]) == result.ret == 1


def test_a_failed_gate_is_a_failed_test_in_vs_code(project: pytest.Pytester, workers: list[str]) -> None:
    write(project, sums_yaml=SUMS)
    project.makeconftest(fake_model_conftest(default_reply="5"))
    everything = list(ids(discovered(project).tree))
    editor = VSCode()
    result = project.runpytest(*workers, *everything, plugins=[editor])
    assert result.ret == 1
    found = ("failure", "accuracy 0.500 [0.095, 0.905], n 2: below 0.9")
    assert editor.outcomes[str(project.path / "suites/sums.yaml::") + GATE] == found
    editor = VSCode()
    project.runpytest(*workers, everything[0], plugins=[editor])
    assert editor.outcomes[str(project.path / "suites/sums.yaml::") + GATE] == ("skipped", "")


def test_outcomes_of_answers(project: pytest.Pytester) -> None:
    """A wrong answer is a test that passed, unless ``--llm-strict`` is given; an error says what it was."""
    replies = {"1 + 1": "2", "2 + 3": "4"}
    project.makeconftest(fake_model_conftest(replies=replies, errors={"4 + 4": "overloaded"}))
    write(project, sums_yaml=SUMS.replace("score:", '  - {id: s3, question: "4 + 4 =", target: 8}\nscore:'))
    editor, other = VSCode(), PyCharm()
    project.runpytest("suites", plugins=[editor, other])
    s1, wrong, s3, *_ = editor.outcomes.items()
    assert s1 == (str(project.path / "suites/sums.yaml::s1"), ("success", ""))
    assert wrong[1] == ("success", "")
    assert s3[1] == ("failure", "not scored: suites/sums.yaml:6: sample 's3': overloaded")
    below = ("suites", "sums_yaml")
    assert other.num_tests == 3
    assert other.outcomes[*below, "s1"] == ("passed", "")
    assert other.outcomes[*below, "s3"] == ("failed", s3[1][1])
    editor, other = VSCode(), PyCharm()
    project.runpytest("suites", "--llm-strict", plugins=[editor, other])
    outcome, message = editor.outcomes[wrong[0]]
    assert outcome == "failure"
    assert message.startswith("wrong: expected '5', found '4'\nquestion: 2 + 3 =")
    assert other.outcomes[*below, "a", "b_c%5B1%5D"] == ("failed", message)


def test_a_failed_gate_is_a_failed_test_of_its_suite_in_pycharm(project: pytest.Pytester, workers: list[str]) -> None:
    write(project, sums_yaml=SUMS, test_a_py=CLASS.replace("def load", 'gates = ["accuracy >= 1"]\n    def load', 1))
    project.makeconftest(fake_model_conftest(default_reply="5"))
    editor = PyCharm()
    result = project.runpytest(*workers, "--no-header", "--no-summary", "-q", "suites", plugins=[editor])
    assert result.ret == 1
    gate = editor.outcomes["suites", "sums_yaml", "gate", "(accuracy >= 0_9)"]
    assert gate == ("failed", "accuracy 0.500 [0.095, 0.905], n 2: below 0.9")
    assert editor.outcomes["suites", "test_a", "TestWords", "gate", "(accuracy >= 1)"][0] == "failed"
    result.stdout.fnmatch_lines(["LLM evaluation: 4 suites, 5 samples; * accuracy *; gates: 2 failed"])


def test_pycharm_runs_the_class_at_its_line(project: pytest.Pytester) -> None:
    """Its target for the class is ``PATH.py::NAME``."""
    write(project, test_a_py=CLASS)
    editor = PyCharm()
    project.runpytest("--llm-model=random", str(project.path / "suites/test_a.py::TestSums"), plugins=[editor])
    below = ("suites", "test_a", "TestSums")
    assert set(editor.outcomes) == {(*below, "short", "s1"), (*below, "long", "s1")}


ADAPTER = os.environ.get("PYTEST_LLM_TEST_VSCODE")
"""The folder ``python_files`` of VS Code's Python extension, or of a checkout of microsoft/vscode-python."""


def told(project: pytest.Pytester, arguments: Sequence[str], run_ids: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return what the extension's own adapter tells the editor, of tests that are discovered or run."""
    assert ADAPTER is not None
    pipe, wanted, messages = project.path / "pipe", project.path / "ids", bytearray()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: messages.extend(pipe.read_bytes()))
    reader.start()
    wanted.write_text("\n".join(run_ids), encoding="utf-8")
    script = [str(Path(ADAPTER) / "vscode_pytest/run_pytest_script.py")]
    discovering = ["-m", "pytest", "-p", "vscode_pytest", "--collect-only"]
    environment = {"PYTHONPATH": ADAPTER, "TEST_RUN_PIPE": str(pipe), "RUN_TEST_IDS_PIPE": str(wanted)}
    subprocess.run(
        [sys.executable, *(script if run_ids else discovering), *arguments],
        cwd=project.path,
        env=clean_environment() | environment,
        capture_output=True,
        check=False,
        timeout=100,
    )
    reader.join(10)
    pipe.unlink()
    bodies = re.split(rb"content-length: \d+\r\ncontent-type: application/json\r\n\r\n", bytes(messages))
    return [json.loads(body)["params"] for body in bodies[1:]]


@pytest.mark.campaign
@pytest.mark.skipif(ADAPTER is None, reason="PYTEST_LLM_TEST_VSCODE does not name the extension's folder python_files")
def test_the_adapter_of_vs_code_says_what_its_double_says(project: pytest.Pytester) -> None:
    write(project, sums_yaml=SUMS + VARIANTS, test_a_py=CLASS)
    (found,) = told(project, TWO_MODELS)
    assert (found["status"], found["error"]) == ("success", [])

    def tree_of(node: dict[str, Any]) -> Tree:
        tests = {one["name"]: f"{found['idBase']}/{one['runID']}" for one in node["children"] if "runID" in one}
        return tests | {one["name"]: tree_of(one) for one in node["children"] if "children" in one}

    tree = tree_of(found["tests"])
    double = discovered(project, *TWO_MODELS).tree
    double["suites"]["test_a.py"]["TestPlain"]["test_number"] = {  # type: ignore[index]
        "[1]": str(project.path / "suites/test_a.py::TestPlain::test_number[1]")
    }
    assert tree == double
    everything = list(ids(tree))
    results = {
        nodeid: one for message in told(project, TWO_MODELS, everything) for nodeid, one in message["result"].items()
    }
    editor = VSCode()
    project.runpytest(*TWO_MODELS, *everything, plugins=[editor])
    outcomes = {nodeid: (one["outcome"], one["message"] or "") for nodeid, one in results.items()}
    assert outcomes == editor.outcomes
    assert set(outcomes) == set(everything)
