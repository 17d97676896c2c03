"""The hash of the project's own code that a model or judge in Python is made of."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.data import code_version
from pytest_llmeval.data.code_version import hash_of_sources
from pytest_llmeval.models.base import identify
from pytest_llmeval.models.python.model import load_python

FILES = {
    "agents.py": "import json\nimport torch_like\nfrom agency import tools\n\n"
    "def crew(prompt):\n    import lazy\n    return tools.use(prompt)\n\n"
    "class Crew:\n    def generate(self, requests): return []\n",
    "lazy.py": "import lazier\n",
    "lazier.py": "X = 1\n",
    "unused.py": "X = 1\n",
    "agency/__init__.py": "",
    "agency/tools.py": "from . import words\nfrom .deep.more import X\n\ndef use(prompt): return prompt\n",
    "agency/words.py": "X = 1\n",
    "agency/other.py": "X = 1\n",
    "agency/deep/more.py": "from ..late import X\n",
    "agency/late.py": "X = 1\n",
}
INSTALLED = {"torch_like.py": "import torch_like_inside\n", "torch_like_inside.py": "X = 1\n"}
OWN = {"agents.py", "lazy.py", "lazier.py"} | {
    f"agency/{name}" for name in ("__init__.py", "tools.py", "words.py", "deep/more.py", "late.py")
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project beside a folder of installed packages; nothing of it stays imported."""
    for folder, files in (("own", FILES), ("packages", INSTALLED)):
        for name, text in files.items():
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.syspath_prepend(tmp_path / folder)
    (tmp_path / "packages" / "torch_like-1.0.dist-info").mkdir()
    code_version._knows_packages.cache_clear()
    known = {*sys.modules}
    yield tmp_path / "own"
    for name in {*sys.modules} - known:
        del sys.modules[name]


def crew() -> Any:
    return importlib.import_module("agents").crew


@pytest.mark.parametrize("name", [*FILES, *INSTALLED])
def test_what_the_code_imports_is_part_of_it(project: Path, name: str) -> None:
    before = hash_of_sources(crew())
    assert before == hash_of_sources(crew()) == hash_of_sources(None, "agents")
    path = (project if name in FILES else project.parent / "packages") / name
    path.write_text(f"{path.read_text()}# edited\n")
    assert (hash_of_sources(crew()) != before) == (name in OWN)


def test_nothing_is_imported_and_places_do_not_count(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = hash_of_sources(crew())
    assert not {"lazy", "lazier"} & sys.modules.keys()
    moved = project.with_name("moved")
    project.rename(moved)
    monkeypatch.syspath_prepend(moved)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("agents", "agency")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    assert hash_of_sources(crew()) == before


def test_a_folder_above_is_none_of_packages(project: Path) -> None:
    """Python does not look into it: somebody has unpacked a wheel beside the project."""
    (project.parent / "other-1.0.dist-info").mkdir()
    assert hash_of_sources(crew()) is not None


def test_it_does_not_depend_on_how_pytest_imports(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``--import-mode=importlib`` names a module after its folder."""
    before = hash_of_sources(crew())
    monkeypatch.setitem(sys.modules, "own.agents", sys.modules["agents"])
    monkeypatch.setattr(sys.modules["agents"].crew, "__module__", "own.agents")
    assert hash_of_sources(crew()) == before
    (project / "agency" / "words.py").rename(project / "agency" / "other.py")
    (project / "agency" / "tools.py").write_text("from . import other\nfrom .deep.more import X\n")
    assert hash_of_sources(crew()) != before


def test_what_has_no_source_of_its_own(project: Path) -> None:
    assert hash_of_sources(len) is None
    assert hash_of_sources(functools.reduce) is None
    assert hash_of_sources(importlib.import_module("torch_like")) is None
    assert hash_of_sources(None, "torch_like") is not None, "a package that the user names as the model"
    assert hash_of_sources(functools.partial(crew())) == hash_of_sources(crew())
    assert hash_of_sources(None, "no_such_module") is None


@pytest.mark.parametrize(("module", "name"), [("agents", "crew"), ("agents", "Crew"), ("FILE", "crew")])
def test_the_identity_of_a_model_has_it(project: Path, module: str, name: str) -> None:
    given = str(project / "agents.py") if module == "FILE" else module
    source = identify(load_python("python:m", given, name, {})).details["source"]
    assert isinstance(source, str)
    assert len(source) == 64
    (project / "agency" / "words.py").write_text("X = 2\n")
    assert identify(load_python("python:m", given, name, {})).details["source"] != source
