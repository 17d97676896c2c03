"""``--llm-model`` given several times, with checkpoints that are really loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.suites_for_tests import CAPITALS, SUMS
from tests.support import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.forks_torch]

_MAKE = """
import sys
from pathlib import Path
from tests.tiny_models import make_checkpoint
make_checkpoint(Path(sys.argv[1]) / "one", "gpt2", seed=1)
make_checkpoint(Path(sys.argv[1]) / "two", "llama", seed=2)
"""

_COUNT = """
import gc
import sys
from pathlib import Path
import pytest
from pytest_llmeval.plugin import models as loading

load = loading.load_model

def counted(spec, settings):
    gc.collect()
    alive = 0
    if "transformers" in sys.modules:
        from transformers import PreTrainedModel
        alive = sum(isinstance(one, PreTrainedModel) and hasattr(one, "lm_head") for one in gc.get_objects())
    with Path(__file__).with_name("loads.txt").open("a") as file:
        file.write(f"{spec.name} {alive}\\n")
    return load(spec, settings)

loading.load_model = counted
"""


@pytest.fixture
def checkpoints(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with checkpoints ``one`` and ``two``, made by another process: this one does not import torch."""
    command = [sys.executable, "-c", _MAKE, str(llm_pytester.path)]
    subprocess.run(command, check=True, cwd=REPOSITORY, capture_output=True)
    llm_pytester.makefile(
        ".yaml", capitals=CAPITALS, sums=SUMS.replace("score: number", "score: number\ngenerate: {max_tokens: 4}")
    )
    return llm_pytester


def read(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "out.json").read_text(encoding="ascii"))
    return report


def test_each_is_loaded_once_and_answers_as_it_does_alone(checkpoints: pytest.Pytester, workers: list[str]) -> None:
    checkpoints.makeconftest(_COUNT)
    options = [*workers, "--llm-device=cpu", "--llm-report=out.json"]
    alone: dict[tuple[str, str], dict[str, Any]] = {}
    for model in ("one", "two"):
        result = checkpoints.runpytest_subprocess(*options, f"--llm-model={model}", "capitals.yaml", "sums.yaml")
        assert result.ret == 0
        alone |= {(model, record["id"]): record for record in read(checkpoints.path)["records"]}
    (checkpoints.path / "loads.txt").unlink()
    models = ("--llm-model=one", "--llm-model=two")
    result = checkpoints.runpytest_subprocess(*options, *models, "capitals.yaml", "sums.yaml")
    assert result.ret == 0
    report = read(checkpoints.path)
    together = {(record["model"], record["id"]): record for record in report["records"]}
    assert together.keys() == alone.keys()
    for key, record in together.items():
        assert record["output"] == alone[key]["output"]
        assert record["values"] == pytest.approx(alone[key]["values"], abs=1e-5)
    assert [model["name"] for model in report["models"]] == ["one", "two"]
    assert report["models"][0]["fingerprint"] != report["models"][1]["fingerprint"]
    assert {one["suite"] for one in report["comparisons"]} == {"capitals", "sums"}
    loads = (checkpoints.path / "loads.txt").read_text().splitlines()
    if "-n2" in workers:
        assert len(loads) <= 4
        assert all(line.endswith(" 0") for line in loads)
    else:
        assert loads == ["one 0", "two 0"], "each is loaded once, when the one before it is gone"


def test_a_checkpoint_that_breaks_while_it_is_loaded(checkpoints: pytest.Pytester, workers: list[str]) -> None:
    """What the cheap check before the run cannot see: weights of another model."""
    config = json.loads((checkpoints.path / "two" / "config.json").read_text())
    config["num_hidden_layers"] = 3
    (checkpoints.path / "two" / "config.json").write_text(json.dumps(config))
    options = [*workers, "--llm-device=cpu", "--llm-report=out.json", "--llm-model=one", "--llm-model=two"]
    result = checkpoints.runpytest_subprocess(*options, "capitals.yaml")
    assert result.ret == 1
    result.stdout.no_fnmatch_line("*Traceback*")
    report = read(checkpoints.path)
    assert [(suite["models"], suite["num_scored"]) for suite in report["suites"]] == [(["one"], 3), (["two"], 0)]
    (reason,) = {record["reason"] for record in report["records"] if record["model"] == "two"}
    assert reason.startswith("model two: the checkpoint lacks ")
