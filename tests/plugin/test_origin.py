"""The origin of a report: what git, a CI service and the user say, without secrets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.reporting.report.origin import ReportOrigin, find_origin, parse_label
from pytest_llmeval.reporting.storage.report_file import read_report
from tests.plugin.suites_for_tests import SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SERVER = {"GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "us/model"}
SERVICES: dict[str, tuple[dict[str, str], ReportOrigin]] = {
    "github push": (
        {**SERVER, "GITHUB_RUN_ID": "7", "GITHUB_REF": "refs/heads/main", "GITHUB_SHA": COMMIT, "GITHUB_HEAD_REF": ""},
        ReportOrigin(commit=COMMIT, branch="main", run="https://github.com/us/model/actions/runs/7"),
    ),
    "github pull request": (
        {**SERVER, "GITHUB_RUN_ID": "7", "GITHUB_REF": "refs/pull/12/merge", "GITHUB_HEAD_REF": "prompt"},
        ReportOrigin(branch="prompt", run="https://github.com/us/model/actions/runs/7", pull_request="12"),
    ),
    "github tag": ({**SERVER, "GITHUB_REF": "refs/tags/v1"}, ReportOrigin()),
    "gitlab": (
        {"GITLAB_CI": "true", "CI_JOB_URL": "https://bot:glpat-abcdefgh12345678@git.example/j/3"}
        | {"CI_MERGE_REQUEST_IID": "4", "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "b", "CI_COMMIT_SHA": COMMIT},
        ReportOrigin(commit=COMMIT, branch="b", run="https://git.example/j/3", pull_request="4"),
    ),
    "azure": (
        {"TF_BUILD": "True", "SYSTEM_COLLECTIONURI": "https://dev.azure.com/us/", "SYSTEM_TEAMPROJECT": "model"}
        | {"BUILD_BUILDID": "9", "BUILD_SOURCEBRANCH": "refs/heads/main", "BUILD_SOURCEVERSION": COMMIT},
        ReportOrigin(commit=COMMIT, branch="main", run="https://dev.azure.com/us/model/_build/results?buildId=9"),
    ),
    "bitbucket": (
        {"BITBUCKET_BUILD_NUMBER": "5", "BITBUCKET_GIT_HTTP_ORIGIN": "https://bitbucket.org/us/m"}
        | {"BITBUCKET_PR_ID": "2", "BITBUCKET_BRANCH": "b"},
        ReportOrigin(branch="b", run="https://bitbucket.org/us/m/pipelines/results/5", pull_request="2"),
    ),
    "buildkite": (
        {"BUILDKITE": "true", "BUILDKITE_PULL_REQUEST": "false", "BUILDKITE_COMMIT": "HEAD", "BUILDKITE_BRANCH": "b"},
        ReportOrigin(branch="b"),
    ),
    "circle": (
        {"CIRCLECI": "true", "CIRCLE_PULL_REQUEST": "https://github.com/us/m/pull/3", "CIRCLE_BRANCH": "b"},
        ReportOrigin(branch="b", pull_request="https://github.com/us/m/pull/3"),
    ),
    "jenkins": (
        {"JENKINS_URL": "https://ci/", "BUILD_URL": "https://ci/job/1/?token=abcdef123456789xyz", "CHANGE_ID": "8"},
        ReportOrigin(run="https://ci/job/1/?token=***", pull_request="8"),
    ),
    "jenkins's remote branch": (
        {"JENKINS_URL": "https://ci/", "GIT_BRANCH": "origin/team/main"},
        ReportOrigin(branch="team/main"),
    ),
    "jenkins's own branch": (
        {"JENKINS_URL": "https://ci/", "BRANCH_NAME": "origin/main", "GIT_BRANCH": "main"},
        ReportOrigin(branch="origin/main"),
    ),
    "jenkins without a remote": ({"JENKINS_URL": "https://ci/", "GIT_BRANCH": "main"}, ReportOrigin(branch="main")),
    "none": ({"GITHUB_SHA": COMMIT, "GITHUB_ACTIONS": "false"}, ReportOrigin()),
}


@pytest.mark.parametrize("service", SERVICES)
def test_what_ci_services_say(service: str, tmp_path: Path) -> None:
    variables, expected = SERVICES[service]
    assert find_origin(tmp_path, {}, variables) == expected


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str) -> str:
    identity = {f"GIT_{who}_{what}": f"{what}@t.t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def repository(folder: Path) -> str:
    git(folder, "init", "--quiet", "--initial-branch=trunk")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "first")
    return git(folder, "rev-parse", "HEAD")


@needs_git
def test_what_git_says_goes_before_what_variables_say_but_for_the_branch(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a")
    commit = repository(tmp_path)
    assert find_origin(tmp_path, {}, {}) == ReportOrigin(commit=commit, branch="trunk", is_dirty=False)
    (tmp_path / "new").write_text("a report, for example")
    assert find_origin(tmp_path, {}, {}).is_dirty is False
    (tmp_path / "kept").write_text("b")
    git(tmp_path, "checkout", "--quiet", "--detach")
    origin = find_origin(tmp_path, {}, SERVICES["github pull request"][0] | {"GITHUB_SHA": COMMIT})
    assert (origin.commit, origin.branch, origin.is_dirty) == (commit, "prompt", True)
    assert origin.described_commit() == f"{commit[:10]}+"


@pytest.mark.parametrize("script", [None, "exit 128", "sleep 60", "printf '\\377\\376'", f"echo {'x' * 100}"])
def test_a_git_that_does_not_answer_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None
) -> None:
    monkeypatch.setattr("pytest_llmeval.reporting.report.origin._MAX_SECONDS", 0.3)
    if script is not None:
        (tmp_path / "git").write_text(f"#!/bin/sh\n{'exec ' * script.startswith('sleep')}{script}\n")
        (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep if script else None)
    assert find_origin(tmp_path, {"team": "a"}, {}) == ReportOrigin(labels={"team": "a"})


@pytest.mark.slow
def test_a_tree_that_is_too_large_to_look_through_has_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text(f'#!/bin/sh\ncase "$*" in *status*) exec sleep 60;; *) echo {COMMIT};; esac\n')
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("pytest_llmeval.reporting.report.origin._MAX_SECONDS", 3.0)
    origin = find_origin(tmp_path, {}, {})
    assert (origin.commit, origin.is_dirty) == (COMMIT, None)


def test_parts_of_a_run_have_what_they_share() -> None:
    one = ReportOrigin(commit=COMMIT, branch="b", run="first", labels={"team": "a", "shard": "1"})
    other = ReportOrigin(commit=COMMIT, branch="b", run="second", labels={"team": "a", "shard": "2"})
    assert ReportOrigin.common([one, other]) == ReportOrigin(commit=COMMIT, branch="b", labels={"team": "a"})
    assert ReportOrigin.common([one, None]) is None
    assert ReportOrigin.common([]) is None


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES))
    llm_pytester.makefile(".yaml", sums=SUMS)
    return llm_pytester


def origin_in(path: Path) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(path.read_text(encoding="ascii"))["origin"]
    return found


@needs_git
def test_a_report_says_where_it_comes_from(
    project: pytest.Pytester, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repository(project.path)
    for name, value in SERVICES["github pull request"][0].items():
        monkeypatch.setenv(name, value)
    reports = [f"--llm-report=out{suffix}" for suffix in (".json", ".md", ".html")]
    result = project.runpytest(*workers, *reports, "--llm-label=team=search", "--llm-label=note=a = b", "sums.yaml")
    assert result.ret == 0
    assert origin_in(project.path / "out.json") == {
        "commit": commit,
        "branch": "prompt",
        "is_dirty": False,
        "run": "https://github.com/us/model/actions/runs/7",
        "pull_request": "12",
        "labels": {"team": "search", "note": "a = b"},
    }
    origin = read_report(project.path / "out.json").origin
    assert origin is not None
    assert origin.labels["team"] == "search"
    assert f"From commit {commit[:10]}, branch prompt, pull request 12, run https" in (
        project.path / "out.md"
    ).read_text("utf-8")
    page = (project.path / "out.html").read_text("utf-8")
    assert commit in page
    assert "<summary>Origin</summary>" in page


@needs_git
def test_a_report_can_leave_all_of_it_out(project: pytest.Pytester, workers: list[str]) -> None:
    repository(project.path)
    options = ("--llm-report=out.json", "--llm-report-origin=none", "--llm-label=team=search")
    assert project.runpytest(*workers, *options, "sums.yaml").ret == 0
    assert origin_in(project.path / "out.json") is None
    assert "search" not in (project.path / "out.json").read_text()


def test_git_is_asked_for_reports_only(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.path / "git").write_text("#!/bin/sh\necho asked >> asked\nexit 1\n")
    (project.path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(project.path), prepend=os.pathsep)
    assert project.runpytest("sums.yaml").ret == 0
    assert project.runpytest("--llm-report=out.json", "--llm-report-origin=none", "sums.yaml").ret == 0
    assert not (project.path / "asked").exists()
    assert project.runpytest("--llm-report=out.json", "sums.yaml").ret == 0
    assert (project.path / "asked").read_text().split() == ["asked"]


REFUSED = {
    "password=Xk29fLmQ81zz": "--llm-label password=…: it seems to hold a secret",
    "api_key=prod-1": "--llm-label api_key=…: it seems to hold a secret",
    "token=abcdefgh1": "--llm-label token=…: it seems to hold a secret",
    "team=ghp_abcdefghijklmnop1234": "--llm-label team=…: it seems to hold a secret",
    "at=https://me:hunter22@ci.example/": "--llm-label at=…: it seems to hold a secret",
    "ghp_abcdefghijklmnop1234=search": "--llm-label ***=…: it seems to hold a secret",
    "ghp_abcdefghijklmnop1234": "found '***', expected KEY=VALUE",
    "team": "found 'team', expected KEY=VALUE",
    "=search": "found '=search', expected KEY=VALUE",
    "team=": "found 'team=', expected KEY=VALUE",
    "a b=c": "found 'a b=c', expected KEY=VALUE",
    "team=a\nb": "found a value of 'team' that is not one line",
}


@pytest.mark.parametrize("label", REFUSED)
def test_labels_that_are_refused(project: pytest.Pytester, label: str) -> None:
    result = project.runpytest("--llm-report=out.json", f"--llm-label={label}", "sums.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.stderr.lines if "--llm-label" in line]
    assert REFUSED[label] in line
    for secret in ("Xk29fLmQ81zz", "ghp_abc", "hunter22"):
        assert secret not in result.stderr.str()


@pytest.mark.parametrize("label", ["token=search", "key=42", "auth=oauth", "commit=4f1b2c3d4e5f60718293a4b5c6d7e8f9"])
def test_labels_that_docs_call_no_secrets(label: str) -> None:
    assert "=".join(parse_label(label)) == label


def test_a_label_that_is_a_variables_secret_or_was_given_twice_is_refused(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = project.runpytest("--llm-label=team=a", "--llm-label=team=b", "sums.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--llm-label team: it was given twice*"])
    monkeypatch.setenv("SERVICE_API_KEY", "plain-words-9k2Lq")
    monkeypatch.setenv("PYTEST_LLM_LABEL", "team=plain-words-9k2Lq")
    result = project.runpytest("sums.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*PYTEST_LLM_LABEL team=…: it seems to hold a secret*"])


@needs_git
def test_a_killed_sessions_journal_says_it_too(project: pytest.Pytester) -> None:
    commit = repository(project.path)
    project.makeconftest(fake_model_conftest(replies=SUMS_REPLIES, kills=["5 + 4"]))
    project.runpytest_subprocess("--llm-report=out.json", "--llm-batch-size=1", "sums.yaml")
    (journal,) = project.path.glob("*.journal")
    origin = read_report(journal).origin
    assert origin is not None
    assert (origin.commit, origin.is_dirty) == (commit, True)
