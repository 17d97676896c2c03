"""The house holds: imports go down only, libraries stay in their rooms, loading the plugin loads nothing heavy."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support import REPOSITORY, clean_environment

PACKAGE = "pytest_llmeval"
ROOT = REPOSITORY / PACKAGE

FLOORS: tuple[tuple[str, ...], ...] = (
    ("roles", "errors", "demo_model", "demo_assistant"),
    ("types",),
    ("text",),
    ("data", "templates"),
    ("models",),
    ("scoring",),
    ("scorers",),
    ("suites",),
    ("inference", "evaluation"),
    ("reporting",),
    ("gates", ""),  # "": pytest_llmeval/__init__.py, what a user imports, on first use
    ("commands", "plugin"),
    ("cli",),
)
"""Rooms from the ground up. Rooms of one floor do not know each other."""

PYTEST_LIBRARIES = {"pytest", "_pytest", "pluggy", "xdist", "execnet"}
TORCH_LIBRARIES = {"torch", "transformers", "safetensors", "tokenizers", "peft", "accelerate", "bitsandbytes"}
TORCH_LIBRARIES |= {"sentence_transformers"}
TORCH_ROOM = "models.huggingface"
NETWORK_LIBRARIES = {
    "socket",
    "ssl",
    "http",
    "urllib.request",
    "requests",
    "httpx",
    "httpx2",
    "httpcore2",
    "h11",
    "aiohttp",
    "huggingface_hub",
    "datasets",
}
NETWORK_ROOMS = re.compile(r"models\.(servers|huggingface|ray)(\..*)?|data\.hub\w*")

DISTRIBUTIONS = {
    "yaml": "pyyaml",
    "xdist": "pytest-xdist",
    "_pytest": "pytest",
    "pydantic_core": "pydantic",  # part of it
    "numpy": "transformers",  # what it brings itself
    "tokenizers": "transformers",
    "huggingface_hub": "transformers",
    "referencing": "jsonschema",
    "sentence_transformers": "sentence-transformers",
    "sympy": "math-verify",
    "math_verify": "math-verify",
    "rouge_score": "rouge-score",
}
"""Where a module comes from, if not from a distribution of its name."""

HEAVY = (
    "torch",
    "transformers",
    "numpy",
    "yaml",
    "pydantic",
    "jinja2",
    "tabulate",
    "scipy",
    "regex",
    "safetensors",
    "tokenizers",
    "matplotlib",
    "ray",
)


@dataclass(frozen=True, slots=True)
class Import:
    """``importer`` imports ``target``: full dotted names without the package's own name, except for foreign targets."""

    importer: str
    target: str
    line: int
    own: bool

    def __str__(self) -> str:
        return f"{PACKAGE}.{self.importer} imports {self.target} (line {self.line})"


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[Import]:
    """Every import in a file. Inside a function, or for type checkers alone, it binds two floors all the same."""
    importer = module_name(path)
    package = importer.split(".") if path.name == "__init__.py" else importer.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_bytes(), filename=str(path))):
        for target in _targets(node, [PACKAGE, *filter(None, package)]):
            own = target.split(".")[0] == PACKAGE
            yield Import(importer, target.removeprefix(PACKAGE).removeprefix(".") if own else target, node.lineno, own)  # type: ignore[attr-defined]


def _targets(node: ast.AST, package: list[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = ".".join(package[: len(package) - node.level + 1] if node.level else []) or ""
        base = ".".join(filter(None, [base, node.module]))
        for alias in node.names:  # `from package import module` names the module, not the package
            yield f"{base}.{alias.name}" if is_own_module(f"{base}.{alias.name}") else base
    elif isinstance(node, ast.Call):
        if node.args and isinstance(node.args[0], ast.Constant) and "import" in ast.unparse(node.func):
            yield from _named(node.args[0])
    elif isinstance(node, ast.Constant) and ":" in str(node.value):  # "module:Name", as in a registry of lazy imports
        yield from _named(node)


def _named(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        name = node.value.partition(":")[0]
        if is_own_module(name):
            yield name


def is_own_module(name: str) -> bool:
    if not re.fullmatch(rf"{PACKAGE}(\.\w+)+", name):
        return False
    path = ROOT.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def room(module: str) -> str:
    return module.split(".")[0]


def floor(module: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if room(module) in rooms)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """What of a graph can be reached from itself, each circle once."""
    sorter = TopologicalSorter(graph)
    try:
        sorter.prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        first, second = found[:2]  # the second depends on the first
        rest = {node: targets - {first} if node == second else targets for node, targets in graph.items()}
        return [found, *circles(rest)]
    return []


@functools.cache
def imports() -> list[Import]:
    """Of all modules."""
    return [found for path in sorted(ROOT.rglob("*.py")) for found in imports_of(path)]


def in_library(found: Import, libraries: set[str]) -> bool:
    return not found.own and any(found.target == name or found.target.startswith(name + ".") for name in libraries)


def test_the_top_level_is_known_by_name() -> None:
    rooms = [name for names in FLOORS for name in names]
    assert len(rooms) == len(set(rooms))
    assert {room(module_name(path)) for path in ROOT.rglob("*.py")} == set(rooms), "say in FLOORS where it lives"


def test_the_walk_sees_imports() -> None:
    assert any(found.importer == "errors" and found.target == "os" for found in imports())
    assert any(found.importer == "scoring.base" and found.target == "models.generate_spec" for found in imports())


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("from pytest_llmeval.types import Sample", "types"),
        ("from pytest_llmeval import types", "types"),
        ("from ..types import Sample", "types"),
        ("from . import schema", "suites.schema"),
        ("def f():\n    import pytest_llmeval.reporting", "reporting"),
        ("import_module('pytest_llmeval.reporting')", "reporting"),
        ("LAZY = {'demo': 'pytest_llmeval.models.base:Model'}", "models.base"),
    ],
)
def test_the_walk_understands_every_form(
    source: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("types.py", "suites/schema.py", "reporting/__init__.py", "models/base.py"):
        (tmp_path / PACKAGE / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / PACKAGE / name).touch()
    path = tmp_path / PACKAGE / "suites" / "other.py"
    path.write_text(source)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path / PACKAGE)
    assert [found.target for found in imports_of(path)] == [target]


def test_imports_go_down_only() -> None:
    assert not [
        str(found)
        for found in imports()
        if found.own and room(found.importer) != room(found.target) and floor(found.target) >= floor(found.importer)
    ]


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph: dict[str, set[str]] = {}
    for found in imports():
        if found.own and found.target != found.importer:
            graph.setdefault(found.importer, set()).add(found.target)
    assert not circles(graph)


@pytest.mark.parametrize("package", sorted({module_name(path) for path in ROOT.rglob("__init__.py")}))
def test_no_folder_imports_itself_by_way_of_its_siblings(package: str) -> None:
    """Modules and folders of one folder have an order, too."""
    inside = f"{package}." if package else ""
    graph: dict[str, set[str]] = {}
    for found in imports():
        if found.own and found.importer.startswith(inside) and found.target.startswith(inside):
            ends = [name.removeprefix(inside).split(".")[0] for name in (found.importer, found.target)]
            if ends[0] != ends[1]:
                graph.setdefault(ends[0], set()).add(ends[1])
    assert not circles(graph)


def test_no_module_takes_a_private_name_of_another() -> None:
    """A name that another module needs is public there, and stands in its ``__all__``."""
    assert not [
        f"{module_name(path)} imports {node.module}.{alias.name}"
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == PACKAGE
        for alias in node.names
        if alias.name.startswith("_")
    ]


def test_circles_are_found() -> None:
    assert not circles({"a": {"b", "c"}, "b": {"c"}})
    assert [set(found) for found in circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})] == [{"a", "b", "c"}]
    assert len(circles({"a": {"b"}, "b": {"a"}, "c": {"d"}, "d": {"c"}})) == 2


def test_pytest_stays_in_the_plugin() -> None:
    assert not [
        str(found) for found in imports() if in_library(found, PYTEST_LIBRARIES) and room(found.importer) != "plugin"
    ]


def test_torch_stays_with_the_hugging_face_models() -> None:
    assert not [
        str(found)
        for found in imports()
        if in_library(found, TORCH_LIBRARIES) and not f"{found.importer}.".startswith(f"{TORCH_ROOM}.")
    ]


def test_ray_stays_with_one_module() -> None:
    assert {found.importer for found in imports() if in_library(found, {"ray"})} == {"models.ray.actors"}


def test_network_stays_with_remote_models_and_hub_loaders() -> None:
    assert not [
        str(found)
        for found in imports()
        if in_library(found, NETWORK_LIBRARIES) and not NETWORK_ROOMS.fullmatch(found.importer)
    ]


def test_matplotlib_stays_with_the_figures_and_draws_no_windows() -> None:
    assert not [str(found) for found in imports() if in_library(found, {"matplotlib.pyplot"})]
    assert not [
        str(found)
        for found in imports()
        if in_library(found, {"matplotlib"}) and not found.importer.startswith("reporting.figures.")
    ]


def test_the_terminal_stays_with_the_plugin() -> None:
    """What others say of a report is a row or a sentence of ``reporting.tables``, or a line of ``text_report``."""
    terminal = "reporting.terminal"
    assert not [
        str(found)
        for found in imports()
        if found.own
        and f"{found.target}.".startswith(f"{terminal}.")
        and not found.importer.startswith((terminal, "plugin"))
    ]


def named_in_text() -> Iterator[tuple[str, str]]:
    """Modules of ours that a text ``module:Name`` stands for, with the module that has it: no import shows them."""
    folders = [path.parent for path in ROOT.rglob("__init__.py")]
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if (named := re.fullmatch(r"(\w+(?:\.\w+)*):[A-Za-z_]\w*", text)) is not None:
                parts = named[1].split(".")
                for found in (folder.joinpath(*parts).with_suffix(".py") for folder in folders):
                    if found.is_file():
                        yield module_name(path), module_name(found)


def test_no_text_names_a_class_of_a_higher_floor() -> None:
    assert not [pair for pair in named_in_text() if floor(pair[0]) <= floor(pair[1]) and room(pair[0]) != room(pair[1])]


@pytest.mark.parametrize("module", ["", "roles", "types", "errors", "demo_model", "demo_assistant"])
def test_ground_floor_needs_the_standard_library_only(module: str) -> None:
    assert not [
        str(found)
        for found in imports()
        if found.importer == module and not found.own and found.target.split(".")[0] not in sys.stdlib_module_names
    ]


def test_the_demo_models_import_nothing_of_ours() -> None:
    demos = ("demo_model", "demo_assistant")
    assert not [str(found) for found in imports() if found.importer.split(".")[0] in demos and found.own]


def test_every_library_is_declared() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    users = [*project["dependencies"], *(line for name, lines in extras.items() if name != "dev" for line in lines)]
    declared = {re.split(r"[^A-Za-z0-9._-]", line)[0].lower() for line in users}
    used = {found.target.split(".")[0] for found in imports() if not found.own} - set(sys.stdlib_module_names)
    undeclared = {name for name in used if DISTRIBUTIONS.get(name, name).lower() not in declared}
    assert not undeclared


def modules_of_session(folder: Path, *arguments: str) -> list[str]:
    """The modules that a passing pytest run with our plugin alone has loaded at its end, in a fresh interpreter."""
    options = ["-q", "-p", "pytest_llmeval.plugin", "-p", "no:cacheprovider", *arguments]
    program = (
        "import json, sys, pytest\n"
        f"code = pytest.main({options!r})\n"
        "print(json.dumps([int(code), sorted(sys.modules)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=clean_environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *output, last = done.stdout.splitlines()
    code, modules = json.loads(last)
    assert code == 0, "\n".join(output) + done.stderr
    return list(modules)


def test_loading_the_plugin_loads_nothing_heavy(tmp_path: Path) -> None:
    """A whole pytest run in a project without suites, with YAML files around, in a fresh interpreter.

    Other plugins are not loaded, so what is imported is pytest's own or ours.
    """
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n")
    (tmp_path / "compose.yaml").write_text("services:\n  db:\n    image: postgres\n")
    (tmp_path / "deployment_test.yaml").write_text("suite: deployment\ntemplates: [deployment.yaml]\ntests: []\n")
    modules = modules_of_session(tmp_path)
    assert f"{PACKAGE}.plugin" in modules
    assert not [name for name in HEAVY if name in modules]
    own = {name.removeprefix(f"{PACKAGE}.plugin.") for name in modules if name.startswith(f"{PACKAGE}.plugin.")}
    assert own == {"hookspecs", "options", "process_roles", "reporting_hooks", "settings", "startup", "stash"}


def test_a_small_session_needs_no_library_of_numbers(tmp_path: Path) -> None:
    """Its intervals have closed forms: numpy and scipy take longer to load than all the rest."""
    (tmp_path / "four.yaml").write_text(
        "suite: four\nscore: choice\nchoices: options\ntarget: answer\nprompt: {template: '{{ question }}'}\nsamples:\n"
        + "".join(
            f"- {{question: {name}, options: [x, y], answer: {number % 2}}}\n" for number, name in enumerate("abcd")
        )
    )
    modules = modules_of_session(tmp_path, "--llm-model", "random", "four.yaml")
    assert f"{PACKAGE}.scoring.metrics.summary" in modules
    assert not {"numpy", "scipy"}.intersection(modules)
