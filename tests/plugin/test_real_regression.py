"""A real regression: the demo model with noise added to its weights fails the gate, the unchanged model passes it."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.support import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.forks_torch]

DEMO = REPOSITORY / "pytest_llmeval" / "demo_model"
SUITES = REPOSITORY / "example_suites"
CHOSEN = [str(SUITES / name) for name in ("boolq", "csqa", "gsm8k", "mmlu")]


def damaged_model(folder: Path, *, noise: float) -> Path:
    """The demo model with normal noise, ``noise`` times each tensor's own standard deviation, on all its matrices."""
    import torch
    from safetensors.torch import load_file, save_file

    copy = folder / "damaged"
    shutil.copytree(DEMO, copy, ignore=shutil.ignore_patterns("__pycache__", "*.py"))
    generator = torch.Generator().manual_seed(0)
    for file in copy.glob("*.safetensors"):
        weights = load_file(file)
        for name, weight in weights.items():
            if weight.ndim > 1:
                weights[name] = weight + noise * weight.std() * torch.randn(weight.shape, generator=generator)
        save_file(weights, file, metadata={"format": "pt"})
    return copy


@pytest.fixture(scope="session")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Before any pytester is set up: it forgets modules that are imported after that, and torch is imported once."""
    return damaged_model(tmp_path_factory.mktemp("models"), noise=0.5)


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param(["-p", "no:xdist"], id="one-process"),
        pytest.param(["-n2"], id="n2", marks=pytest.mark.campaign),
    ],
)
def test_a_real_regression(damaged: Path, llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    options = [*workers, "-p", "no:cacheprovider"]

    def run(model: str, report: str, *more: str) -> pytest.RunResult:
        return llm_pytester.runpytest_subprocess(
            *options, f"--llm-model={model}", f"--llm-report={report}", *more, *CHOSEN
        )

    assert run("demo", "main.json").ret == 0
    unchanged = run("demo", "same.json", "--llm-baseline=main.json")
    assert unchanged.ret == 0
    worse = run(str(damaged), "worse.json", "--llm-baseline=main.json")
    assert worse.ret == 1
    failed = [line for line in worse.outlines if line.startswith("FAILED") and "vs baseline" in line]
    assert failed

    reports = {name: str(llm_pytester.path / f"{name}.json") for name in ("main", "same", "worse")}
    command = [sys.executable, "-c", "import sys; from pytest_llmeval.cli import main; sys.exit(main())", "compare"]
    assert llm_pytester.run(*command, reports["main"], reports["same"]).ret == 0
    compared = llm_pytester.run(*command, reports["main"], reports["worse"])
    assert compared.ret == 1
    assert any("->" in line for line in compared.outlines)
    gates = {name: json.loads(Path(path).read_text())["gates"] for name, path in reports.items()}
    assert {gate["outcome"] for gate in gates["same"]} == {"passed"}
    assert sum(gate["outcome"] == "failed" for gate in gates["worse"]) == len(failed)
