"""The scorer of a task of lm-eval that judges by a Python function of its own, ``process_results``."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scoring.base import PreparedSample, Scorer, reply_request
from pytest_llmeval.scoring.references import quote
from pytest_llmeval.scoring.responses import loglikelihoods, reply, status_of_credit
from pytest_llmeval.suites.lm_eval.task_code import TaskCode
from pytest_llmeval.suites.lm_eval.task_file import MetricSpec
from pytest_llmeval.suites.lm_eval.translate_scoring import (
    AGGREGATIONS,
    DEFAULT_METRICS,
    MetricPair,
    Scoring,
    read_pipelines,
)
from pytest_llmeval.types import (
    JSON,
    LoglikelihoodRequest,
    LoglikelihoodRollingRequest,
    Prompt,
    Request,
    Response,
    Sample,
    Score,
    Status,
)

__all__ = ["SCORER", "ResultsSpec", "TaskResultsScorer", "results_scoring", "task_results_scorer"]

SCORER = "task_code"
"""The name under which the scorer of such a task is registered for its suite alone."""

_RIGHT = ("exact_match", "acc", "em")
"""Metrics of lm-eval that are 1 or 0 for right or wrong. The first of these that a task has becomes its accuracy."""
_POOLED = {"word_perplexity": "words", "byte_perplexity": "bytes", "bits_per_byte": "bytes"}
"""Metrics that are computed over all samples at once, with the ingredient that is a sample's length."""


@dataclass(frozen=True, slots=True)
class ResultsSpec:
    """The rule by which a sample's responses become values: ``process(document, results)`` gives a number for each of
    ``names``.

    ``names`` has lm-eval's names of metrics, with ours. For a metric in ``pooled`` the function gives a log-likelihood
    and a length, and ``pooled`` names the ingredient that the length is.
    """

    output_type: str
    process: Callable[[dict[str, Any], list[Any]], dict[str, Any]]
    names: dict[str, str]
    pooled: dict[str, str]


def results_scoring(code: TaskCode) -> tuple[Scoring, ResultsSpec]:
    """Return the scoring of a task with ``process_results``. Raises ``SuiteError`` for an aggregation not known
    here.
    """
    task = code.task
    output_type = task.spec.output_type
    entries = task.spec.metric_list or [MetricSpec(metric=name) for name in DEFAULT_METRICS[output_type]]
    names: dict[str, str] = {}
    pooled: dict[str, str] = {}
    for place, entry in enumerate(entries):
        metric, keys = entry.metric, ("metric_list", place)
        if not isinstance(metric, str):
            raise task.wrong((*keys, "metric"), metric, "the name of a metric")
        aggregation = AGGREGATIONS.get(metric, "mean") if entry.aggregation is None else entry.aggregation
        if metric in _POOLED and aggregation == AGGREGATIONS[metric]:
            pooled[metric] = _POOLED[metric]
            names[metric] = metric
        elif aggregation == "mean":
            names[metric] = metric
        else:
            raise task.wrong((*keys, "aggregation"), aggregation, "mean for a metric of process_results")
    right = next((metric for metric in _RIGHT if metric in names), None)
    if right is not None:
        names[right] = "accuracy"
    pipelines = read_pipelines(task)
    if len(pipelines) > 1:
        raise task.error_at(("filter_list",), "found several pipelines, expected one beside process_results")

    def process(document: dict[str, Any], results: list[Any]) -> dict[str, Any]:
        made: dict[str, Any] = code.functions[("process_results",)](document, results)
        return made

    pairs = tuple(MetricPair(metric, pipelines[0].name, name) for metric, name in names.items())
    scoring = Scoring({SCORER: {}}, list(pipelines[0].filters), None, pairs)
    return scoring, ResultsSpec(output_type, process, names, pooled)


@dataclass(frozen=True, slots=True)
class TaskResultsScorer(Scorer):
    """A scorer that asks what lm-eval asks for the task's output type, and has its function judge the responses."""

    results: ClassVar[ResultsSpec]

    name = "task_code"

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(self.results.names.values())

    def present(self, sample: Sample) -> PreparedSample:
        """Return the sample as it is; the function knows what is right."""
        return PreparedSample(sample=sample, choices=sample.choices, target=_shown(sample.target))

    def answer_text(self, presented: PreparedSample) -> str:
        """Return the option or the text that the target is, or the first of several."""
        target = presented.sample.target
        first = target[0] if isinstance(target, list) and target else target
        is_index = isinstance(first, int) and not isinstance(first, bool) and 0 <= first < len(presented.choices)
        return presented.choices[first] if is_index and isinstance(first, int) else _text(first)

    def requests(
        self, presented: PreparedSample, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """Ask for a reply; or for the log-likelihood of each option, of the target, or of the whole text."""
        match self.results.output_type:
            case "multiple_choice":
                if not presented.choices:
                    raise ValueError("the sample has no choices")
                return tuple(LoglikelihoodRequest(prompt, delimiter + choice) for choice in presented.choices)
            case "loglikelihood":
                return (LoglikelihoodRequest(prompt, delimiter + self.answer_text(presented)),)
            case "loglikelihood_rolling":
                if not isinstance(prompt, str) or not prompt:
                    raise ValueError("the text is empty, or the turns of a chat: there is nothing to score")
                return (LoglikelihoodRollingRequest(prompt),)
            case _:
                return (reply_request(prompt, generate),)

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Return the function's judgement. Raise ``RequestError`` if it raises, or returns something that is none."""
        output_type = self.results.output_type
        results: list[Any]
        answer = None
        if output_type == "generate_until":
            answer = reply(responses)
            results = [answer]
        else:
            found = loglikelihoods(responses, len(responses))
            is_rolling = output_type == "loglikelihood_rolling"
            results = [one.loglikelihood if is_rolling else (one.loglikelihood, one.is_greedy) for one in found]
        document = copy.deepcopy(dict(presented.sample.variables["row"]))  # type: ignore[call-overload]
        try:
            made = self.results.process(document, results)
        except Exception as error:
            raise RequestError(f"the task's process_results raised {type(error).__name__}: {error}") from error
        if not isinstance(made, Mapping):
            raise RequestError(f"the task's process_results returned a {type(made).__name__}, expected metrics")
        values = self._values(made)
        right = values.get("accuracy")
        status: Status = "scored" if right is None else status_of_credit(right)
        return Score(status=status, answer=answer, values=values)

    def _values(self, made: Mapping[str, Any]) -> dict[str, float]:
        values: dict[str, float] = {}
        for metric, name in self.results.names.items():
            if metric not in made:
                raise RequestError(f"the task's process_results returned no {metric}")
            if metric in self.results.pooled:
                likelihood, length = made[metric]
                values["loglikelihood"] = _finite(metric, likelihood)
                values[self.results.pooled[metric]] = _finite(metric, length)
            else:
                values[name] = _finite(metric, made[metric])
        return values


def task_results_scorer(results: ResultsSpec) -> type[TaskResultsScorer]:
    """Return the scorer of one task, as a class without settings."""
    return type("TaskResults", (TaskResultsScorer,), {"results": results, "__slots__": ()})


def _finite(metric: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RequestError(f"the task's {metric} is {quote(value)}, expected a number") from None
    if not math.isfinite(number):
        raise RequestError(f"the task's {metric} is {number}, expected a finite number")
    return number


def _shown(target: JSON) -> str | tuple[str, ...]:
    if isinstance(target, list):
        return tuple(map(_text, target))
    return _text(target)


def _text(target: JSON) -> str:
    return "" if target is None else target if isinstance(target, str) else str(target)
