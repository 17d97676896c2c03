"""What docs/scale.md shows is run as it stands there, where one machine is enough."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pytest_llmeval.models.huggingface.kind import demo_folder
from tests.support import REPOSITORY, clean_environment

PAGE = (REPOSITORY / "docs" / "scale.md").read_text("utf-8")


def block_with(text: str) -> str:
    blocks: list[str] = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if text in block]
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tmp_path.joinpath("suites").mkdir()
    tmp_path.joinpath("pytest.ini").write_text("[pytest]\n")
    tmp_path.joinpath("model").symlink_to(demo_folder(), target_is_directory=True)
    samples = [
        {"id": f"s{n}", "question": f"{n} + 1 =", "choices": [str(n), str(n + 1)], "target": 1} for n in range(12)
    ]
    suite = {"suite": "sums", "samples": samples, "score": "choice", "gates": ["accuracy >= 0"]}
    tmp_path.joinpath("suites", "sums.yaml").write_text(yaml.safe_dump(suite, sort_keys=False))
    return tmp_path


def bash(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env=clean_environment() | {"PATH": path} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.campaign
def test_jobs_of_an_array_make_one_report(project: Path) -> None:
    whole = bash("pytest --llm-model=./model suites/ --llm-report main.json", project)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    for number in ("1", "2"):
        environment = {"SLURM_ARRAY_TASK_ID": number, "SLURM_ARRAY_TASK_COUNT": "2"}
        job = bash(block_with("#SBATCH"), project, **environment)
        assert job.returncode == 0, job.stdout + job.stderr
    merged = bash(block_with("llmeval merge").replace("accuracy >= 0.6", "accuracy >= 0"), project)
    assert merged.returncode == 0, merged.stdout + merged.stderr
    one, other = (json.loads((project / name).read_text("utf-8")) for name in ("main.json", "all.json"))
    statuses = [{record["id"]: record["status"] for record in report["records"]} for report in (one, other)]
    assert len(statuses[0]) == 12
    assert statuses[0] == statuses[1]


def test_its_options_are_in_the_reference() -> None:
    reference = (REPOSITORY / "docs" / "reference.md").read_text("utf-8")
    options = set(re.findall(r"--llm-[a-z-]+", PAGE))
    assert {"--llm-ray", "--llm-shard"} <= options
    assert all(f"`{option} " in reference or f"`{option}`" in reference for option in options)
