"""``llmeval init``: a first suite and a workflow that work as they are written."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_llmeval.cli import main
from pytest_llmeval.plugin.settings import OPTIONS
from pytest_llmeval.suites.loading.loader import load_suite
from tests.support import fake_model_conftest

SUITE = "suites/first.yaml"
WORKFLOW = ".github/workflows/llmeval.yml"


def test_it_writes_two_files_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.splitlines() == [
        f"wrote {SUITE}",
        f"wrote {WORKFLOW}",
        "",
        "Next:",
        "  pytest suites --llm-model=demo",
        "  pytest suites --llm-model=demo --llm-report suites/baseline.json    "
        "# what later runs are compared with; commit it",
    ]
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert written == [WORKFLOW, SUITE]
    suite = load_suite(tmp_path / SUITE)
    assert suite.name == "first"
    assert len(suite.samples) >= 8


def test_another_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my project"
    assert main(["init", str(folder)]) == 0
    assert (folder / SUITE).is_file()
    assert f"  cd '{folder}' && pytest suites --llm-model=demo\n" in capsys.readouterr().out


@pytest.mark.parametrize("taken", [SUITE, WORKFLOW])
def test_what_exists_is_left_alone(taken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / taken).parent.mkdir(parents=True)
    (tmp_path / taken).write_text("mine")
    assert main(["init", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"llmeval init: {tmp_path / taken} exists already, and nothing was written; remove it, or name another folder\n"
    )
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / taken]
    assert (tmp_path / taken).read_text() == "mine"


@pytest.mark.parametrize("blocked", ["suites", ".github"])
def test_all_or_nothing(blocked: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / blocked).write_text("a file where a folder is to be")
    assert main(["init", str(tmp_path)]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"llmeval init: cannot write {tmp_path / blocked}")
    assert shown.count("\n") == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / blocked]


@pytest.fixture
def workflow(tmp_path: Path) -> dict[Any, Any]:
    assert main(["init", str(tmp_path)]) == 0
    found: dict[Any, Any] = yaml.safe_load((tmp_path / WORKFLOW).read_text(encoding="utf-8"))
    return found


def steps_of(workflow: dict[Any, Any]) -> list[dict[Any, Any]]:
    (job,) = workflow["jobs"].values()
    steps: list[dict[Any, Any]] = job["steps"]
    return steps


def test_the_workflow_is_one(workflow: dict[Any, Any]) -> None:
    assert set(workflow) == {"name", True, "permissions", "jobs"}  # YAML 1.1 reads `on` as true
    assert set(workflow[True]) == {"pull_request", "push", "workflow_dispatch"}
    assert workflow["permissions"] == {"contents": "read"}
    for step in steps_of(workflow):
        assert ("uses" in step) != ("run" in step)
        assert "uses" not in step or re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])


def test_the_workflow_names_options_that_exist(workflow: dict[Any, Any], tmp_path: Path) -> None:
    text = (tmp_path / WORKFLOW).read_text(encoding="utf-8")
    named = set(re.findall(r"--llm-[a-z-]+", text))
    assert {"--llm-model", "--llm-baseline", "--llm-require-gates", "--llm-report"} <= named
    assert named <= {option.flag for option in OPTIONS}


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param(["-p", "no:xdist"], id="one-process"),
        pytest.param(["-n2"], id="n2", marks=pytest.mark.slow),
    ],
)
def test_the_workflows_run_line(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """The step as bash runs it, with a scripted model in the place of the job's: first without a baseline, then with
    the artifact of the first run as the baseline of a model that is worse.
    """
    folder = llm_pytester.path
    assert main(["init", str(folder)]) == 0
    workflow = yaml.safe_load((folder / WORKFLOW).read_text(encoding="utf-8"))
    (script,) = (step["run"] for step in steps_of(workflow) if step.get("name") == "Run the suites")
    assert '--llm-model="$LLM_MODEL"' in script
    (folder / "step.sh").write_text(script.replace('--llm-model="$LLM_MODEL"', shlex.join(workers)))
    right = {sample.question: str(sample.target) for sample in load_suite(folder / SUITE).samples}
    llm_pytester.makeconftest(fake_model_conftest(likely=right))
    passed = llm_pytester.run("bash", "-e", "step.sh")
    assert passed.ret == 0, passed.stdout.str()
    passed.stdout.fnmatch_lines(["gates: 2 passed"])
    shutil.copy(folder / "llmeval-report.json", folder / "suites" / "baseline.json")
    wrong = {question: f"not {answer}" for question, answer in right.items()}
    llm_pytester.makeconftest(fake_model_conftest(likely=wrong))
    failed = llm_pytester.run("bash", "-e", "step.sh")
    assert failed.ret == 1
    for gate in ("accuracy >= 0.5", "accuracy vs baseline"):
        assert any(line.startswith(f"failed: first, {gate}") for line in failed.outlines)


@pytest.mark.campaign
def test_the_commands_that_it_prints_work(llm_pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(llm_pytester.path)]) == 0
    shown = capsys.readouterr().out
    commands = [line.partition("#")[0].split("&& ")[1].split() for line in shown.splitlines() if " pytest " in line]
    assert len(commands) == 2
    for command in commands:
        done = llm_pytester.run(*command)
        assert done.ret == 0, done.stdout.str()
        done.stdout.fnmatch_lines(["first * 8 *", "gates: 2 passed"])
    again = llm_pytester.run("pytest", "suites", "--llm-model=demo", "--llm-baseline=suites/baseline.json")
    assert again.ret == 0
    again.stdout.fnmatch_lines(["gates: 3 passed"])
    assert llm_pytester.run("llmeval", "compare", "suites/baseline.json", "suites/baseline.json").ret == 0
