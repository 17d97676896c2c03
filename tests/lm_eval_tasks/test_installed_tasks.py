"""All task files of the installed lm_eval package: which load here, and whether they ask and count as lm-eval does.

Rows are synthetic and the same for both. ``-s`` shows the shares and the reasons.
"""

from __future__ import annotations

import logging
import math
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pytest_llmeval.data.files import Source
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.suites.lm_eval.groups import Leaf, installed_tasks, is_group
from pytest_llmeval.suites.lm_eval.load import load_task, metric_pairs
from pytest_llmeval.suites.lm_eval.task_file import functions, read_task_file
from tests.lm_eval_tasks import side_by_side, synthetic

pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install 'lm_eval[hf]==0.4.13'")
pytest.importorskip("datasets", reason="datasets is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # lm-eval's own and its libraries'

NUM_LEAVES = 4537
NUM_COMPARED = 320
NUM_FILES = 80
"""A part of the files, drawn by a seed: what the slow tier reads of them where no campaign runs."""
ROOT = installed_tasks() or Path()


@pytest.fixture(scope="module")
def leaves() -> dict[Path, Mapping[str, Any]]:
    """Every task that calls no Python, with what it includes, by the path of its file."""
    return leaves_in(sorted(ROOT.rglob("*.y*ml")))


@pytest.fixture(scope="module")
def some_leaves() -> dict[Path, Mapping[str, Any]]:
    """Those among ``NUM_FILES`` files."""
    return leaves_in(random.Random(0).sample(sorted(ROOT.rglob("*.y*ml")), NUM_FILES))


def leaves_in(paths: Sequence[Path]) -> dict[Path, Mapping[str, Any]]:
    found: dict[Path, Mapping[str, Any]] = {}
    for path in paths:
        try:
            task = read_task_file(Source(path, path.name))
        except SuiteError:
            continue  # what others include has no task, and need not be YAML alone
        is_leaf = isinstance(task.value.get("task"), str) and not is_group(task) and "class" not in task.value
        if is_leaf and next(functions(task.value), None) is None:
            found[path] = task.value
    return found


@pytest.mark.campaign
def test_nearly_all_tasks_load(leaves: Mapping[Path, Mapping[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert len(leaves) == NUM_LEAVES
    check_loading(leaves, capsys)


def test_tasks_of_a_part_load(
    some_leaves: Mapping[Path, Mapping[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(some_leaves) >= NUM_FILES // 3
    check_loading(some_leaves, capsys)


def check_loading(leaves: Mapping[Path, Mapping[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    """Nearly all of them load: 99 of 100."""
    reasons: Counter[str] = Counter()
    examples: dict[str, Path] = {}
    for path, config in leaves.items():
        splits = synthetic.Splits(config, path.name, count=max(3, (config.get("num_fewshot") or 0) + 2))
        try:
            with mock.patch("datasets.load_dataset", return_value=splits):
                suite = load_task(Leaf(Source(path, path.name)))
            Evaluation(suite).fingerprints()  # renders every prompt and checks every sample
        except SuiteError as error:
            reasons[error.message] += 1
            examples.setdefault(error.message, path)
    num_loaded = len(leaves) - sum(reasons.values())
    told = [f"{num_loaded} of {len(leaves)} task files load: {num_loaded / len(leaves):.2%}"]
    told += [f"  {n} such as {examples[why].relative_to(ROOT)}: {why}" for why, n in reasons.most_common()]
    tell(told, capsys)
    assert num_loaded >= 0.99 * len(leaves)


@pytest.mark.campaign
def test_requests_and_numbers_are_lm_evals(
    leaves: Mapping[Path, Mapping[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_numbers(leaves, NUM_COMPARED, capsys) >= 300


def test_requests_and_numbers_of_a_part_are_lm_evals(
    some_leaves: Mapping[Path, Mapping[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_numbers(some_leaves, 30, capsys) >= 25


def check_numbers(leaves: Mapping[Path, Mapping[str, Any]], count: int, capsys: pytest.CaptureFixture[str]) -> int:
    """Of ``count`` of them requests and numbers are lm-eval's; how many tasks could be compared."""
    logging.disable(logging.WARNING)
    compared: Counter[str] = Counter()
    not_compared: Counter[str] = Counter()
    try:
        for path in spread(leaves, count):
            for num_fewshot in (None, 2):
                outcome = compare(path, leaves[path], num_fewshot)
                (compared if outcome == "equal" else not_compared)[outcome if outcome != "equal" else str(path)] += 1
    finally:
        logging.disable(logging.NOTSET)
    told = [f"{sum(compared.values())} runs of {len(compared)} tasks ask and count as lm-eval does"]
    tell(told + [f"  {n} not compared: {why}" for why, n in not_compared.most_common()], capsys)
    return len(compared)


def tell(lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(lines) + "\n")


def compare(path: Path, config: Mapping[str, Any], num_fewshot: int | None) -> str:
    """``equal``, or why this cannot be compared; a difference fails the test."""
    name = f"{path.relative_to(ROOT)} with num_fewshot {num_fewshot}"
    if num_fewshot and config.get("output_type") == "loglikelihood_rolling":
        return "a text that is scored as it is has no examples"
    splits = synthetic.Splits(config, path.name, count=max(10, (config.get("num_fewshot") or 0) + 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            task = side_by_side.theirs(config, splits, num_fewshot)
        except Exception as error:
            return f"lm-eval itself fails: {type(error).__name__} {str(error)[:60]}"
        try:
            evaluation = side_by_side.ours(path, splits, num_fewshot)
        except SuiteError as error:
            return f"refused here: {error.message[:90]}"
        expected = side_by_side.their_requests(task)
        for sample in evaluation.suite.samples:
            place = int(sample.id)
            if side_by_side.is_shown_itself(task, place):
                continue
            asked = [side_by_side.as_arguments(request) for request in evaluation.question(sample).requests]
            wanted = [side_by_side.normal_arguments(one) for one in expected[place]]
            assert asked == wanted * (len(asked) // len(wanted)), name  # lm-eval's evaluator repeats them later
        theirs, ours = side_by_side.made_up(task, evaluation, str(path.name))
        try:
            counted = side_by_side.their_metrics(task, theirs)
        except Exception as error:
            return f"lm-eval itself fails to count: {type(error).__name__} {str(error)[:60]}"
        found = side_by_side.our_metrics(evaluation, ours, metric_pairs(path))
    assert found.keys() == counted.keys(), name
    for key, value in counted.items():
        mine = found[key]
        assert mine is not None, (name, key)
        assert math.isclose(value, mine, rel_tol=1e-9, abs_tol=1e-12), (name, key, value, mine)
    return "equal"


def spread(leaves: Mapping[Path, Mapping[str, Any]], count: int) -> list[Path]:
    """Tasks of every kind first, then evenly over the folders."""
    kinds: dict[str, Path] = {}
    folders: dict[str, list[Path]] = {}
    stream = random.Random(0)
    paths = list(leaves)
    stream.shuffle(paths)
    for path in paths:
        kinds.setdefault(kind_of(leaves[path]), path)
        folders.setdefault(path.relative_to(ROOT).parts[0], []).append(path)
    chosen = dict.fromkeys(kinds.values())
    for path in in_turn(list(folders.values())):
        if len(chosen) >= count:
            break
        chosen[path] = None
    return list(chosen)


def kind_of(config: Mapping[str, Any]) -> str:
    """What the task uses of lm-eval: tasks of one kind differ in their texts alone."""
    metrics = [[*sorted(metric), metric["metric"]] for metric in config.get("metric_list") or ()]
    filters = [[step["function"] for step in one["filter"]] for one in config.get("filter_list") or ()]
    fewshot = sorted(config.get("fewshot_config") or ())
    others = [
        key in config for key in ("gen_prefix", "description", "target_delimiter", "fewshot_delimiter", "repeats")
    ]
    generation = sorted(config.get("generation_kwargs") or ())
    types = [type(config.get(key)).__name__ for key in ("doc_to_text", "doc_to_target", "doc_to_choice")]
    return repr((config.get("output_type"), metrics, filters, fewshot, others, generation, types))


def in_turn(groups: list[list[Path]]) -> Iterator[Path]:
    """The first of each group, then the second of each, and so on."""
    for place in range(max(map(len, groups))):
        for group in groups:
            if place < len(group):
                yield group[place]
