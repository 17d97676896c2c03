"""``metric_list``, ``filter_list`` and ``repeats`` of a task as ``score``, ``filters`` and ``epochs`` of a suite."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from pytest_llmeval.suites.lm_eval.task_file import MetricSpec, PipelineSpec, StepSpec, TaskFile
from pytest_llmeval.text.wording import Keys, describe, dotted, expected_one_of, quoted

__all__ = [
    "AGGREGATIONS",
    "DEFAULT_METRICS",
    "WEIGHTED_F1",
    "FilterSteps",
    "MetricPair",
    "Scoring",
    "looks_at_choices",
    "read_pipelines",
    "scoring_of",
]


_INVALID = "[invalid]"
_REGEX = ("regex_pattern", "group_select", "fallback")
_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "take_first": (),
    "take_first_k": ("k",),
    "majority_vote": (),
    "regex": _REGEX,
    "multi_choice_regex": (*_REGEX, "ignore_case", "ignore_punctuation", "regexes_to_ignore"),
    "remove_whitespace": (),
    "lowercase": (),
    "uppercase": (),
    "map": ("mapping_dict", "default_value"),
}
_PLAIN = {"remove_whitespace": "strip", "lowercase": "lower", "uppercase": "upper"}


@dataclass(frozen=True, slots=True)
class FilterSteps:
    """A pipeline of lm-eval as filters of a suite; ``reduce`` makes one score of the replies to repeated questions."""

    name: str
    filters: tuple[Any, ...]
    reduce: str


def read_pipelines(task: TaskFile, *, needs_first: bool = False) -> tuple[FilterSteps, ...]:
    """Return the task's pipelines; without a ``filter_list`` the one called ``none``, which takes the first reply.

    ``needs_first``: no other makes sense, since what is filtered is not a text. Raises ``SuiteError``.
    """
    if task.spec.filter_list is None:
        return (FilterSteps("none", (), "first"),)
    pipelines = [_pipeline(task, spec, ("filter_list", place)) for place, spec in enumerate(task.spec.filter_list)]
    for place, pipeline in enumerate(pipelines):
        if needs_first and (pipeline.filters or pipeline.reduce != "first"):
            message = "this output_type has no reply that could be filtered; expected take_first"
            raise task.error_at(("filter_list", place), message)
        if pipeline.name in [other.name for other in pipelines[:place]]:
            message = f"found {quoted(pipeline.name)} twice, expected each name once"
            raise task.error_at(("filter_list", place, "name"), message)
    return tuple(pipelines)


def looks_at_choices(task: TaskFile) -> bool:
    """Tell whether a filter of the task looks for a choice in the reply."""
    steps = [step for pipeline in task.spec.filter_list or () for step in pipeline.filter]
    return any(step.function == "multi_choice_regex" for step in steps)


def _pipeline(task: TaskFile, spec: PipelineSpec, keys: Keys) -> FilterSteps:
    repeats = task.spec.repeats
    filters: list[Any] = []
    limit: int | None = None
    reduce = ""
    for place, step in enumerate(spec.filter):
        at: Keys = (*keys, "filter", place)
        arguments = _arguments(task, step, at)
        match step.function:
            case "take_first":
                reduce = reduce or "first"
            case "take_first_k":
                if filters or reduce:
                    raise task.error_at(at, "expected take_first_k before all other filters")
                found = arguments.get("k")
                if not _is_whole(found) or found < 1:
                    raise task.wrong((*at, "k"), found, "a whole number above 0")
                limit = found
                if limit > repeats:
                    raise task.error_at((*at, "k"), f"needs {limit} replies, found repeats: {repeats}")
            case "majority_vote":
                if reduce:
                    raise task.error_at(at, "one reply is left, expected a vote before that")
                reduce = "mode" if limit is None or limit == repeats else f"mode@{limit}"
            case _:
                if reduce and reduce != "first":
                    raise task.error_at(at, "expected a filter of replies before they are voted on")
                filters += _filter(task, step.function, arguments, at)
    if not reduce:
        raise task.error(f"{dotted(keys)}.filter: expected take_first at the end, which takes one of the replies", keys)
    return FilterSteps(spec.name, tuple(filters), reduce)


def _arguments(task: TaskFile, step: StepSpec, keys: Keys) -> dict[str, Any]:
    known, arguments = _ARGUMENTS.get(step.function), step.model_extra or {}
    if known is None:
        message = f"there is no filter {quoted(step.function)} here{expected_one_of(step.function, _ARGUMENTS)}"
        raise task.error_at((*keys, "function"), message)
    for key in arguments:
        if key not in known:
            message = f"unknown argument {quoted(key)} of {step.function} in {dotted(keys)}"
            raise task.error(message + expected_one_of(key, known), (*keys, key))
    return arguments


def _filter(task: TaskFile, function: str, arguments: Mapping[str, Any], keys: Keys) -> list[Any]:
    if function in _PLAIN:
        return [_PLAIN[function]]
    if function == "map":
        return [_map(task, arguments, keys)]
    pattern, select = arguments.get("regex_pattern", r"#### (\-?[0-9\.\,]+)"), arguments.get("group_select", 0)
    if not isinstance(pattern, str):
        raise task.wrong((*keys, "regex_pattern"), pattern, "text")
    if not _is_whole(select):
        raise task.wrong((*keys, "group_select"), select, "a whole number")
    settings: dict[str, Any] = {"pattern": pattern}
    if select != 0:
        settings["match"] = "last" if select == -1 else select
    fallback = arguments.get("fallback", _INVALID)
    if fallback != _INVALID:
        settings["fallback"] = fallback
    if function == "multi_choice_regex":
        for key, name in (("ignore_case",) * 2, ("ignore_punctuation",) * 2, ("regexes_to_ignore", "ignore")):
            if arguments.get(key) not in (None, False):
                settings[name] = arguments[key]
        return [{"choice_regex": settings}]
    return [{"regex": settings}]


def _map(task: TaskFile, arguments: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    mapping = arguments.get("mapping_dict")
    if not isinstance(mapping, dict) or not mapping:
        raise task.wrong((*keys, "mapping_dict"), mapping, "a mapping")
    settings: dict[str, Any] = {"values": mapping}
    if arguments.get("default_value") is not None:
        settings["default"] = arguments["default_value"]
    return {"map": settings}


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class _Known:
    """The counterpart of a metric of lm-eval.

    ``ours`` is our metric of the same value. ``aggregation`` is how lm-eval makes one number of the samples' where a
    task does not say. ``setting`` is the ``normalize`` of ``score: choice`` that makes the metric its accuracy, or the
    scorer of a reply.
    """

    ours: str
    aggregation: str = "mean"
    setting: Any = None


_METRICS: Mapping[str, Mapping[str, _Known]] = {
    "multiple_choice": {
        "acc": _Known("accuracy_sum_first", setting="sum"),  # of equally likely options it takes the first
        "acc_norm": _Known("accuracy_char_first", setting="char"),
        "acc_bytes": _Known("accuracy_byte_first", setting="byte"),
        "acc_mutual_info": _Known("accuracy_pmi_first", setting="pmi"),
        "brier_score": _Known("brier_sum", "brier_score"),
        "f1": _Known("f1_binary", "f1"),
        "mcc": _Known("mcc", "matthews_corrcoef"),
        "exact_match": _Known("greedy_match"),
    },
    "generate_until": {
        "exact_match": _Known("accuracy"),
        "bleu": _Known("bleu_4", "bleu", {"bleu": {"k": [4]}}),
        "chrf": _Known("chrf", "chrf", {"chrf": {"word_order": [0]}}),
        "chrf++": _Known("chrf++", "chrf++", {"chrf": {"word_order": [2]}}),
        "ter": _Known("ter", "ter", "ter"),
    },
    "loglikelihood": {"acc": _Known("accuracy"), "perplexity": _Known("perplexity", "perplexity")},
    "loglikelihood_rolling": {
        "word_perplexity": _Known("word_perplexity", "weighted_perplexity"),
        "byte_perplexity": _Known("byte_perplexity", "weighted_perplexity"),
        "bits_per_byte": _Known("bits_per_byte", "bits_per_byte"),
    },
}
"""lm-eval's metrics, by output type."""

AGGREGATIONS = {name: known.aggregation for metrics in _METRICS.values() for name, known in metrics.items()}
"""The aggregation by which lm-eval makes one number of the samples' where a task does not say; for other metrics it is
the mean."""

DEFAULT_METRICS: Mapping[str, tuple[str, ...]] = {
    "multiple_choice": ("acc", "acc_norm"),
    "generate_until": ("exact_match",),
    "loglikelihood": ("perplexity", "acc"),
    "loglikelihood_rolling": ("word_perplexity", "byte_perplexity", "bits_per_byte"),
}
"""The metrics that lm-eval computes for a task without a ``metric_list``."""

WEIGHTED_F1 = "weighted_f1"
"""An aggregation that lm-eval has as the function ``lm_eval.utils.weighted_f1_score`` alone, which tasks name."""

_MATCH_ARGUMENTS = ("ignore_case", "ignore_punctuation", "ignore_numbers", "regexes_to_ignore")
_PART_NAME = re.compile(r"[^\w@^-]+")


@dataclass(frozen=True, slots=True)
class MetricPair:
    """A metric and pipeline of lm-eval (``acc,none`` in its results), and the ``name`` of our metric of that value."""

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
class Scoring:
    """The keys of a suite that say how replies are scored, and the names of its numbers in lm-eval."""

    score: Any
    filters: list[Any]
    epochs: Any
    pairs: tuple[MetricPair, ...]


def scoring_of(task: TaskFile) -> Scoring:
    """Return the task's scoring in the suite format. Raises ``SuiteError`` for what has no equivalent there."""
    entries = _entries(task)
    match task.spec.output_type:
        case "multiple_choice":
            return _choice(task, entries)
        case "loglikelihood":
            return Scoring("continuation", [], None, _pairs(task, entries))
        case "loglikelihood_rolling":
            return Scoring("perplexity", [], None, _pairs(task, entries))
        case "generate_until":
            return _replies(task, entries)


def _entries(task: TaskFile) -> list[MetricEntry]:
    output_type = task.spec.output_type
    if task.spec.metric_list is None:
        known = _METRICS[output_type]
        return [MetricEntry(name, known[name].ours, {}, ("output_type",)) for name in DEFAULT_METRICS[output_type]]
    return [
        _entry(task, entry, ("metric_list", place), output_type) for place, entry in enumerate(task.spec.metric_list)
    ]


def _entry(task: TaskFile, entry: MetricSpec, keys: Keys, output_type: str) -> MetricEntry:
    name, arguments = entry.metric, dict(entry.model_extra or {})
    known = _METRICS[output_type]
    if not isinstance(name, str) or name not in known:
        message = f"found {describe(name)}, which is not supported for {output_type}"
        raise task.error_at((*keys, "metric"), message + expected_one_of(str(name), known))
    expected = known[name].aggregation
    aggregation = expected if entry.aggregation is None else entry.aggregation
    is_weighted = (output_type, name, aggregation) == ("multiple_choice", "f1", WEIGHTED_F1)
    if aggregation != expected and not is_weighted:
        raise task.wrong((*keys, "aggregation"), aggregation, f"{expected} for {name}")
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
    return MetricEntry(name, "f1_weighted" if is_weighted else known[name].ours, arguments, keys)


def _pairs(task: TaskFile, entries: Sequence[MetricEntry]) -> tuple[MetricPair, ...]:
    return tuple(
        MetricPair(entry.name, pipeline.name, entry.ours)
        for pipeline in read_pipelines(task, needs_first=True)
        for entry in entries
    )


def _choice(task: TaskFile, entries: Sequence[MetricEntry]) -> Scoring:
    """Return the scoring of a choice. ``accuracy`` is the first of the task's accuracies."""
    names = [entry.name for entry in entries]
    normalize = {name: known.setting for name, known in _METRICS["multiple_choice"].items() if known.setting}
    first = next((name for name in names if name in normalize), "acc")
    settings: dict[str, Any] = {"normalize": normalize[first], "ties": "first"}
    if "brier_score" in names and settings["normalize"] != "sum":
        message = f"brier_score uses the same probabilities as acc; write the metric acc before {first}"
        raise task.error_at(entries[names.index("brier_score")].keys, message)
    further = [entry.ours for entry in entries if entry.name in ("f1", "mcc", "exact_match")]
    if "acc_mutual_info" in names and settings["normalize"] != "pmi":
        further.append("accuracy_pmi")
    if further:
        settings["metrics"] = further
    return Scoring({"choice": settings}, [], None, _pairs(task, entries))


def _replies(task: TaskFile, entries: Sequence[MetricEntry]) -> Scoring:
    repeats = task.spec.repeats
    pipelines = read_pipelines(task)
    needs_epochs = any(pipeline.reduce != "first" for pipeline in pipelines)
    parts: dict[str, Any] = {}
    pairs: list[MetricPair] = []
    for pipeline in pipelines:
        for entry in entries:
            part: dict[str, Any] = {"filters": list(pipeline.filters)} if pipeline.filters else {}
            scorer = _METRICS["generate_until"][entry.name].setting
            part["score"] = scorer or {"exact": _match_settings(task, entry.arguments, entry.keys)}
            if needs_epochs:
                part["reduce"] = pipeline.reduce
            name = _part_name(pipeline, entry.name, len(pipelines), len(entries))
            while name in parts:
                name += "_"
            prefix = f"{name}." if parts else ""
            parts[name] = part
            pairs.append(MetricPair(entry.name, pipeline.name, prefix + entry.ours))
    epochs = {"count": repeats, "reduce": pipelines[0].reduce} if needs_epochs else None
    if len(parts) > 1:
        return Scoring({"several": {"scorers": parts}}, [], epochs, tuple(pairs))
    (part,) = parts.values()
    return Scoring(part["score"], part.get("filters", []), epochs, tuple(pairs))


def _part_name(pipeline: FilterSteps, metric: str, num_pipelines: int, num_metrics: int) -> str:
    own = _PART_NAME.sub("_", pipeline.name).strip("_")
    safe = metric.replace("+", "p")
    name = own if num_metrics == 1 else safe if num_pipelines == 1 else f"{own}-{safe}"
    return name if name[:1].isalpha() else f"pipeline_{name}"


def _match_settings(task: TaskFile, arguments: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    """Return the settings of ``exact``. lm-eval leaves out what matches, then sets in lower case, then takes off ASCII
    punctuation, then digits.
    """
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
        value = arguments.get(key, False)
        if not isinstance(value, bool):
            raise task.wrong((*keys, key), value, "true or false")
        if value:
            steps.append(name)
    return {"normalize": steps, "allow_empty": True} if steps else {"normalize": steps}
