"""``filter_list`` of a task: each pipeline as filters of a suite, and which of several replies it looks at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_llmeval.suites.lm_eval.task_yaml import TaskFile
from pytest_llmeval.text.wording import Keys, dotted, expected_one_of, quoted

__all__ = ["Pipeline", "above_zero", "looks_at_choices", "read_pipelines"]

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
class Pipeline:
    """``filters`` are a suite's; ``reduce`` says how the replies to repeated questions become one score."""

    name: str
    filters: tuple[Any, ...]
    reduce: str


def read_pipelines(task: TaskFile, *, repeats: int = 1, needs_first: bool = False) -> tuple[Pipeline, ...]:
    """The task's pipelines; without a ``filter_list`` the one called ``none``, which takes the first reply.

    ``needs_first``: nothing but that makes sense, since what is filtered is no text. Raises ``SuiteError``.
    """
    given = task.value.get("filter_list")
    if given is None:
        return (Pipeline("none", (), "first"),)
    if not isinstance(given, list) or not given:
        raise task.wrong(("filter_list",), given, "a list of pipelines")
    pipelines = [_pipeline(task, entry, ("filter_list", place), repeats) for place, entry in enumerate(given)]
    for place, pipeline in enumerate(pipelines):
        if needs_first and (pipeline.filters or pipeline.reduce != "first"):
            message = "this output_type has no reply that could be filtered; expected take_first"
            raise task.error_at(("filter_list", place), message)
        if pipeline.name in [other.name for other in pipelines[:place]]:
            message = f"found {quoted(pipeline.name)} twice, expected each name once"
            raise task.error_at(("filter_list", place, "name"), message)
    return tuple(pipelines)


def looks_at_choices(task: TaskFile) -> bool:
    """Whether a filter of the task looks for a choice in the reply. For a task whose pipelines were read."""
    steps = [step for pipeline in task.value.get("filter_list") or () for step in pipeline["filter"]]
    return any(step["function"] == "multi_choice_regex" for step in steps)


def _pipeline(task: TaskFile, entry: Any, keys: Keys, repeats: int) -> Pipeline:
    for key in task.checked(keys, entry, dict, "a mapping with name and filter"):
        if key not in ("name", "filter"):
            raise task.unknown_key((*keys, key), ("name", "filter"))
    name, steps = entry.get("name"), entry.get("filter")
    if not isinstance(name, str) or not isinstance(steps, list):
        raise task.error_at(keys, "expected the keys name (a text) and filter (a list)")
    filters: list[Any] = []
    limit: int | None = None
    reduce = ""
    for place, step in enumerate(steps):
        at: Keys = (*keys, "filter", place)
        function, arguments = _step(task, step, at)
        match function:
            case "take_first":
                reduce = reduce or "first"
            case "take_first_k":
                if filters or reduce:
                    raise task.error_at(at, "expected take_first_k before all other filters")
                limit = above_zero(task, arguments.get("k"), (*at, "k"))
                if limit > repeats:
                    raise task.error_at((*at, "k"), f"needs {limit} replies, found repeats: {repeats}")
            case "majority_vote":
                if reduce:
                    raise task.error_at(at, "one reply is left, expected a vote before that")
                reduce = "mode" if limit is None or limit == repeats else f"mode@{limit}"
            case _:
                if reduce and reduce != "first":
                    raise task.error_at(at, "expected a filter of replies before they are voted on")
                filters += _filter(task, function, arguments, at)
    if not reduce:
        raise task.error(f"{dotted(keys)}.filter: expected take_first at the end, which takes one of the replies", keys)
    return Pipeline(name, tuple(filters), reduce)


def _step(task: TaskFile, step: Any, keys: Keys) -> tuple[str, dict[str, Any]]:
    function = step.get("function") if isinstance(step, dict) else None
    if not isinstance(function, str):
        raise task.wrong(keys, step, "a mapping with the key function")
    if function not in _ARGUMENTS:
        message = f"there is no filter {quoted(function)} here{expected_one_of(function, _ARGUMENTS)}"
        raise task.error_at((*keys, "function"), message)
    arguments = {key: value for key, value in step.items() if key != "function"}
    for key in arguments:
        if key not in _ARGUMENTS[function]:
            message = f"unknown argument {quoted(str(key))} of {function} in {dotted(keys)}"
            raise task.error(message + expected_one_of(str(key), _ARGUMENTS[function]), (*keys, key))
    return function, arguments


def _filter(task: TaskFile, function: str, arguments: Mapping[str, Any], keys: Keys) -> list[Any]:
    if function in _PLAIN:
        return [_PLAIN[function]]
    if function == "map":
        return [_map(task, arguments, keys)]
    settings: dict[str, Any] = {"pattern": arguments.get("regex_pattern", r"#### (\-?[0-9\.\,]+)")}
    task.checked((*keys, "regex_pattern"), settings["pattern"], str, "text")
    select = task.checked((*keys, "group_select"), arguments.get("group_select", 0), int, "a whole number")
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


def above_zero(task: TaskFile, value: Any, keys: Keys) -> int:
    """The value, a whole number above 0. Raises ``SuiteError``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise task.wrong(keys, value, "a whole number above 0")
    return value
