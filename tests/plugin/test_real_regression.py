"""A real regression: the demo model with noise added to its weights fails the gate, the unchanged model passes it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pytest_llmeval.cli import main
from tests.support import REPOSITORY

pytestmark = pytest.mark.heavy

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


def test_a_real_regression(
    llm_pytester: pytest.Pytester, workers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = damaged_model(llm_pytester.path, noise=0.5)
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
    capsys.readouterr()
    assert main(["compare", reports["main"], reports["same"]]) == 0
    assert main(["compare", reports["main"], reports["worse"]]) == 1
    assert "->" in capsys.readouterr().out
    gates = {name: json.loads(Path(path).read_text())["gates"] for name, path in reports.items()}
    assert {gate["outcome"] for gate in gates["same"]} == {"passed"}
    assert sum(gate["outcome"] == "failed" for gate in gates["worse"]) == len(failed)
