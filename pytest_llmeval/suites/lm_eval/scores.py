"""``metric_list``, ``filter_list`` and ``repeats`` of a task as ``score``, ``filters`` and ``epochs`` of a suite."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pytest_llmeval.suites.lm_eval.filters import Pipeline, above_zero, read_pipelines
from pytest_llmeval.suites.lm_eval.task_yaml import TaskFile
from pytest_llmeval.text.wording import Keys, describe, dotted, expected_one_of, quoted

__all__ = [
    "AGGREGATIONS",
    "DEFAULT_METRICS",
    "WEIGHTED_F1",
    "MetricPair",
    "Metrics",
    "Scoring",
    "read_metrics",
    "scoring_of",
]

DEFAULT_METRICS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "multiple_choice": ("acc", "acc_norm"),
        "generate_until": ("exact_match",),
        "loglikelihood": ("perplexity", "acc"),
        "loglikelihood_rolling": ("word_perplexity", "byte_perplexity", "bits_per_byte"),
    }
)
"""What lm-eval computes for a task without a ``metric_list``."""

_OF_CHOICE = MappingProxyType(
    {
        "acc": "accuracy_sum_first",  # of equally likely options it takes the first
        "acc_norm": "accuracy_char_first",
        "acc_bytes": "accuracy_byte_first",
        "acc_mutual_info": "accuracy_pmi_first",
        "brier_score": "brier_sum",
        "f1": "f1_binary",
        "mcc": "mcc",
        "exact_match": "greedy_match",
    }
)
_OF_REPLY = MappingProxyType(
    {"exact_match": "accuracy", "bleu": "bleu_4", "chrf": "chrf", "chrf++": "chrf++", "ter": "ter"}
)
_REPLY_SCORES: Mapping[str, Any] = MappingProxyType(
    {
        "bleu": {"bleu": {"k": [4]}},
        "chrf": {"chrf": {"word_order": [0]}},
        "chrf++": {"chrf": {"word_order": [2]}},
        "ter": "ter",
    }
)
_OF_TARGET = MappingProxyType({"acc": "accuracy", "perplexity": "perplexity"})
_OF_TEXT = MappingProxyType({name: name for name in DEFAULT_METRICS["loglikelihood_rolling"]})
_NAMES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "multiple_choice": _OF_CHOICE,
        "generate_until": _OF_REPLY,
        "loglikelihood": _OF_TARGET,
        "loglikelihood_rolling": _OF_TEXT,
    }
)
"""By output type: lm-eval's metrics, and ours of the same value."""

AGGREGATIONS: Mapping[str, str] = MappingProxyType(
    {
        "bleu": "bleu",
        "chrf": "chrf",
        "chrf++": "chrf++",
        "ter": "ter",
        "perplexity": "perplexity",
        "word_perplexity": "weighted_perplexity",
        "byte_perplexity": "weighted_perplexity",
        "bits_per_byte": "bits_per_byte",
        "brier_score": "brier_score",
        "mcc": "matthews_corrcoef",
        "f1": "f1",
    }
)
"""By metric, how lm-eval makes one number of the samples' where a task does not say; of all others it is the mean."""

WEIGHTED_F1 = "weighted_f1"
"""An aggregation that lm-eval has as the function ``lm_eval.utils.weighted_f1_score`` alone, which tasks name."""

_NORMALIZE = MappingProxyType({"acc": "sum", "acc_norm": "char", "acc_bytes": "byte", "acc_mutual_info": "pmi"})
_MATCH_ARGUMENTS = ("ignore_case", "ignore_punctuation", "ignore_numbers", "regexes_to_ignore")
_PART_NAME = re.compile(r"[^\w@^-]+")


@dataclass(frozen=True, slots=True)
class MetricPair:
    """``metric`` and ``pipeline`` are lm-eval's (``acc,none`` in its results); ``name`` is our metric of that value."""

    metric: str
    pipeline: str
    name: str


@dataclass(frozen=True, slots=True)
class MetricEntry:
    """A metric of lm-eval's, ours of that value, its arguments, and its keys in the task file."""

    name: str
    ours: str
    arguments: Mapping[str, Any]
    keys: Keys


@dataclass(frozen=True, slots=True)
class Metrics:
    """A task's metrics in order."""

    output_type: str
    entries: tuple[MetricEntry, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.entries)


@dataclass(frozen=True, slots=True)
class Scoring:
    """What of a suite says how replies are scored, and what its numbers are called in lm-eval."""

    score: Any
    filters: list[Any]
    epochs: Any
    pairs: tuple[MetricPair, ...]


def read_metrics(task: TaskFile, output_type: str) -> Metrics:
    """The task's ``metric_list``, checked. Raises ``SuiteError``."""
    given = task.value.get("metric_list")
    if given is None:
        ours = _NAMES[output_type]
        default = DEFAULT_METRICS[output_type]
        return Metrics(output_type, tuple(MetricEntry(name, ours[name], {}, ("output_type",)) for name in default))
    if not isinstance(given, list) or not given:
        raise task.wrong(("metric_list",), given, "a list of metrics")
    entries = []
    for place, entry in enumerate(given):
        keys: Keys = ("metric_list", place)
        if not isinstance(entry, dict) or "metric" not in entry:
            raise task.wrong(keys, entry, "a mapping with the key metric")
        entries.append(_entry(task, entry, keys, output_type))
    return Metrics(output_type, tuple(entries))


def _entry(task: TaskFile, entry: Mapping[str, Any], keys: Keys, output_type: str) -> MetricEntry:
    name = entry["metric"]
    known = _NAMES[output_type]
    if not isinstance(name, str) or name not in known:
        message = f"found {describe(name)}, which is not supported for {output_type}"
        raise task.error_at((*keys, "metric"), message + expected_one_of(str(name), known))
    expected = AGGREGATIONS.get(name, "mean")
    aggregation = entry.get("aggregation", expected)
    is_weighted = (output_type, name, aggregation) == ("multiple_choice", "f1", WEIGHTED_F1)
    if aggregation != expected and not is_weighted:
        raise task.wrong((*keys, "aggregation"), aggregation, f"{expected} for {name}")
    arguments = {key: value for key, value in entry.items() if key not in ("metric", "aggregation", "higher_is_better")}
    if not isinstance(arguments.pop("weight_by_size", True), bool):  # for a group's mean; no task's number has it
        raise task.error_at((*keys, "weight_by_size"), "expected true or false")
    if arguments.get("hf_evaluate") is False:
        del arguments["hf_evaluate"]
    takes = _MATCH_ARGUMENTS if (output_type, name) == ("generate_until", "exact_match") else ()
    if output_type == "multiple_choice":  # lm-eval hands them to a function that it does not call: likelihoods decide
        arguments = {key: value for key, value in arguments.items() if key not in (*_MATCH_ARGUMENTS, "hf_evaluate")}
    if is_weighted and arguments.get("average") == "weighted":
        del arguments["average"]
    for key in arguments:
        if key not in takes:
            why = expected_one_of(key, takes) if takes else f"; lm-eval's {name} of {output_type} takes no argument"
            raise task.error(f"unknown argument {quoted(key)} in {dotted(keys)}{why}", (*keys, key))
    return MetricEntry(name, "f1_weighted" if is_weighted else known[name], arguments, keys)


def scoring_of(task: TaskFile, metrics: Metrics) -> Scoring:
    """The task's scoring in the suite format. Raises ``SuiteError`` for what has no like there."""
    match metrics.output_type:
        case "multiple_choice":
            return _choice(task, metrics)
        case "loglikelihood":
            return Scoring("continuation", [], None, _pairs(task, metrics))
        case "loglikelihood_rolling":
            return Scoring("perplexity", [], None, _pairs(task, metrics))
        case _:
            return _replies(task, metrics)


def _pairs(task: TaskFile, metrics: Metrics) -> tuple[MetricPair, ...]:
    return tuple(
        MetricPair(entry.name, pipeline.name, entry.ours)
        for pipeline in read_pipelines(task, needs_first=True)
        for entry in metrics.entries
    )


def _choice(task: TaskFile, metrics: Metrics) -> Scoring:
    """``accuracy`` is the first of the task's accuracies."""
    first = next((name for name in metrics.names if name in _NORMALIZE), "acc")
    settings: dict[str, Any] = {"normalize": _NORMALIZE[first], "ties": "first"}
    if "brier_score" in metrics.names and settings["normalize"] != "sum":
        message = f"brier_score uses the same probabilities as acc; write the metric acc before {first}"
        raise task.error_at(metrics.entries[metrics.names.index("brier_score")].keys, message)
    further = [entry.ours for entry in metrics.entries if entry.name in ("f1", "mcc", "exact_match")]
    if "acc_mutual_info" in metrics.names and settings["normalize"] != "pmi":
        further.append("accuracy_pmi")
    if further:
        settings["metrics"] = further
    return Scoring({"choice": settings}, [], None, _pairs(task, metrics))


def _replies(task: TaskFile, metrics: Metrics) -> Scoring:
    repeats = above_zero(task, task.value.get("repeats", 1), ("repeats",))
    pipelines = read_pipelines(task, repeats=repeats)
    needs_epochs = any(pipeline.reduce != "first" for pipeline in pipelines)
    epochs = None
    parts: dict[str, Any] = {}
    pairs: list[MetricPair] = []
    several = len(pipelines) * len(metrics.names) > 1
    for pipeline in pipelines:
        for entry in metrics.entries:
            metric = entry.name
            part: dict[str, Any] = {"filters": list(pipeline.filters)} if pipeline.filters else {}
            part["score"] = _reply_score(task, metric, entry.arguments, entry.keys)
            if needs_epochs:
                part["reduce"] = pipeline.reduce
            name = _part_name(pipeline, metric, len(pipelines), len(metrics.names))
            while name in parts:
                name += "_"
            prefix = f"{name}." if parts else ""
            parts[name] = part
            pairs.append(MetricPair(metric, pipeline.name, prefix + entry.ours))
    if needs_epochs:
        epochs = {"count": repeats, "reduce": pipelines[0].reduce}
    if several:
        return Scoring({"several": {"scorers": parts}}, [], epochs, tuple(pairs))
    (part,) = parts.values()
    return Scoring(part["score"], part.get("filters", []), epochs, tuple(pairs))


def _part_name(pipeline: Pipeline, metric: str, num_pipelines: int, num_metrics: int) -> str:
    own = _PART_NAME.sub("_", pipeline.name).strip("_")
    safe = metric.replace("+", "p")
    name = own if num_metrics == 1 else safe if num_pipelines == 1 else f"{own}-{safe}"
    return name if name[:1].isalpha() else f"pipeline_{name}"


def _reply_score(task: TaskFile, metric: str, arguments: Mapping[str, Any], keys: Keys) -> Any:
    return _REPLY_SCORES.get(metric) or {"exact": _match_settings(task, arguments, keys)}


def _match_settings(task: TaskFile, arguments: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    """lm-eval leaves out what matches, then sets in lower case, then takes off ASCII punctuation, then digits."""
    ignored = arguments.get("regexes_to_ignore")
    if ignored is None:
        ignored = []
    if not isinstance(ignored, list) or not all(isinstance(pattern, str) for pattern in ignored):
        raise task.wrong((*keys, "regexes_to_ignore"), ignored, "a list of texts")
    steps: list[Any] = [{"remove": pattern} for pattern in ignored]
    for key, name in (
        ("ignore_case", "lower"),
        ("ignore_punctuation", "no_ascii_punctuation"),
        ("ignore_numbers", "no_digits"),
    ):
        if task.checked((*keys, key), arguments.get(key, False), bool, "true or false"):
            steps.append(name)
    return {"normalize": steps, "allow_empty": True} if steps else {"normalize": steps}
