"""The workflows of ``llmeval init``: valid, with few rights, and each command carried out as a runner does it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from pytest_llmeval.cli import main
from pytest_llmeval.plugin.settings import OPTIONS
from pytest_llmeval.suites.loading.loader import load_suite
from tests.support import REPOSITORY, clean_environment

GITHUB, GITLAB = ".github/workflows/llmeval.yml", ".gitlab/llmeval.yml"
RESULTS = "llmeval-results"
MARK = "<!-- llmeval -->"
NO_REPORT = "There is no report: the log says why."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both kinds of ``llmeval init`` write."""
    made = tmp_path_factory.mktemp("workflows")
    assert main(["init", str(made)]) == 0
    assert main(["init", str(made), "--ci", "gitlab"]) == 0
    return made


def read(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def github(folder: Path) -> dict[Any, Any]:
    return read(folder / GITHUB)


@pytest.fixture(scope="module")
def gitlab(folder: Path) -> dict[Any, Any]:
    return read(folder / GITLAB)


def step(workflow: Mapping[str, Any], job: str, name: str) -> dict[str, Any]:
    (found,) = (one for one in workflow["jobs"][job]["steps"] if one.get("name") == name)
    return dict(found)


# Their form


@pytest.mark.parametrize(
    ("file", "schema"),
    [(GITHUB, "vendor.github-workflows"), (GITLAB, "vendor.gitlab-ci"), (".gitlab-ci.yml", "vendor.gitlab-ci")],
)
def test_it_fits_the_schema(file: str, schema: str, folder: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(folder / file)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", [GITHUB, GITLAB])
def test_it_names_options_that_exist(file: str, folder: Path) -> None:
    named = set(re.findall(r"--llm-[a-z-]+", (folder / file).read_text("utf-8")))
    assert {"--llm-model", "--llm-baseline", "--llm-update-baseline", "--llm-require-gates", "--llm-report"} <= named
    assert named <= {option.flag for option in OPTIONS}


def test_both_run_the_same_commands(github: dict[Any, Any], gitlab: dict[Any, Any]) -> None:
    assert step(github, "suites", "Run the suites")["run"] == gitlab["llmeval"]["script"][1]
    assert gitlab["llmeval"]["script"][0] == gitlab["llmeval"]["after_script"][0]
    assert step(github, "suites", "Prepare the comment")["run"] == gitlab["llmeval"]["after_script"][1]
    assert read_include(gitlab) == GITLAB


def test_what_is_installed_is_a_variable(github: dict[Any, Any], gitlab: dict[Any, Any], tmp_path: Path) -> None:
    """A copy of the package may stand in a folder of the repository."""
    assert github["env"] == {"LLMEVAL_INSTALL": gitlab["llmeval"]["variables"]["LLMEVAL_INSTALL"]}
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/pip").write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    (tmp_path / "bin/pip").chmod(0o755)
    for script in (step(github, "suites", "Install")["run"], *gitlab["llmeval"]["before_script"]):
        assert bash(script, tmp_path, {"LLMEVAL_INSTALL": "./a copy"}).stdout == "<install><./a copy>"


def read_include(gitlab: Mapping[str, Any]) -> str:
    (included,) = yaml.safe_load((REPOSITORY / "pytest_llmeval/commands/starter/gitlab-ci.yml").read_text())["include"]
    return str(included["local"])


def test_each_job_of_github_has_the_rights_that_it_needs(github: dict[Any, Any], folder: Path) -> None:
    assert set(github[True]) == {"pull_request", "push", "workflow_dispatch"}  # YAML 1.1 reads `on` as true
    assert "pull_request_target" not in (folder / GITHUB).read_text("utf-8")
    assert github["permissions"] == {}
    assert {name: job["permissions"] for name, job in github["jobs"].items()} == {
        "suites": {"contents": "read"},
        "comment": {"pull-requests": "write"},
    }
    assert all(job["timeout-minutes"] <= 60 for job in github["jobs"].values())
    used = {name: [one["uses"] for one in job["steps"] if "uses" in one] for name, job in github["jobs"].items()}
    assert used == {
        "suites": ["actions/checkout@v4", "actions/setup-python@v5", "actions/upload-artifact@v4"],
        "comment": ["actions/download-artifact@v4"],
    }
    checkout = github["jobs"]["suites"]["steps"][0]
    assert checkout["with"] == {"fetch-depth": 2, "persist-credentials": False}
    assert "head.repo.full_name == github.repository" in github["jobs"]["comment"]["if"]


def test_no_command_of_github_has_text_put_into_it(github: dict[Any, Any]) -> None:
    scripts = [one["run"] for job in github["jobs"].values() for one in job["steps"] if "run" in one]
    assert len(scripts) == 4
    assert [script for script in scripts if "${{" in script] == []


def test_a_secret_is_seen_by_the_step_that_asks_the_model(folder: Path) -> None:
    text = (folder / GITHUB).read_text("utf-8")
    workflow = yaml.safe_load(text.replace("# OPENAI_API_KEY:", "OPENAI_API_KEY:"))
    found = [
        (job, one.get("name"))
        for job, whole in workflow["jobs"].items()
        for one in whole["steps"]
        if "secrets." in json.dumps(one)
    ]
    assert found == [("suites", "Run the suites")]
    assert text.count("secrets.") == 1


def test_the_note_of_gitlab_is_written_where_the_requests_code_is_not(gitlab: dict[Any, Any]) -> None:
    job = gitlab["llmeval-note"]
    assert job["variables"] == {"GIT_STRATEGY": "none"}
    assert "environment" in job
    assert "environment" not in gitlab["llmeval"]
    (rule,) = job["rules"]
    assert "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_MERGE_REQUEST_PROJECT_ID" in rule["if"]
    assert "python3 -I - " in job["script"][0], "modules of the current folder are not imported"


def test_workflows_in_docs_use_the_same_actions(github: dict[Any, Any]) -> None:
    used = {one["uses"] for job in github["jobs"].values() for one in job["steps"] if "uses" in one}
    for page in [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]:
        assert set(re.findall(r"uses: (\S+)", page.read_text("utf-8"))) <= used


# The commands of the first job

MODEL = """
import json
from pathlib import Path

from pytest_llmeval.types import LoglikelihoodResponse


class Scripted:
    def loglikelihood(self, requests):
        answers = json.loads(Path("answers.json").read_text())
        return [LoglikelihoodResponse(loglikelihood=self._score(answers, one), num_tokens=1) for one in requests]

    def _score(self, answers, request):
        (answer,) = (answer for question, answer in answers.items() if question in request.context)
        return -0.5 if request.continuation.strip() == answer else -2.0
"""


def bash(script: str, folder: Path, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub's runner does, without what surrounds this test."""
    environment = {**clean_environment(), "LC_ALL": "C.UTF-8", **(variables or {})}
    environment["PATH"] = f"{folder / 'bin'}:{Path(sys.executable).parent}:{environment['PATH']}"
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


class Checkout:
    """A repository whose suites a scripted model answers, and the first job's commands in it."""

    def __init__(self, folder: Path, github: Mapping[str, Any], workers: list[str]) -> None:
        assert main(["init", str(folder)]) == 0
        self.folder, self._github = folder, github
        self._variables = {
            "PYTEST_ADDOPTS": " ".join([*workers, "-p", "no:cacheprovider"]),
            "LLM_MODEL": "python:scripted:Scripted",
            "GITHUB_ACTIONS": "true",
            "GITHUB_STEP_SUMMARY": str(folder.parent / "summary.md"),
        }
        (folder / "scripted.py").write_text(MODEL)
        suite = folder / "suites/first.yaml"
        suite.write_text(suite.read_text().replace("accuracy >= 0.5", "accuracy >= 0.2"))
        self.answer(wrong=0)
        (folder / ".gitignore").write_text(f"{RESULTS}/\n__pycache__/\n.llmeval/\n")
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit("main")

    def git(self, *arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], cwd=self.folder, check=True, stdout=subprocess.PIPE)

    def commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", f"--message={message}")

    def answer(self, *, wrong: int) -> None:
        """Let the model answer this many of the questions wrongly."""
        answers = {}
        for place, sample in enumerate(load_suite(self.folder / "suites/first.yaml").samples):
            right = str(sample.target)
            others = [choice for choice in sample.choices or () if choice != right]
            answers[sample.question] = others[0] if place < wrong else right
        (self.folder / "answers.json").write_text(json.dumps(answers))

    def merge(self) -> None:
        """Check out what a pull request of the branch ``change`` is tested as: its merge with main."""
        self.git("checkout", "--quiet", "-B", "merged", "main")
        self.git("merge", "--quiet", "--no-ff", "--no-edit", "change")

    def run(self, name: str, *, main_branch: str = "HEAD^1") -> subprocess.CompletedProcess[str]:
        return bash(step(self._github, "suites", name)["run"], self.folder, {**self._variables, "MAIN": main_branch})

    def results(self) -> set[str]:
        return {path.name for path in (self.folder / RESULTS).iterdir()}

    @property
    def comment(self) -> str:
        return (self.folder / RESULTS / "comment.md").read_text("utf-8")

    @property
    def summary(self) -> str:
        return Path(self._variables["GITHUB_STEP_SUMMARY"]).read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "workers",
    [pytest.param(["-p", "no:xdist"], id="one-process"), pytest.param(["-n2"], id="n2", marks=pytest.mark.campaign)],
)
def test_from_the_first_run_to_a_baseline_that_a_pull_request_renews(
    tmp_path: Path, github: dict[Any, Any], workers: list[str]
) -> None:
    checkout = Checkout(tmp_path / "repository", github, workers)
    baseline, kept = checkout.folder / "suites/baseline.json", checkout.folder / RESULTS / "baseline.json"

    # main has no baseline yet: the suites' own gates decide, and the first baseline is kept
    first = checkout.run("Run the suites")
    assert first.returncode == 0, first.stdout
    assert "gates: 1 skipped, 2 passed" in first.stdout
    prepared = checkout.run("Prepare the comment", main_branch="HEAD")
    assert prepared.returncode == 0, prepared.stdout
    assert checkout.results() == {"report.json", "report.html", "baseline.json", "comment.md"}
    assert "there is no baseline yet" in checkout.comment
    shutil.copy(kept, baseline)
    checkout.commit("the baseline")

    # a pull request that makes it worse
    checkout.git("checkout", "--quiet", "-b", "change")
    checkout.answer(wrong=5)
    checkout.commit("worse")
    checkout.merge()
    worse = checkout.run("Run the suites")
    assert worse.returncode == 1, worse.stdout
    assert "failed: first, accuracy vs baseline: accuracy 1.000 -> 0.375" in worse.stdout
    assert checkout.run("Prepare the comment").returncode == 0
    assert checkout.comment.startswith("# LLM evaluation")
    assert "accuracy vs baseline" in checkout.comment
    assert checkout.comment.strip() in checkout.summary, "which is what pull requests of forks get"
    assert checkout.results() == {"report.json", "report.html", "baseline.json", "comment.md"}

    # the same, with the baseline that CI has kept
    renewed = kept.read_bytes()
    checkout.git("checkout", "--quiet", "change")
    baseline.write_bytes(renewed)
    checkout.commit("it is meant")
    checkout.merge()
    meant = checkout.run("Run the suites")
    assert meant.returncode == 0, meant.stdout
    prepared = checkout.run("Prepare the comment")
    assert prepared.returncode == 0
    assert "::error" not in prepared.stdout, "nothing failed here"
    assert checkout.comment.startswith("This change replaces suites/baseline.json")
    assert re.search(r"failed.*accuracy vs baseline.*1\.000.*0\.375", checkout.comment), checkout.comment

    # and without any: it fails, and what main has is compared nevertheless
    checkout.git("checkout", "--quiet", "change")
    checkout.git("rm", "--quiet", "suites/baseline.json")
    checkout.commit("no baseline")
    checkout.merge()
    removed = checkout.run("Run the suites")
    assert removed.returncode == 1, removed.stdout
    assert "gates: 1 skipped, 2 passed" in removed.stdout
    assert removed.stdout.splitlines()[-1].startswith("failed: this change removes suites/baseline.json,")
    assert checkout.run("Prepare the comment").returncode == 0
    assert checkout.comment.startswith("This change removes suites/baseline.json, and fails for that.")
    assert re.search(r"failed.*accuracy vs baseline.*1\.000.*0\.375", checkout.comment), checkout.comment


def test_a_baseline_that_was_not_written_is_not_kept(tmp_path: Path, github: dict[Any, Any]) -> None:
    """A threshold failed, so the file beside the report is still that of main; there is no report of an earlier run."""
    checkout = Checkout(tmp_path / "repository", github, ["-p", "no:xdist"])
    (checkout.folder / RESULTS).mkdir()
    (checkout.folder / RESULTS / "baseline.json").write_text("{}")
    (checkout.folder / "suites/baseline.json").write_text("{}")
    prepared = checkout.run("Prepare the comment", main_branch="HEAD")
    assert prepared.returncode == 1
    assert "report.json" in prepared.stdout
    assert checkout.results() == {"comment.md"}
    assert checkout.comment == ""
    (checkout.folder / RESULTS / "report.json").write_text("old")
    refused = checkout.run("Run the suites")
    assert refused.returncode == 4, refused.stdout
    assert checkout.results() == {"baseline.json"}


@pytest.mark.parametrize(
    ("variables", "commit"),
    [
        ({"CI_MERGE_REQUEST_TARGET_BRANCH_SHA": "abc", "CI_MERGE_REQUEST_DIFF_BASE_SHA": "def"}, "abc"),
        ({"CI_MERGE_REQUEST_TARGET_BRANCH_SHA": "", "CI_MERGE_REQUEST_DIFF_BASE_SHA": "def"}, "def"),
        ({}, "HEAD"),
    ],
    ids=["merged results", "merge request", "default branch"],
)
def test_the_commit_of_gitlabs_main_branch(
    variables: dict[str, str], commit: str, gitlab: dict[Any, Any], tmp_path: Path
) -> None:
    script = f'{gitlab["llmeval"]["after_script"][0]}\necho "$MAIN"'
    assert bash(script, tmp_path, variables).stdout == f"{commit}\n"


# The comment on GitHub

MINE = '.[] | select(.user.login == "github-actions[bot]" and (.body | startswith("<!-- llmeval -->"))) | .id'
GH = """#!{python}
import json, sys
from pathlib import Path

words, file = sys.argv[1:], Path("comments.json")
assert words.pop(0) == "api"
given = {{name: words[words.index(name) + 1] for name in ("--method", "--jq", "-F") if name in words}}
(url,) = [word for word in words if word.startswith("repos/")]
comments = json.loads(file.read_text())
if comments is None:
    sys.exit("gh: Bad credentials (HTTP 401)")
if "--method" not in given:
    assert url == "repos/o/r/issues/7/comments?per_page=100" and "--paginate" in words and given["--jq"] == {mine!r}
    mine = [one for one in comments if one["user"]["login"] == "github-actions[bot]"]
    print("".join(f"{{one['id']}}\\n" for one in mine if one["body"].startswith({mark!r})), end="")
else:
    name, _, path = given["-F"].partition("=@")
    body = Path(path).read_text("utf-8")
    assert name == "body" and len(body) <= 65536, len(body)
    if given["--method"] == "POST":
        assert url == "repos/o/r/issues/7/comments"
        login = "github-actions[bot]"
        comments.append({{"id": 100 + len(comments), "user": {{"login": login}}, "body": body}})
    else:
        (one,) = [one for one in comments if url == f"repos/o/r/issues/comments/{{one['id']}}"]
        one["body"] = body
    file.write_text(json.dumps(comments))
"""
OTHERS = [
    {"id": 1, "user": {"login": "somebody"}, "body": f"{MARK}\nnot the bot's"},
    {"id": 2, "user": {"login": "github-actions[bot]"}, "body": "of another workflow"},
]


class Comments:
    """The second job with a ``gh`` that keeps comments in a file."""

    def __init__(self, folder: Path, github: Mapping[str, Any]) -> None:
        self.folder, self._script = folder, step(github, "comment", "Write the comment")["run"]
        (folder / "bin").mkdir()
        (folder / "bin/gh").write_text(GH.format(python=sys.executable, mine=MINE, mark=MARK))
        (folder / "bin/gh").chmod(0o755)
        (folder / RESULTS).mkdir()
        self.file = folder / "comments.json"
        self.file.write_text(json.dumps(OTHERS))

    def write(self, text: str | None, result: str = "success") -> subprocess.CompletedProcess[str]:
        if text is not None:
            (self.folder / RESULTS / "comment.md").write_text(text, "utf-8")
        variables = {
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_RUN_ID": "99",
            "NUMBER": "7",
            "COMMIT": "c0ffee",
            "RESULT": result,
            "GH_TOKEN": "t",
        }
        return bash(self._script, self.folder, variables)

    def own(self) -> list[str]:
        comments = json.loads(self.file.read_text())
        assert comments[:2] == OTHERS
        return [one["body"] for one in comments[2:]]


@pytest.fixture
def comments(tmp_path: Path, github: dict[Any, Any]) -> Comments:
    return Comments(tmp_path, github)


def test_one_comment_is_updated_in_place(comments: Comments) -> None:
    assert comments.write("# first $(touch ran) `touch ran`\n").returncode == 0
    head = (
        f"{MARK}\n**success** at c0ffee: [log, page, report and new baseline](https://github.com/o/r/actions/runs/99)"
    )
    assert comments.own() == [f"{head}\n\n# first $(touch ran) `touch ran`\n"]
    assert comments.write("# second\n", "failure").returncode == 0
    (body,) = comments.own()
    assert body == head.replace("success", "failure") + "\n\n# second\n"
    assert not (comments.folder / "ran").exists()


@pytest.mark.parametrize("text", [None, ""])
def test_a_run_without_a_report_says_so(comments: Comments, text: str | None) -> None:
    assert comments.write(text, "failure").returncode == 0
    (body,) = comments.own()
    assert body.endswith(f"\n\n{NO_REPORT}\n")


def test_a_long_comment_is_cut_at_a_character(comments: Comments) -> None:
    assert comments.write("第" * 100_000).returncode == 0
    (body,) = comments.own()
    assert len(body) <= 65_536
    assert set(body[-60_000:].strip()) == {"第"}


def test_comments_that_cannot_be_read_are_not_added_to(comments: Comments) -> None:
    comments.file.write_text("null")
    done = comments.write("# text")
    assert done.returncode == 1
    assert "Bad credentials" in done.stdout
    assert comments.file.read_text() == "null"


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed; gh has its own")
def test_the_expression_finds_the_own_comment(github: dict[Any, Any]) -> None:
    assert MINE in step(github, "comment", "Write the comment")["run"]
    own = {"id": 3, "user": {"login": "github-actions[bot]"}, "body": f"{MARK}\ntext"}
    done = subprocess.run(["jq", MINE], input=json.dumps([*OTHERS, own]), stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["3"]


# The note on GitLab


class Notes(BaseHTTPRequestHandler):
    """As much of GitLab's API as the job uses; it shows two notes on a page, whatever is asked for."""

    notes: ClassVar[list[dict[str, Any]]] = []

    def do_GET(self) -> None:
        assert self.headers["PRIVATE-TOKEN"] == "secret"
        url = urlsplit(self.path)
        if url.path == "/api/v4/user":
            self._reply({"id": 5})
            return
        assert url.path == "/api/v4/projects/3/merge_requests/7/notes"
        page = int(parse_qs(url.query)["page"][0])
        self._reply(self.notes[2 * page - 2 : 2 * page])

    def do_POST(self) -> None:
        assert self.path == "/api/v4/projects/3/merge_requests/7/notes"
        self.notes.append({"id": 100, "author": {"id": 5}, **self._read()})
        self._reply(self.notes[-1])

    def do_PUT(self) -> None:
        (note,) = (one for one in self.notes if self.path.endswith(f"/merge_requests/7/notes/{one['id']}"))
        note.update(self._read())
        self._reply(note)

    def _read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return found

    def _reply(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


@pytest.fixture
def gitlab_api() -> Iterator[str]:
    Notes.notes = [
        {"id": 1, "author": {"id": 4}, "body": f"{MARK}\nnot the token's user"},
        {"id": 2, "author": {"id": 5}, "body": "another note"},
        {"id": 3, "author": {"id": 4}, "body": "text"},
    ]
    with ThreadingHTTPServer(("127.0.0.1", 0), Notes) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/api/v4"
        server.shutdown()
        thread.join()


class Note:
    """The second job of GitLab's pipeline, in a folder that a merge request may have left something in."""

    def __init__(self, folder: Path, gitlab: Mapping[str, Any], api: str) -> None:
        self.folder, self._api = folder, api
        (self._script,) = gitlab["llmeval-note"]["script"]
        (folder / RESULTS).mkdir()
        (folder / "json.py").write_text("raise SystemExit('code of the merge request')")

    def write(self, token: str = "secret") -> subprocess.CompletedProcess[str]:
        variables = {
            "CI_API_V4_URL": self._api,
            "CI_PROJECT_ID": "3",
            "CI_MERGE_REQUEST_IID": "7",
            "LLMEVAL_TOKEN": token,
            "CI_PIPELINE_URL": "https://gitlab.example/p/9",
            "CI_COMMIT_SHA": "c0ffee",
            "no_proxy": "*",
        }
        return bash(self._script, self.folder, variables)

    @property
    def text(self) -> Path:
        return self.folder / RESULTS / "comment.md"


@pytest.fixture
def note(tmp_path: Path, gitlab: dict[Any, Any], gitlab_api: str) -> Note:
    return Note(tmp_path, gitlab, gitlab_api)


def own_notes() -> list[str]:
    return [one["body"] for one in Notes.notes[3:]]


def test_one_note_is_updated_in_place(note: Note) -> None:
    before = [dict(one) for one in Notes.notes]
    note.text.write_text("# first\n")
    done = note.write()
    assert done.returncode == 0, done.stdout
    head = f"{MARK}\nAt c0ffee: [log, page, report and new baseline](https://gitlab.example/p/9)\n\n"
    assert own_notes() == [f"{head}# first\n"]
    note.text.write_text("# second\n/merge\n  /approve\na/b\n")
    assert note.write().returncode == 0
    assert own_notes() == [f"{head}# second\n\\/merge\n  \\/approve\na/b\n"]
    assert Notes.notes[:3] == before


def test_a_pipeline_without_a_report_says_so_and_follows_no_link(note: Note) -> None:
    (note.folder / "secrets").write_text("secret of this job")
    note.text.symlink_to(note.folder / "secrets")
    assert note.write().returncode == 0
    (body,) = own_notes()
    assert body.endswith(f"\n\n{NO_REPORT}")


def test_without_a_token_there_is_no_note(note: Note) -> None:
    note.text.write_text("# first\n")
    done = note.write(token="")
    assert done.returncode == 0
    assert done.stdout.startswith("There is no LLMEVAL_TOKEN, so there is no note: ")
    assert own_notes() == []
