"""The benchmark of llama.cpp's quantisations, on one suite with the demo model; a campaign."""

from __future__ import annotations

import pytest

from benchmarks import gguf
from tests.servers.real import install


@pytest.mark.campaign
def test_each_quantisation_is_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    gguf.main(["--python", str(install("llama-cpp-python")), "example_suites/boolq/boolq_loglikelihood.yaml"])
    lines = [line[2:-2].split(" | ") for line in capsys.readouterr().out.splitlines()]
    rows = {line[0]: dict(zip(lines[0], line, strict=True)) for line in lines[2:]}
    assert list(rows) == ["float32, this process", "F32", "F16", "Q8_0", "Q4_0"]
    differences = [float(rows[name]["difference"]) for name in ("F32", "F16", "Q8_0", "Q4_0")]
    assert differences[0] < 1e-3
    assert differences == sorted(differences)
    assert {row["self-test"] for name, row in rows.items() if len(name) < 5} == {"works"}
    assert all(int(row["peak MiB"]) > 10 for row in rows.values())
