"""The ``llmeval`` command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from pytest_llmeval.cli import main
from pytest_llmeval.suites.presets import all_presets
from tests.support import REPOSITORY, clean_environment


def test_the_list_names_every_preset_or_its_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    for preset in all_presets():
        assert preset.name in listed or f"{preset.family}-…" in listed


def test_one_preset_with_source_formula_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "gsm8k"]) == 0
    shown = capsys.readouterr().out
    assert "hub openai/gsm8k" in shown
    assert "flexible.accuracy" in shown
    defaults = yaml.safe_load(shown.partition("defaults:\n")[2])
    assert defaults["generate"]["stop"] == ["Question:", "</s>", "<|im_end|>"]


def test_a_family_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "truthfulqa", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["truthfulqa-mc1", "truthfulqa-mc2"]


def test_a_preset_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "mmul"]) == 1
    assert capsys.readouterr().err.startswith(
        "llmeval presets: preset: there is no preset 'mmul'; did you mean 'mmlu'?"
    )


def test_the_schema_accepts_the_example_suites_and_refuses_a_misspelt_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    suites = [yaml.safe_load(path.read_text()) for path in (REPOSITORY / "example_suites").rglob("*.yaml")]
    assert len(suites) > 5
    for suite in suites:
        jsonschema.validate(suite, schema)
    jsonschema.validate({"suite": "s", "preset": "gsm8k"}, schema)
    for broken in ({**suites[0], "scor": "x"}, {"suite": "s"}, {"suite": "s", "preset": "gsm8k", "score": "leter"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema)


def test_a_wrong_call_is_exit_2_and_the_module_needs_no_torch() -> None:
    code = (
        "import sys; from pytest_llmeval.cli import main; code = main(['presets']); "
        "sys.exit(9 if 'torch' in sys.modules else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=clean_environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(SystemExit) as caught:
        main(["prests"])
    assert caught.value.code == 2


def test_convert_writes_a_suite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = tmp_path / "task.yaml"
    task.write_text(
        "task: capitals\ndataset_path: json\ndataset_kwargs: {data_files: {test: rows.jsonl}}\ntest_split: test\n"
        "output_type: multiple_choice\ndoc_to_text: '{{q}}?'\ndoc_to_choice: '{{options}}'\ndoc_to_target: answer\n"
        "metric_list:\n  - metric: acc\n"
    )
    output = tmp_path / "suite.yaml"
    assert main(["convert", str(task), "-o", str(output)]) == 0
    assert output.read_text().startswith("suite: capitals\n")
    assert main(["convert", str(task), "-o", str(output)]) == 1
    assert "exists already" in capsys.readouterr().err
