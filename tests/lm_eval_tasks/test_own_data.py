"""Tasks that call Python on rows of one's own: requests and numbers as lm-eval's own have them on the same file."""

from __future__ import annotations

import json
import logging
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pytest_llmeval.data.files import Source
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.suites.format.overrides import parse_override
from pytest_llmeval.suites.lm_eval.groups import Leaf, paths_of_name
from pytest_llmeval.suites.lm_eval.load import load_task, translate_coded
from pytest_llmeval.suites.lm_eval.task_file import read_task_file
from tests.lm_eval_tasks import side_by_side
from tests.lm_eval_tasks import test_task_code as made_rows

datasets = pytest.importorskip("datasets", reason="datasets is not installed")
yaml_loader = pytest.importorskip("lm_eval.tasks._yaml_loader", reason="lm_eval[hf]==0.4.13 is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # lm-eval's own and its libraries'

TASKS = ("hellaswag", "winogrande", "drop")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The current folder, from which lm-eval sees data files; the tables that are made of them stay in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def local_task(name: str) -> Path:
    """A task file that includes an installed one and names rows of this folder, which it writes."""
    (installed,) = paths_of_name(name)
    stream = random.Random(name)
    for split in ("train", "validation"):
        rows = [made_rows.TASKS[name](stream, place) for place in range(12)]
        Path(f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {"train": "train.jsonl", "validation": "validation.jsonl"}
    changed = {"task": f"{name}_mine", "dataset_path": "json", "dataset_name": None}
    lines = [f"include: {installed}", *(f"{key}: {json.dumps(value)}" for key, value in changed.items())]
    path = Path("mine.yaml")
    path.write_text("\n".join([*lines, f"dataset_kwargs: {json.dumps({'data_files': files})}", ""]))
    return path


def suite_of(path: Path, *overrides: str) -> Evaluation:
    given = [parse_override(text) for text in overrides]
    leaf = Leaf(Source(path, path.name))
    return Evaluation(load_task(leaf, overrides=given, trust_code=True))


def check_is_theirs(task: Any, evaluation: Evaluation, path: Path) -> None:
    expected = side_by_side.their_requests(task)
    assert len(evaluation.suite.samples) == len(task.eval_docs) == 12
    for sample in evaluation.suite.samples:
        asked = [side_by_side.as_arguments(request) for request in evaluation.question(sample).requests]
        assert asked == [side_by_side.normal_arguments(one) for one in expected[int(sample.id)]]
    theirs, ours = side_by_side.made_up(task, evaluation, "own")
    wanted = side_by_side.their_metrics(task, theirs)
    found = side_by_side.our_metrics(evaluation, ours, translate_coded(read_task_file(Source(path, path.name)))[1])
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        number = found[key]
        assert number is not None
        assert math.isclose(value, number, rel_tol=1e-9)


@pytest.mark.parametrize("num_fewshot", [None, 2])
@pytest.mark.parametrize("name", TASKS)
def test_a_file_that_includes_an_installed_task(name: str, num_fewshot: int | None) -> None:
    path = local_task(name)
    files = {"train": "train.jsonl", "validation": "validation.jsonl"}
    splits = datasets.load_dataset("json", data_files=files)
    random.seed(0)  # as lm-eval's evaluator does before it loads a task
    task = side_by_side.theirs(yaml_loader.load_yaml(path), splits, num_fewshot)
    overrides = [] if num_fewshot is None else [f"*: prompt.fewshot.count={num_fewshot}"]
    check_is_theirs(task, suite_of(path, *overrides), path)


@pytest.mark.parametrize("set_", ["dataset={path: validation.jsonl}", "dataset.path=validation.jsonl"])
@pytest.mark.parametrize("name", TASKS)
def test_an_installed_task_with_rows_from_the_command_line(name: str, set_: str) -> None:
    path = local_task(name)
    splits = datasets.load_dataset("json", data_files={"train": "train.jsonl", "validation": "validation.jsonl"})
    task = side_by_side.theirs(yaml_loader.load_yaml(path), splits, 2)
    (installed,) = paths_of_name(name)
    overrides = [f"{name}: {set_}", f"{name}: prompt.fewshot.path=train.jsonl", f"{name}: prompt.fewshot.count=2"]
    with mock.patch("datasets.load_dataset", side_effect=AssertionError("the hub was asked")):
        evaluation = suite_of(installed, *overrides)
    check_is_theirs(task, evaluation, path)


def test_a_task_without_functions_takes_rows_from_the_command_line_too() -> None:
    (installed,) = paths_of_name("arc_easy")
    row = {"id": "x", "question": "Q?", "answerKey": "B", "choices": {"text": ["a", "b"], "label": ["A", "B"]}}
    Path("rows.jsonl").write_text(json.dumps(row) + "\n")
    with mock.patch("datasets.load_dataset", side_effect=AssertionError("the hub was asked")):
        evaluation = suite_of(installed, "arc_easy: dataset={path: rows.jsonl}")
    (sample,) = evaluation.suite.samples
    assert (sample.id, sample.choices, sample.target) == ("0", ("a", "b"), 1)


def test_mistakes_in_rows_of_ones_own() -> None:
    (installed,) = paths_of_name("hellaswag")
    with pytest.raises(SuiteError, match=r"--llm-set 'hellaswag: dataset=.*: dataset.path: .*none.jsonl: there"):
        suite_of(installed, "hellaswag: dataset={path: none.jsonl}")
    Path("rows.jsonl").write_text('{"ctx_a": 1}\n{"ctx_a": "a"}\n')
    with pytest.raises(SuiteError, match=r"rows.jsonl makes no table, which the task's function needs: "):
        suite_of(installed, "hellaswag: dataset={path: rows.jsonl}")


def test_a_function_that_a_file_from_elsewhere_names_does_not_run() -> None:
    path = local_task("hellaswag")
    path.write_text(path.read_text() + "doc_to_text: !function evil.run\n")
    Path("evil.py").write_text("raise SystemExit('it ran')\n")
    with pytest.raises(SuiteError, match=r"mine.yaml:6: doc_to_text: .* not part of the installed lm_eval package"):
        suite_of(path)
