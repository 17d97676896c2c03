"""A task in lm-eval and the same task here: rows, requests and numbers of both."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from pytest_llmeval.data.files import Source
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.scoring.metrics.summary import summarize
from pytest_llmeval.suites.format.overrides import parse_override
from pytest_llmeval.suites.lm_eval.groups import Leaf
from pytest_llmeval.suites.lm_eval.load import load_task
from pytest_llmeval.suites.lm_eval.translate_scoring import MetricPair
from pytest_llmeval.types import (
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    Request,
    Response,
)
from tests.lm_eval_tasks.synthetic import Row

_SEED = 1234


def theirs(config: Mapping[str, Any], splits: Any, num_fewshot: int | None) -> Any:
    """lm-eval's own task with its requests made."""
    from lm_eval.api.task import ConfigurableTask

    own = {key: value for key, value in copy.deepcopy(dict(config)).items() if key not in ("tag", "group")}
    with mock.patch("datasets.load_dataset", return_value=splits):
        task = ConfigurableTask(config=own)
    task.set_config("num_fewshot", num_fewshot if num_fewshot is not None else task.config.num_fewshot or 0)
    task.set_fewshot_seed(_SEED)
    shown: list[list[Row]] = []
    sample = task.sampler.sample

    def recorded(*args: Any, **kwargs: Any) -> Any:
        shown.append(list(sample(*args, **kwargs)))
        return shown[-1]

    task.sampler.sample = recorded
    with mock.patch("lm_eval.api.task.tqdm", lambda documents, **kwargs: documents):
        task.build_all_requests()
    task.shown_examples = shown
    return task


def ours(path: Path, splits: Any, num_fewshot: int | None, **settings: Any) -> Evaluation:
    """The same task here."""
    overrides = [] if num_fewshot is None else [parse_override(f"*: prompt.fewshot.count={num_fewshot}")]
    with mock.patch("datasets.load_dataset", return_value=splits):
        return Evaluation(load_task(Leaf(Source(path, path.name)), overrides=overrides, **settings))


def is_shown_itself(task: Any, place: int) -> bool:
    """Whether lm-eval shows the question at ``place`` to itself, which nothing here does.

    It can where the examples come from the split that is evaluated, unless that is also its ``test_split``.
    """
    return bool(task.shown_examples) and task.eval_docs[place] in task.shown_examples[place]


def their_requests(task: Any) -> dict[int, list[tuple[Any, ...]]]:
    """By document, the arguments of its instances."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for instance in task.instances:
        found.setdefault(instance.doc_id, []).append(instance.args)
    return found


def as_arguments(request: Request) -> tuple[Any, ...]:
    """Our request as lm-eval's arguments, generation settings in the words of its ``normalize_gen_kwargs``."""
    if isinstance(request, LoglikelihoodRequest):
        return request.context, request.continuation
    if isinstance(request, LoglikelihoodRollingRequest):
        return (request.text,)
    assert isinstance(request, GenerateRequest)
    made: dict[str, Any] = {
        "until": list(request.stop),
        "max_gen_toks": request.max_tokens,
        "do_sample": request.temperature > 0,
        "temperature": request.temperature,
    }
    if request.top_p != 1.0:
        made["top_p"] = request.top_p
    if request.top_k:
        made["top_k"] = request.top_k
    if request.repetition_penalty != 1:
        made["repetition_penalty"] = request.repetition_penalty
    return request.prompt, made


def normal_arguments(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """lm-eval's arguments, its generation settings as it hands them to a model."""
    from lm_eval.models.utils import normalize_gen_kwargs

    if len(arguments) == 2 and isinstance(arguments[1], dict):
        settings = dict(normalize_gen_kwargs(arguments[1]))
        if isinstance(settings["until"], str):
            settings["until"] = [settings["until"]]
        settings.setdefault("temperature", 0.0)
        if settings.get("num_beams") == 1:
            del settings["num_beams"]
        if not settings["do_sample"] or settings.get("top_k") in (0, -1):
            settings.pop("top_k", None)  # transformers does not look at it then
        if settings.get("repetition_penalty") == 1:
            del settings["repetition_penalty"]
        return arguments[0], settings
    return tuple(arguments)


def made_up(task: Any, evaluation: Evaluation, seed: str) -> tuple[list[list[Any]], list[list[Response]]]:
    """Responses to every document, as lm-eval has them and as we have them: sometimes right."""
    stream = random.Random(seed)
    their_all, our_all = [], []
    by_doc: dict[int, list[Any]] = {}
    for instance in task.instances:
        by_doc.setdefault(instance.doc_id, []).append(instance)
    for sample in evaluation.suite.samples:
        instances = by_doc[int(sample.id)]
        their_own: list[Any] = []
        our_own: list[Response] = []
        epochs = evaluation.suite.spec.epochs
        said: dict[Any, tuple[float, bool]] = {}  # synthetic rows have equal options, and a model says the same to both
        for instance in instances:
            if task.OUTPUT_TYPE == "generate_until":
                texts = [_reply(task, instance.doc, stream) for _ in range(epochs.count if epochs else 1)]
                their_own.append(texts)
                our_own += [GenerateResponse(text=text, num_tokens=3) for text in texts]
                continue
            drawn = (-stream.uniform(0.1, 30.0), stream.random() < 0.4)
            value, greedy = said.setdefault(repr(instance.args), drawn)
            rolling = task.OUTPUT_TYPE == "loglikelihood_rolling"
            their_own.append([value if rolling else (value, greedy)])
            our_own.append(LoglikelihoodResponse(loglikelihood=value, num_tokens=2, is_greedy=greedy))
        their_all.append(their_own)
        our_all.append(our_own)
    return their_all, our_all


_FRAMES = (
    "{}",
    " {} ",
    "The answer is {}.",
    "The best answer is {}",
    "So the final answer is {}\nQ: next",
    "Let me think. Answer: {}. It is so.",
    "**Final Answer**: {}",
    "#### {}",
    "({})",
    "nonsense 17, 4.5",
    "",
    "정답은 {}입니다.",
)


def _reply(task: Any, doc: Row, stream: random.Random) -> str:
    target = task.doc_to_target(doc)
    if task.config.doc_to_choice is not None and isinstance(target, int):
        target = task.doc_to_choice(doc)[target]
    if isinstance(target, list):
        target = stream.choice(target)
    wrong = stream.choice(["A", "B", "(C)", "yes", "42", "valid", "x y z"])
    return stream.choice(_FRAMES).format(target if stream.random() < 0.6 else wrong)


def their_metrics(task: Any, responses: Sequence[Sequence[Any]]) -> dict[tuple[str, str], float]:
    """lm-eval's numbers, by metric and filter pipeline."""
    by_doc: dict[int, list[Any]] = {}
    for instance in task.instances:
        by_doc.setdefault(instance.doc_id, []).append(instance)
    for instances, replies in zip(by_doc.values(), responses, strict=True):
        for instance, repeated in zip(instances, replies, strict=True):
            instance.resps = repeated
    task.apply_filters()
    raw: dict[tuple[str, str], list[Any]] = {}
    for pipeline in task.instances[0].filtered_resps:
        for instances in by_doc.values():
            found = task.process_results(instances[0].doc, [one.filtered_resps[pipeline] for one in instances])
            for metric, value in found.items():
                raw.setdefault((metric, pipeline), []).append(value)
    return {key: float(task.aggregation()[key[0]](values)) for key, values in raw.items()}


def our_metrics(
    evaluation: Evaluation, responses: Sequence[Sequence[Response]], pairs: Sequence[MetricPair]
) -> dict[tuple[str, str], float | None]:
    """Our numbers under lm-eval's names."""
    scores = [
        evaluation.score(evaluation.question(sample), own)
        for sample, own in zip(evaluation.suite.samples, responses, strict=True)
    ]
    found = summarize(scores, [pair.name for pair in pairs])
    return {(pair.metric, pair.pipeline): found[pair.name].value for pair in pairs}
