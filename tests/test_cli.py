"""The ``llmeval`` command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import jsonschema
import pytest
import yaml

from pytest_llmeval.cli import main
from pytest_llmeval.suites.lm_eval.load import convert
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.suites.presets import all_presets, load_preset
from tests.support import REPOSITORY, clean_environment


def test_the_list_names_every_preset_or_its_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    presets, _, groups = capsys.readouterr().out.partition("\n\ngroups, for --llm-suite:\n")
    heading, *lines = presets.splitlines()
    assert heading.split("  ")[0] == "preset"
    listed = {line.split()[0]: line for line in lines}
    for preset in all_presets():
        assert preset.name in listed or f"{preset.family}-…" in listed
    assert re.fullmatch(r"gsm8k +1,319  replies +0.199 +lm-eval 0.4.13 +GSM8K, .*", listed["gsm8k"])
    assert re.fullmatch(r"csqa-text +1,221  log-likelihoods +- +not checked .*", listed["csqa-text"])
    assert re.fullmatch(r"chronologic-mcq +your own .*", listed["chronologic-mcq"])
    assert (
        "leaderboard-v1: arc-challenge-25-shot, hellaswag-10-shot, mmlu, truthfulqa-mc2, winogrande-5-shot," in groups
    )


def test_one_preset_with_source_formula_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "gsm8k"]) == 0
    shown = capsys.readouterr().out
    assert "hub openai/gsm8k" in shown
    assert "flexible.accuracy" in shown
    for line in ("questions: 1,319", "asks for: replies", "run: pytest --llm-model=MODEL --llm-suite=gsm8k"):
        assert line in shown.splitlines()
    assert "gsm8k/test.jsonl and gsm8k/train.jsonl in the folder" in shown
    defaults = yaml.safe_load(shown.partition("defaults:\n")[2])
    assert defaults["generate"]["stop"] == ["Question:", "</s>", "<|im_end|>"]


def test_a_family_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "truthfulqa", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in shown] == ["truthfulqa-mc1", "truthfulqa-mc2"]
    defaults = [dict(load_preset(one["name"]).defaults) for one in shown]
    scores: list[object] = [{"choice": {"normalize": "sum", "continuation": None, "metrics": [], "ties": "first"}}]
    scores.append({"mass": {"normalize": "sum"}})
    assert [one["defaults"] for one in shown] == [d | {"score": s} for d, s in zip(defaults, scores, strict=True)]
    assert main(["presets", "--json"]) == 0
    assert all("defaults" not in one for one in json.loads(capsys.readouterr().out))
    assert main(["presets", "leaderboard-v1", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 6


def test_a_preset_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "mmul"]) == 1
    assert capsys.readouterr().err.startswith("llmeval presets: there is no preset 'mmul'; did you mean 'mmlu'?")


def test_the_schema_accepts_the_example_suites_and_refuses_a_misspelt_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    suites = [yaml.safe_load(path.read_text()) for path in (REPOSITORY / "example_suites").rglob("*.yaml")]
    assert len(suites) > 5
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    validator = kind(schema)
    for suite in suites:
        validator.validate(suite)
    validator.validate({"suite": "s", "preset": "gsm8k"})
    for broken in ({**suites[0], "scor": "x"}, {"suite": "s"}, {"suite": "s", "preset": "gsm8"}):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(broken)


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


def test_a_wrong_call_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, told in (
        (["prests"], "invalid choice: 'prests'"),
        ([], "the following arguments are required: COMMAND"),
        (["schema", "--\x1b[31m"], r"llmeval schema: unrecognized arguments: --\x1b[31m (see llmeval schema --help)"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert told in shown.err
        assert shown.err.startswith("llmeval")
        assert shown.err.count("\n") == 1


def test_ctrl_c_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(text: object, **_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pytest_llmeval.commands.suites.write_out", interrupted)
    assert main(["schema"]) == 130
    assert capsys.readouterr() == ("", "")


def test_starting_loads_nothing_heavy() -> None:
    code = (
        "import sys; from pytest_llmeval.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'scipy', 'pandas', 'pyarrow', 'yaml', 'pydantic', 'jinja2', 'tabulate', 'pytest'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=clean_environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("show", "compare", "gate", "merge", "export", "init", "presets", "schema", "convert"):
        assert f"    {command} " in done.stdout


LLMEVAL = [sys.executable, "-c", "import sys; from pytest_llmeval.cli import main; sys.exit(main())"]


def test_text_that_standard_output_cannot_take_is_escaped() -> None:
    environment = clean_environment() | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*LLMEVAL, "presets"], env=environment, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"bbh-cot-\u2026" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full on this system")
def test_standard_output_that_is_full_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*LLMEVAL, "presets"], env=clean_environment(), stdout=full, stderr=subprocess.PIPE)
    problem = b"llmeval presets: cannot write to standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, problem)


def test_a_reader_that_stops_reading_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*LLMEVAL, "schema"], env=clean_environment(), stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


TASK = """
task: capitals
dataset_path: json
dataset_kwargs: {data_files: {test: rows.jsonl, train: more/shots.jsonl}}
test_split: test
fewshot_split: train
num_fewshot: 1
output_type: multiple_choice
doc_to_text: '{{q}}?'
doc_to_choice: '{{options}}'
doc_to_target: answer
metric_list:
  - metric: acc
"""


def write_task(folder: Path) -> Path:
    (folder / "more").mkdir(parents=True)
    (folder / "rows.jsonl").write_text('{"q": "Norway", "options": ["Oslo", "Rome"], "answer": 0}\n')
    (folder / "more" / "shots.jsonl").write_text('{"q": "Italy", "options": ["Oslo", "Rome"], "answer": 1}\n')
    (folder / "task.yaml").write_text(TASK)
    return folder / "task.yaml"


@pytest.mark.parametrize("place", ["tasks", "suites/deep", "."])
def test_convert_writes_a_suite(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = write_task(tmp_path / "tasks")
    monkeypatch.chdir(tmp_path / "tasks")  # where lm-eval would look for the data
    output = tmp_path / place / "suite.yaml"
    output.parent.mkdir(parents=True, exist_ok=True)
    assert main(["convert", str(task), "-o", str(output)]) == 0
    monkeypatch.chdir(tmp_path)
    suite = load_suite(output)
    assert suite.name == "capitals"
    assert [(sample.choices, sample.target) for sample in suite.samples] == [(("Oslo", "Rome"), 0)]
    assert [shot.target for shot in suite.shots_for(suite.samples[0])] == [1]
    assert main(["convert", str(task), "-o", str(output)]) == 1
    assert "exists already" in capsys.readouterr().err


def test_convert_to_a_folder_that_is_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = write_task(tmp_path / "tasks")
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "deep")
    monkeypatch.chdir(tmp_path / "tasks")
    assert main(["convert", "task.yaml", "-o", str(tmp_path / "link" / "suite.yaml")]) == 0
    assert len(load_suite(tmp_path / "link" / "suite.yaml").samples) == 1
    assert len(load_suite(tmp_path / "real" / "deep" / "suite.yaml").samples) == 1
    assert "path: more/shots.jsonl" in convert(task)


def test_convert_to_standard_output_is_for_the_tasks_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = write_task(tmp_path / "tasks")
    monkeypatch.chdir(tmp_path / "tasks")
    assert main(["convert", str(task)]) == 0
    (tmp_path / "tasks" / "suite.yaml").write_text(capsys.readouterr().out)
    assert len(load_suite(tmp_path / "tasks" / "suite.yaml").samples) == 1
    with pytest.raises(SystemExit):
        main(["convert", "--help"])
    assert "with standard output, to the task file's folder" in " ".join(capsys.readouterr().out.split())


def test_a_family_is_not_listed_as_a_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "zzz"]) == 1
    assert "arc-…, bbh-cot-…, bbh-direct-…, bfcl-…, boolq, " in capsys.readouterr().err


def test_the_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr() == (f"llmeval {metadata.version('pytest-llmeval-suites')} (pytest-llmeval-suites)\n", "")
