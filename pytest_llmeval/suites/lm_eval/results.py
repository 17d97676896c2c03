"""What a task's ``process_results`` gives, as the values of a suite's metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_llmeval.suites.lm_eval.filters import read_pipelines
from pytest_llmeval.suites.lm_eval.scores import AGGREGATIONS, DEFAULT_METRICS, MetricPair, Scoring
from pytest_llmeval.suites.lm_eval.task_code import TaskCode
from pytest_llmeval.suites.lm_eval.task_spec import MetricSpec

__all__ = ["SCORER", "ResultsSpec", "results_scoring"]

SCORER = "task_code"
"""The name under which the scorer of such a task is registered for its suite alone."""

_RIGHT = ("exact_match", "acc", "em")
_POOLED = {"word_perplexity": "words", "byte_perplexity": "bytes", "bits_per_byte": "bytes"}


@dataclass(frozen=True, slots=True)
class ResultsSpec:
    """How a sample's responses become values: ``process(document, results)`` gives a number for each of ``names``.

    ``names`` are lm-eval's, with ours. Those of ``pooled`` are pairs of a log-likelihood and a length, which is the
    ingredient that it names.
    """

    output_type: str
    process: Callable[[dict[str, Any], list[Any]], dict[str, Any]]
    names: dict[str, str]
    pooled: dict[str, str]


def results_scoring(code: TaskCode) -> tuple[Scoring, ResultsSpec]:
    """The scoring of a task with ``process_results``. Raises ``SuiteError`` for an aggregation not known here."""
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
