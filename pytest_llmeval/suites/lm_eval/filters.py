"""``filter_list`` of a task: each pipeline as filters of a suite, and which of several replies it looks at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from pytest_llmeval.suites.lm_eval.task_file import PipelineSpec, StepSpec, TaskFile
from pytest_llmeval.text.wording import Keys, dotted, expected_one_of, quoted

__all__ = ["FilterSteps", "looks_at_choices", "read_pipelines"]

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
    """``filters`` are a suite's; ``reduce`` says how the replies to repeated questions become one score."""

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
