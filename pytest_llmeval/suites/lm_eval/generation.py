"""``generation_kwargs`` of a task as ``generate`` of a suite."""

from __future__ import annotations

from typing import Any

from pytest_llmeval.suites.lm_eval.task_spec import GenerationKwargs
from pytest_llmeval.suites.lm_eval.task_yaml import TaskFile
from pytest_llmeval.text.wording import Keys

__all__ = ["generation"]

_AT: Keys = ("generation_kwargs",)
_MAX_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""In the order in which lm-eval looks for them."""
_DEFAULT_MAX_TOKENS = 256


def generation(task: TaskFile, fewshot_delimiter: str) -> dict[str, tuple[Any, Keys]]:
    """The settings of ``generate``, each with its keys in the task file. Raises ``SuiteError``.

    As lm-eval's ``normalize_gen_kwargs`` has it: ``do_sample: false`` is greedy whatever the temperature is.
    """
    given = task.spec.generation_kwargs or GenerationKwargs()
    if given.do_sample and not given.temperature > 0:
        raise task.error_at((*_AT, "do_sample"), "found true, which needs a temperature above 0")
    temperature = 0.0 if given.do_sample is False else given.temperature
    max_key = next((key for key in _MAX_TOKENS if getattr(given, key) is not None), None)
    max_tokens = (getattr(given, max_key), (*_AT, max_key)) if max_key else (_DEFAULT_MAX_TOKENS, _AT)
    stops = [fewshot_delimiter] if given.until is None else [*given.until]
    settings: dict[str, tuple[Any, Keys]] = {
        "max_tokens": max_tokens,
        "stop": (stops, (*_AT, "until")),
        "temperature": (temperature, (*_AT, "temperature")),
    }
    if temperature > 0 and given.top_p is not None:
        settings["top_p"] = (given.top_p, (*_AT, "top_p"))
    elif temperature <= 0 and given.top_p not in (None, 1):
        message = "greedy decoding takes the likeliest token; set do_sample: true"
        raise task.error_at((*_AT, "top_p"), message)
    return settings
