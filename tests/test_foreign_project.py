"""A project that has nothing to do with language models sees no difference when the plugin is installed.

Each test runs the project twice in fresh interpreters, with the plugin and with ``-p no:llmeval_suites``, and compares
everything that the run says and leaves behind. Two things differ by nature: the list of plugins in the header, and the
list of fixtures that pytest prints when one is missing.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support import clean_environment

FILES: dict[str, str] = {
    "pyproject.toml": """
        [tool.pytest.ini_options]
        markers = ["slow: takes long"]
        """,
    "docker-compose.yaml": """
        services:
          db:
            image: "postgres:17"
            environment: {POSTGRES_PASSWORD: example}
        """,
    # helm-unittest: its files too begin with `suite`
    "chart/tests/deployment_test.yaml": """
        suite: test deployment
        templates:
          - deployment.yaml
        tests:
          - it: should set the image
            set:
              image.tag: latest
            asserts:
              - equal: {path: spec.replicas, value: 2}
        """,
    # Go templates are not YAML at all
    "chart/templates/deployment.yaml": """
        {{- if .Values.suite }}
        suite: {{ .Values.suite | quote }}
        spec:
          {{- toYaml .Values.dataset | nindent 2 }}
        {{- end }}
        """,
    "playbooks/site.yml": """
        - hosts: all
          tasks:
            - name: ping
              ansible.builtin.ping:
        """,
    "config/settings.yaml": """
        # suite: in a comment
        ---
        score: 3
        suite: nightly
        dataset: {path: rows.csv}
        """,
    "config/empty.yaml": "",
    "config/broken.yaml": "a: [1, 2\n\tb: }",
    # another project's YAML tests, collected by its own conftest.py as pytest's documentation shows
    "specs/arithmetic.spec.yaml": """
        suite: arithmetic
        add: {of: [1, 2], gives: 3}
        subtract: {of: [3, 2], gives: 1}
        """,
    "conftest.py": """
        import re

        import pytest


        def pytest_collect_file(file_path, parent):
            if file_path.name.endswith(".spec.yaml"):
                return SpecFile.from_parent(parent, path=file_path)


        LINE = re.compile(r"^(\\w+): .*\\[(\\d), (\\d)\\], gives: (\\d)", re.M)


        class SpecFile(pytest.File):
            def collect(self):
                for name, *numbers in LINE.findall(self.path.read_text()):
                    yield SpecItem.from_parent(self, name=name, values=[int(number) for number in numbers])


        class SpecItem(pytest.Item):
            def __init__(self, *, values, **arguments):
                super().__init__(**arguments)
                self.values = values

            def runtest(self):
                left, right, result = self.values
                assert result in (left + right, left - right)


        def pytest_collection_modifyitems(items):
            items.sort(key=lambda item: item.name == "test_last")


        @pytest.fixture(scope="session")
        def model():
            return {"name": "linear"}


        @pytest.fixture(params=["cpu", "gpu"])
        def device(request):
            return request.param
        """,
    "tests/test_classes.py": """
        import unittest

        import pytest


        def test_last(): pass


        class TestModel:
            @pytest.fixture(autouse=True)
            def ready(self, model):
                self.model = model

            def test_name(self):
                assert self.model["name"] == "linear"

            @pytest.mark.slow
            def test_device(self, device):
                assert device == "cpu", "only half of these pass"


        class TestOld(unittest.TestCase):
            def test_old(self):
                with self.subTest("one"):
                    self.assertEqual(1, 1)
        """,
    "tests/test_speed.py": """
        import pytest


        class SpeedBenchmark:
            pass


        class TestSpeed(SpeedBenchmark):
            @pytest.mark.parametrize("text", ["a::b", "c"])
            def test_speed(self, text): pass
        """,
    "tests/test_functions.py": '''
        """Doctest: >>> 1 + 1"""
        import warnings

        import pytest


        @pytest.mark.parametrize("text", ["suite: x", "a::b", "[brackets]", "\\u00e9", ""])
        def test_text(text):
            assert isinstance(text, str)


        def test_warns():
            warnings.warn("old", DeprecationWarning, stacklevel=1)


        def test_fails(tmp_path, capsys):
            print("some output")
            assert [1, 2, 3] == [1, 2, 4]


        def test_error(missing_fixture): pass


        @pytest.mark.skip(reason="not today")
        def test_skipped(): pass


        @pytest.mark.xfail(reason="known")
        def test_expected_failure(): raise ValueError


        @pytest.mark.xfail
        def test_unexpected_pass(): pass
        ''',
}


@dataclass(frozen=True, slots=True)
class Run:
    """What a run says and leaves behind, without times."""

    exit_code: int
    stdout: list[str]
    stderr: str
    junit: list[str]
    cache: list[str]
    files: list[str]

    def text(self, *, any_order: bool) -> str:
        """All of it, so that a difference is shown as a difference of lines."""
        stdout = sorted(map(sort_progress, self.stdout)) if any_order else self.stdout
        return "\n".join([f"exit code {self.exit_code}", *stdout, self.stderr, *self.junit, *self.cache, *self.files])


def write_project(folder: Path) -> None:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = text.strip("\n").splitlines() if text.startswith("\n") else [text]
        indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
        path.write_text("\n".join(line[indent:] for line in lines) + "\n", encoding="utf-8")


def run(folder: Path, *arguments: str, with_plugin: bool) -> Run:
    """Run pytest in a new copy of the project that always stands at the same place."""
    write_project(folder)
    options = [*arguments, "--junitxml=junit.xml", *([] if with_plugin else ["-p", "no:llmeval_suites"])]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", *options],
        cwd=folder,
        env=clean_environment() | {"PYTEST_DEBUG_TEMPROOT": str(folder.parent)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    return Run(
        exit_code=done.returncode,
        stdout=[normalise(line) for line in done.stdout.splitlines()],
        stderr=done.stderr,
        junit=read_junit(folder / "junit.xml"),
        cache=[
            f"{path.relative_to(folder)}: {json.dumps(json.loads(path.read_bytes()), sort_keys=True)}"
            for path in sorted(folder.glob(".pytest_cache/v/**/*"))
            if path.is_file()
        ],
        files=sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts),
    )


def normalise(line: str) -> str:
    line = re.sub(r"^(plugins: .*?)(, )?llmeval-suites-[^,]+", r"\1", line).replace("plugins: , ", "plugins: ")
    if line.startswith((">       available fixtures:", "E       available fixtures:")):
        line = re.sub(r" llm_\w+,", "", line)
    line = re.sub(r"pytest-of-(\w+)/pytest-\d+", r"pytest-of-\1/pytest-N", line)
    line = re.sub(r"\d+\.\d+s( \(\d:\d\d:\d\d\))?", "T", line)
    line = re.sub(r"\bgw\d+\b", "gwN", line)
    line = re.sub(r"0x[0-9a-f]{6,}", "0xADDRESS", line)
    return re.sub(r"\[ *\d+%\]", "[P%]", line).strip("= ")


def sort_progress(line: str) -> str:
    return "".join(sorted(line)) if re.fullmatch(r"[.FEsxXw]+ *(\[P%\])?", line) else line


def read_junit(path: Path) -> list[str]:
    if not path.exists():
        return []
    times = {"time", "timestamp", "hostname"}
    elements = [
        f"{element.tag} {sorted((name, value) for name, value in element.attrib.items() if name not in times)}"
        f" {(element.text or '').strip()}"
        for element in ElementTree.parse(path).iter()
    ]
    path.unlink()
    return sorted(normalise(line) for element in elements for line in element.splitlines())


def test_the_plugin_is_installed() -> None:
    assert [entry.value for entry in entry_points(group="pytest11", name="llmeval_suites")] == ["pytest_llmeval.plugin"]


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        pytest.param([], 1, id="bare"),
        pytest.param(
            ["-v", "-rA", "--durations=3", "--durations-min=60", "--setup-show"],
            1,
            id="verbose",
            marks=pytest.mark.slow,
        ),
        pytest.param(["-W", "error"], 1, id="warnings-are-errors", marks=pytest.mark.slow),
        pytest.param(["--strict-markers", "--strict-config"], 1, id="strict", marks=pytest.mark.slow),
        pytest.param(["-n2"], 1, id="n2"),
        pytest.param(["-n2", "tests/test_speed.py"], 0, id="n2-named", marks=pytest.mark.slow),
        pytest.param(["-n2", "-v", "--dist=loadscope"], 1, id="n2-loadscope", marks=pytest.mark.slow),
        pytest.param(["-p", "no:xdist", "-p", "no:cacheprovider"], 1, id="fewer-plugins", marks=pytest.mark.slow),
        pytest.param(["--collect-only", "-q"], 0, id="collect-only", marks=pytest.mark.slow),
        pytest.param(["-x", "-k", "fails or text"], 1, id="first-failure", marks=pytest.mark.slow),
        pytest.param(["-m", "slow"], 1, id="marks", marks=pytest.mark.slow),
        pytest.param(
            ["tests/test_functions.py::test_text", "tests/test_speed.py", "chart", "config", "playbooks"],
            0,
            id="paths",
            marks=pytest.mark.slow,
        ),
        pytest.param(["--doctest-modules", "--ignore=specs"], 1, id="doctest", marks=pytest.mark.slow),
        pytest.param(["-k", "nothing_has_this_name"], 5, id="nothing-selected", marks=pytest.mark.slow),
    ],
)
def test_no_difference(arguments: list[str], exit_code: int, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    without = run(folder, *arguments, with_plugin=False)
    folder.rename(tmp_path / "without")
    with_plugin = run(folder, *arguments, with_plugin=True)
    any_order = "-n2" in arguments  # workers finish in any order
    assert with_plugin.text(any_order=any_order) == without.text(any_order=any_order)
    assert without.exit_code == exit_code
    assert without.stdout


@pytest.mark.slow
def test_no_difference_in_a_rerun_of_failures(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    runs: list[Run] = []
    for number, with_plugin in enumerate((False, True)):
        run(folder, with_plugin=with_plugin)
        runs.append(run(folder, "--lf", with_plugin=with_plugin))
        folder.rename(tmp_path / str(number))
    without, other = (each.text(any_order=False) for each in runs)
    assert other == without
    assert any("lastfailed" in line and "test_fails" in line for line in runs[0].cache)
