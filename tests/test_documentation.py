"""What README.md and docs/ show runs as it stands there."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from pytest_llmeval import types
from pytest_llmeval.models.registry import KINDS
from pytest_llmeval.plugin.options import OPTIONS
from pytest_llmeval.reporting.writers.formats import FORMATS
from pytest_llmeval.scorers import SCORERS
from pytest_llmeval.suites.format.schema import SuiteSpec
from pytest_llmeval.suites.presets import with_preset
from tests.support import FAKE_MODEL_CONFTEST, REPOSITORY, fake_model_conftest

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


def block_with(path: Path, language: str, text: str) -> str:
    (found,) = [block for block in blocks(path, language) if text in block]
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_piece_of_yaml_is_valid(path: Path) -> None:
    for block in blocks(path, "yaml"):
        value = yaml.safe_load(block)
        assert isinstance(value, dict), block
        if "task" in value or "doc_to_text" in value:
            continue  # lm-eval's own format
        if "jobs" in value:
            continue  # a workflow of GitHub's
        whole = {"suite": "s", "score": "choice", **value}
        if "dataset" not in whole and "preset" not in whole:
            whole["samples"] = [{"question": "q"}]
        if "epochs" in whole:
            whole = {**whole, "score": "exact", "generate": {"temperature": 1.0}}
        SuiteSpec.model_validate(with_preset(whole)[0])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_into_pages_lead_to_their_headings(path: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", path.read_text("utf-8")):
        page = (path.parent / target if target else path).read_text("utf-8")
        slugs = {  # as GitHub makes them
            re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.+)$", page, re.MULTILINE)
        }
        assert anchor in slugs, f"{target}#{anchor}"


def test_every_page_is_in_the_index() -> None:
    index = (REPOSITORY / "docs" / "README.md").read_text("utf-8")
    assert {path.name for path in PAGES if path.parent.name == "docs"} - {"README.md"} <= set(
        re.findall(r"\]\(([^)]+)\)", index)
    )


@pytest.mark.parametrize(
    "kind",
    [
        *(types.GenerateRequest, types.LoglikelihoodRequest, types.LoglikelihoodRollingRequest),
        *(types.GenerateResponse, types.LoglikelihoodResponse, types.Message),
        *(types.EmbeddingRequest, types.EmbeddingResponse),
    ],
)
def test_fields_of_requests_and_responses_are_reported_of(kind: type) -> None:
    page = (REPOSITORY / "docs" / "models.md").read_text("utf-8").partition("### What a request holds")[2]
    assert kind.__name__ in page
    for field in dataclasses.fields(kind):
        assert re.search(rf"`{field.name}`|\b{field.name}=", page), field.name
        default = field.default
        row = re.search(rf"^\| `{field.name}` \|(.*)", page, re.MULTILINE)
        if kind in (types.GenerateRequest, types.LoglikelihoodResponse) and row and default is not dataclasses.MISSING:
            assert str(default).replace("'", '"') in row[1].replace("`", ""), row[0]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_formats_of_reports_are_named_wherever_they_are_listed() -> None:
    rows = re.findall(r"^\| `\..*$", (REPOSITORY / "docs" / "reports.md").read_text("utf-8"), re.MULTILINE)
    assert re.findall(r"`(\.\w+)`", "\n".join(rows)) == [one.suffix for one in FORMATS if one.is_report]


def test_scorers_are_named_wherever_they_are_listed() -> None:
    page = (REPOSITORY / "docs" / "scoring.md").read_text("utf-8")
    table, text = page.partition("\n| `score:` |")[2].split("\n\n", 1)
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == set(SCORERS)
    assert [name for name in SCORERS if not re.search(rf"`{name}`|^ *{name}:", text, re.MULTILINE)] == []


def test_kinds_of_models_are_named_wherever_they_are_listed() -> None:
    """Those that are written with their name in front; the others are described, in each place in words of its own."""
    usages = [usage for kind in KINDS if (usage := kind.shown_usage()).startswith(kind.name)]
    table = (REPOSITORY / "docs" / "models.md").read_text("utf-8").partition("| SPEC |")[2].partition("\n\n")[0]
    (described,) = (option.help for option in OPTIONS if option.name == "model")
    assert "replay:FILE" in usages
    for listed in (table, described):
        assert [usage for usage in usages if not re.search(rf"\b{re.escape(usage)}(?!\w)", listed)] == []


def test_what_an_installation_needs_to_know_stands_before_its_command() -> None:
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    assert 0 < readme.find("export PIP_CONSTRAINT=") < readme.find("pip install .")


def test_the_benchmark_in_python(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    block = block_with(REPOSITORY / "docs" / "python.md", "python", "class Capitals(Benchmark)")
    assert len([line for line in block.splitlines() if line.strip()]) <= 15
    llm_pytester.makeconftest(fake_model_conftest(replies={"France": " Paris.", "Norway": " Bergen."}))
    (llm_pytester.path / "test_capitals.py").write_text(block)
    result = llm_pytester.runpytest_subprocess(*workers, "test_capitals.py")
    result.stdout.fnmatch_lines(["Capitals*2  0.500*"])


def test_the_scorer_in_python(llm_pytester: pytest.Pytester) -> None:
    block = block_with(REPOSITORY / "docs" / "scoring.md", "python", "def pytest_llmeval_scorers")
    llm_pytester.makeconftest(FAKE_MODEL_CONFTEST.replace('default_reply": ""', 'default_reply": "2.4"') + block)
    llm_pytester.makefile(
        ".yaml", s="suite: s\nsamples: [{question: two, target: 2}]\nscore: {within: {tolerance: 0.5}}\n"
    )
    llm_pytester.runpytest_subprocess("s.yaml").stdout.fnmatch_lines(["s*1  1.000*"])


@pytest.mark.slow
def test_what_the_security_page_says_runs_none_of_a_pull_requests_code(tmp_path: Path) -> None:
    """The branch has no ini file of its own, so that pytest looks for one in the folders above."""
    page = REPOSITORY / "docs" / "security.md"
    (job,) = yaml.safe_load(block_with(page, "yaml", "jobs:"))["jobs"].values()
    (commands,) = re.findall(r"^    folder=.*\n    cd .*", page.read_text("utf-8"), re.MULTILINE)
    work, ran = tmp_path / "work", tmp_path / "ran"
    code = f"from pathlib import Path\nPath({str(ran)!r}).touch()\n"
    suite = "suite: {}\nsamples: [{{question: q, target: t}}]\nscore: exact\n"
    branch = {"suites/old.yaml": suite.format("old")}
    pull_request = {
        "pytest.ini": "[pytest]\naddopts = -p theirs\npythonpath = .\n",
        "suites/new.yaml": suite.format("new"),
        "suites/new.jsonl": "",
        **dict.fromkeys(("theirs.py", "conftest.py"), code),
        **dict.fromkeys(("suites/conftest.py", "suites/__init__.py", "suites/test_new.py"), code),
    }

    def write(files: Mapping[str, str], folder: Path) -> None:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def printed_by(command: str, folder: Path, variables: Mapping[str, str]) -> str:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, "TMPDIR": str(tmp_path), "PATH": path, **variables}
        return subprocess.run(["bash", "-ec", command], cwd=folder, env=env, stdout=subprocess.PIPE, text=True).stdout

    printed = ""
    for step in job["steps"]:
        folder = work / step.get("working-directory", ".")
        if "uses" in step:
            given = step.get("with", {})
            write(branch if "ref" in given else pull_request, folder / given.get("path", "."))
        elif "pip install" not in step["run"]:
            printed += printed_by(step["run"], folder, step.get("env", {}))
    assert "2 passed" in printed
    write(pull_request, tmp_path / "checkout")
    assert "1 passed" in printed_by(commands, tmp_path / "checkout", {})
    assert not ran.exists()
