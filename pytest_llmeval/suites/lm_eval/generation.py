"""``generation_kwargs`` of a task as ``generate`` of a suite."""

from __future__ import annotations

from typing import Any

from pytest_llmeval.suites.lm_eval.task_yaml import TaskFile
from pytest_llmeval.text.wording import Keys

__all__ = ["generation"]

_AT: Keys = ("generation_kwargs",)
_MAX_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""In the order in which lm-eval looks for them."""
_KNOWN = ("until", "do_sample", "temperature", "top_p", "num_beams", *_MAX_TOKENS)
_DEFAULT_MAX_TOKENS = 256


def generation(task: TaskFile, fewshot_delimiter: str) -> dict[str, tuple[Any, Keys]]:
    """The settings of ``generate``, each with its keys in the task file. Raises ``SuiteError``.

    As lm-eval's ``normalize_gen_kwargs`` has it: ``do_sample: false`` is greedy whatever the temperature is.
    """
    given = task.value.get("generation_kwargs")
    if given is None:
        given = {"until": [fewshot_delimiter]}
    for key in task.checked(_AT, given, dict, "a mapping"):
        if key not in _KNOWN:
            raise task.unknown_key((*_AT, key), _KNOWN)
    beams = given.get("num_beams", 1)
    if beams != 1:
        raise task.wrong((*_AT, "num_beams"), beams, "1; replies are written token by token")
    settings: dict[str, tuple[Any, Keys]] = {}
    max_key = next((key for key in _MAX_TOKENS if given.get(key) is not None), None)
    settings["max_tokens"] = (given[max_key] if max_key else _DEFAULT_MAX_TOKENS, (*_AT, max_key) if max_key else _AT)
    settings["stop"] = (_stops(task, given, fewshot_delimiter), (*_AT, "until"))
    temperature = _temperature(task, given)
    settings["temperature"] = (temperature, (*_AT, "temperature"))
    if temperature > 0:
        if given.get("top_p") is not None:
            settings["top_p"] = (given["top_p"], (*_AT, "top_p"))
    elif given.get("top_p", 1) != 1:
        message = "greedy decoding takes the likeliest token; set do_sample: true"
        raise task.error_at((*_AT, "top_p"), message)
    return settings


def _stops(task: TaskFile, given: dict[str, Any], fewshot_delimiter: str) -> list[str]:
    until = given.get("until", [fewshot_delimiter])
    stops = [until] if isinstance(until, str) else until
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise task.wrong((*_AT, "until"), until, "a text or a list of texts")
    return list(stops)


def _temperature(task: TaskFile, given: dict[str, Any]) -> float:
    sample, value = given.get("do_sample"), given.get("temperature", 0.0)
    if sample is not None:
        task.checked((*_AT, "do_sample"), sample, bool, "true or false")
    try:
        temperature = float(value)
    except (TypeError, ValueError):
        raise task.wrong((*_AT, "temperature"), value, "a number") from None
    if sample is False:
        return 0.0
    if sample is True and not temperature > 0:
        raise task.error_at((*_AT, "do_sample"), "found true, which needs a temperature above 0")
    return temperature
