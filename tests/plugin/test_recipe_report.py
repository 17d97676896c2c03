"""CONTRIBUTING.md's recipe for a report format, followed literally: a package of its own, with an entry point."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY
from tests.support import REPOSITORY, fake_model_conftest

RECIPE = (
    (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8").partition("\n## Add a report format\n")[2].partition("\n## ")[0]
)
WRITTEN = "capitals q1: correct\ncapitals q2: correct\ncapitals q3: wrong\n"


def code(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", RECIPE, re.DOTALL)
    return str(found)


def install(folder: Path, *, package: str = "text_reports", source: str, project: str) -> None:
    """What an installer makes of a package with this module and these lines in its pyproject.toml."""
    (folder / f"{package}.py").write_text(source)
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    groups = tomllib.loads(project)["project"]["entry-points"]
    lines = [
        line for name, points in groups.items() for line in (f"[{name}]", *(f"{k} = {v}" for k, v in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def site(llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of installed packages, for this process and those that it starts; and a suite with its model.

    Sessions with workers are processes of their own: xdist gives workers the ``sys.path`` that it found when it began.
    """
    site = tmp_path / "site"
    site.mkdir()
    llm_pytester.syspathinsert(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY))
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    return site


def test_the_recipe_is_short() -> None:
    assert len([line for line in RECIPE.splitlines() if line.strip()]) <= 15


def test_the_recipe(site: Path, llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    install(site, source=code("python"), project=code("toml"))
    result = llm_pytester.runpytest_subprocess(
        *workers, "--llm-report=out.txt", "--llm-report=out.json", "capitals.yaml"
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines(["report: out.txt", "report: out.json"])
    assert Path("out.txt").read_text() == WRITTEN
    exported = llm_pytester.run("llmeval", "export", "out.json", "--to", "txt")
    assert (exported.ret, exported.outlines) == (0, WRITTEN.splitlines())
    assert llm_pytester.run("llmeval", "export", "out.json", "--to", "txt", "-o", "again").ret == 0
    assert Path("again").read_text() == WRITTEN


def test_a_suffix_belongs_to_one_package(site: Path, llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    install(site, source=code("python"), project=code("toml").replace("txt =", "CSV ="))
    result = llm_pytester.runpytest_subprocess(*workers, "--llm-report=out.csv", "capitals.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    told = "two packages offer the report format .csv: pytest-llmeval-suites and text_reports"
    assert told in result.stderr.str()
    other = llm_pytester.runpytest_subprocess(*workers, "--llm-report=out.json", "capitals.yaml")
    assert other.ret == 0, "a report of another format is not concerned"
    exported = llm_pytester.run("llmeval", "export", "out.json", "--to", "csv")
    assert exported.ret == 1
    assert told in exported.stderr.str()


def test_two_other_packages_of_one_suffix(site: Path, llm_pytester: pytest.Pytester) -> None:
    for package in ("one_report", "other_report"):
        install(site, package=package, source=code("python"), project=code("toml"))
    result = llm_pytester.runpytest("--llm-report=out.txt", "capitals.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert re.search("report format .txt: (one|other)_report and (one|other)_report; uninstall", result.stderr.str())


def test_a_package_that_cannot_be_imported_is_reported_before_the_run(
    site: Path, llm_pytester: pytest.Pytester
) -> None:
    install(site, source="import nothing_of_this_name\n", project=code("toml"))
    result = llm_pytester.runpytest("--llm-report=out.txt", "capitals.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert (
        "no writer of reports .txt: text_reports:write_text of the package text_reports failed" in result.stderr.str()
    )
    assert "nothing_of_this_name" in result.stderr.str()
    assert llm_pytester.runpytest("--llm-report=out.json", "capitals.yaml").ret == 0


def test_a_writer_that_fails_leaves_the_old_file_and_the_journal(
    site: Path, llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    source = "def write_text(report, path):\n    path.write_text('half')\n    raise RuntimeError('boom')\n"
    install(site, source=source, project=code("toml"))
    Path("out.txt").write_text("old")
    result = llm_pytester.runpytest_subprocess(
        *workers, "--llm-report=out.txt", "--llm-report=out.json", "capitals.yaml"
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*text_reports:write_text of the package text_reports failed: RuntimeError: boom*"])
    assert Path("out.txt").read_text() == "old"
    assert Path("out.json").exists()
    assert sorted(path.name for path in Path().glob("out.*")) == ["out.json", "out.txt", "out.txt.journal"]


def test_what_is_not_text_is_not_shown(site: Path, llm_pytester: pytest.Pytester) -> None:
    install(site, source="def write_text(report, path): path.write_bytes(b'\\xff\\xfe')\n", project=code("toml"))
    llm_pytester.runpytest("--llm-report=out.json", "capitals.yaml")
    exported = llm_pytester.run("llmeval", "export", "out.json", "--to", "txt")
    assert (exported.ret, exported.stdout.str()) == (1, "")
    assert "--to txt is no text: name a file with --output" in exported.stderr.str()


def test_a_suffix_of_several_parts(site: Path, llm_pytester: pytest.Pytester) -> None:
    source = "def write_text(report, path): path.write_text(path.name[-7:])\n"
    install(site, source=source, project=code("toml").replace("txt =", '"tar.gz" ='))
    assert llm_pytester.runpytest("--llm-report=o.tar.gz", "capitals.yaml").ret == 0
    assert Path("o.tar.gz").read_text() == ".tar.gz"


@pytest.mark.parametrize(
    ("source", "attribute", "message"),
    [
        ("", "", "text_reports of the package text_reports failed: TypeError: it is not a function; write module:fun*"),
        ("", " x y", "text_reports x y of the package text_reports failed: ValueError: *"),
        ("import sys; sys.exit(3)", ":write_text", "text_reports:write_text of * failed: SystemExit: 3"),
    ],
    ids=["no function", "malformed", "exits"],
)
def test_an_entry_point_that_cannot_be_used(
    site: Path, llm_pytester: pytest.Pytester, source: str, attribute: str, message: str
) -> None:
    install(site, source=source, project=code("toml").replace(":write_text", attribute))
    result = llm_pytester.runpytest("--llm-report=out.txt", "capitals.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: there is no writer of reports .txt: {message}"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("pass", "text_reports:write_text of the package text_reports wrote nothing"),
        ("sys.exit(3)", "text_reports:write_text of the package text_reports failed: SystemExit: 3"),
    ],
)
def test_a_writer_that_writes_nothing(
    site: Path, llm_pytester: pytest.Pytester, workers: list[str], body: str, message: str
) -> None:
    install(site, source=f"import sys\ndef write_text(report, path): {body}\n", project=code("toml"))
    result = llm_pytester.runpytest_subprocess(*workers, "--llm-report=out.txt", "capitals.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"*cannot write the report *out.txt: {message}*"])
    assert "report: out.txt" not in result.stdout.str()
    assert not Path("out.txt").exists()


def test_the_case_of_a_format(site: Path, llm_pytester: pytest.Pytester) -> None:
    llm_pytester.runpytest("--llm-report=out.json", "capitals.yaml")
    assert llm_pytester.run("llmeval", "export", "out.json", "--to", "CSV", "-o", "out.CSV").ret == 0
    assert llm_pytester.runpytest("--llm-report=again.CSV", "capitals.yaml").ret == 0
