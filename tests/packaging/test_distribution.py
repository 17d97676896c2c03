"""What is built: the source distribution, the wheel made from it, and the wheel when it is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from email import message_from_bytes
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.support import REPOSITORY, clean_environment

pytestmark = pytest.mark.slow

PACKAGE = REPOSITORY / "pytest_llmeval"
JUNK = {"__pycache__", ".git", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".venv", "build", "dist"}
MB = 1_000_000

SUITE = """
suite: installed
samples:
  - {id: one, question: "Question: is water wet?\\nAnswer:", choices: [yes it is, no it is not], target: 0}
  - {id: two, question: "Question: is fire cold?\\nAnswer:", choices: [yes it is, no it is not], target: 1}
prompt: {template: "{{ question }}"}
score: choice
"""


def run(command: Sequence[str | Path], *, cwd: Path, program: str | Path = sys.executable, **variables: str) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        [str(program), *map(str, command)],
        cwd=cwd,
        env=clean_environment() | variables,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def pyproject() -> Any:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(["-m", "build", "--no-isolation", "--outdir", folder, REPOSITORY], cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    (path,) = distributions.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def sdist(distributions: Path) -> Path:
    (path,) = distributions.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, installed alone into a folder; what it depends on comes from the environment of the tests."""
    folder = tmp_path_factory.mktemp("site")
    run(["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, wheel], cwd=folder)
    return folder


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_holds_the_whole_package_and_nothing_else(wheel: Path) -> None:
    expected = {
        path.relative_to(REPOSITORY).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and not JUNK & set(path.parts)
    }
    found = {name for name in names_in(wheel) if ".dist-info/" not in name}
    assert found == expected


def test_wheel_holds_the_demo_model_the_types_and_the_licence(wheel: Path) -> None:
    names = names_in(wheel)
    assert "pytest_llmeval/py.typed" in names
    assert {
        "pytest_llmeval/suites/presets/mmlu.yaml",
        "pytest_llmeval/commands/starter/first.yaml",
        "pytest_llmeval/commands/starter/github.yml",
        "pytest_llmeval/commands/starter/gitlab.yml",
        "pytest_llmeval/demo_assistant/model.safetensors",
        "pytest_llmeval/demo_model/config.json",
        "pytest_llmeval/demo_model/model.safetensors",
        "pytest_llmeval/demo_model/tokenizer.json",
    } <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_wheel_is_small(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        models = sum(entry.file_size for entry in archive.infolist() if "/demo_" in entry.filename)
    assert models <= 5 * MB
    assert wheel.stat().st_size <= 6 * MB


def test_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    assert metadata["Name"] == "pytest-llmeval-suites"
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "Framework :: Pytest" in metadata.get_all("Classifier", [])
    plain = {line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line}
    for needed in ("pytest", "pytest-xdist", "transformers", "torch", "pyyaml", "tabulate"):
        assert any(re.split(r"[\[>]", line)[0] == needed for line in plain), f"a plain install must bring {needed}"
    assert set(metadata.get_all("Provides-Extra", [])) == {
        *(
            "accelerate",
            "datasets",
            "dev",
            "docs",
            "embeddings",
            "llama-cpp",
            "math",
            "metrics",
            "pandas",
            "peft",
            "quantization",
            "ray",
            "report",
            "vllm",
        )
    }
    assert metadata["Version"] == pyproject()["project"]["version"]
    description = str(metadata.get_payload())
    assert "# pytest-llmeval-suites\n" in description
    assert re.findall(r"\]\((?!https?:)[^)]*\)", description) == [], "an index has no files that a link could lead to"


def test_an_index_would_take_both(distributions: Path) -> None:
    run(["-m", "twine", "check", "--strict", *distributions.iterdir()], cwd=distributions)


def test_sdist_holds_what_is_needed_and_no_junk(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        paths = [PurePosixPath(*PurePosixPath(entry.name).parts[1:]) for entry in archive.getmembers()]
    assert not [str(path) for path in paths if JUNK & set(path.parts) or path.suffix in {".pyc", ".log", ".swp"}]
    included = set(pyproject()["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"])
    assert {path.parts[0] for path in paths} - {"PKG-INFO", ".gitignore", "pyproject.toml"} == included


def test_installed_wheel_registers_the_plugin(site: Path, tmp_path: Path) -> None:
    program = (
        "from importlib.metadata import distribution\n"
        "import pytest_llmeval\n"
        "(entry,) = distribution('pytest-llmeval-suites').entry_points.select(group='pytest11')\n"
        "print(entry.name, entry.value, pytest_llmeval.__file__)\n"
    )
    name, value, path = run(["-c", program], cwd=tmp_path, PYTHONPATH=str(site)).split()
    assert (name, value) == ("llmeval_suites", "pytest_llmeval.plugin")
    assert Path(path).is_relative_to(site)


def test_installed_wheel_runs_the_demo_model(site: Path, tmp_path: Path) -> None:
    """From a folder elsewhere, so that nothing of the checkout can help."""
    (tmp_path / "installed.yaml").write_text(SUITE, encoding="utf-8")
    output = run(["-m", "pytest", "-v", "--llm-model", "demo", "installed.yaml"], cwd=tmp_path, PYTHONPATH=str(site))
    assert "installed.yaml::one" in output
    assert "installed.yaml::two" in output
    assert "accuracy" in output


_EXTRAS = ("accelerate", "datasets", "math", "metrics", "pandas", "report")
"""Those that a session over the example suites, its reports and the suite below use: all small."""
_OF_METRICS = """
suite: metrics
samples: [{id: a, question: q, target: the cat sat on the mat, response: the cat sat on a mat}]
score: {bleu: {}}
"""


@pytest.mark.campaign
def test_the_lowest_declared_versions_do_the_main_job(
    wheel: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Those of ``pyproject.toml``, but for torch, which is that of ``.ci/constraints.txt``."""
    uv: str = pytest.importorskip("uv", reason="resolves the lowest versions").find_uv_bin()
    lowest, venv = tmp_path / "lowest.txt", tmp_path_factory.mktemp("lowest") / "venv"
    constraints = REPOSITORY / ".ci/constraints.txt"
    extras = [option for extra in _EXTRAS for option in ("--extra", extra)]
    resolving: list[str | Path] = [
        "pip",
        "compile",
        "--quiet",
        "--resolution=lowest-direct",
        "-c",
        constraints,
        "-o",
        lowest,
        *extras,
    ]
    version = f"--python-version={sys.version_info.major}.{sys.version_info.minor}"
    run([*resolving, version, REPOSITORY / "pyproject.toml"], cwd=tmp_path, program=uv)
    run(["venv", "--quiet", f"--python={sys.executable}", venv], cwd=tmp_path, program=uv)
    python = next(path for path in (venv / "bin/python", venv / "Scripts/python.exe") if path.exists())
    install: list[str | Path] = ["-m", "pip", "--python", python, "install", "--quiet", "--no-compile", "-c", lowest]
    run([*install, f"{wheel}[{','.join(_EXTRAS)}]"], cwd=tmp_path)
    shutil.copytree(REPOSITORY / "example_suites", tmp_path / "example_suites", ignore=shutil.ignore_patterns("_make"))
    for score in ("bleu", "rouge", "meteor"):
        settings = "{synonyms: false}" if score == "meteor" else "{}"
        text = _OF_METRICS.replace("suite: metrics", f"suite: {score}").replace(
            "{bleu: {}}", f"{{{score}: {settings}}}"
        )
        (tmp_path / f"example_suites/{score}.yaml").write_text(text, encoding="utf-8")
    names = [f"out{suffix}" for suffix in (".json", ".md", ".html", ".csv")]
    reports = [f"--llm-report={name}" for name in names]
    session = ["-m", "pytest", "-p", "no:cacheprovider", "--llm-model=demo", *reports, "example_suites"]
    printed = run(session, cwd=tmp_path, program=python)
    assert "could not be scored" not in printed
    assert "Brier" in printed
    assert all((tmp_path / name).stat().st_size for name in names)
    made = "pandas.DataFrame({'question': ['q'], 'target': ['x'], 'response': ['x']}).to_parquet('rows.parquet')"
    run(["-c", f"import pandas; {made}"], cwd=tmp_path, program=python)
    suite = "suite: again\ndataset: {path: rows.parquet, fields: {response: response}}\nscore: exact\n"
    (tmp_path / "again.yaml").write_text(suite, encoding="utf-8")
    assert "1 passed" in run(
        ["-m", "pytest", "-p", "no:cacheprovider", "-q", "again.yaml"], cwd=tmp_path, program=python
    )


_BRING_TORCH = {"accelerate", "bitsandbytes", "lm-eval", "peft", "sentence-transformers", "torch"}
_DECLARED = [line.rpartition(" ")[2] for line in pyproject()["project"]["classifiers"] if ":: Python :: 3." in line]
_RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
_TESTS_WITHOUT_TORCH = [
    *("tests/commands", "tests/gates", "tests/reporting", "tests/scoring", "tests/suites"),
    *(  # these import torch or lm-eval
        f"--ignore=tests/scoring/test_{name}.py"
        for name in ("custom", "epochs", "exact", "filters", "math_published", "score_checks")
    ),
]


def interpreter(version: str) -> str | None:
    """An interpreter of this version: on PATH, or among those of pyenv."""
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for path in (shutil.which(f"python{version}"), *map(str, of_pyenv)):
        if path and subprocess.run([path, "-c", ""], check=False, capture_output=True).returncode == 0:
            return path
    return None


@pytest.mark.campaign
@pytest.mark.parametrize("version", [version for version in _DECLARED if version != _RUNNING])
def test_other_versions_of_python_pass_the_tests_that_need_no_torch(
    version: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Install all that is declared but what brings torch, whose build for another Python can be gigabytes."""
    program = interpreter(version)
    if program is None:
        pytest.skip(f"no Python {version} is installed")
    venv = tmp_path_factory.mktemp("other") / "venv"
    run(["-m", "venv", venv], cwd=venv.parent, program=program)
    extras = pyproject()["project"]["optional-dependencies"]
    declared = [*pyproject()["project"]["dependencies"], *(line for name in _EXTRAS for line in extras[name])]
    declared += [line for line in extras["dev"] if not line.startswith("pytest-llmeval-suites[")]
    needed = [line for line in declared if re.split(r"[\[<>=; ]", line)[0].replace("_", "-") not in _BRING_TORCH]
    install = ["-m", "pip", "install", "--quiet", "--no-compile"]
    run([*install, *needed], cwd=venv.parent, program=venv / "bin/python")
    run([*install, "--no-deps", "--editable", REPOSITORY], cwd=venv.parent, program=venv / "bin/python")
    session = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "logical", *_TESTS_WITHOUT_TORCH]
    run(session, cwd=REPOSITORY, program=venv / "bin/python", PATH=f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}")
