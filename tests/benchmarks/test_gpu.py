"""The benchmark of a card runs from end to end on the CPU, with a tiny model in float32: no test reads a clock."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import REPOSITORY

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("lm_eval") is None,
        reason="lm_eval is not installed: pip install 'lm_eval[hf]==0.4.13'",
    ),
]


def test_all_parts_run_on_the_cpu(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu",
        "--device",
        "cpu",
        "--tiny",
        "--dtype",
        "float32",
        "--out",
        str(out),
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["ran_on"].endswith("and not on a card")
    assert "and not on a card" in run.stdout.splitlines()[0]
    lines = {(line["part"], line["what"]): line for line in found["lines"]}
    for work in ("letters", "texts", "generation"):
        assert lines["time", work]["ratio"] > 0
    for work in ("letters", "texts"):
        for compared in ("tree from plain", "tree from float32", "here from float32"):
            line = lines["log-likelihoods", f"{work}: {compared}"]
            assert max(line["here"], line["beside"]) < 1e-4
            assert line["note"] == "another choice: 0 of 12, beside it 0 of 12"
        audit = lines["self-check", f"audit of {work}"]
        assert audit["here"] < audit["beside"]
        assert audit["note"] == "48 requests; scored by tree"
    assert lines["self-check", "at loading"]["here"] < lines["self-check", "at loading"]["beside"]
    texts = lines["generation", "equal to generate's"]
    assert texts["here"] == texts["beside"] == 16
    lost = {what: line for (part, what), line in lines.items() if part == "lost device"}
    assert all(line["holds"] for line in lost.values())
    assert lost["generation: out of memory"]["note"] == "all answered, 16 the same"
    session = lost["letters: a session"]
    assert session["here"] == 4
    assert session["note"].startswith("8 unscored: AcceleratorError: CUDA error: device-side assert triggered")
    assert run.stdout.count("| lost device") == len(lost) == 5
