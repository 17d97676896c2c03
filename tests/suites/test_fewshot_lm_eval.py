"""Prompts, examples and scored options against lm-eval 0.4.13's own ``ConfigurableTask`` and ``ContextSampler``."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.suites.format.prompt_spec import FewshotSpec
from pytest_llmeval.suites.loading.fewshot import draw_shots
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.types import GenerateRequest, LoglikelihoodRequest, Prompt, Sample
from tests.properties import examples

pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install 'lm_eval[hf]==0.4.13'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # lm-eval's own and its libraries'

Row = dict[str, Any]
NAMES = ("apple", "pear", "fig", "plum", "date")


def row(place: int, split: str) -> Row:
    options = [f"{NAMES[(place + shift) % 5]} {split}" for shift in range(3)]
    return {
        "q": f"{split} question {place}",
        "about": ("law", "art")[place % 2],
        "options": options,
        "right": place % 3,
        "short": f"{place * 7}",
    }


def lm_eval_task(splits: dict[str, list[Row]], config: dict[str, Any]) -> Any:
    from datasets import Dataset, DatasetDict
    from lm_eval.api.task import ConfigurableTask

    data = DatasetDict({name: Dataset.from_list(rows) for name, rows in splits.items()})
    with mock.patch("datasets.load_dataset", return_value=data):
        return ConfigurableTask(config={"task": "t", "dataset_path": "none", **config})


def as_chat(messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
    return json.dumps([messages, add_generation_prompt])


def lm_eval_requests(task: Any, seed: int, *, chat: bool, multi_turn: bool) -> list[tuple[str, ...]]:
    task.set_fewshot_seed(seed)
    task.build_all_requests(apply_chat_template=chat, fewshot_as_multiturn=multi_turn, chat_template=as_chat)
    is_choice = task.OUTPUT_TYPE == "multiple_choice"
    return [tuple(each.args) if is_choice else (each.args[0],) for each in task.instances]


def our_requests(splits: dict[str, list[Row]], keys: dict[str, Any]) -> list[tuple[str, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        for name, rows in splits.items():
            Path(folder, f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        path = Path(folder, "s.yaml")
        path.write_text(json.dumps({"suite": "s", **keys}))
        suite = load_suite(path)
    evaluation = Evaluation(suite)
    found: list[tuple[str, ...]] = []
    for each in suite.samples:
        for request in evaluation.question(each).requests:
            if isinstance(request, LoglikelihoodRequest):
                found.append((as_text(request.context), request.continuation))
            else:
                assert isinstance(request, GenerateRequest)
                found.append((as_text(request.prompt),))
    return found


def as_text(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    return as_chat([{"role": turn.role, "content": turn.content} for turn in prompt], prompt[-1].role != "assistant")


WHITE = st.sampled_from(["", " ", "\n"])
PREFIXES = st.sampled_from([None, "Answer:", "The answer is ", "\nA:", "On {{about}}:", " So"])
QUESTIONS = st.sampled_from(["{{q}}", "Q: {{q}}\nA:", "{{q}}\n", "{{about}}? {{q}} "])
OPTIONAL = st.none() | WHITE


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    is_choice=st.booleans(),
    chat=st.booleans(),
    multi_turn=st.booleans(),
    count=st.integers(0, 3),
    seed=st.sampled_from([0, 1234]),
    sampler=st.sampled_from(["default", "first_n"]),
    split=st.sampled_from(["test", "train", "inline", "nothing named"]),
    question=QUESTIONS,
    description=st.sampled_from(["", "Be brief.\n\n", "On {{about}}. "]),
    delimiter=WHITE,
    between=st.sampled_from(["\n\n", "\n", " # "]),
    prefix=PREFIXES,
    shot_question=st.none() | QUESTIONS,
    shot_delimiter=OPTIONAL,
    shot_prefix=st.sampled_from([None, "A:", "Then "]),
    shot_target=st.sampled_from([None, "{{options[0]}}"]),
)
@example(
    is_choice=True, chat=True, multi_turn=True, count=2, seed=1234, sampler="default", split="test", question="{{q}}",
    description="Be brief.\n\n", delimiter=" ", between="\n\n", prefix="Answer:", shot_question=None,
    shot_delimiter=None, shot_prefix=None, shot_target=None,
)  # fmt: skip
def test_requests_are_lm_evals(
    is_choice: bool,
    chat: bool,
    multi_turn: bool,
    count: int,
    seed: int,
    sampler: str,
    split: str,
    question: str,
    description: str,
    delimiter: str,
    between: str,
    prefix: str | None,
    shot_question: str | None,
    shot_delimiter: str | None,
    shot_prefix: str | None,
    shot_target: str | None,
) -> None:
    if chat and is_choice:  # a delimiter that the suite sets stands also in a chat; lm-eval then leaves it out
        delimiter = " "
    multi_turn = multi_turn and chat and count > 0
    splits = {"test": [row(place, "test") for place in range(7)], "train": [row(place, "train") for place in range(5)]}
    own = {"doc_to_text": shot_question, "target_delimiter": shot_delimiter, "gen_prefix": shot_prefix}
    config: dict[str, Any] = {
        "output_type": "multiple_choice" if is_choice else "generate_until",
        "test_split": "test",
        "doc_to_text": question,
        "doc_to_target": "right" if is_choice else "short",
        "description": description,
        "target_delimiter": delimiter,
        "fewshot_delimiter": between,
        "gen_prefix": prefix,
        "num_fewshot": count,
        "metric_list": [{"metric": "acc" if is_choice else "exact_match"}],
        "fewshot_config": {"sampler": sampler} | {key: value for key, value in own.items() if value is not None},
    }
    fewshot: dict[str, Any] = {
        "count": count,
        "sampler": "lm_eval" if sampler == "default" else "first_n",
        "delimiter": between,
        "template": shot_question,
        "answer_delimiter": shot_delimiter,
        "prefix": shot_prefix,
        "multi_turn": multi_turn,
        "seed": seed,
    }
    if shot_target is not None:
        config["fewshot_config"]["doc_to_target"] = shot_target
        fewshot["answer"] = shot_target
    if split == "nothing named":  # as in hellaswag and piqa
        config |= {"validation_split": "test", "training_split": "train"}
        del config["test_split"]
        fewshot |= {"path": "train.jsonl"} | ({"spare": True} if sampler == "default" else {})
    elif split == "inline":
        config["fewshot_config"]["samples"] = splits["train"]
        fewshot["samples"] = splits["train"]
    else:
        config["fewshot_split"] = split
        fewshot |= {} if split == "test" else {"path": "train.jsonl"}
    fields: dict[str, Any] = {"question": "q"}
    if is_choice:
        config["doc_to_choice"] = "options"
        fields |= {"choices": "options", "target": "right"}
    else:
        fields["target"] = "short"
    prompt: dict[str, Any] = {"template": question, "system": description, "system_delimiter": "", "chat": chat}
    prompt |= {} if chat and is_choice else {"delimiter": delimiter}
    keys = {
        "dataset": {"path": "test.jsonl", "fields": fields},
        "score": {"choice": {"normalize": "sum"}} if is_choice else "exact",
        "prompt": {**prompt, "prefix": prefix or "", "fewshot": fewshot},
    }
    theirs = lm_eval_requests(lm_eval_task(splits, config), seed, chat=chat, multi_turn=multi_turn)
    assert our_requests(splits, keys) == theirs


@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("sampler", ["default", "first_n"])
def test_matching_examples_are_those_of_a_task_for_each_subject(sampler: str, is_own: bool) -> None:
    splits = {name: [row(place, name) for place in range(14)] for name in ("test", "train")}
    theirs: list[tuple[str, ...]] = []
    for subject in ("law", "art"):
        config = {
            "output_type": "generate_until",
            "test_split": "test",
            "fewshot_split": "test" if is_own else "train",
            "doc_to_text": "{{about}}: {{q}}",
            "doc_to_target": "short",
            "num_fewshot": 3,
            "metric_list": [{"metric": "exact_match"}],
            "fewshot_config": {"sampler": sampler},
        }
        of_subject = {name: [each for each in rows if each["about"] == subject] for name, rows in splits.items()}
        theirs += lm_eval_requests(lm_eval_task(of_subject, config), 1234, chat=False, multi_turn=False)
    fewshot = {"count": 3, "sampler": "lm_eval" if sampler == "default" else sampler, "match": "about"}
    keys = {
        "dataset": {"path": "test.jsonl", "fields": {"question": "q", "target": "short"}},
        "score": "exact",
        "prompt": {
            "template": "{{about}}: {{q}}",
            "fewshot": fewshot | ({} if is_own else {"path": "train.jsonl"}),
        },
    }
    assert sorted(our_requests(splits, keys)) == sorted(theirs)


def sample(id_: str, value: int) -> Sample:
    return Sample(id=id_, path="d", line=None, variables={"row": {"value": value}})


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    st.integers(1, 30),
    st.booleans(),
    st.integers(0, 5),
)
@example([1] * 3 + [*range(2, 10)], [], 5, True, 0)  # rows that stand twice: drawn again from the others
@example([*range(30)], [], 22, True, 0)  # past the size at which random.sample changes its method
def test_draws_are_lm_evals(documents: list[int], others: list[int], count: int, is_own: bool, seed: int) -> None:
    from lm_eval.api.samplers import ContextSampler

    values = documents if is_own else others
    samples = [sample(f"s{place}", value) for place, value in enumerate(documents)]
    pool = samples if is_own else [sample(f"e{place}", value) for place, value in enumerate(others)]
    theirs = ContextSampler([{"value": value} for value in values], rnd=seed)
    try:
        expected = [theirs.sample(count, {"value": value} if is_own else None) for value in documents]
    except ValueError:  # too few to draw from
        return
    spec = FewshotSpec(count=count, sampler="lm_eval", seed=seed)
    if any({"value": value} in shots for value, shots in zip(documents, expected, strict=True)):
        return  # lm-eval shows a sample to itself; see below
    shots = draw_shots(spec, pool, samples, is_own=is_own, holder="it holds")
    assert [[shot.variables["row"] for shot in shots.of(each)] for each in samples] == expected


def test_where_lm_eval_shows_a_sample_to_itself_only_that_example_differs() -> None:
    from lm_eval.api.samplers import ContextSampler

    samples = [sample(f"s{value}", value) for value in range(12)]
    pool = [sample(f"e{value}", value) for value in range(12)]
    shots = draw_shots(FewshotSpec(count=5, sampler="lm_eval"), pool, samples, is_own=False, holder="it holds")
    theirs = ContextSampler([{"value": value} for value in range(12)], rnd=1234)
    num_replaced = 0
    for value, each in enumerate(samples):
        shown = [shot.variables["row"]["value"] for shot in shots.of(each)]  # type: ignore[index]
        drawn = [row["value"] for row in theirs.sample(5)]
        for ours, its in zip(shown, drawn, strict=True):
            assert ours == its if its != value else ours not in drawn
        num_replaced += value in drawn
    assert num_replaced > 1
