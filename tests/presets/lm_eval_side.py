"""lm-eval's own task beside a suite: the same rows, the same made-up responses, its requests and its numbers.

Only ``comparisons`` imports it, and only when something is compared: lm-eval takes seconds to import.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest import mock

import datasets
import lm_eval
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks._yaml_loader import load_yaml

from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.types import (
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    Prompt,
    Request,
    Response,
    Score,
)

TASKS = Path(lm_eval.__file__).parent / "tasks"
Row = dict[str, Any]
MAX_GEN_TOKS = 256
"""What lm-eval's model of Hugging Face generates where a task does not say it (``max_gen_toks`` of ``HFLM``)."""


@dataclass
class Peer:
    """A task of lm-eval over given rows. ``replies`` are what a model is made to write, in turn."""

    file: str
    splits: Mapping[str, Sequence[Row]]
    replies: Sequence[str] = ()
    num_fewshot: int | None = None
    task: Any = field(init=False)

    def __post_init__(self) -> None:
        splits = {
            **dict.fromkeys(("train", "dev", "validation", "test"), next(iter(self.splits.values()))),
            **self.splits,
        }
        data = datasets.DatasetDict(
            {name: datasets.Dataset.from_list([dict(row) for row in rows]) for name, rows in splits.items()}
        )
        with _parser_of_minerva(), mock.patch("evaluate.load"):  # code_eval of HumanEval and MBPP is on the hub
            config = load_yaml(TASKS / self.file, resolve_func=True)
            with mock.patch("datasets.load_dataset", return_value=data):
                self.task = ConfigurableTask(config=config)
        self.task.set_fewshot_seed(1234)
        if self.num_fewshot is not None:
            self.task.set_config("num_fewshot", self.num_fewshot)
        self.instances: list[list[Any]] = []
        for number, doc in enumerate(self._documents()):
            context = self.task.fewshot_context(doc, num_fewshot=self.task.config.num_fewshot or 0)
            made = self.task.construct_requests(
                doc=doc, ctx=context, metadata=(self.task.config.task, number, 1), apply_chat_template=False
            )
            self.instances.append(made if isinstance(made, list) else [made])

    def _documents(self) -> list[Row]:
        """Return the task's documents, the options of GPQA's in the order in which the preset shows them."""
        with mock.patch("random.shuffle", _order_of_gpqa(next(iter(self.splits.values())))):
            return list(self.task.eval_docs)

    def arguments(self) -> list[list[tuple[Any, ...]]]:
        """Return what each document's requests hold."""
        return [[instance.arguments for instance in own] for own in self.instances]

    def chat_arguments(self, *, multi_turn: bool) -> list[list[tuple[Any, ...]]]:
        """Return what each document's requests hold under a chat template, with examples as turns or in the
        question.
        """
        self.task.set_fewshot_seed(1234)
        self.task.build_all_requests(
            apply_chat_template=True, fewshot_as_multiturn=multi_turn, chat_template=as_chat, rank=0, world_size=1
        )
        found: dict[int, list[tuple[Any, ...]]] = {}
        for instance in self.task.instances:
            found.setdefault(instance.doc_id, []).append(comparable(instance.arguments))
        return list(found.values())

    def numbers(self) -> dict[str, list[Any]]:
        """Return each document's metrics, by ``metric`` or ``metric,filter``, for the made-up responses.

        A metric of the whole task has a pair here, such as a log-likelihood and a number of words.
        """
        for place, own in enumerate(self.instances):
            for instance in own:
                instance.resps = [response_of(instance.arguments, self.replies, place)]
        self.task._instances = [instance for own in self.instances for instance in own]
        self.task.apply_filters()
        found: dict[str, list[Any]] = {}
        keys = list(self.instances[0][0].filtered_resps)
        for key in keys:
            for own in self.instances:
                results = [instance.filtered_resps[key] for instance in own]
                for metric, value in self.task.process_results(own[0].doc, results).items():
                    found.setdefault(f"{metric},{key}" if len(keys) > 1 else metric, []).append(value)
        return found

    def total(self, name: str, values: Sequence[Any]) -> float:
        """Return what lm-eval makes of a metric's values of all documents; ``name`` as in ``numbers``."""
        return float(self.task.aggregation()[name.partition(",")[0]](values))


@contextmanager
def _parser_of_minerva() -> Iterator[None]:
    """Have lm-eval believe that the release of a parser is installed that its task of Minerva asks for, and that
    Math-Verify here does not take. Only its requests are compared then; its numbers are where the scorer is tested.
    """
    version = metadata.version
    with mock.patch.object(metadata, "version", lambda name: "4.11" if name.startswith("antlr4") else version(name)):
        yield


def _order_of_gpqa(rows: Sequence[Row]) -> Callable[[list[str]], None]:
    """Return a ``shuffle`` for lm-eval that puts the right option, the last of four, into the place that the last
    character of the row's Record ID gives.
    """
    characters = string.digits + string.ascii_uppercase + string.ascii_lowercase
    places = cycle([characters.index(row["Record ID"][-1]) % 4 for row in rows if "Record ID" in row])

    def shuffle(options: list[str]) -> None:
        options.insert(next(places), options.pop())

    return shuffle


def as_chat(messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
    """A chat template that loses nothing."""
    return json.dumps([messages, add_generation_prompt])


def _as_text(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    turns = [{"role": message.role, "content": message.content} for message in prompt]
    return as_chat(turns, add_generation_prompt=prompt[-1].role != "assistant")


def response_of(arguments: tuple[Any, ...], replies: Sequence[str], place: int) -> Any:
    """Return what the made-up model answers: a reply in turn, or a log-likelihood drawn from the request's own text."""
    if len(arguments) > 1 and isinstance(arguments[1], dict):
        return replies[place % len(replies)]
    drawn = random.Random(repr(arguments[:2]))
    value = -drawn.uniform(1, 20)
    return (value, drawn.random() < 0.5) if len(arguments) > 1 else value


def ours_of(request: Request, replies: Sequence[str], place: int) -> Response:
    """Return the same answer in our types."""
    if isinstance(request, GenerateRequest):
        return GenerateResponse(text=replies[place % len(replies)])
    if isinstance(request, LoglikelihoodRollingRequest):
        return LoglikelihoodResponse(loglikelihood=response_of((request.text,), (), place), num_tokens=3)
    if not isinstance(request, LoglikelihoodRequest):
        raise TypeError(type(request))
    value, is_greedy = response_of((request.context, request.continuation), (), place)
    return LoglikelihoodResponse(loglikelihood=value, is_greedy=is_greedy, num_tokens=3)


def arguments_of(request: Request) -> tuple[Any, ...]:
    """Return our request as lm-eval writes its own, a chat as the text that ``as_chat`` makes of it."""
    if isinstance(request, GenerateRequest):
        settings = {
            "until": list(request.stop),
            "temperature": request.temperature,
            "max_gen_toks": request.max_tokens,
        }
        return _as_text(request.prompt), settings
    if isinstance(request, LoglikelihoodRollingRequest):
        return (request.text,)
    if not isinstance(request, LoglikelihoodRequest):
        raise TypeError(type(request))
    return _as_text(request.context), request.continuation


def comparable(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return lm-eval's arguments, with generation settings as ``arguments_of`` has them."""
    if len(arguments) > 1 and isinstance(arguments[1], dict):
        settings = arguments[1]
        return arguments[0], {
            "until": settings["until"],
            "temperature": float(settings.get("temperature", 0.0)),
            "max_gen_toks": settings.get("max_gen_toks", MAX_GEN_TOKS),
        }
    return arguments[:2]


def scores_of(evaluation: Evaluation, replies: Sequence[str]) -> list[Score]:
    """Return our score of each sample."""
    found = []
    for place, sample in enumerate(evaluation.suite.samples):
        question = evaluation.question(sample)
        found.append(evaluation.score(question, [ours_of(request, replies, place) for request in question.requests]))
    return found
