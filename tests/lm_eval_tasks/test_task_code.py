"""Tasks that call Python, by lm-eval's names: requests and numbers as lm-eval's own ``ConfigurableTask`` has them."""

from __future__ import annotations

import logging
import math
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pytest_llmeval.data.files import Source
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.lm_eval.groups import Leaf, paths_of_name
from pytest_llmeval.suites.lm_eval.load import load_task, metric_pairs
from tests.lm_eval_tasks import side_by_side

datasets = pytest.importorskip("datasets", reason="datasets is not installed")
yaml_loader = pytest.importorskip("lm_eval.tasks._yaml_loader", reason="lm_eval[hf]==0.4.13 is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # lm-eval's own and its libraries'

Row = dict[str, Any]
WORDS = ("river", "stone", "lamp", "garden", "winter", "copper", "candle", "forest")


def words(stream: random.Random, count: int) -> str:
    return " ".join(stream.choice(WORDS) for _ in range(count))


def hellaswag(stream: random.Random, place: int) -> Row:
    return {
        "activity_label": f"Baking {place}",
        "ctx_a": f"A person [title] {words(stream, 4)}.",
        "ctx_b": f"they {words(stream, 2)}",
        "endings": [f"{words(stream, 3)} [step] number  {number}" for number in range(4)],
        "label": str(stream.randrange(4)),
    }


def winogrande(stream: random.Random, place: int) -> Row:
    return {
        "sentence": f"{place} The {words(stream, 2)} was put before the _ because it {words(stream, 3)}.",
        "option1": "lamp",
        "option2": "long stone",
        "answer": stream.choice("12"),
    }


def gpqa(stream: random.Random, place: int) -> Row:
    wrong = {f"Incorrect Answer {number}": f"{words(stream, 2)} {number}" for number in (1, 2, 3)}
    return {"Question": f"{words(stream, 5)} {place}?", "Correct Answer": f"{words(stream, 2)} 0", **wrong}


def mmlu_pro(stream: random.Random, place: int) -> Row:
    return {
        "question": f"{words(stream, 5)} {place}?",
        "options": [f"{words(stream, 2)} {number}" for number in range(10)],
        "answer": stream.choice("ABCDEFGHIJ"),
        "cot_content": f"A: Let's think step by step. {words(stream, 4)}. The answer is (B).",
        "category": "biology" if place % 5 else "law",
    }


def wikitext(stream: random.Random, place: int) -> Row:
    return {"page": f' = {words(stream, 2)} = \n {words(stream, 9)} @-@ {words(stream, 3)} , ( x ) " y " . {place} '}


def drop(stream: random.Random, place: int) -> Row:
    def answer(kind: int) -> Row:
        date = {"day": "3" if kind == 2 else "", "month": "May" if kind == 2 else "", "year": ""}
        spans = [words(stream, 2), words(stream, 1)][: stream.randint(1, 2)] if kind == 1 else []
        return {"number": str(place) if kind == 0 else "", "date": date, "spans": spans}

    answers = [answer(stream.randrange(3)) for _ in range(2)]
    return {
        "query_id": f"q{place}",
        "passage": words(stream, 12),
        "question": f"{words(stream, 4)}?",
        "answer": answer(place % 3),
        "validated_answers": {key: [one[key] for one in answers] for key in ("number", "date", "spans")},
    }


def race(stream: random.Random, place: int) -> Row:
    problems = [
        {
            "question": f"{words(stream, 3)}  _  ." if number == 0 else f"{words(stream, 4)} {place}?",
            "options": [f"{words(stream, 2)} {option}" for option in range(4)],
            "answer": stream.choice("ABCD"),
        }
        for number in range(3)
    ]
    return {"article": words(stream, 15), "problems": repr(problems)}


def afrixnli(stream: random.Random, place: int) -> Row:
    return {"premise": f"{words(stream, 5)} {place}", "hypothesis": words(stream, 3), "label": stream.randrange(3)}


def wsc273(stream: random.Random, place: int) -> Row:
    """The pronoun stands for one of two options; ``doc_to_text`` is the column with the index of the right one."""
    before = f"{place} {words(stream, 3)}. "
    pronoun = stream.choice(["it", "His"])
    return {
        "text": f"{before}{pronoun}  {words(stream, 4)}.",
        "pronoun": pronoun,
        "pronoun_loc": len(before),
        "options": ["The box", "Anna"],
        "label": stream.randrange(2),
    }


TASKS: Mapping[str, Callable[[random.Random, int], Row]] = {
    "hellaswag": hellaswag,
    "winogrande": winogrande,
    "gpqa_main_zeroshot": gpqa,
    "gpqa_main_n_shot": gpqa,
    "mmlu_pro_biology": mmlu_pro,
    "wikitext": wikitext,
    "wsc273": wsc273,
    "drop": drop,
    "race": race,
    "afrixnli_amh_prompt_2": afrixnli,  # its f1 is aggregated by a function
}


def splits_of(name: str, folder: Path) -> Any:
    """Rows that lie on the disk, as downloaded ones do: what ``map`` makes of them once, ``datasets`` remembers."""
    stream = random.Random(name)
    made = {
        split: datasets.Dataset.from_list([TASKS[name](stream, place) for place in range(12)])
        for split in ("train", "validation", "test")
    }
    datasets.DatasetDict(made).save_to_disk(folder)
    return datasets.load_from_disk(folder)


@pytest.mark.parametrize("num_fewshot", [None, 2])
@pytest.mark.parametrize("name", TASKS)
def test_asks_and_counts_as_lm_eval(name: str, num_fewshot: int | None, tmp_path: Path) -> None:
    if name == "wikitext" and num_fewshot:
        pytest.skip("a text that is scored as it is has no examples")
    (path,) = paths_of_name(name)
    splits = splits_of(name, tmp_path / "rows")
    logging.disable(logging.WARNING)
    try:
        for _ in range(2):  # a second run of lm-eval finds what the first made of the rows, and so do all after it
            for module in [module for module in sys.modules if module.startswith("lm_eval.tasks.gpqa")]:
                del sys.modules[module]
            random.seed(0)  # as lm-eval's evaluator does before it loads a task
            task = side_by_side.theirs(yaml_loader.load_yaml(path), splits, num_fewshot)
    finally:
        logging.disable(logging.NOTSET)
    evaluation = side_by_side.ours(path, splits, num_fewshot, trust_code=True)
    expected = side_by_side.their_requests(task)
    assert len(evaluation.suite.samples) == len(task.eval_docs)
    for sample in evaluation.suite.samples:
        if side_by_side.is_shown_itself(task, int(sample.id)):
            continue
        asked = [side_by_side.as_arguments(request) for request in evaluation.question(sample).requests]
        assert asked == [side_by_side.normal_arguments(one) for one in expected[int(sample.id)]]
    theirs, ours = side_by_side.made_up(task, evaluation, name)
    wanted = side_by_side.their_metrics(task, theirs)
    with mock.patch("datasets.load_dataset", return_value=splits):
        found = side_by_side.our_metrics(evaluation, ours, metric_pairs(path, trust_code=True))
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        mine = found[key]
        assert mine is not None
        assert math.isclose(value, mine, rel_tol=1e-9)


def test_only_the_installed_packages_tasks_run_code(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "task: mine\ndataset_path: x/y\ntest_split: test\ndoc_to_text: !function evil.run\ndoc_to_target: y\n"
    )
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')\n")
    leaf = Leaf(Source(path, "mine.yaml"))
    with pytest.raises(SuiteError) as refused:
        load_task(leaf)
    assert str(refused.value) == (
        "mine.yaml:4: doc_to_text: found '!function evil.run', which runs Python; --llm-trust-task-code runs it for "
        "the tasks of the installed lm_eval package"
    )
    with pytest.raises(SuiteError, match=r"mine\.yaml:4: doc_to_text: .* not part of the installed lm_eval package"):
        load_task(leaf, trust_code=True)


@pytest.mark.parametrize("rule", ["label", "'{{label}}'", '\'{{ {"a": 0, "b": 1}[letter] }}\'', "1"])
@pytest.mark.parametrize("num_fewshot", [None, 2])
def test_a_text_that_is_a_number_is_the_index_of_an_option_in_the_prompt(
    tmp_path: Path, rule: str, num_fewshot: int | None
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        f"task: own\ndataset_path: own/rows\ntest_split: test\ntraining_split: train\noutput_type: multiple_choice\n"
        f"doc_to_text: {rule}\ndoc_to_choice: '{{{{[first, second]}}}}'\ndoc_to_target: '{{{{rest}}}}'\n"
    )
    stream = random.Random(rule)
    made = {
        split: datasets.Dataset.from_list(
            [
                {
                    "first": f"{place} one {words(stream, 2)}",
                    "second": f"two {words(stream, 2)}",
                    "rest": f"and {words(stream, 3)}",
                    "label": (label := stream.randrange(2)),
                    "letter": "ab"[label],
                }
                for place in range(8)
            ]
        )
        for split in ("train", "test")
    }
    splits = datasets.DatasetDict(made)
    logging.disable(logging.WARNING)
    try:
        task = side_by_side.theirs(yaml_loader.load_yaml(path), splits, num_fewshot)
    finally:
        logging.disable(logging.NOTSET)
    evaluation = side_by_side.ours(path, splits, num_fewshot)
    expected = side_by_side.their_requests(task)
    for sample in evaluation.suite.samples:
        asked = [side_by_side.as_arguments(request) for request in evaluation.question(sample).requests]
        assert asked == [side_by_side.normal_arguments(one) for one in expected[int(sample.id)]]
    theirs, ours = side_by_side.made_up(task, evaluation, rule)
    wanted = side_by_side.their_metrics(task, theirs)
    with mock.patch("datasets.load_dataset", return_value=splits):
        found = side_by_side.our_metrics(evaluation, ours, metric_pairs(path))
    assert found == pytest.approx(wanted)
